"""Send messages: encode them, give them ids, choose their partitions, and submit them to lanes in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbredis.client import OTHER_LOOP, SendJob, Throttle, UnmadeError, facts_of
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
    from sbredis.client import Connection, Creation, Entity
    from sbredis.rules import MessageView

__all__ = ["Outbox", "destination", "log_unread_error", "views_for_rules"]

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
        job = await self.begin(messages, made, size, entity, deadline)
        try:
            first: int = await job.future
        except asyncio.CancelledError:
            log_unread_error(job)
            raise
        return job.numbers(first)

    async def begin(
        self,
        messages: Sequence[ServiceBusMessage],
        made: Sequence[Outgoing] | bytes,
        size: int,
        entity: Entity,
        deadline: float,
        *,
        ordered: bool = False,
    ) -> SendJob:
        """Submit messages as soon as the throttle has room for them. The job has their outcome.

        ``made`` are the same messages in the form for a partition, or the payload of a single one (:func:`prepared`).
        In a partition, ``ordered`` messages never overtake ordered messages that were submitted earlier.
        """
        job = self.begin_at_once(messages, made, size, entity, deadline, ordered=ordered)
        if job is not None:
            return job
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
        job = self.begin_at_once(messages, made, size, entity, deadline, ordered=ordered, admitted=True)
        assert job is not None  # nothing is left to wait for
        return job

    def begin_at_once(
        self,
        messages: Sequence[ServiceBusMessage],
        made: Sequence[Outgoing] | bytes,
        size: int,
        entity: Entity,
        deadline: float,
        *,
        ordered: bool = False,
        admitted: bool = False,
    ) -> SendJob | None:
        """Submit messages like :meth:`begin`; or return ``None`` if something must be awaited first.

        The caller is in the event loop of the entity, as :meth:`ready` has found. If the throttle has ``admitted`` the
        messages already, nothing must be awaited. If the submission fails, the allowance is returned.
        """
        count, throttle = len(messages), self.throttle
        if not admitted:
            if entity.requires_sessions and any(message.session_id is None for message in messages):
                return None  # the entity may be without sessions by now
            if size > entity.largest_message or (count > 1 and not _fits(entity, count, size)):
                return None
            if not throttle.try_take(count, size):
                return None
        try:
            key = key_of(entity, messages) if entity.partitioned else None
            movable = entity.partitioned and key is None
            link = entity.next_partition_client() if key is None else entity.pinned(key)
            if entity.forwards:
                self.connection.observer.moves_from(self.connection, entity.record, waits=True)
            job = SendJob(entity.loop, made, size, deadline, throttle, movable, ordered and not movable)
            if entity.routing is not None:
                job.facts = views_for_rules(self.connection, entity, messages, job.messages)
        except BaseException as error:
            throttle.release(count, size)
            if not isinstance(error, Exception) or isinstance(error, (ServiceBusError, TypeError, ValueError)):
                raise
            _log.exception("%s: a message could not be sent because of a defect", entity.name)
            unmade = UnmadeError(error)
            unmade.entity = entity.name
            raise unmade from error
        _ = link.sending.submit(job)  # the future is not needed here, because the job keeps it
        return job


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


def log_unread_error(job: SendJob) -> None:
    """Log the error of a send whose caller was cancelled at the moment when it failed."""
    future = job.future
    if future.done() and not future.cancelled() and (error := future.exception()) is not None:
        _log.warning("a send failed, and no caller was waiting for its result any more: %s", error)
