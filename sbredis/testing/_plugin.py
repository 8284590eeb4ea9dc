"""What pytest loads in every run where sbredis is installed: no more than where the fixtures are.

They stand in a module of their own, because pytest refuses a plugin that comes under two names: by this entry point,
and by ``pytest_plugins = ["sbredis.testing"]``.

PYTEST_DONT_REWRITE: there is no assertion of a test in here.
"""

from __future__ import annotations

__all__ = ["pytest_plugins"]

pytest_plugins = ["sbredis.testing._fixtures"]
