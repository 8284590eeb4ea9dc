"""NATS JetStream through nats-py: a stream in files, and a push consumer with explicit acknowledgements.

The server has its default settings. A callback of nats-py gets one message after the other, so it starts a task for
each one, at most 100 at once. This is how the library's users handle messages concurrently. An acknowledgement does
not wait for an answer, which is the default.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.trial import AT_ONCE, Handled, Peer

NAME = "bench"


class Nats:
    """A stream, and a worker that handles its messages."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        self._context: Any = None
        self._subscription: Any = None

    async def open(self, handled: Handled) -> None:
        """Connect, and add the stream. It keeps each message until it is acknowledged."""
        self._handled = handled
        self._client = await importlib.import_module("nats").connect(self._url)
        self._context = self._client.jetstream()
        await self._context.add_stream(name=NAME, subjects=[NAME], storage="file", retention="workqueue")

    async def send(self, body: str) -> None:
        """Publish one message, and wait until it is stored."""
        await self._context.publish(NAME, body.encode())

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Handle each message in a task."""
        slots = asyncio.Semaphore(AT_ONCE)
        tasks: set[asyncio.Task[None]] = set()
        handled = self._handled

        async def handle(message: Any) -> None:
            handled()
            await message.ack()

        def ended(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            slots.release()

        async def start(message: Any) -> None:
            await slots.acquire()
            task = asyncio.create_task(handle(message))
            tasks.add(task)
            task.add_done_callback(ended)

        self._subscription = await self._context.subscribe(NAME, durable="worker", cb=start, manual_ack=True)
        try:
            yield
        finally:
            await self._subscription.unsubscribe()

    async def left(self) -> int:
        """Return the number of messages that are in the stream."""
        state = (await self._context.stream_info(NAME)).state
        return int(state.messages)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


def make(url: str) -> Peer:
    """Return the framework for a server."""
    return Nats(url)
