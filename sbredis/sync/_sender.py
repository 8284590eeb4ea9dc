"""Sending messages to a queue or a topic."""

# Made by tools/make_sync from sbredis/aio/_sender.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, Self

from sbredis import aio
from sbredis._public import public
from sbredis.aio._sender import window_of
from sbredis.model import MessageTypes, ServiceBusMessageBatch
from sbredis.sync._facade import Facade
from sbredis.sync._stream import SendStream

__all__ = ["ServiceBusSender"]


@public
class ServiceBusSender(Facade[aio.ServiceBusSender]):
    """Sends messages to one queue or topic. Made by :meth:`ServiceBusClient.get_queue_sender` and ``get_topic_sender``.

    Calls may be made concurrently, and should be: calls at the same moment share a round trip. At most
    ``max_in_flight`` messages, and ``max_in_flight_bytes`` in total, are under way at a time; further calls wait. Every
    call ends with the outcome of its messages. :meth:`close` waits for the messages that are still under way.

    Several threads may use the sender at the same time.
    """

    @property
    def entity_name(self) -> str:
        """The queue or topic that the sender sends to."""
        return self._aio.entity_name

    @property
    def client_identifier(self) -> str:
        """The name of this sender in logs."""
        return self._aio.client_identifier

    @property
    def in_flight(self) -> int:
        """The number of messages that are under way: sent, but not answered yet."""
        return self._aio.in_flight

    def __enter__(self) -> Self:
        """Connect. If that fails, close the sender."""
        self._bridge.call(self._aio.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send_messages(
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
        self._bridge.call(self._aio.send_messages, message, timeout=timeout)

    def schedule_messages(
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
        return self._bridge.call(self._aio.schedule_messages, messages, schedule_time_utc, timeout=timeout)

    def cancel_scheduled_messages(self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None) -> None:
        """Cancel messages that are scheduled and not enqueued yet.

        If one of the messages does not exist, the call cancels none and raises
        :class:`~sbredis.exceptions.MessageNotFoundError`. But a cancellation on a partitioned queue, or of more than
        1,000 messages, needs several calls to the server. In that case the error lists the messages that earlier calls
        had already cancelled.
        """
        self._bridge.call(self._aio.cancel_scheduled_messages, sequence_numbers, timeout=timeout)

    def send_stream(
        self,
        messages: Iterable[Any],
        *,
        timeout: float | None = None,
        errors: Literal["raise", "return"] = "raise",
        progress: Callable[[int], object] | None = None,
    ) -> SendStream:
        """Send each item of an iterable as a message of its own, as fast as the throttle permits.

        ``for result in sender.send_stream(source)`` gives a :class:`SendResult` for each message in the order of the
        source. ``sender.send_stream(source).count()`` sends all of them and returns their number. At most
        ``max_in_flight`` messages are held, so the source is read no faster than the broker accepts its messages. The
        iterating thread reads the source.

        The first message that fails ends the stream: the iteration raises an error that names the message, after the
        results of all earlier messages. With ``errors="return"`` the stream continues, and the failure is in the result
        of the message. ``timeout`` applies to each message by itself. The iterating thread calls ``progress`` with the
        number of messages that were accepted so far, before the result of each. An error of that function ends the
        stream and is raised.
        """
        return SendStream(
            self._bridge,
            self._aio,
            messages,
            timeout=timeout,
            errors=errors,
            progress=progress,
            window=window_of(self._aio),
        )

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Make an empty batch for one send. Its size is limited to the largest size that the queue or topic accepts."""
        return self._bridge.call(self._aio.create_message_batch, max_size_in_bytes)

    def close(self) -> None:
        """Accept no more messages, and wait for the outcome of all messages that are under way."""
        self._bridge.finish(self._aio.close)
