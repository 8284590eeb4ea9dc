"""streaQ. Results are not stored (``ttl=0``) and tasks are not logged (``silent``), as it recommends for speed."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from benchmarks.peers.trial import AT_ONCE, Handled, Peer


class Streaq:
    """A task of streaQ; one ``Worker`` sends, and the other one handles."""

    def __init__(self, url: str) -> None:
        worker: Any = importlib.import_module("streaq").Worker
        self._worker = worker(redis_url=url, concurrency=AT_ONCE, handle_signals=False)
        self._sender = worker(redis_url=url, handle_signals=False)
        self._task: Any = None
        self._stack = AsyncExitStack()

    async def open(self, handled: Handled) -> None:
        """Register the task, and connect."""

        async def handle(body: str) -> None:  # noqa: ARG001 -- the body is what is measured
            handled()

        self._worker.task(handle, name="handle", ttl=0, silent=True)
        self._task = self._sender.task(handle, name="handle", ttl=0, silent=True)
        await self._stack.enter_async_context(self._sender)

    async def send(self, body: str) -> None:
        """Enqueue one task."""
        await self._task.enqueue(body)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Run the worker."""
        running = asyncio.create_task(self._worker.run_async())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait({running}, timeout=5)

    async def left(self) -> int:
        """Return the number of tasks that wait or run."""
        return int(await self._sender.queue_size()) + int(self._worker.running())

    async def close(self) -> None:
        """Close the connections."""
        await self._stack.aclose()


def make(url: str) -> Peer:
    """Return the framework for a server."""
    return Streaq(url)
