"""Publish the messages that were scheduled in a partition of a topic. The client with the role does this."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sbredis._threads import in_thread
from sbredis.client._background_work import CALLING
from sbredis.client._delivering import OF_ONE_JOB
from sbredis.client._routing import facts_of
from sbredis.engine import (
    LOST_RECORD,
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    CallId,
    Delivery,
    Looked,
    Outgoing,
    Partition,
    Request,
    Sent,
    decode,
    is_full,
    payload_offset,
    ripe,
)
from sbredis.exceptions import Outcome, ServiceBusError, ServiceBusQuotaExceededError, ServiceBusServerBusyError
from sbredis.maintenance._unpublishable import Unpublishable
from sbredis.moving._reserve import has_reserve

if TYPE_CHECKING:
    from sbredis.client._entity import Entity
    from sbredis.client._partition_client import PartitionClient
    from sbredis.client._routing import RoutedCopies, Routing
    from sbredis.rules import MessageView

__all__ = ["TopicPublisher"]

_log = logging.getLogger("sbredis.maintenance")
_FULL_PAUSE = 10_000
"""The pause in ms for a partition with more unpublishable messages than the client can set aside."""
_PAUSE = 1000
"""The shortest pause in ms for a partition with an unpublishable message."""
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
        self._unpublishable = Unpublishable()
        self._stuck = False
        """Whether there are more unpublishable messages than the client can set aside."""

    async def next_due(self, waiter: bytes) -> int:
        """Return the ms until a message is due; 0 means never. If this time changes, the partition wakes ``waiter``."""

        def make(partition: Partition, call_id: CallId) -> Request[Looked]:
            return partition.look(waiter=waiter, call_id=CallId("", 0, call_id.now))

        looked = await self.partition_client.call("j", make, asyncio.get_running_loop().time() + CALLING)
        if self._stuck:
            return _FULL_PAUSE
        if looked.due and self._unpublishable:
            # The unpublishable messages are due already, so the answer does not show when other messages will be due.
            # Each reading also reads the unpublishable messages, so wait longer if they are large.
            return max(looked.due, _PAUSE, 1000 * self._unpublishable.size // MAXIMUM_CALL_BYTES)
        return looked.due

    async def publish_due(self, fence: int | None) -> None:
        """Publish all messages that are due. Set aside messages that cannot be published; they stay scheduled.

        If another client publishes them at the same time, no message is published twice.
        """
        loop = asyncio.get_running_loop()
        if self.entity.routing is None:
            await self.entity.load_routing(loop.time() + CALLING)
        while True:
            ripe = await self._read_due()
            wanted = self._unpublishable.without(ripe, loop.time(), self.entity.routing)
            if not wanted:
                self._unpublishable.only(ripe)
                self._stuck = False
                return
            if not await self._publish(wanted, fence):
                if not self._stuck:
                    _log.error(
                        "%s: scheduled messages are not published yet, because too many earlier messages cannot be "
                        "published",
                        self.partition_client,
                    )
                self._stuck = True
                return

    async def _publish(self, ripe: list[Delivery], fence: int | None) -> bool:
        """Publish messages, or set them aside. Return whether this succeeded for all messages."""
        room = True
        part: list[tuple[Delivery, MessageView]] = []
        for each in ripe:
            try:
                part.append((each, facts_of(decode(each.record, payload_offset(each.record)))))
            except Exception as error:  # noqa: BLE001  # mostly DataLayoutError, or a message that another release has stored
                room = self._set_aside(each, error) and room
            if each.record == LOST_RECORD:
                _log.error(
                    "%s: the scheduled message %d is removed, because its stored record is missing or damaged",
                    self.partition_client,
                    self.entity.base(self._number) + int(each.name),
                )
            routing = self.entity.routing
            if routing is not None and len(part) >= routing.most:
                room = await self._publish_part(part, fence) and room
                part = []
        return (not part or await self._publish_part(part, fence)) and room

    async def _publish_part(self, part: list[tuple[Delivery, MessageView]], fence: int | None) -> bool:
        """Publish messages with one call. If one of them makes the call fail, split them to find that message."""
        messages = [Outgoing(b"", origin=each.name) for each, _ in part]
        facts = [seen for _, seen in part]
        judged: tuple[Routing | None, RoutedCopies | None] = None, None

        def make(partition: Partition, call_id: CallId) -> Request[Sent]:
            routing = self.entity.routing
            assert routing is not None  # the routing was loaded, and is updated with each reload
            routed = judged[1] if judged[0] is routing else None
            try:
                return routing.published(partition, self._number, call_id, messages, facts, fence, routed)[0]
            except ServiceBusError:
                raise
            except Exception as error:
                raise _UnpublishedError(error) from error

        try:
            judged = await self._judged(messages, facts, sum(len(each.record) for each, _ in part))
            await self._call(make)
        except (*OF_ONE_JOB, _UnpublishedError) as error:
            if len(part) == 1:
                if isinstance(error, ServiceBusQuotaExceededError):
                    raise  # the partition is full, so all messages wait until there is room
                return self._set_aside(part[0][0], error)
            middle = len(part) // 2
            room = await self._publish_part(part[:middle], fence)
            return await self._publish_part(part[middle:], fence) and room
        self._unpublishable.published(each for each, _ in part)
        return True

    async def _call(self, make: Callable[[Partition, CallId], Request[Sent]]) -> None:
        """Make a call that publishes messages. A server at its memory limit makes the copies from its reserve."""
        client, connection, until = (
            self.partition_client,
            self.entity.connection,
            asyncio.get_running_loop().time() + CALLING,
        )
        try:
            await client.call("o", make, until)
        except ServiceBusServerBusyError as error:
            if not is_full(error) or not await has_reserve(connection, client.partition.keys[0]):
                raise
            await client.call("o", lambda partition, call_id: make(partition, call_id)._replace(at_limit=True), until)

    async def _judged(
        self, messages: Sequence[Outgoing], facts: Sequence[MessageView], size: int
    ) -> tuple[Routing | None, RoutedCopies | None]:
        """Judge messages, in a thread if this takes long. Return the routing that was used, and its result."""
        routing = self.entity.routing
        if routing is None or not routing.takes_long(size):
            return None, None
        try:
            return routing, await in_thread(lambda: routing.routed(messages, facts))
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

    async def _read_due(self) -> tuple[Delivery, ...]:
        wanted, room = _MOST_READ, MAXIMUM_CALL_BYTES
        if self._unpublishable:  # the unpublishable messages may be due before all other messages
            wanted = min(wanted + len(self._unpublishable), MAXIMUM_CALL_MESSAGES)
            room = max(room, self.entity.largest_message + _OVERHEAD) + self._unpublishable.size

        def make(partition: Partition, call_id: CallId) -> Request[tuple[Delivery, ...]]:
            return ripe(partition, wanted, room=room, call_id=CallId("", 0, call_id.now))

        return await self.partition_client.call("j", make, asyncio.get_running_loop().time() + CALLING)
