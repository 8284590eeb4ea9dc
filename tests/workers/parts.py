"""Running a worker with other parts than its own: another time, or less of it for handlers that were cancelled."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from sbredis.workers import Worker
from sbredis.workers._worker import begun, setup_of
from sbredis.workers.running._runtime import Parts, Runtime

__all__ = ["Parts", "Runtime", "begun_with"]


def begun_with(worker: Worker, parts: Parts) -> AbstractAsyncContextManager[Runtime]:
    """Run a worker with these parts while the block runs."""
    return begun(worker, setup_of(worker), parts)
