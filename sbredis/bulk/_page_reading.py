"""Read an entity in bulk, partition by partition: planned ranges, pages of messages by their numbers, and settlements.

Nothing is changed and nothing is locked, so other receivers go on as if nobody read. For the same reason, messages of a
range that is not planned may disappear between two reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sbredis.client import connection_of, deadline_of
from sbredis.engine import (
    CallId,
    Partition,
    Ranged,
    Request,
    Rows,
    RowsRead,
    SettlementsPlace,
    SettlementsRead,
    SidePrefix,
    number_of,
    read_record,
)
from sbredis.entities import SIDES
from sbredis.exceptions import MessagesLostError, ScriptRefusedError
from sbredis.model import ServiceBusSubQueue

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from sbredis.client import Connected, Entity, PartitionClient

__all__ = [
    "LARGEST_NUMBER",
    "Browser",
    "FirstRows",
    "PageLimits",
    "queues_like",
    "range_pages",
    "read_range",
    "read_settled",
]

_RANGE_LANE = "m"


class PageLimits(NamedTuple):
    """How much a page has at most: the answer to one call, for which the server works without a pause."""

    messages: int = 600
    bytes: int = 256 * 1024
    """The largest size, except of the first message."""


class Turn(Protocol):
    """Lets a reader wait for its turn at a server, and have it during a block."""

    def __call__(self, server: str) -> AbstractAsyncContextManager[Any]:
        """Return the turn at a server."""
        ...


def no_turn(server: str) -> AbstractAsyncContextManager[None]:
    """Let a reader begin at once."""
    del server
    return nullcontext()


PAGE = PageLimits()
"""A page of small messages, or of large ones, for which a server works for less than a millisecond."""


async def read_range(  # noqa: PLR0917 -- where, and the range
    client: Connected, path: str, number: int, birth: str, after: int, upto: int, *, timeout: float = 60.0
) -> AsyncIterator[Rows]:
    """Read the messages of a planned range, page by page: those after the number ``after`` and up to ``upto``.

    Nothing is locked or removed, and no reservation object is needed: another process can read a range that a
    :class:`Reservation` has planned. As long as the range is planned, each reading brings the same messages. ``birth``
    is that of the position. ``timeout`` is the time-out of each page.

    Raises :class:`~sbredis.exceptions.MessagesLostError` if the partition was lost and made again, or if the range is
    not planned any more.
    """
    entity = await connection_of(client).entity(path, deadline_of(timeout))
    there = entity.partition_client(number)
    async with aclosing(range_pages(there, birth, after, upto, timeout, PAGE)) as pages:
        async for page in pages:
            yield page


async def range_pages(  # noqa: PLR0917 -- where, and the range
    partition_client: PartitionClient,
    birth: str,
    after: int,
    upto: int,
    timeout: float,
    page_limits: PageLimits,
    *,
    pinned: bool = True,
    turn: Turn = no_turn,
) -> AsyncGenerator[Rows]:
    """Yield the pages of a planned range. While the caller works on a page, the next one is fetched.

    If the range need not be ``pinned``, messages of it may be missing.
    """
    wanted, room = page_limits

    async def fetch(after: int) -> Ranged:
        def make(partition: Partition, call_id: CallId) -> Request[Ranged]:
            at = CallId("", 0, call_id.now)
            return partition.read_range(birth, after, upto, wanted=wanted, room=room, pinned=pinned, call_id=at)

        async with turn(_server_of(partition_client)):
            return await partition_client.call(_RANGE_LANE, make, deadline_of(timeout), catches_up=False)

    if after >= upto:
        return
    page = await fetch(after)
    while page.more:
        after = number_of(page.rows.names[-1].decode())
        ahead = asyncio.ensure_future(fetch(after))
        try:
            yield page.rows
            page = await ahead
        finally:
            if not ahead.cancel() and not ahead.cancelled():
                ahead.exception()  # asyncio would report an error that nobody reads, if the caller has stopped
    if page.rows.names:
        yield page.rows


def _server_of(partition_client: PartitionClient) -> str:
    return str(partition_client.transport.endpoint_of(partition_client.partition.keys[0]))


_log = logging.getLogger("sbredis.client")
LARGEST_NUMBER = (1 << 48) - 1
"""The largest number that a message can have in its partition."""
_ENQUEUED, _WITH_SCHEDULED = "alwf", "alwfs"
_LIKE, _LIKE_BYTES = 16, 64 * 1024
"""The largest number and the largest size of the messages that :meth:`Browser.first_rows` reads."""


class FirstRows(NamedTuple):
    """What the first messages after a number are like."""

    number: int
    """The number of the first one."""
    mean: float
    """The mean size of some of them, in bytes."""
    enqueued: int
    """When the first one was enqueued, in ms since 1970; 0 if it is not enqueued yet."""


class Browser:
    """The messages of a queue, a subscription or one of its sub-queues, by partition and number.

    Without ``scheduled``, messages that are not enqueued yet are left out. They get their final number only when they
    are enqueued.
    """

    def __init__(
        self,
        entity: Entity,
        sub_queue: ServiceBusSubQueue | None,
        timeout: float,
        page_limits: PageLimits,
        *,
        scheduled: bool,
        turn: Turn,
        from_replica: bool,
    ) -> None:
        self._entity = entity
        self._from_replica = from_replica
        self._turn = turn
        self._page_limits = page_limits
        self._side: SidePrefix = SIDES[sub_queue]
        self._timeout = timeout
        self._states = _WITH_SCHEDULED if scheduled and sub_queue is None else _ENQUEUED

    @classmethod
    async def open(
        cls,
        client: Connected,
        path: str,
        sub_queue: ServiceBusSubQueue | None = None,
        *,
        scheduled: bool = False,
        timeout: float = 60.0,
        page_limits: PageLimits = PAGE,
        turn: Turn = no_turn,
        from_replica: bool = False,
    ) -> Browser:
        """Return a browser of an entity. Raises :class:`MessagingEntityNotFoundError` if there is none.

        Each page of many messages waits for its ``turn`` at the server. With ``from_replica``, replicas answer these
        calls, and :meth:`pages` may miss the last messages; masters answer all others. Then this raises
        :class:`~sbredis.exceptions.ServerUnsuitableError` if a master has no replica.
        """
        entity = await connection_of(client).entity(path, asyncio.get_running_loop().time() + timeout)
        if from_replica:
            transport = entity.connection.transport
            keys = [entity.partition(number).keys[0] for number in entity.numbers]
            for key in {transport.endpoint_of(key): key for key in keys}.values():
                await transport.replicas_of(key, timeout=timeout)
        return cls(entity, sub_queue, timeout, page_limits, scheduled=scheduled, turn=turn, from_replica=from_replica)

    @property
    def path(self) -> str:
        """The path of the entity, as its creator spelled it."""
        return self._entity.name

    @property
    def incarnation(self) -> str:
        """A text that changes when the entity is deleted and created again."""
        return self._entity.record.incarnation

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the partitions that hold the entity."""
        return tuple(self._entity.numbers)

    @property
    def is_topic(self) -> bool:
        """Whether the entity is a topic, which holds no messages."""
        return self._entity.record.settings.topic

    @property
    def is_audited(self) -> bool:
        """Whether the entity keeps a stream of what happens to its messages."""
        return self._entity.record.settings.audited

    def base(self, partition: int) -> int:
        """Return the number to add to a partition's own numbers to make sequence numbers."""
        return self._entity.base(partition)

    async def refresh(self) -> None:
        """Read the registry. Otherwise the client notices only with a call that the entity was made again."""
        await self._entity.refresh(asyncio.get_running_loop().time() + self._timeout)

    async def pages(self, partition: int, after: int, upto: int) -> AsyncIterator[Rows]:
        """Yield the messages of a partition whose numbers are greater than ``after`` and at most ``upto``."""
        there = self._entity.partition_client(partition)
        while after < upto:
            async with self._turn(_server_of(there)):
                found = await self._next_page(partition, after + 1)
            if not found.names:
                return
            after = _last(found)
            if after > upto:
                found = _cut(found, upto)
            if found.names:
                yield found

    def pinned_pages(self, partition: int, birth: str, after: int, upto: int) -> AsyncIterator[Rows]:
        """Yield the messages of a range that a reservation has planned. Each reading gives the same messages.

        Raises :class:`MessagesLostError` if the range is not planned any more, or if the partition was made again.
        """
        there = self._entity.partition_client(partition)
        return range_pages(there, birth, after, upto, self._timeout, self._page_limits, turn=self._turn)

    async def remaining_pages(self, partition: int, birth: str, after: int, upto: int) -> AsyncIterator[Rows]:
        """Yield what is left of a range that was planned once. Without a loss, this is the same as ``pinned_pages``."""
        client = self._entity.partition_client(partition)
        try:
            async for page in self.pinned_pages(partition, birth, after, upto):
                yield page
                after = _last(page)
        except MessagesLostError as lost:
            _log.warning("'%s', partition %d: %s", self.path, partition, lost.message)
            with suppress(MessagesLostError):  # the partition was made again, so nothing is left
                async for page in range_pages(
                    client, birth, after, upto, self._timeout, self._page_limits, pinned=False, turn=self._turn
                ):
                    yield page

    async def do_due(self, partition: int) -> None:
        """Do all work that is due in a partition.

        A read shows the effects of due work before the work is done, with the numbers that messages would get now. A
        message that is sent before the work is done may still take such a number. After this call, the numbers of all
        earlier reads are final.
        """
        there, until = self._entity.partition_client(partition), asyncio.get_running_loop().time() + self._timeout
        while await there.do_due(until):
            pass

    async def last_number(self, partition: int, after: int = 0) -> int:
        """Return the highest number of a message that is greater than ``after``; ``after`` if there is none."""
        return await self._last_number(partition, after, self._states)

    async def _last_number(self, partition: int, after: int, states: str) -> int:
        low = after
        found = await self._first(partition, low + 1, states)
        step = 1
        while found is not None:
            low, step = _last(found), step * 2
            found = await self._first(partition, low + step, states)
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            found = await self._first(partition, middle, states)
            if found is None:
                high = middle
            else:
                low = _last(found)
        return low

    async def first_rows(self, partition: int, after: int) -> FirstRows | None:
        """Return what the first messages are like whose numbers are greater than ``after``."""
        found = await self._page(partition, after + 1, _LIKE, _LIKE_BYTES, self._states)
        if not found.names:
            return None
        sizes = list(map(len, found.records))
        return FirstRows(_number(found.names[0]), sum(sizes) / len(sizes), read_record(found.records[0]).enqueued or 0)

    async def number_before(self, partition: int, moment: int) -> int:
        """Return the number after which the messages begin that were enqueued at ``moment`` or later.

        ``moment`` is in ms since 1970. Messages that are not enqueued yet are not looked at.

        Numbers and enqueued times rise together, except in dead-letter queues.
        """
        low, high = 0, await self._last_number(partition, 0, _ENQUEUED) + 1
        while high - low > 1:
            middle = (low + high) // 2
            found = await self._first(partition, middle, _ENQUEUED)
            if found is not None and (read_record(found.records[0]).enqueued or 0) < moment:
                low = _last(found)
            else:
                high = middle
        return low

    async def _first(self, partition: int, start: int, states: str) -> Rows | None:
        found = await self._page(partition, start, 1, 1, states)
        return found if found.names else None

    async def _next_page(self, partition: int, start: int) -> Rows:
        if not self._from_replica or start > LARGEST_NUMBER:
            return await self._page(partition, start, *self._page_limits, self._states)
        there, (wanted, room) = self._entity.partition_client(partition), self._page_limits
        at = CallId("", 0, self._entity.connection.clock.told())
        request = there.partition.peek_rows(start, wanted, side=self._side, room=room, states=self._states, call_id=at)
        try:
            reply = await there.transport.call_replica(
                request.script, request.keys, request.arguments, timeout=self._timeout
            )
        except ScriptRefusedError:  # the replica has not heard of the partition, or of its settings
            return await self._page(partition, start, wanted, room, self._states)
        read = request.result(reply)
        there.note_use()
        if read.more:  # only the master can do the work that is due
            return await self._page(partition, start, wanted, room, self._states)
        return read.rows

    async def _page(self, partition: int, start: int, wanted: int, room: int, states: str) -> Rows:
        if start > LARGEST_NUMBER:
            return Rows([], [])
        side = self._side

        def make(place: Partition, call_id: CallId) -> Request[RowsRead]:
            at = CallId("", 0, call_id.now)
            return place.peek_rows(start, wanted, side=side, room=room, states=states, call_id=at)

        there = self._entity.partition_client(partition)
        read = await there.read("p", make, asyncio.get_running_loop().time() + self._timeout)
        there.note_use()
        return read.rows


