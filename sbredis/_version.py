"""The version of sbredis. It is defined only here, and the build reads it from here."""

__version__ = "0.1.0"
