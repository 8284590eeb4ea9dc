"""For tests of what uses sbredis: a bus in memory, a clock to move, and a look at what was sent and what is left.

pytest finds the fixtures ``sbredis_bus`` and ``sbredis_sync_bus`` by itself where sbredis is installed, and by
``pytest_plugins = ["sbredis.testing"]`` where it was told not to look. Without pytest: ``async with Bus() as bus``.

PYTEST_DONT_REWRITE: there is no assertion of a test in here.
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
    """What is public here, imported when it is first asked for: pytest imports this package in every run."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