def _number(name: bytes) -> int:
    return number_of(name.decode())


def _last(rows: Rows) -> int:
    """Return the number of the last row."""
    return _number(rows.names[-1])


def _cut(rows: Rows, upto: int) -> Rows:
    """Return the rows up to a number."""
    count = next(place for place, name in enumerate(rows.names) if _number(name) > upto)
    return rows.first(count)


async def read_settled(
    client: Connected, path: str, partition: int, *, timeout: float = 60.0
) -> AsyncIterator[SettlementsRead]:
    """Yield pages of the settlements of a partition, up to those that are there when this begins.

    The pages say how many settlements are lost before them.
    """
    loop = asyncio.get_running_loop()
    entity = await connection_of(client).entity(path, loop.time() + timeout)
    there = entity.partition_client(partition)
    place, last = SettlementsPlace(), None
    while last is None or place.record < last.record:

        def make(of: Partition, call_id: CallId, after: SettlementsPlace = place) -> Request[SettlementsRead]:
            return of.read_settlements(after, call_id=CallId("", 0, call_id.now))

        page = await there.call("p", make, loop.time() + timeout)
        last = last or page.last
        if not len(page.columns):
            return
        yield page
        place = page.next


async def queues_like(client: Connected, matches: Callable[[str], bool], *, timeout: float = 60.0) -> tuple[str, ...]:
    """Return the names of the queues in the namespace that match, in order. Half created or deleted ones are left out.

    ``timeout`` is the time-out of each page of the list.
    """
    connection = connection_of(client)
    await connection.open(deadline_of(timeout))
    entities, found = connection.namespace.entities(), list[str]()
    while not entities.ended:
        for record in (await entities.next(_LISTED, deadline_of(timeout))).records:
            if record.kind == "queue" and record.state == "active" and matches(record.path):
                found.append(record.path)
    if (error := entities.error) is not None:
        raise error
    return tuple(found)


_LISTED = 100
