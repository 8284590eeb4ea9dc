# pyright: reportPrivateUsage=false
"""A bus in memory for tests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Self, final

from sbredis.aio import ServiceBusClient
from sbredis.aio._arguments import deadline_of
from sbredis.aio._peeking import Peeking
from sbredis.aio._rigs import dismantle, set_up
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import MAXIMUM_CALL_MESSAGES, Awoken, Outgoing, Partition, Request, Side, Turn, decode, name_key
from sbredis.model import (
    QueueProperties,
    QueueRuntimeProperties,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from sbredis.model._message import from_content
from sbredis.testing._clock import MovableClock, TestClock

if TYPE_CHECKING:
    from typing import Unpack

    from sbredis.aio._entity import Entity
    from sbredis.model import QueueOptions

__all__ = ["Bus"]

_CLOSING = 5.0


class _Rig:
    """What all clients find that connect to the URL of a bus."""

    def __init__(self, clock: MovableClock) -> None:
        self.clock = clock
        self.written: dict[tuple[str, str], list[bytes]] = {}

    def sent(self, namespace: str, entity: str, messages: Sequence[Outgoing]) -> None:
        self.written.setdefault((namespace, name_key(entity)), []).extend(message.payload for message in messages)


@final
class Bus:
    """A bus in memory, empty, with a clock of its own: ``async with Bus() as bus``, or the fixture ``bus``.

    Code under test takes :attr:`client`, or makes a client of its own from :attr:`url`, in this process, in any thread.
    Either way it goes by :attr:`clock`. Nothing needs to be opened: everything is when it is first used. The helpers
    look without touching anything, and from outside: what the code under test has locked stays locked.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the extra ``memory`` is not installed:
    ``pip install 'sbredis[memory]'``.
    """

    def __init__(self, *, begins: datetime | None = None) -> None:
        """``begins`` is the time that the clock begins with; now unless said."""
        self._clock = TestClock(begins)
        self._name = f"test-{secrets.token_hex(8)}"
        self._rig = _Rig(self._clock._clock)
        self._clients: list[ServiceBusClient | ServiceBusAdministrationClient] = []
        self._client: ServiceBusClient | None = None
        self._own: ServiceBusAdministrationClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        set_up(self._name, self._rig)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Bus {self.url} {'closed' if self._closed else 'open'}>"

    # -- for the code under test ---------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """A connection string, for code that makes its own clients; ``?namespace=…`` may be added to it."""
        return f"memory://{self._name}"

    @property
    def client(self) -> ServiceBusClient:
        """A client, closed with the bus. Once the code under test has closed it, it is another one."""
        self._check_open()
        client = self._client
        if client is None or client._connection.closed:
            client = self._client = ServiceBusClient(self.url)
            self._clients.append(client)
        return client

    @property
    def clock(self) -> TestClock:
        """By which all goes that clients of this bus do."""
        return self._clock

    async def create_queue(self, queue_name: str, **properties: Unpack[QueueOptions]) -> QueueProperties:
        """Create a queue, with the properties of :class:`~sbredis.management.QueueProperties`.

        Code under test may create its queues itself, by any of the ways there are.
        """
        return await self._administration().create_queue(queue_name, **properties)

    # -- what was sent -------------------------------------------------------------------------------------------------

    async def sent(self, queue_name: str) -> list[ServiceBusMessage]:
        """All messages that any client of this bus has sent to a queue, in the order in which they were taken.

        Whatever became of them since: those that were received and completed, that are scheduled, that were dropped as
        duplicates or have expired are all here, as they were when they were sent. What was refused is not. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if nothing was sent and there is no such queue.
        """
        own = self._administration()._connection
        written = self._rig.written.get((own.target.namespace, name_key(queue_name)))
        if written is None:
            await own.record(queue_name, deadline_of(None))
        return [from_content(decode(payload)) for payload in written or ()]

    # -- what is there -------------------------------------------------------------------------------------------------

    async def messages(self, queue_name: str) -> list[ServiceBusReceivedMessage]:
        """All that is in a queue now, whatever its state, but not on its dead-letter queue: as if peeked.

        What is due is done first: what has expired is gone, what was scheduled for a time that has come is active.
        """
        return await self._shown(queue_name)

    async def active(self, queue_name: str) -> list[ServiceBusReceivedMessage]:
        """Messages of a queue that are still to be handled: neither scheduled nor deferred.

        Among them are those that are :meth:`locked`, and those that were abandoned with a delay.
        """
        return [each for each in await self._shown(queue_name) if each.state is ServiceBusMessageState.ACTIVE]

    async def locked(self, queue_name: str) -> list[ServiceBusReceivedMessage]:
        """Messages of a queue that somebody has received and not settled yet."""
        return [each for each in await self._shown(queue_name) if each._delivery.state == "l"]

    async def scheduled(self, queue_name: str) -> list[ServiceBusReceivedMessage]:
        """Messages of a queue whose time has not come yet."""
        return [each for each in await self._shown(queue_name) if each.state is ServiceBusMessageState.SCHEDULED]

    async def deferred(self, queue_name: str) -> list[ServiceBusReceivedMessage]:
        """Messages of a queue that were deferred."""
        return [each for each in await self._shown(queue_name) if each.state is ServiceBusMessageState.DEFERRED]

    async def dead_lettered(self, queue_name: str) -> list[ServiceBusReceivedMessage]:
        """All that is on the dead-letter queue of a queue; ``dead_letter_reason`` of a message says why it is there."""
        return await self._shown(queue_name, "d")

    async def counts(self, queue_name: str) -> QueueRuntimeProperties:
        """How many messages are in a queue, by where they are; counted after what is due was done."""
        own = self._administration()
        await self._catch_up(await own._connection.entity(queue_name, deadline_of(None)))
        return await own.get_queue_runtime_properties(queue_name)

    async def purge(self, queue_name: str) -> int:
        """Delete what is in a queue and on its dead-letter queue, and return how many messages it were.

        What is locked stays. :meth:`sent` does not forget.
        """
        scheduled = [each.sequence_number for each in await self.scheduled(queue_name)]
        async with ServiceBusClient(self.url) as client:
            if scheduled:
                async with client.get_queue_sender(queue_name) as sender:
                    await sender.cancel_scheduled_messages(scheduled)
            gone = len(scheduled)
            for side in (None, ServiceBusSubQueue.DEAD_LETTER):
                async with client.get_queue_receiver(queue_name, sub_queue=side) as receiver:
                    gone += await receiver.purge_messages()
        return gone

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the clients that this bus has made, and forget all that was in it."""
        if not self._closed:
            self._closed = True
            await self._close_clients(asyncio.get_running_loop())
        dismantle(self._name)

    def discard(self) -> None:
        """The same from outside the event loop in which the bus was used, whether or not that still exists."""
        loops = {_loop_of(client) for client in self._clients}
        self._closed = True
        for loop in loops:
            if loop is None or loop.is_closed() or loop.is_running() or _in_loop():
                continue  # it has ended and its tasks with it, or it will
            loop.run_until_complete(self._close_clients(loop))
        dismantle(self._name)

    async def _close_clients(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            async with asyncio.timeout(_CLOSING):
                for client in self._clients:
                    if _loop_of(client) is loop:
                        await client.close()
        except TimeoutError:
            return  # a test ends all the same

    # ------------------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("The bus is closed: a test takes a bus of its own.")

    def _administration(self) -> ServiceBusAdministrationClient:
        """What the helpers go through: a client that the code under test cannot close, in the loop that runs now."""
        self._check_open()
        own, loop = self._own, asyncio.get_running_loop()
        if own is None or self._loop is not loop or own._connection.closed:
            own, self._loop = ServiceBusAdministrationClient(self.url), loop
            self._own = own
            self._clients.append(own)
        return own

    async def _shown(self, queue_name: str, side: Side = "") -> list[ServiceBusReceivedMessage]:
        entity = await self._administration()._connection.entity(queue_name, deadline_of(None))
        await self._catch_up(entity)
        peeking, found = Peeking(entity, side), list[ServiceBusReceivedMessage]()
        while page := await peeking.peek(MAXIMUM_CALL_MESSAGES, 0, deadline_of(None)):
            found += page
        return found

    async def _catch_up(self, entity: Entity) -> None:
        """Do what is due, which those who look do not do by themselves."""

        def make(partition: Partition, turn: Turn) -> Request[Awoken]:
            return partition.due(Turn("", 0, turn.now))

        for number in entity.numbers:
            while (await entity.desk(number).call("u", make, deadline_of(None))).more:
                continue


def _loop_of(client: ServiceBusClient | ServiceBusAdministrationClient) -> asyncio.AbstractEventLoop | None:
    """Where a client lives; nowhere, if it was never used."""
    root = client._connection._root
    return None if root is None else root.get_loop()


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
