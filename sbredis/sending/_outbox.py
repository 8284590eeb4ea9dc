"""Send messages: encode them, give them ids, choose their partitions, and submit them to lanes in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sbredis.client import OTHER_LOOP, SendJob, SendTerms, Throttle, UnmadeError, facts_of
from sbredis.engine import MAXIMUM_CALL_BYTES, MAXIMUM_CALL_MESSAGES, Outgoing, decode
from sbredis.exceptions import MessagingEntityNotFoundError, OperationTimeoutError, Outcome, ServiceBusError
from sbredis.model import (
    BatchContents,
    ServiceBusMessage,
    content_of,
    from_content,
    keep_id,
    outgoing,
    use_id,
)
from sbredis.sending._sendable import key_of, require_sessions, too_large

if TYPE_CHECKING:
    from sbredis.client import Connection, Creation, Entity, PartitionClient
    from sbredis.rules import MessageView

__all__ = ["Outbox", "destination", "log_unread_error", "size_of", "views_for_rules"]

_CLOCKS_APART = 600_000
"""Messages that were scheduled on a topic are published in time if the clocks differ by at most this number of ms."""
_log = logging.getLogger("sbredis.client")


class Outbox:
    """Sends messages to one queue or topic, within the limits of a throttle."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        create: Creation | None,
        throttle: Throttle,
    ) -> None:
        self.throttle = throttle
        """The limit on messages under way."""
        self._terms = SendTerms(throttle)
        self._movable_terms = SendTerms(throttle, movable=True)
        self._ordered_terms = SendTerms(throttle, ordered=True)
        self.entity: Entity | None = None
        """The entity to send to; ``None`` before it was found in the registry."""
        self.closed = False
        """Whether the outbox accepts no more messages."""
        self.connection = connection
        self._name = name
        self._create = create

    # -- the entity ----------------------------------------------------------------------------------------------------

    @property
    def destination(self) -> str:
        """The name of the entity in spans and in the log. It has the registry's spelling when that is known."""
        return self._name if self.entity is None else self.entity.name

    async def ready(self, deadline: float) -> Entity:
        """Return the entity. Look it up in the registry before the deadline, if it is not known yet."""
        self.check_open()
        entity = self.entity
        if entity is None or entity.gone:
            entity = self.entity = await self.connection.entity(self._name, deadline, self._create)
            self.check_open()
        if entity.loop is not asyncio.get_running_loop():
            raise RuntimeError(OTHER_LOOP)
        if entity.routing is None and entity.record.kind != "queue":
            await _open_topic(entity, deadline)
        return entity

    def check_open(self) -> None:
        """Raise if the outbox or the client is closed."""
        if self.closed:
            raise ValueError("The sender is closed. Get another sender from the client.")
        self.connection.check_open()

    # -- sending -------------------------------------------------------------------------------------------------------

    async def send(self, messages: list[ServiceBusMessage], entity: Entity, deadline: float) -> list[int]:
        """Send messages. Return their sequence numbers."""
        detects = entity.detects_duplicates
        made: list[Outgoing] = []
        ids: list[str | None] = []
        try:
            for message in messages:
                made.append(outgoing(message, detects_duplicates=detects))
                # Give the id before the next message is encoded, because the same object may be in the list twice.
                ids.append(use_id(message))
            return await self._send_made(messages, made, sum(len(one.payload) for one in made), entity, deadline)
        except BaseException:
            # `ids` is shorter than `messages` if the encoding of a message failed.
            for message, message_id in zip(messages, ids, strict=False):
                keep_id(message, message_id)
            raise

    async def send_batch(self, contents: BatchContents, entity: Entity, deadline: float) -> list[int]:
        """Send a batch. Its messages are encoded already, in the form for a queue that detects duplicates."""
        if not contents.messages:
            return []
        round_ = contents.use_ids()
        messages, made = list(contents.messages), list(contents.outgoing)  # the batch may grow meanwhile
        if not entity.detects_duplicates:
            made = [one._replace(message_id=b"") for one in made]
        if entity.routing is not None or entity.partitioned or entity.record.settings.sessions:
            # Rules and partition keys apply to the messages in the form in which they were added to the batch, even if
            # the message objects were changed later.
            messages = [from_content(decode(one.payload)) for one in made]
        try:
            return await self._send_made(messages, made, contents.size, entity, deadline)
        except BaseException:
            contents.keep_ids(round_)
            raise

    async def _send_made(
        self,
        messages: Sequence[ServiceBusMessage],
        made: Sequence[Outgoing],
        size: int,
        entity: Entity,
        deadline: float,
    ) -> list[int]:
        future = await self.begin(messages, made, size, entity, deadline)
        try:
            numbers: int | list[int] = await future
        except asyncio.CancelledError:
            log_unread_error(future)
            raise
        return numbers if isinstance(numbers, list) else [numbers]

    async def begin(
        self,
        messages: Sequence[ServiceBusMessage],
        made: Sequence[Outgoing] | bytes,
        size: int,
        entity: Entity,
        deadline: float,
        *,
        ordered: bool = False,
    ) -> asyncio.Future[Any]:
        """Submit messages as soon as the throttle has room for them.

        ``made`` are the same messages in the form for a partition, or the payload of a single one (:func:`prepared`).
        The future has the sequence number of a single message, or the list of those of several. In a partition,
        ``ordered`` messages never overtake ordered messages that were submitted earlier.
        """
        future = self.begin_at_once(messages, made, size, entity, deadline, ordered=ordered)
        if future is not None:
            return future
        count = len(messages)
        if entity.requires_sessions:
            await require_sessions(entity, messages, deadline)
        if not _fits(entity, count, size):
            await _require_size(entity, count, size, deadline)
        if entity.partitioned:
            key_of(entity, messages)  # messages with different keys are refused before they wait
        try:
            await self.throttle.take(count, size, deadline)
        except OperationTimeoutError as error:
            error.entity = entity.name
            raise
        try:
            self.check_open()
        except BaseException:
            self.throttle.release(count, size)
            raise
        return self._submit(messages, made, size, entity, deadline, ordered=ordered)

    def begin_at_once(
        self,
        messages: Sequence[ServiceBusMessage],
        made: Sequence[Outgoing] | bytes,
        size: int,
        entity: Entity,
        deadline: float,
        *,
        ordered: bool = False,
    ) -> asyncio.Future[Any] | None:
        """Submit messages like :meth:`begin`; or return ``None`` if something must be awaited first.

        The caller is in the event loop of the entity, as :meth:`ready` has found.
        """
        count = len(messages)
        if entity.requires_sessions and any(message.session_id is None for message in messages):
            return None  # the entity may be without sessions by now
        if size > entity.largest_message or (count > 1 and not _fits(entity, count, size)):
            return None
        if not self.throttle.try_take(count, size):
            return None
        return self._submit(messages, made, size, entity, deadline, ordered=ordered)

    def begin_one(
        self, message: ServiceBusMessage, made: Outgoing | bytes, entity: Entity, deadline: float
    ) -> asyncio.Future[Any] | None:
        """Submit a message like :meth:`begin_at_once`. It takes the shortest path if only its payload is needed."""
        if not entity.is_plain or not isinstance(made, bytes):
            listed = made if isinstance(made, bytes) else (made,)
            return self.begin_at_once((message,), listed, size_of(made), entity, deadline)
        if entity.partitioned:
            link, terms = self._place(entity, (message,))
        else:
            link, terms = entity.next_partition_client(), self._terms
        size = len(made)
        if size > entity.largest_message or not self.throttle.try_take(1, size):
            return None
        return link.sending.add(made, entity.loop.create_future(), deadline, terms)

    def _submit(
        self,
        messages: Sequence[ServiceBusMessage],
        made: Sequence[Outgoing] | bytes,
        size: int,
        entity: Entity,
        deadline: float,
        *,
        ordered: bool,
    ) -> asyncio.Future[Any]:
        """Submit messages that the throttle has admitted. If this fails, the allowance is returned."""
        try:
            link, terms = self._place(entity, messages, ordered=ordered)
            if entity.forwards:
                self.connection.observer.moves_from(self.connection, entity.record, waits=True)
            what: bytes | SendJob = made if isinstance(made, bytes) else SendJob(made, size)
            if entity.routing is not None:
                what = what if isinstance(what, SendJob) else SendJob((Outgoing(what),), size)
                what.facts = views_for_rules(self.connection, entity, messages, what.messages)
        except BaseException as error:
            self.throttle.release(len(messages), size)
            if not isinstance(error, Exception) or isinstance(error, (ServiceBusError, TypeError, ValueError)):
                raise
            _log.exception("%s: a message could not be sent because of a defect", entity.name)
            unmade = UnmadeError(error)
            unmade.entity = entity.name
            raise unmade from error
        return link.sending.add(what, entity.loop.create_future(), deadline, terms)

    def _place(
        self, entity: Entity, messages: Sequence[ServiceBusMessage], *, ordered: bool = False
    ) -> tuple[PartitionClient, SendTerms]:
        """Return the partition for messages, and the terms of their job."""
        if entity.partitioned:
            key = key_of(entity, messages)
            if key is None:
                return entity.next_partition_client(), self._movable_terms
            link = entity.pinned(key)
        else:
            link = entity.next_partition_client()
        return link, self._ordered_terms if ordered else self._terms


