"""Tools for testing applications: a bus in memory, a clock that tests move, and access to sent and remaining messages.

If sbredis is installed, pytest finds the fixtures ``sbredis_bus`` and ``sbredis_sync_bus`` by itself. If pytest does
not load plugins automatically, use ``pytest_plugins = ["sbredis.testing"]``. Without pytest: ``async with Bus() as
bus``.

PYTEST_DONT_REWRITE: this module has no assertions of tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbredis.testing._bus import Bus
    from sbredis.testing._clock import TestClock
    from sbredis.testing._sync_bus import SyncBus

__all__ = ["Bus", "SyncBus", "TestClock"]

pytest_plugins = ["sbredis.testing._fixtures"]

_LAZY = {
    "Bus": "sbredis.testing._bus",
    "SyncBus": "sbredis.testing._sync_bus",
    "TestClock": "sbredis.testing._clock",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, because pytest imports this package in every run."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
