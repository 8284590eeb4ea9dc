"""sbredis: its client sends, and its worker handles. All options have their defaults, except the concurrency."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from benchmarks.peers.trial import AT_ONCE, Handled, Peer
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers import Worker

QUEUE = "bench"


class Sbredis:
    """A queue of sbredis and its worker."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = ServiceBusClient(url)
        self._administration = ServiceBusAdministrationClient(url)
        self._sender = self._client.get_queue_sender(QUEUE)
        self._worker = Worker(url)

    async def open(self, handled: Handled) -> None:
        """Create the queue, and declare the handler."""
        await self._administration.ensure_queue(QUEUE)

        @self._worker.queue(QUEUE, max_concurrent_calls=AT_ONCE)
        async def handle(message: ServiceBusReceivedMessage) -> None:  # noqa: ARG001 -- it is what is measured
            handled()

    async def send(self, body: str) -> None:
        """Send one message."""
        await self._sender.send_messages(ServiceBusMessage(body))

    async def send_all(self, messages: list[ServiceBusMessage]) -> None:
        """Send a list of messages."""
        await self._sender.send_messages(messages)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Run the worker."""
        async with self._worker.running():
            yield

    async def left(self) -> int:
        """Return the number of messages in the queue."""
        return (await self._administration.get_queue_runtime_properties(QUEUE)).total_message_count

    async def close(self) -> None:
        """Close the clients."""
        await self._client.close()
        await self._administration.close()


def make(url: str) -> Peer:
    """Return the framework for a server."""
    return Sbredis(url)
