"""FastStream with Redis: a stream with a consumer group, because only streams have acknowledgements.

``max_workers`` is the number of handlers at once. The stream is read 100 messages at a time.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.trial import AT_ONCE, Handled, Peer

NAME = "bench"


class FastStream:
    """A broker with one subscriber."""

    def __init__(self, url: str) -> None:
        self._module: Any = importlib.import_module("faststream.redis")
        self._broker: Any = self._module.RedisBroker(url, logger=None)
        self._publishing: Any = self._module.RedisBroker(url, logger=None)
        self._client: Any = importlib.import_module("redis.asyncio").Redis.from_url(url)

    async def open(self, handled: Handled) -> None:
        """Declare the subscriber, connect, and make the group so that it gets the messages sent before it starts."""

        async def handle(body: str) -> None:  # noqa: ARG001 -- the body is what is measured
            handled()

        stream = self._module.StreamSub(NAME, group="workers", consumer="worker", max_records=AT_ONCE)
        self._broker.subscriber(stream=stream, max_workers=AT_ONCE)(handle)
        await self._client.xgroup_create(NAME, "workers", "0", mkstream=True)
        await self._publishing.connect()

    async def send(self, body: str) -> None:
        """Publish one message."""
        await self._publishing.publish(body, stream=NAME)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Run the subscriber."""
        await self._broker.start()
        try:
            yield
        finally:
            await self._broker.stop()

    async def left(self) -> int:
        """Return the number of messages that are not acknowledged."""
        return int((await self._client.xpending(NAME, "workers"))["pending"])

    async def close(self) -> None:
        """Close the connections."""
        await self._publishing.stop()
        await self._client.aclose()


def make(url: str) -> Peer:
    """Return the framework for a server."""
    return FastStream(url)