async def destination(connection: Connection, name: str, deadline: float) -> Entity:
    """Return the queue or topic of this name, ready to be sent to."""
    entity = await connection.entity(name, deadline)
    if entity.routing is None and entity.record.kind != "queue":
        await _open_topic(entity, deadline)
    return entity


async def _open_topic(entity: Entity, deadline: float) -> None:
    if entity.record.kind == "subscription":
        raise MessagingEntityNotFoundError(
            f"{entity.name!r} is a subscription, which gets its messages from its topic. Send to the topic.",
            outcome=Outcome.NEVER_SENT,
        )
    await entity.load_routing(deadline)


def views_for_rules(
    connection: Connection, topic: Entity, messages: Sequence[ServiceBusMessage], made: Sequence[Outgoing]
) -> list[MessageView | None]:
    """Return the view of each message for rules, or ``None`` for a message that is scheduled and judged later.

    The partition decides whether the time of a message has come. If the clock of this machine shows that the time is
    near, the message is judged now, so that the partition can publish it.
    """
    now = connection.clock.utc() * 1000
    if any(one.due is not None and one.due > now for one in made):
        connection.observer.scheduled_on(connection, topic)
    near = now + _CLOCKS_APART
    return [
        facts_of(content_of(message)) if one.due is None or one.due <= near else None
        for message, one in zip(messages, made, strict=True)
    ]


def _fits(entity: Entity, count: int, size: int) -> bool:
    """Return whether one call may send the messages, by the settings that this client knows."""
    if size > entity.largest_message:
        return False
    return count == 1 or (count <= MAXIMUM_CALL_MESSAGES and size <= MAXIMUM_CALL_BYTES)


async def _require_size(entity: Entity, count: int, size: int, deadline: float) -> None:
    """Raise if messages are too large. The limit may have been raised since this client has read it."""
    if count <= MAXIMUM_CALL_MESSAGES:
        await entity.refresh(deadline)
    if not _fits(entity, count, size):
        raise too_large(entity, count, size)


def size_of(made: Outgoing | bytes) -> int:
    """Return the size of a message in the form for a partition."""
    return len(made) if isinstance(made, bytes) else len(made.payload)


def log_unread_error(future: asyncio.Future[Any]) -> None:
    """Log the error of a send whose caller was cancelled at the moment when it failed."""
    if future.done() and not future.cancelled() and (error := future.exception()) is not None:
        _log.warning("a send failed, and no caller was waiting for its result any more: %s", error)
