"""docket (the package pydocket) with its defaults, except the concurrency and the time for which it keeps results.

A task that has ended leaves nothing behind (``execution_ttl=0``), which is the fast way.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

from benchmarks.peers.trial import AT_ONCE, Handled, Peer


class Docket:
    """A docket, its task and its worker."""

    def __init__(self, url: str) -> None:
        self._module: Any = importlib.import_module("docket")
        self._docket: Any = self._module.Docket("bench", url, execution_ttl=timedelta(0))
        self._client: Any = importlib.import_module("redis.asyncio").Redis.from_url(url)
        self._stack = AsyncExitStack()
        self._task: Any = None

    async def open(self, handled: Handled) -> None:
        """Register the task, and connect."""

        async def handle(body: str) -> None:  # noqa: ARG001 -- the body is what is measured
            handled()

        self._task = handle
        await self._stack.enter_async_context(self._docket)
        self._docket.register(handle)

    async def send(self, body: str) -> None:
        """Add one task."""
        await self._docket.add(self._task)(body)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Run a worker."""
        async with self._module.Worker(self._docket, concurrency=AT_ONCE) as worker:
            running = asyncio.create_task(worker.run_forever())
            try:
                yield
            finally:
                running.cancel()
                await asyncio.wait({running}, timeout=5)

    async def left(self) -> int:
        """Return the number of tasks in the stream. A task leaves the stream when it is acknowledged."""
        return int(await self._client.xlen(self._docket.stream_key))

    async def close(self) -> None:
        """Close the connections."""
        await self._stack.aclose()
        await self._client.aclose()


def make(url: str) -> Peer:
    """Return the framework for a server."""
    return Docket(url)
