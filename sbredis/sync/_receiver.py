# pyright: reportPrivateUsage=false
"""Receiving messages from a queue or a subscription, and settling them, from a thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from sbredis.aio import ServiceBusSessionReceiver as AioSessionReceiver
from sbredis.aio._arguments import NoOptions, warn_of_unknown
from sbredis.model import PrimitiveTypes, ServiceBusReceivedMessage, ServiceBusReceiveMode
from sbredis.sync._session import ServiceBusSession, session_for

if TYPE_CHECKING:
    from sbredis import aio
    from sbredis.sync._portal import Portal

__all__ = ["ServiceBusReceiver", "ServiceBusSessionReceiver", "receiver_for"]


class ServiceBusReceiver(Iterator[ServiceBusReceivedMessage]):
    """Receives messages from one queue or subscription, a session of it, or its dead-letter queue.

    Made by :meth:`ServiceBusClient.get_queue_receiver` and ``get_subscription_receiver``.

    A message that was received is locked for the receiver until it is settled: completed, abandoned, deferred or
    dead-lettered; or until its lock ends, unless that is renewed. In the mode ``RECEIVE_AND_DELETE`` it is gone from
    the queue when it is received. Several threads may use it at once, and each message is given to one of them. A
    thread that is interrupted while it receives leaves nothing locked.
    """

    def __init__(self, portal: Portal, receiver: aio.ServiceBusReceiver) -> None:
        self._portal = portal
        self._aio = receiver

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def entity_path(self) -> str:
        """The queue or subscription that it receives from, with the sub-queue if it is one."""
        return self._aio.entity_path

    @property
    def client_identifier(self) -> str:
        """What names this receiver in logs."""
        return self._aio.client_identifier

    @property
    def receive_mode(self) -> ServiceBusReceiveMode:
        """Whether messages are locked or deleted when they are received."""
        return self._aio.receive_mode

    @property
    def session(self) -> ServiceBusSession | None:
        """``None``: only a :class:`ServiceBusSessionReceiver` has a session."""
        return None

    def __enter__(self) -> Self:
        """Connect; and accept the session, if it is to receive from one. If that fails, the receiver is closed."""
        try:
            self._portal.call(self._aio.__aenter__)
        except Exception:
            raise  # it is closed by now
        except BaseException:
            self.close()  # there is no __exit__ to come, and a session may have been accepted
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._portal.finish(partial(self._aio.__aexit__, kind, error, traceback))

    def __repr__(self) -> str:
        return repr(self._aio)

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None, *, gather: bool = True
    ) -> list[ServiceBusReceivedMessage]:
        """Up to so many messages: waits for the first one, and for more only while they come soon.

        Empty if none came within ``max_wait_time`` seconds; this call's, else the receiver's, else 60. With 0 it
        returns what is there now. With ``gather=False`` it returns as soon as it has a message, with those that came
        with it.
        """
        return self._portal.bring(
            self._take_back, self._aio.receive_messages, max_message_count, max_wait_time, gather=gather
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        """The next message. Waits for ever, unless the receiver has a ``max_wait_time``, which ends the iteration."""
        for message in self._portal.bring(self._take_back, self._aio._receive, 1, self._aio._max_wait_time):
            return message
        raise StopIteration

    def next(self) -> ServiceBusReceivedMessage:
        """The next message, as in an iteration; :class:`StopIteration` if none came within ``max_wait_time``."""
        return self.__next__()

    def receive_deferred_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None, **kwargs: Unpack[NoOptions]
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that were deferred, by their sequence numbers, locked or deleted like any others.

        Raises :class:`~sbredis.exceptions.MessageNotFoundError` if one of them is not there, and then gives none. A
        message whose time to live has passed is not there: it expires when it is asked for. Many large messages are
        received with several calls.
        """
        warn_of_unknown("receive_deferred_messages", kwargs)
        return self._portal.bring(
            self._take_back_deferred, self._aio.receive_deferred_messages, sequence_numbers, timeout=timeout
        )

    def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        session_id: str | None = None,
        timeout: float | None = None,
        **kwargs: Unpack[NoOptions],
    ) -> list[ServiceBusReceivedMessage]:
        """Messages as they are in the queue, whatever their state, neither locked nor changed.

        Without a ``sequence_number`` it goes on after those that this receiver has peeked or received. May show fewer
        than there are; an empty list says that there are no more. With ``session_id`` it shows the messages of that
        session. This needs no lock on the session, and accepts none.
        """
        warn_of_unknown("peek_messages", kwargs)
        return self._portal.call(
            self._aio.peek_messages,
            max_message_count,
            sequence_number=sequence_number,
            session_id=session_id,
            timeout=timeout,
        )

    # What comes in the moment in which its caller is interrupted is not lost, and counts no delivery. In the loop:

    def _take_back(self, messages: list[ServiceBusReceivedMessage]) -> None:
        self._let_go(messages)
        if (inbox := self._aio._inbox) is not None:
            inbox._take_back(messages, first=True)

    def _take_back_deferred(self, messages: list[ServiceBusReceivedMessage]) -> None:
        self._let_go(messages)
        if (entity := self._aio._entity) is not None:
            self._aio._give_back(entity, messages)

    @staticmethod
    def _let_go(messages: list[ServiceBusReceivedMessage]) -> None:
        """Renew their locks no longer."""
        for message in messages:
            message._let_go()

    # -- deleting ------------------------------------------------------------------------------------------------------

    def delete_messages(
        self,
        max_message_count: int,
        *,
        before_enqueued_time_utc: datetime | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Delete up to so many messages, at most 4,000, that were enqueued before a time; return the number deleted.

        Those that are locked or scheduled stay. Deferred ones go as well. Oldest first, within a partition. With
        ``session_id`` it deletes messages of that session, which needs no lock on it.
        """
        return self._portal.call(
            self._aio.delete_messages,
            max_message_count,
            before_enqueued_time_utc=before_enqueued_time_utc,
            session_id=session_id,
            timeout=timeout,
        )

    def purge_messages(
        self,
        *,
        before_enqueued_time_utc: datetime | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Delete all messages that were enqueued before a time, or all there are; return the number deleted.

        Those that are locked or scheduled stay. Deferred ones go as well. Takes as many calls as it needs. With
        ``session_id`` it deletes the messages of that session, which needs no lock on it.
        """
        return self._portal.call(
            self._aio.purge_messages,
            before_enqueued_time_utc=before_enqueued_time_utc,
            session_id=session_id,
            timeout=timeout,
        )

    def process_span(
        self, message: ServiceBusReceivedMessage, *, continue_trace: bool = True
    ) -> AbstractContextManager[object]:
        """A context manager around what an application does with a message: a span ``process <entity>`` and a metric.

        With ``continue_trace`` the span is part of the trace in which the message was sent: a child of the span of the
        send, or of ``create`` for a message of a batch. It also links to the span that is current here, if there is
        one. Without it, or where the message carries no trace, the span is a child of the current span, and links to
        the one of the send. What is done inside, also settling the message, belongs to the span. An exception that
        leaves it makes it a failed span, and goes on.

        It does nothing where no SDK of OpenTelemetry is set up.
        """
        return self._aio.process_span(message, continue_trace=continue_trace)

    # -- settling ------------------------------------------------------------------------------------------------------

    def complete_message(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> None:
        """Settle a message as done: it is removed from the queue."""
        self._portal.call(self._aio.complete_message, message, timeout=timeout)

    def complete_messages(self, messages: Iterable[ServiceBusReceivedMessage], *, timeout: float | None = None) -> None:
        """Settle many messages as done: the same as each by itself, and faster.

        Those whose lock has ended are named by the :class:`~sbredis.exceptions.MessageLockLostError` that is raised in
        the end, as its ``sequence_numbers``; all others are completed.
        """
        self._portal.call(self._aio.complete_messages, list(messages), timeout=timeout)

    def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give a message back, to be received again, at once or after a delay; counted as a failed delivery.

        When it was delivered as often as the queue allows, it goes to the dead-letter queue. The application properties
        in ``properties_to_modify`` are changed or added.
        """
        self._portal.call(
            self._aio.abandon_message, message, delay=delay, properties_to_modify=properties_to_modify, timeout=timeout
        )

    def release_message(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> None:
        """Unlock a message without counting a delivery: it returns to its place, and is received again at once.

        For a message that was not worked on, for instance because the process is about to end.
        """
        self._portal.call(self._aio.release_message, message, timeout=timeout)

    def defer_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Set a message aside: it is received again by its sequence number only. Counted as a failed delivery.

        When it was delivered as often as the queue allows, it goes to the dead-letter queue instead.
        """
        self._portal.call(self._aio.defer_message, message, properties_to_modify=properties_to_modify, timeout=timeout)

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Move a message to the dead-letter queue, with why it is there."""
        self._portal.call(
            self._aio.dead_letter_message,
            message,
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
            timeout=timeout,
        )

    def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]
    ) -> datetime:
        """Lock a message for the full duration from now on, and return when the lock ends."""
        warn_of_unknown("renew_message_lock", kwargs)
        return self._portal.call(self._aio.renew_message_lock, message, timeout=timeout)

    def get_lock_handle(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> str:
        """What another process needs to settle this message or to renew its lock: :class:`ServiceBusSettler`.

        The handle is text that is safe in a URL. It is valid as long as the message is locked, through all renewals.
        Making it renews the lock, but not of a message that belongs to a session. Whoever has it can settle the
        message: keep it out of logs.
        """
        return self._portal.call(self._aio.get_lock_handle, message, timeout=timeout)

    def close(self) -> None:
        """Receive no more. What was fetched ahead is given back, which counts no delivery.

        Messages in the hands of callers stay locked: they can be settled through another receiver of the same queue.
        But a session is given back with all of its messages, for others to accept it.
        """
        self._portal.finish(self._aio.close)


class ServiceBusSessionReceiver(ServiceBusReceiver):
    """Receives the messages of one session, in their order.

    Made by :meth:`ServiceBusClient.get_queue_receiver` and ``get_subscription_receiver`` with a ``session_id``, and by
    ``accept_next_session``. It accepts the session when it is opened, and gives it back when it is closed.

    Leaving ``with receiver`` by an :class:`Exception` counts a failed delivery for each message that was handed out and
    is not settled, so that a message at which its handler fails reaches the delivery limit. An interruption and a lost
    lock count nothing; neither does :meth:`close`.
    """

    def __init__(self, portal: Portal, receiver: aio.ServiceBusSessionReceiver) -> None:
        super().__init__(portal, receiver)
        self._of_session = receiver
        self._session: ServiceBusSession | None = None

    @property
    def session(self) -> ServiceBusSession:
        """The session that it receives from. Raises :class:`ValueError` before it has accepted one."""
        if self._session is None:
            self._session = session_for(self._portal, self._of_session.session)
        return self._session


def receiver_for(portal: Portal, receiver: aio.ServiceBusReceiver) -> ServiceBusReceiver:
    """What threads see of a receiver."""
    if isinstance(receiver, AioSessionReceiver):
        return ServiceBusSessionReceiver(portal, receiver)
    return ServiceBusReceiver(portal, receiver)
