"""Tools for testing applications: a bus in memory, a clock that tests move, access to sent and remaining messages, and
workers that run on the bus.

If sbredis is installed, pytest finds the fixtures ``sbredis_bus`` and ``sbredis_sync_bus`` by itself. If pytest does
not load plugins automatically, use ``pytest_plugins = ["sbredis.testing"]``. Without pytest: ``async with Bus() as
bus``.

PYTEST_DONT_REWRITE: this module has no assertions of tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily

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

if not TYPE_CHECKING:  # pytest imports this package in every run
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_bus": ("Bus",),
            "_clock": ("TestClock",),
            "_handle": ("HandleOptions", "HandlerResult", "handle", "handle_sync"),
            "_records": ("Handled", "SentMessage"),
            "_sync_bus": ("SyncBus", "SyncWorkerRun"),
            "_worker_run": ("WorkerRun",),
        },
    )
