"""The clients that a bus makes, and the entities and messages that the helpers of the bus see through one of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from sbredis._tasks import running_loop
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client import BusHooks, Connection, connection_of, deadline_of
from sbredis.engine import MAXIMUM_CALL_MESSAGES, Awoken, CallId, Partition, Request, SidePrefix
from sbredis.exceptions import MessagingEntityDisabledError, ServiceBusError
from sbredis.maintenance import DutyResources, Mover, TopicPublisher
from sbredis.model import ServiceBusMessageState, ServiceBusReceivedMessage
from sbredis.receiving import Peeking
from sbredis.registry import path_of, split_path

if TYPE_CHECKING:
    from sbredis.client import Entity

__all__ = ["BusClients", "BusContents", "require_open"]

_CLOSING = 5.0


def require_open(*, closed: bool) -> None:
    """Raise if a bus is closed."""
    if closed:
        raise ValueError("The bus is closed: make another bus for each test.")


class BusClients:
    """The clients that a bus has made. It closes each of them in the event loop in which the client was used."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.closed = False
        """Whether the bus is closed."""
        self._made: list[ServiceBusClient | ServiceBusAdministrationClient] = []
        self._client: ServiceBusClient | None = None
        self._administration: ServiceBusAdministrationClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the administration client."""

    def client(self) -> ServiceBusClient:
        """Return the client for the code under test. If that code has closed it, return another one."""
        require_open(closed=self.closed)
        client = self._client
        if client is None or connection_of(client).closed:
            client = self._client = ServiceBusClient(self.url)
            self._made.append(client)
        return client

    def administration(self) -> ServiceBusAdministrationClient:
        """Return the client that the helpers use in the running loop. The code under test cannot close it."""
        require_open(closed=self.closed)
        own, loop = self._administration, asyncio.get_running_loop()
        if own is None or self._loop is not loop or connection_of(own).closed:
            own, self._loop = ServiceBusAdministrationClient(self.url), loop
            self._administration = own
            self._made.append(own)
        return own

    def connection(self) -> Connection:
        """Return the connection of the administration client."""
        return connection_of(self.administration())

    async def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the clients of an event loop."""
        self.closed = True
        try:
            async with asyncio.timeout(_CLOSING):
                for client in self._made:
                    if connection_of(client).loop is loop:
                        await client.close()
        except TimeoutError:
            return  # a client that does not close in time must not keep the test from ending

    def discard(self) -> None:
        """Close all clients from outside their event loops. The clients of a loop that has ended need no closing."""
        self.closed = True
        for loop in {connection_of(client).loop for client in self._made}:
            if loop is None or loop.is_closed() or loop.is_running() or running_loop() is not None:
                continue  # the clients of this loop end with the loop
            loop.run_until_complete(self.close(loop))


class BusContents:
    """The entities and messages of a bus. Everything that is due is done before messages are returned."""

    def __init__(self, clients: BusClients, hooks: BusHooks) -> None:
        self._clients = clients
        self._hooks = hooks
        self._mover: Mover | None = None

    def administration(self) -> ServiceBusAdministrationClient:
        """Return the client that the helpers use in the running loop."""
        return self._clients.administration()

    async def entity(self, name: str, subscription: str | None = None) -> Entity:
        """Return an entity."""
        path = name if subscription is None else path_of(name, subscription)
        return await self._clients.connection().entity(path, deadline_of(None))

    async def queue_or_subscription(self, name: str, subscription: str | None) -> Entity:
        """Return a queue or a subscription. Refuse a topic, because it keeps no messages."""
        entity = await self.entity(name, subscription)
        if entity.record.kind == "topic":
            raise ValueError(f"{entity.name!r} is a topic, which keeps no messages: name a subscription as well.")
        return entity

    async def messages_in(
        self, name: str, subscription: str | None, side: SidePrefix = ""
    ) -> list[ServiceBusReceivedMessage]:
        """Return all messages of one side of a queue or a subscription."""
        return await self.peek_all(await self.queue_or_subscription(name, subscription), side)

    async def scheduled(self, name: str) -> list[ServiceBusReceivedMessage]:
        """Return the scheduled messages of a queue or a topic whose time has not come yet."""
        entity = await self.entity(name)
        if entity.record.kind == "subscription":
            raise ValueError(f"No message is scheduled in {entity.name!r}: scheduled messages wait on the topic.")
        return [each for each in await self.peek_all(entity) if each.state is ServiceBusMessageState.SCHEDULED]

    async def peek_all(self, entity: Entity, side: SidePrefix = "") -> list[ServiceBusReceivedMessage]:
        """Return all messages of one side of an entity."""
        await self.catch_up(entity)
        peeking, found = Peeking(entity, side), list[ServiceBusReceivedMessage]()
        while page := await peeking.peek(MAXIMUM_CALL_MESSAGES, 0, deadline_of(None)):
            found += page
        return found

    async def catch_up(self, entity: Entity) -> None:
        """Do everything that is due, because a peek only shows it, and move messages that are forwarded."""

        def make(partition: Partition, call_id: CallId) -> Request[Awoken]:
            return partition.due(CallId("", 0, call_id.now))

        topic = await self.entity(split_path(entity.name)[0]) if entity.record.kind != "queue" else None
        for number in entity.numbers:
            if topic is not None:
                with suppress(MessagingEntityDisabledError):  # a disabled topic does not publish its scheduled messages
                    await TopicPublisher(topic, number).publish_due(None)
            while (await entity.partition_client(number).call("u", make, deadline_of(None))).more:
                continue

        await self._move()

    async def _move(self) -> None:
        """Move all messages that wait to be forwarded, because a client of the bus may not have moved them yet."""
        connection = self._clients.connection()
        await connection.open(deadline_of(None))
        if self._mover is None or self._mover.connection is not connection:
            self._mover = Mover(DutyResources.of(connection))
        with suppress(ServiceBusError):  # messages that cannot be moved now still wait, and are shown where they are
            await self._mover.move_now(lambda: self._hooks.used_in(connection.target.namespace))
