"""Sending messages to a queue or a topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from sbredis._quoting import quoted
from sbredis.aio._stream import SendStream
from sbredis.client import TIMEOUT, Throttle, count_of, deadline_of, progress_of, sequence_numbers_of
from sbredis.engine import MAXIMUM_CALL_BYTES
from sbredis.model import (
    MessageTypes,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    as_messages,
    contents_of,
    keep_id_of,
    prepared,
)
from sbredis.sending import Outbox, cancel_scheduled, log_unread_error, scheduled, size_of

if TYPE_CHECKING:
    from sbredis.client import Connection, Creation
    from sbredis.telemetry import Telemetry

__all__ = ["ServiceBusSender", "outbox_of", "window_of"]


class ServiceBusSender:
    """Sends messages to one queue or topic. Made by :meth:`ServiceBusClient.get_queue_sender` and ``get_topic_sender``.

    Calls may be made concurrently, and should be: calls at the same moment share a round trip. At most
    ``max_in_flight`` messages, and ``max_in_flight_bytes`` in total, are under way at a time; further calls wait. Every
    call ends with the outcome of its messages. :meth:`close` waits for the messages that are still under way.
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
        on_close: Callable[[Any], None],
    ) -> None:
        self._connection = connection
        self._reference = connection.reference()
        self._telemetry = telemetry
        self._name = name
        self._client_identifier = client_identifier
        throttle = Throttle(max_in_flight, max_in_flight_bytes)
        self._outbox = Outbox(connection, name, create, throttle)
        self._window = max_in_flight
        self._streams: set[SendStream] = set()
        self._on_close = on_close

    @property
    def entity_name(self) -> str:
        """The queue or topic that the sender sends to."""
        return self._name

    @property
    def client_identifier(self) -> str:
        """The name of this sender in logs."""
        return self._client_identifier

    @property
    def in_flight(self) -> int:
        """The number of messages that are under way: sent, but not answered yet."""
        return self._outbox.throttle.messages

    async def __aenter__(self) -> Self:
        """Connect. If that fails, close the sender."""
        try:
            with self._telemetry.operation("open", self._name):
                await self._outbox.ready(deadline_of(None))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<ServiceBusSender {self._name!r} {'closed' if self._outbox.closed else 'open'}>"

    # -- sending -------------------------------------------------------------------------------------------------------

    async def send_messages(
        self,
        message: MessageTypes | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
    ) -> None:
        """Send a message, several messages or a batch, and return when the broker has accepted all of them.

        The broker accepts either all messages of a call or none. On a partitioned queue, the messages of one call must
        not have different keys. ``timeout`` limits the whole call, in seconds; the default is 60.

        Raises :class:`~sbredis.exceptions.MessageSizeExceededError` if a message or the batch is too large,
        :class:`~sbredis.exceptions.ServiceBusQuotaExceededError` if the queue is full,
        :class:`~sbredis.exceptions.MessagingEntityDisabledError` if the queue does not accept messages, and connection
        errors. ``outcome`` of the error says whether the messages may have been accepted.

        A message without an id gets one. If the send fails, or its outcome is unknown, the message keeps the id. So a
        queue that detects duplicates recognises a repetition of the send. A message that was sent successfully gets a
        new id when it is sent again.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TIMEOUT if timeout is None else deadline_of(timeout, loop)
        if self._telemetry.watching:
            await self._send_watched(message, deadline)
            return
        outbox = self._outbox
        entity = outbox.entity
        if entity is None or outbox.closed or entity.gone or entity.loop is not loop:
            entity = await outbox.ready(deadline)
        if type(message) is ServiceBusMessage:
            made = prepared(message, detects_duplicates=entity.detects_duplicates, sent=True)
            future = None
            try:
                future = outbox.begin_one(message, made, entity, deadline)
                if future is None:
                    form = made if isinstance(made, bytes) else (made,)
                    future = await outbox.begin((message,), form, size_of(made), entity, deadline)
                await future
            except BaseException as error:
                keep_id_of(message, made)
                if future is not None and isinstance(error, asyncio.CancelledError):
                    log_unread_error(future)
                raise
            return
        if isinstance(message, ServiceBusMessageBatch):
            await outbox.send_batch(contents_of(message), entity, deadline)
            return
        listed = as_messages(message)
        if listed:
            await outbox.send(listed, entity, deadline)

    async def schedule_messages(
        self,
        messages: MessageTypes,
        schedule_time_utc: datetime | Sequence[datetime],
        *,
        timeout: float | None = None,
    ) -> list[int]:
        """Schedule messages to be enqueued at a later time, and return their sequence numbers.

        The numbers are needed to cancel the messages. They are in the order of the messages. A message gets a new
        number when it is enqueued. ``schedule_time_utc`` is one time for all messages, or a list with one time for each
        message. The broker accepts either all messages or none.
        """
        deadline = deadline_of(timeout)
        listed = scheduled(as_messages(messages), schedule_time_utc)
        outbox, count = self._outbox, len(listed)
        with self._telemetry.operation("schedule", outbox.destination, count=count, messages=listed) as operation:
            entity = await outbox.ready(deadline)
            numbers = await outbox.send(listed, entity, deadline) if listed else []
            operation.numbered(numbers)
            return numbers

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> None:
        """Cancel messages that are scheduled and not enqueued yet.

        If one of the messages does not exist, the call cancels none and raises
        :class:`~sbredis.exceptions.MessageNotFoundError`. But a cancellation on a partitioned queue, or of more than
        1,000 messages, needs several calls to the server. In that case the error lists the messages that earlier calls
        had already cancelled.
        """
        deadline = deadline_of(timeout)
        numbers = sequence_numbers_of(sequence_numbers)
        with self._telemetry.operation("cancel_scheduled", self._outbox.destination, count=len(numbers)) as operation:
            operation.numbered(numbers)
            entity = await self._outbox.ready(deadline)
            if numbers:
                await cancel_scheduled(entity, numbers, deadline)

    def send_stream(
        self,
        messages: AsyncIterable[Any] | Iterable[Any],
        *,
        timeout: float | None = None,
        errors: Literal["raise", "return"] = "raise",
        progress: Callable[[int], object] | None = None,
    ) -> SendStream:
        """Send each item of an iterable as a message of its own, as fast as the throttle permits.

        ``async for result in sender.send_stream(source)`` gives a :class:`SendResult` for each message in the order of
        the source. ``await sender.send_stream(source)`` sends all of them and returns their number. At most
        ``max_in_flight`` messages are held, so the source is read no faster than the broker accepts its messages.

        The first message that fails ends the stream: the iteration raises an error that names the message, after the
        results of all earlier messages. With ``errors="return"`` the stream continues, and the failure is in the result
        of the message. ``timeout`` applies to each message by itself. ``progress`` is called with the number of
        messages that were accepted so far, before the result of each. An error of that function ends the stream and is
        raised.
        """
        if errors not in ("raise", "return"):
            raise ValueError(f"errors must be 'raise' or 'return', not {quoted(errors)}")
        deadline_of(timeout)
        told = progress_of(progress)
        self._outbox.check_open()
        return SendStream(
            self._outbox,
            messages,
            telemetry=self._telemetry,
            streams=self._streams,
            timeout=timeout,
            errors=errors,
            progress=told,
            window=self._window,
            reference=self._reference,
        )

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Make an empty batch for one send. Its size is limited to the largest size that the queue or topic accepts."""
        if max_size_in_bytes is not None:
            count_of(max_size_in_bytes, "max_size_in_bytes")
        entity = await self._outbox.ready(deadline_of(None))
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
        """Accept no more messages, and wait for the outcome of all messages that are under way."""
        self._outbox.closed = True
        if not self._connection.orphaned:
            for stream in list(self._streams):
                await stream.halt()
            await self._outbox.throttle.drained()
        self._on_close(self)

    async def _send_watched(self, message: MessageTypes | ServiceBusMessageBatch, deadline: float) -> None:
        """Send with spans, metrics and log records.

        These begin before the look-up of the entity, because the look-up may fail.
        """
        batch = message if isinstance(message, ServiceBusMessageBatch) else None
        listed = as_messages(message) if batch is None else list(contents_of(batch).messages)
        if not listed:
            await self._outbox.ready(deadline)
            return
        encoded = batch is not None
        with self._telemetry.operation("send", self._outbox.destination, messages=listed, encoded=encoded) as operation:
            entity = await self._outbox.ready(deadline)
            if batch is None:
                operation.numbered(await self._outbox.send(listed, entity, deadline))
            else:
                operation.numbered(await self._outbox.send_batch(contents_of(batch), entity, deadline))


def outbox_of(sender: ServiceBusSender) -> Outbox:
    """Return the part of a sender that sends, for the rest of the library."""
    return sender._outbox  # pyright: ignore[reportPrivateUsage]


def window_of(sender: ServiceBusSender) -> int:
    """Return how many messages a sender may have under way."""
    return sender._window  # pyright: ignore[reportPrivateUsage]
