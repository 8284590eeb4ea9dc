"""saq with Redis and hiredis, with its defaults, except the concurrency. It keeps results for ten minutes."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.trial import AT_ONCE, Handled, Peer


class Saq:
    """A queue of saq and its worker."""

    def __init__(self, url: str) -> None:
        self._module: Any = importlib.import_module("saq")
        importlib.import_module("saq.queue.redis")
        client: Any = importlib.import_module("redis.asyncio").Redis
        # The default of 100 connections is one too few for 100 sends at once.
        self._queue = self._module.queue.redis.RedisQueue(client.from_url(url, max_connections=3 * AT_ONCE))

    async def open(self, handled: Handled) -> None:
        """Connect."""
        self._handled = handled
        await self._queue.connect()

    async def send(self, body: str) -> None:
        """Enqueue one job."""
        await self._queue.enqueue("handle", body=body)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Run a worker."""
        handled = self._handled

        async def handle(context: Any, *, body: str) -> None:  # noqa: ARG001 -- saq passes both
            handled()

        worker = self._module.Worker(self._queue, functions=[("handle", handle)], concurrency=AT_ONCE)
        running = asyncio.create_task(worker.start())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait({running}, timeout=5)

    async def left(self) -> int:
        """Return the number of jobs that wait or are active."""
        return int(await self._queue.count("queued")) + int(await self._queue.count("active"))

    async def close(self) -> None:
        """Close the connections."""
        await self._queue.disconnect()


def make(url: str) -> Peer:
    """Return the framework for a server."""
    return Saq(url)
