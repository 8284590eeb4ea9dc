"""Publish the messages that wait in a partition of a topic. The client with the role ``route`` does this.

Messages wait because they were scheduled, or because they have so many copies that several calls must make them: then
they are *spread*. If a client stops in the middle, the next one goes on where the partition says that it has come to.

A message that cannot be published is set aside, so that it does not delay other messages. It stays scheduled. The
client tries it again after a while, and when the rules of the topic have changed. Another release of the client may be
able to publish it, and its sender can cancel it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from sbredis._threads import in_thread
from sbredis.client import AT_LEAST_TOGETHER, CALLING, OF_ONE_JOB, Pauses, facts_of
from sbredis.engine import (
    LOST_RECORD,
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    Awoken,
    CallId,
    Delivery,
    Outgoing,
    Partition,
    Request,
    Ripe,
    Sent,
    decode,
    is_full,
    payload_offset,
)
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from sbredis.moving import has_reserve

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity, PartitionClient, RoutedCopies, Routing, SpreadCall
    from sbredis.registry import EntityRecord
    from sbredis.rules import MessageView

__all__ = ["Publishing", "TopicPublisher", "Unpublishable"]

_MOST = 500
_MOST_BYTES = 16 * 1024 * 1024
"""The largest number of bytes to set aside. Each request for other messages reads all these messages again."""


class _Judged(NamedTuple):
    """The copies that messages have by the rules of one version."""

    by: Routing | None
    copies: RoutedCopies | None


class _Viewed(NamedTuple):
    """A message that is due, as the rules see it."""

    message: Delivery
    facts: MessageView


@dataclass(slots=True)
class _Kept:
    """A message that was set aside."""

    size: int
    until: float
    pauses: Pauses
    rules: object
    """The rules with which it could not be published."""


class Unpublishable:
    """The messages of one partition that were set aside."""

    def __init__(self, pauses: tuple[float, float]) -> None:
        """``pauses`` are the first and the longest pause before a message is tried again, in seconds."""
        self._pauses = pauses
        self._kept: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, message: Delivery) -> bool:
        return message.name in self._kept

    @property
    def size(self) -> int:
        """The bytes of all messages that were set aside."""
        return sum(kept.size for kept in self._kept.values())

    def without(self, messages: Iterable[Delivery], now: float, rules: object) -> list[Delivery]:
        """Return the messages to publish now. Leave out messages that were set aside and must still wait."""
        if not self._kept:
            return list(messages)
        kept = self._kept
        return [
            each
            for each in messages
            if (aside := kept.get(each.name)) is None or aside.until <= now or aside.rules is not rules
        ]

    def put(self, message: Delivery, now: float, rules: object) -> bool:
        """Set a message aside, for a longer time at each failure. Return whether there was room.

        There is always room for the first message.
        """
        before = self._kept.get(message.name)
        size = len(message.record)
        if before is None and self._kept and (len(self._kept) >= _MOST or self.size + size > _MOST_BYTES):
            return False
        pauses = Pauses(*self._pauses) if before is None else before.pauses
        self._kept[message.name] = _Kept(size, now + pauses.next(), pauses, rules)
        return True

    def published(self, messages: Iterable[Delivery]) -> None:
        """Forget messages that were published."""
        if self._kept:
            for each in messages:
                self._kept.pop(each.name, None)

    def only(self, messages: Iterable[Delivery]) -> None:
        """Forget all messages except these, because no other messages are due."""
        if self._kept:
            names = {each.name for each in messages}
            self._kept = {name: kept for name, kept in self._kept.items() if name in names}


_log = logging.getLogger("sbredis.maintenance")
_FULL_PAUSE = 10.0
"""The pause in seconds for a partition with more unpublishable messages than the client can set aside."""
_PAUSE = 1.0
"""The shortest pause in seconds for a partition with an unpublishable message."""
_TURN = 0.5
"""The seconds after which a partition with many messages lets other partitions go first."""
_MOST_READ = 500
_OVERHEAD = 256
"""The largest number of bytes that the broker adds to a stored message."""


class _UnpublishedError(ServiceBusError):
    """Raised when the call that would publish a message cannot be made."""

    def __init__(self, broken: Exception) -> None:
        super().__init__(str(broken), outcome=Outcome.NEVER_SENT)
        self.broken = broken


class TopicPublisher:
    """Publishes the messages that were scheduled in one partition of a topic."""

    def __init__(self, entity: Entity, number: int) -> None:
        self.entity = entity
        self.partition_client: PartitionClient = entity.partition_client(number)
        self._number = number
        self._unpublishable = Unpublishable(entity.connection.timings.publishing_again)
        self._stuck = False
        """Whether there are more unpublishable messages than the client can set aside."""

    @property
    def troubled(self) -> bool:
        """Whether messages are set aside, or there was no room for them."""
        return self._stuck or bool(len(self._unpublishable))

    async def next_due(self) -> float | None:
        """Do the other work that is due in the partition. Return the seconds until something is due, if it will be."""

        def make(partition: Partition, call_id: CallId) -> Request[Awoken]:
            return partition.due(CallId("", 0, call_id.now))

        awoken = await self.partition_client.call("j", make, asyncio.get_running_loop().time() + CALLING)
        if awoken.more:
            return 0.0
        if self._stuck:
            return _FULL_PAUSE
        if awoken.due and self._unpublishable:
            # The unpublishable messages are due already, so the answer does not show when other messages will be due.
            # Each reading also reads the unpublishable messages, so wait longer if they are large.
            return max(awoken.due / 1000, _PAUSE, self._unpublishable.size / MAXIMUM_CALL_BYTES)
        return awoken.due / 1000 if awoken.due else None

    async def publish_due(self, fence: int | None, until: float = math.inf) -> bool:
        """Publish messages that are due. Set aside messages that cannot be published; they stay scheduled.

        Return whether no others are due; false if the time ``until`` has come before that. If another client publishes
        them at the same time, no message is published twice.
        """
        loop = asyncio.get_running_loop()
        if self.entity.routing is None:
            await self.entity.load_routing(loop.time() + CALLING)
        while True:
            ripe = await self._read_due()
            reached = {each.message.name: each.reached for each in ripe}
            messages = [each.message for each in ripe]
            wanted = self._unpublishable.without(messages, loop.time(), self.entity.routing)
            if not wanted:
                self._unpublishable.only(messages)
                self._stuck = False
                return True
            if not await self._publish(wanted, reached, fence, until):
                if not self._stuck:
                    _log.error(
                        "%s: scheduled messages are not published yet, because too many earlier messages cannot be "
                        "published",
                        self.partition_client,
                    )
                self._stuck = True
                return True
            if loop.time() >= until:
                return False

    async def _publish(self, ripe: list[Delivery], reached: Mapping[str, str], fence: int | None, until: float) -> bool:
        """Publish messages, or set them aside. Return whether there was room for all that were set aside.

        Messages that have come equally far share calls. After the time ``until``, no further call begins.
        """
        room, so_far = True, ""
        part: list[_Viewed] = []
        for each in ripe:
            try:
                seen = _Viewed(each, facts_of(decode(each.record, payload_offset(each.record))))
            except Exception as error:  # noqa: BLE001  # mostly DataLayoutError, or a message that another release has stored
                room = self._set_aside(each, error) and room
                continue
            if each.record == LOST_RECORD:
                _log.error(
                    "%s: the scheduled message %d is removed, because its stored record is missing or damaged",
                    self.partition_client,
                    self.entity.base(self._number) + int(each.name),
                )
            routing = self.entity.routing
            most = 1 if routing is None else max(AT_LEAST_TOGETHER, routing.most)
            if part and (len(part) >= most or reached[each.name] != so_far):
                room = await self._publish_part(part, so_far, fence) and room
                part = []
                if asyncio.get_running_loop().time() >= until:
                    return room
            part.append(seen)
            so_far = reached[each.name]
        return (not part or await self._publish_part(part, so_far, fence)) and room

    async def _publish_part(self, part: list[_Viewed], reached: str, fence: int | None) -> bool:
        """Publish messages that have come equally far. Return whether there was room for those that were set aside.

        If one of them makes a call fail, split them to find that message.
        """
        judged = _Judged(None, None)
        try:
            while True:
                judged, spread, sent = await self._next_call(part, judged, reached, fence)
                if not spread.to:
                    self._unpublishable.published(each for each, _ in part)
                    return True
                if sent.dropped:
                    return True  # another client is spreading some of them; the next reading shows how far it is
                if not reached:  # the messages wait under new numbers now
                    numbers = accumulate(spread.widths[:-1], initial=sent.first)
                    self._unpublishable.published(each for each, _ in part)
                    part = [
                        _Viewed(each._replace(name=str(number)), seen)
                        for (each, seen), number in zip(part, numbers, strict=True)
                    ]
                reached = spread.to
        except (*OF_ONE_JOB, _UnpublishedError) as error:
            if len(part) == 1:
                if isinstance(error, ServiceBusQuotaExceededError):
                    raise  # the partition is full, so all messages wait until there is room
                return self._set_aside(part[0].message, error)
            middle = len(part) // 2
            room = await self._publish_part(part[:middle], reached, fence)
            return await self._publish_part(part[middle:], reached, fence) and room

    async def _next_call(
        self, part: Sequence[_Viewed], judged: _Judged, reached: str, fence: int | None
    ) -> tuple[_Judged, SpreadCall, Sent]:
        """Make the next copies of messages that have come equally far. ``judged`` is the last judgement of them."""
        messages = [Outgoing(b"", origin=each.name) for each, _ in part]
        facts = [seen for _, seen in part]
        if judged.by is not self.entity.routing:
            judged = await self._judged(messages, facts, sum(len(each.record) for each, _ in part))
        spread: SpreadCall | None = None

        def make(partition: Partition, call_id: CallId) -> Request[Sent]:
            nonlocal judged, spread
            routing = self.entity.routing
            assert routing is not None  # the routing was loaded, and is updated with each reload
            try:
                if judged.by is not routing or judged.copies is None:
                    judged = _Judged(routing, routing.routed(messages, facts))
                assert judged.copies is not None
                spread = routing.spread(partition, self._number, call_id, messages, judged.copies, reached, fence)
            except ServiceBusError:
                raise
            except Exception as error:
                raise _UnpublishedError(error) from error
            else:
                return spread.request

        sent = await self._call(make)
        assert spread is not None
        return judged, spread, sent

    async def _call(self, make: Callable[[Partition, CallId], Request[Sent]]) -> Sent:
        """Make a call that publishes messages. A server at its memory limit makes the copies from its reserve."""
        client, connection, until = (
            self.partition_client,
            self.entity.connection,
            asyncio.get_running_loop().time() + CALLING,
        )
        try:
            return await client.call("o", make, until)
        except ServiceBusServerBusyError as error:
            if not is_full(error) or not await has_reserve(connection, client.partition.keys[0]):
                raise
            return await client.call(
                "o", lambda partition, call_id: make(partition, call_id)._replace(at_limit=True), until
            )

    async def _judged(self, messages: Sequence[Outgoing], facts: Sequence[MessageView], size: int) -> _Judged:
        """Judge messages, in a thread if this takes long. Return the routing that was used, and its result."""
        routing = self.entity.routing
        if routing is None or not routing.takes_long(size):
            return _Judged(None, None)
        try:
            return _Judged(routing, await in_thread(lambda: routing.routed(messages, facts)))
        except ServiceBusError:
            raise
        except Exception as error:
            raise _UnpublishedError(error) from error

    def _set_aside(self, message: Delivery, error: Exception) -> bool:
        """Set a message aside. Return whether there was room for it."""
        first, known = not self._unpublishable, message in self._unpublishable
        kept = self._unpublishable.put(message, asyncio.get_running_loop().time(), self.entity.routing)
        broken = error.broken if isinstance(error, _UnpublishedError) else error
        _log.log(
            logging.ERROR if kept and not known else logging.DEBUG,
            "%s: the scheduled message %d cannot be published; it stays scheduled and is tried again: %s: %s",
            self.partition_client,
            self.entity.base(self._number) + int(message.name),
            type(broken).__name__,
            broken,
            exc_info=broken if first else None,
        )
        return kept

    async def _read_due(self) -> tuple[Ripe, ...]:
        wanted, room = _MOST_READ, MAXIMUM_CALL_BYTES
        if self._unpublishable:  # the unpublishable messages may be due before all other messages
            wanted = min(wanted + len(self._unpublishable), MAXIMUM_CALL_MESSAGES)
            room = max(room, self.entity.largest_message + _OVERHEAD) + self._unpublishable.size

        def make(partition: Partition, call_id: CallId) -> Request[tuple[Ripe, ...]]:
            return partition.ripe(wanted, room=room, call_id=CallId("", 0, call_id.now))

        return await self.partition_client.call("j", make, asyncio.get_running_loop().time() + CALLING)


class Publishing:
    """The publishing of scheduled messages by one client, in all partitions of topics that it visits."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._troubled: dict[tuple[str, int], TopicPublisher] = {}
        """The publishers that have set messages aside, by the topic's incarnation and the number of the partition."""

    def publisher(self, entity: Entity, number: int) -> TopicPublisher:
        """Return what publishes in a partition of a topic."""
        return self._troubled.get((entity.record.incarnation, number)) or TopicPublisher(entity, number)

    async def visit(self, record: EntityRecord, number: int, fence: int | None) -> float | None:
        """Publish what is due in a partition. Return the seconds until the next visit, if one is needed.

        If much is due, other partitions get their turn after a while.
        """
        loop = asyncio.get_running_loop()
        entity = await self._connection.entity(record.path, loop.time() + CALLING)
        if entity.record.incarnation != record.incarnation:
            await entity.refresh(loop.time() + CALLING)
        if entity.record.incarnation != record.incarnation:
            raise MessagingEntityNotFoundError(f"'{record.path}' was deleted and created again.")
        publisher = self.publisher(entity, number)
        try:
            return await publisher.next_due() if await publisher.publish_due(fence, loop.time() + _TURN) else 0.0
        finally:
            place = record.incarnation, number
            self._troubled.pop(place, None)
            if publisher.troubled:
                self._troubled[place] = publisher

    def forget_others(self, topics: Mapping[str, EntityRecord]) -> None:
        """Forget the topics that are not among these."""
        if self._troubled:
            known = {topic.incarnation for topic in topics.values()}
            self._troubled = {place: each for place, each in self._troubled.items() if place[0] in known}
