"""The entry point that pytest loads in every run if sbredis is installed: it only says where the fixtures are.

pytest refuses a plugin that is registered under two names. A module with the fixtures could be registered by this entry
point, and again by ``pytest_plugins = ["sbredis.testing"]``. So the fixtures are in a module of their own.

PYTEST_DONT_REWRITE: this module has no assertions of tests.
"""

from __future__ import annotations

__all__ = ["pytest_plugins"]

pytest_plugins = ["sbredis.testing._fixtures"]
