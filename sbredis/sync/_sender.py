# pyright: reportPrivateUsage=false
"""Sending messages to a queue or a topic, from a thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from sbredis.aio._arguments import NoOptions, warn_of_unknown
from sbredis.model import MessageTypes, ServiceBusMessageBatch
from sbredis.sync._stream import SendStream

if TYPE_CHECKING:
    from sbredis import aio
    from sbredis.sync._portal import Portal

__all__ = ["ServiceBusSender"]


class ServiceBusSender:
    """Sends messages to one queue or topic. Made by :meth:`ServiceBusClient.get_queue_sender` and ``get_topic_sender``.

    Several threads may use it at once: what they send at the same moment shares a round trip. At most ``max_in_flight``
    messages of ``max_in_flight_bytes`` together are under way; who would send more waits. Every call ends with the
    outcome of its messages, and :meth:`close` waits for those that are still under way.
    """

    def __init__(self, portal: Portal, sender: aio.ServiceBusSender) -> None:
        self._portal = portal
        self._aio = sender

    @property
    def entity_name(self) -> str:
        """The queue or topic that it sends to."""
        return self._aio.entity_name

    @property
    def client_identifier(self) -> str:
        """What names this sender in logs."""
        return self._aio.client_identifier

    @property
    def in_flight(self) -> int:
        """How many messages are under way: sent, and not answered for yet."""
        return self._aio.in_flight

    def __enter__(self) -> Self:
        self._portal.call(self._aio.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._aio)

    def send_messages(
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
        self._portal.call(self._aio.send_messages, message, timeout=timeout)

    def schedule_messages(
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
        return self._portal.call(self._aio.schedule_messages, messages, schedule_time_utc, timeout=timeout)

    def cancel_scheduled_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None, **kwargs: Unpack[NoOptions]
    ) -> None:
        """Take back messages that are scheduled and not enqueued yet.

        Raises :class:`~sbredis.exceptions.MessageNotFoundError` if one of them is not there, and then cancels none. But
        several calls are needed on a partitioned queue, or for more than 1,000: what the first of them have cancelled
        the error says.
        """
        warn_of_unknown("cancel_scheduled_messages", kwargs)
        self._portal.call(self._aio.cancel_scheduled_messages, sequence_numbers, timeout=timeout)

    def send_stream(
        self,
        messages: Iterable[Any],
        *,
        timeout: float | None = None,
        errors: Literal["raise", "return"] = "raise",
    ) -> SendStream:
        """Send what an iterable brings, each message by itself, as fast as the throttle lets it.

        ``for result in sender.send_stream(source)`` brings a :class:`SendResult` for each message in the order of the
        source; ``sender.send_stream(source).count()`` sends all and returns how many there were. No more than
        ``max_in_flight`` messages are held, so the source is read no faster than the broker takes its messages. It is
        read by the thread that iterates.

        The first message that fails ends the stream with an error that names it, after the outcomes of those that were
        under way; with ``errors="return"`` it is a result like the others. ``timeout`` is that of each message.
        """
        return SendStream(self._portal, self._aio, messages, timeout=timeout, errors=errors, window=self._aio._window)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch to be filled with as many messages as fit into one send, at most what the queue or topic takes."""
        return self._portal.call(self._aio.create_message_batch, max_size_in_bytes)

    def close(self) -> None:
        """Take no more messages, and wait until the outcome of all that are under way is known."""
        self._portal.finish(self._aio.close)
