"""Sending messages to a queue or a topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from sbredis._quoting import quoted
from sbredis.aio._sendable import require_sessions, scheduled, too_large
from sbredis.aio._stream import SendStream
from sbredis.aio.calls._arguments import NoOptions, count_of, deadline_of, sequence_numbers_of, warn_of_unknown
from sbredis.aio.calls._cancelling import cancel_scheduled
from sbredis.aio.calls._routing import facts_of
from sbredis.aio.calls._send_lane import SendJob
from sbredis.aio.calls._throttle import Throttle
from sbredis.aio.core._delivering import UnmadeError
from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    Outgoing,
    decode,
)
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusError,
)
from sbredis.model import (
    MessageTypes,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    as_messages,
    content_of,
    contents_of,
    from_content,
    keep_id,
    message_key,
    outgoing,
    routing_key,
    use_id,
)

if TYPE_CHECKING:
    from sbredis.aio.calls._connection import Connection
    from sbredis.aio.calls._entity import Entity
    from sbredis.aio.calls._entity_state import Creation
    from sbredis.aio.telemetry._telemetry import Telemetry
    from sbredis.rules import Facts

__all__ = ["ServiceBusSender"]

_CLOCKS_APART = 600_000
"""By how many milliseconds clocks may differ, with what is scheduled on a topic going out at its time all the same."""
_log = logging.getLogger("sbredis.client")


class ServiceBusSender:
    """Sends messages to one queue or topic. Made by :meth:`ServiceBusClient.get_queue_sender` and ``get_topic_sender``.

    Calls may be made concurrently, and should be: those that are made at the same moment share a round trip. At most
    ``max_in_flight`` messages of ``max_in_flight_bytes`` together are under way; who would send more waits. Every call
    ends with the outcome of its messages, and :meth:`close` waits for those that are still under way.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        telemetry: Telemetry,
        *,
        client_identifier: str,
        create: Creation | None,
        max_in_flight: int,
        max_in_flight_bytes: int,
        scheduled_on: Callable[[Entity], None],
        on_close: Callable[[Any], None],
    ) -> None:
        self._connection = connection
        self._share = connection.share()
        self._telemetry = telemetry
        self._name = name
        self._client_identifier = client_identifier
        self._create = create
        self._throttle = Throttle(max_in_flight, max_in_flight_bytes)
        self._window = max_in_flight
        self._streams: set[SendStream] = set()
        self._entity: Entity | None = None
        self._scheduled_on = scheduled_on
        """Told of a topic that something is scheduled on."""
        self._on_close = on_close
        self._closed = False

    @property
    def entity_name(self) -> str:
        """The queue or topic that it sends to."""
        return self._name

    @property
    def client_identifier(self) -> str:
        """What names this sender in logs."""
        return self._client_identifier

    @property
    def in_flight(self) -> int:
        """How many messages are under way: sent, and not answered for yet."""
        return self._throttle.messages

    async def __aenter__(self) -> Self:
        """Connect. If that fails, the sender is closed."""
        try:
            with self._telemetry.operation("open", self._name):
                await self._ready(deadline_of(None))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<ServiceBusSender {self._name!r} {'closed' if self._closed else 'open'}>"

    # -- sending -------------------------------------------------------------------------------------------------------

    async def send_messages(
        self,
        message: MessageTypes | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
        **kwargs: Unpack[NoOptions],
    ) -> None:
        """Send a message, several, or a batch, and return when the broker has taken them.

        Several are taken all together or not at all: on a partitioned queue they must have one key. Raises
        :class:`~sbredis.exceptions.MessageSizeExceededError` for what is too large,
        :class:`~sbredis.exceptions.ServiceBusQuotaExceededError` when the queue is full,
        :class:`~sbredis.exceptions.MessagingEntityDisabledError` when it does not take messages, and what a
        connection may end with; ``outcome`` says whether the messages may have been taken. ``timeout`` in seconds
        bounds all of it, 60 unless said.

        A message without an id gets one. It keeps that if the send fails or its outcome is unknown, so that a queue
        that detects duplicates recognises the repetition. A message that was sent gets another id when it is sent
        again.
        """
        warn_of_unknown("send_messages", kwargs)
        deadline = deadline_of(timeout)
        if self._telemetry.watching:
            await self._send_watched(message, deadline)
            return
        entity = self._entity
        if entity is None or self._closed or entity.gone:
            entity = await self._ready(deadline)
        if type(message) is ServiceBusMessage:
            made = outgoing(message, detects_duplicates=entity.detects_duplicates)
            message_id = use_id(message)
            try:
                await self._first_of((message,), (made,), len(made.payload), entity, deadline)
            except BaseException:
                keep_id(message, message_id)
                raise
            return
        if isinstance(message, ServiceBusMessageBatch):
            await self._send_batch(message, entity, deadline)
            return
        listed = as_messages(message)
        if listed:
            await self._encoded(listed, entity, deadline)

    async def schedule_messages(
        self,
        messages: MessageTypes,
        schedule_time_utc: datetime | Sequence[datetime],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[NoOptions],
    ) -> list[int]:
        """Have messages enqueued at a time to come, and return the sequence numbers by which that can be cancelled.

        ``schedule_time_utc`` is one time for all messages, or a list of times with one for each message. The numbers
        are in the order of the messages. The messages get other numbers when they are enqueued. All of them are taken,
        or none.
        """
        warn_of_unknown("schedule_messages", kwargs)
        deadline = deadline_of(timeout)
        listed = scheduled(as_messages(messages), schedule_time_utc)
        with self._telemetry.operation("schedule", self._destination, count=len(listed), messages=listed) as operation:
            entity = await self._ready(deadline)
            numbers = await self._encoded(listed, entity, deadline) if listed else []
            operation.numbered(numbers)
            return numbers

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None, **kwargs: Unpack[NoOptions]
    ) -> None:
        """Take back messages that are scheduled and not enqueued yet.

        Raises :class:`~sbredis.exceptions.MessageNotFoundError` if one of them is not there, and then cancels none. But
        several calls are needed on a partitioned queue, or for more than 1,000: what the first of them have cancelled
        the error says.
        """
        warn_of_unknown("cancel_scheduled_messages", kwargs)
        deadline = deadline_of(timeout)
        numbers = sequence_numbers_of(sequence_numbers)
        with self._telemetry.operation("cancel_scheduled", self._destination, count=len(numbers)) as operation:
            operation.numbered(numbers)
            entity = await self._ready(deadline)
            if numbers:
                await cancel_scheduled(entity, numbers, deadline)

    def send_stream(
        self,
        messages: AsyncIterable[Any] | Iterable[Any],
        *,
        timeout: float | None = None,
        errors: Literal["raise", "return"] = "raise",
    ) -> SendStream:
        """Send what an iterable brings, each message by itself, as fast as the throttle lets it.

        ``async for result in sender.send_stream(source)`` brings a :class:`SendResult` for each message in the order of
        the source; ``await sender.send_stream(source)`` sends all and returns how many there were. No more than
        ``max_in_flight`` messages are held, so the source is read no faster than the broker takes its messages.

        The first message that fails ends the stream with an error that names it, after the outcomes of those that were
        under way; with ``errors="return"`` it is a result like the others. ``timeout`` is that of each message.
        """
        if errors not in ("raise", "return"):
            raise ValueError(f"errors is 'raise' or 'return', not {quoted(errors)}")
        deadline_of(timeout)
        self._check_open()
        return SendStream(self, messages, timeout, errors, self._window)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch to be filled with as many messages as fit into one send, at most what the queue or topic takes."""
        if max_size_in_bytes is not None:
            count_of(max_size_in_bytes, "max_size_in_bytes")
        entity = await self._ready(deadline_of(None))
        largest = min(entity.largest_message, MAXIMUM_CALL_BYTES)
        if max_size_in_bytes is not None and max_size_in_bytes > largest:
            raise ValueError(
                f"max_size_in_bytes is {max_size_in_bytes}; the {entity.record.kind} {entity.name!r} takes batches of "
                f"up to {largest} bytes"
            )
        batch = ServiceBusMessageBatch(largest if max_size_in_bytes is None else max_size_in_bytes)
        contents_of(batch).prepare = partial(self._telemetry.create, entity.name)
        return batch

    async def close(self) -> None:
        """Take no more messages, and wait until the outcome of all that are under way is known."""
        self._closed = True
        if not self._connection.orphaned:
            for stream in list(self._streams):
                await stream.halt()
            await self._throttle.drained()
        self._on_close(self)

    # -- the way of a message ------------------------------------------------------------------------------------------

    async def _send_batch(self, batch: ServiceBusMessageBatch, entity: Entity, deadline: float) -> list[int]:
        """A batch is encoded already, as for a queue that detects duplicates."""
        if not len(batch):
            return []
        contents = contents_of(batch)
        round_ = contents.use_ids()
        messages, made = contents.messages, list(contents.outgoing)
        if not entity.detects_duplicates:
            made = [one._replace(message_id=b"") for one in made]
        if entity.routing is not None or entity.partitioned or entity.record.settings.sessions:
            # Judged, and placed, as they were when they were added, whatever was done to them since.
            messages = [from_content(decode(one.payload)) for one in made]
        try:
            return await self._send(messages, made, batch.size_in_bytes, entity, deadline)
        except BaseException:
            contents.keep_ids(round_)
            raise

    async def _send_watched(self, message: MessageTypes | ServiceBusMessageBatch, deadline: float) -> None:
        """Send, and have it in spans, metrics and the log: from before the entity is looked for, which may fail."""
        batch = message if isinstance(message, ServiceBusMessageBatch) else None
        listed = as_messages(message) if batch is None else list(contents_of(batch).messages)
        if not listed:
            await self._ready(deadline)
            return
        encoded = batch is not None
        with self._telemetry.operation("send", self._destination, messages=listed, encoded=encoded) as operation:
            entity = await self._ready(deadline)
            if batch is None:
                operation.numbered(await self._encoded(listed, entity, deadline))
            else:
                operation.numbered(await self._send_batch(batch, entity, deadline))

    @property
    def _destination(self) -> str:
        """The entity in spans and the log: as it is written in the registry, as soon as that is known."""
        return self._name if self._entity is None else self._entity.name

    async def _encoded(self, messages: list[ServiceBusMessage], entity: Entity, deadline: float) -> list[int]:
        detects = entity.detects_duplicates
        made: list[Outgoing] = []
        ids: list[str | None] = []
        try:
            for message in messages:
                made.append(outgoing(message, detects_duplicates=detects))
                ids.append(use_id(message))  # at once: the same object may come again
            return await self._send(messages, made, sum(len(one.payload) for one in made), entity, deadline)
        except BaseException:
            for message, message_id in zip(messages, ids, strict=False):  # which of them have got an id by then
                keep_id(message, message_id)
            raise

    async def _send(
        self,
        messages: Sequence[ServiceBusMessage],
        made: Sequence[Outgoing],
        size: int,
        entity: Entity,
        deadline: float,
    ) -> list[int]:
        job, first = await self._first_of(messages, made, size, entity, deadline)
        return job.numbers(first)

    async def _first_of(
        self,
        messages: Sequence[ServiceBusMessage],
        made: Sequence[Outgoing],
        size: int,
        entity: Entity,
        deadline: float,
    ) -> tuple[SendJob, int]:
        """Send messages. Returns their job and the number of the first one."""
        job = await self._begin(messages, made, size, entity, deadline)
        try:
            return job, await job.future
        except asyncio.CancelledError:
            _untaken(job.future)
            raise

    async def _begin(
        self,
        messages: Sequence[ServiceBusMessage],
        made: Sequence[Outgoing],
        size: int,
        entity: Entity,
        deadline: float,
        *,
        ordered: bool = False,
    ) -> SendJob:
        """Put messages on their way, as soon as there is room; the job brings their outcome.

        What is ``ordered`` is never overtaken, in its partition, by what is put on its way later and is ordered too.
        """
        count = len(made)
        if entity.record.settings.sessions:
            require_sessions(entity, messages)
        most = entity.largest_message if count == 1 else min(entity.largest_message, MAXIMUM_CALL_BYTES)
        if size > most or count > MAXIMUM_CALL_MESSAGES:
            raise too_large(entity, count, size)
        if entity.partitioned:
            key = self._key(messages, entity)
            pinned = None if key is None else entity.pinned(key)
        else:
            pinned = entity.partition_client(entity.numbers[0])
        throttle = self._throttle
        waits = not throttle.try_take(count, size)
        if waits:
            try:
                await throttle.take(count, size, deadline)
            except OperationTimeoutError as error:
                error.entity = entity.name
                raise
        try:  # nothing stays taken by what does not get under way
            if waits:
                self._check_open()
            facts: Sequence[Facts | None] = ()
            if entity.routing is not None:
                facts = self._for_a_topic(entity, messages, made)
            if pinned is not None:
                sending = pinned.sending
                job = SendJob(made, size, deadline, throttle, movable=False, ordered=ordered, facts=facts)
            else:
                sending = entity.next_partition_client().sending
                job = SendJob(made, size, deadline, throttle, movable=True, facts=facts)
        except BaseException as error:
            throttle.release(count, size)
            if not isinstance(error, Exception) or isinstance(error, (ServiceBusError, TypeError, ValueError)):
                raise
            _log.exception("%s: a message could not be sent because of a defect", entity.name)
            unmade = UnmadeError(error)
            unmade.entity = entity.name
            raise unmade from error
        _ = sending.submit(job)  # the job has the future
        return job

    def _for_a_topic(
        self, entity: Entity, messages: Sequence[ServiceBusMessage], made: Sequence[Outgoing]
    ) -> list[Facts | None]:
        """What rules see of each message. What is to be enqueued later is judged then, and not now.

        Whether its time has passed is for the partition to say; what is near by the clock here is judged to be ready.
        """
        now = self._connection.clock.utc() * 1000
        if any(one.due is not None and one.due > now for one in made):
            self._scheduled_on(entity)
        near = now + _CLOCKS_APART
        return [
            facts_of(content_of(message)) if one.due is None or one.due <= near else None
            for message, one in zip(messages, made, strict=True)
        ]

    def _key(self, messages: Sequence[ServiceBusMessage], entity: Entity) -> str | bytes | None:
        """What says which partition messages belong to: one key for all of them, or none."""
        keys: dict[str | bytes, None] = {}
        for message in messages:
            key: str | bytes | None = routing_key(message)
            if key is None and entity.detects_duplicates:
                key = message_key(message)
            if key is not None:
                keys[key] = None
        if len(keys) > 1:
            shown = ", ".join([*map(repr, list(keys)[:3]), "…"][: len(keys)])
            raise ValueError(
                f"The messages have different keys ({shown}), and so belong to "
                f"different partitions of {entity.name!r}: they cannot be taken all together or not at all. Give them "
                "one partition_key, or send each by itself, for instance with send_stream()."
            )
        return next(iter(keys), None)

    async def _ready(self, deadline: float) -> Entity:
        self._check_open()
        entity = self._entity
        if entity is None or entity.gone:
            entity = self._entity = await self._connection.entity(self._name, deadline, self._create)
            self._check_open()
        if entity.routing is None and entity.record.kind != "queue":
            await self._open_topic(entity, deadline)
        return entity

    async def _open_topic(self, entity: Entity, deadline: float) -> None:
        if entity.record.kind == "subscription":
            raise MessagingEntityNotFoundError(
                f"{entity.name!r} is a subscription, which takes what its topic hands to it: send to the topic.",
                outcome=Outcome.NEVER_SENT,
            )
        await entity.load_routing(deadline)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("The sender is closed: get another one from the client.")
        self._connection.check_open()


def _untaken(future: asyncio.Future[Any]) -> None:
    """Log the error of a send whose caller was cancelled in the very moment in which it failed."""
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.warning("a send failed that no caller waited for any more: %s", error)
