"""Tools for testing applications: a bus in memory, a clock that tests move, access to sent and remaining messages, and
workers that run on the bus.

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
    from sbredis.testing._handle import HandleOptions, HandlerResult, handle, handle_sync
    from sbredis.testing._records import Handled, SentMessage
    from sbredis.testing._sync_bus import SyncBus, SyncWorkerRun
    from sbredis.testing._worker_run import WorkerRun

__all__ = [
    "Bus",
    "HandleOptions",
    "Handled",
    "HandlerResult",
    "SentMessage",
    "SyncBus",
    "SyncWorkerRun",
    "TestClock",
    "WorkerRun",
    "handle",
    "handle_sync",
]

pytest_plugins = ["sbredis.testing._fixtures"]

_LAZY = {
    "Bus": "sbredis.testing._bus",
    "HandleOptions": "sbredis.testing._handle",
    "Handled": "sbredis.testing._records",
    "HandlerResult": "sbredis.testing._handle",
    "SentMessage": "sbredis.testing._records",
    "SyncBus": "sbredis.testing._sync_bus",
    "SyncWorkerRun": "sbredis.testing._sync_bus",
    "TestClock": "sbredis.testing._clock",
    "WorkerRun": "sbredis.testing._worker_run",
    "handle": "sbredis.testing._handle",
    "handle_sync": "sbredis.testing._handle",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, because pytest imports this package in every run."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
