"""BullMQ for Python. Jobs are removed when they are completed, as its documentation recommends for busy queues."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.trial import AT_ONCE, Handled, Peer

NAME = "bench"


class BullMQ:
    """A queue of BullMQ and its worker."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._module: Any = importlib.import_module("bullmq")
        self._queue: Any = None

    async def open(self, handled: Handled) -> None:
        """Make the queue."""
        self._handled = handled
        self._queue = self._module.Queue(NAME, {"connection": self._url})

    async def send(self, body: str) -> None:
        """Add one job."""
        await self._queue.add("job", {"body": body}, {"removeOnComplete": True})

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Run a worker."""
        handled = self._handled

        async def process(job: Any, token: str) -> None:  # noqa: ARG001 -- BullMQ passes both
            handled()

        worker = self._module.Worker(NAME, process, {"connection": self._url, "concurrency": AT_ONCE})
        try:
            yield
        finally:
            await worker.close(force=True)

    async def left(self) -> int:
        """Return the number of jobs that wait or are active."""
        counts = await self._queue.getJobCounts("wait", "active", "delayed", "prioritized")
        return sum(counts.values())

    async def close(self) -> None:
        """Close the connection."""
        await self._queue.close()


def make(url: str) -> Peer:
    """Return the framework for a server."""
    return BullMQ(url)
