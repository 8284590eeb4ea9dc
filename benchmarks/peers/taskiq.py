"""taskiq with taskiq-redis: the broker on streams, which is the one with acknowledgements, without stored results.

The receiver runs 100 tasks at once, which is the default. The group begins at the start of the stream, so that the
worker gets the tasks sent before it starts.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.trial import AT_ONCE, Handled, Peer

NAME = "bench"


class Taskiq:
    """A broker with one task."""

    def __init__(self, url: str) -> None:
        broker: Any = importlib.import_module("taskiq_redis").RedisStreamBroker
        self._broker = broker(url, queue_name=NAME, consumer_id="0")
        self._run: Any = importlib.import_module("taskiq.api").run_receiver_task
        self._client: Any = importlib.import_module("redis.asyncio").Redis.from_url(url)
        self._task: Any = None

    async def open(self, handled: Handled) -> None:
        """Declare the task, and connect."""

        async def handle(body: str) -> None:  # noqa: ARG001 -- the body is what is measured
            handled()

        logging.getLogger("taskiq").setLevel(logging.CRITICAL)
        self._task = self._broker.task(task_name="handle")(handle)
        await self._broker.startup()

    async def send(self, body: str) -> None:
        """Send one task."""
        await self._task.kiq(body)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Run the receiver."""
        running = asyncio.create_task(self._run(self._broker, max_async_tasks=AT_ONCE))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait({running}, timeout=5)

    async def left(self) -> int:
        """Return the number of tasks that are not acknowledged."""
        return int((await self._client.xpending(NAME, "taskiq"))["pending"])

    async def close(self) -> None:
        """Close the connections."""
        await self._broker.shutdown()
        await self._client.aclose()


def make(url: str) -> Peer:
    """Return the framework for a server."""
    return Taskiq(url)
