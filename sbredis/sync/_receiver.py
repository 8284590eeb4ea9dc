"""Receiving messages from a queue or a subscription, and settling them."""

# Made by tools/make_sync from sbredis/aio/_receiver.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from sbredis import aio
from sbredis._public import public
from sbredis.aio._receiver import take_back, take_back_by_number
from sbredis.model import (
    PrimitiveTypes,
    RedriveBudget,
    RedriveResult,
    RuleFilter,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from sbredis.sync._bridge import Bridge
from sbredis.sync._facade import Facade
from sbredis.sync._session import ServiceBusSession

__all__ = ["ServiceBusReceiver"]


@public
class ServiceBusReceiver(Facade[aio.ServiceBusReceiver], Iterator[ServiceBusReceivedMessage]):
    """Receives messages from one queue or subscription, from one of its sessions, or from its dead-letter queue.

    Made by :meth:`ServiceBusClient.get_queue_receiver` and ``get_subscription_receiver``.

    A message that was received is locked for the receiver until it is settled: completed, abandoned, deferred or
    dead-lettered. The lock also ends after its duration, unless it is renewed. In the mode ``RECEIVE_AND_DELETE`` a
    message leaves the queue when it is received. All calls may be made concurrently.

    Several threads may use the receiver at the same time. Each message goes to only one of these threads.

    If a thread is interrupted while it receives, no message stays locked for it.
    """

    def __init__(self, bridge: Bridge, receiver: aio.ServiceBusReceiver) -> None:
        super().__init__(bridge, receiver)
        # If a caller is interrupted at the moment when messages arrive for it, this function runs in the loop.
        self._take_back = partial(take_back, receiver)

    # -- properties, opening -------------------------------------------------------------------------------------------

    @property
    def entity_path(self) -> str:
        """The path of the queue or subscription that the receiver receives from, with the sub-queue if there is one."""
        return self._aio.entity_path

    @property
    def client_identifier(self) -> str:
        """The name of this receiver in logs."""
        return self._aio.client_identifier

    @property
    def receive_mode(self) -> ServiceBusReceiveMode:
        """Whether received messages are locked or deleted."""
        return self._aio.receive_mode

    @property
    def prefetch_count(self) -> int:
        """The number of messages that the receiver fetches ahead of its callers, 0 to 50,000.

        It can be changed while the receiver is open. If fewer messages are to be kept than before, the receiver
        releases the others, without an increase of their delivery counts.
        """
        return self._aio.prefetch_count

    @prefetch_count.setter
    def prefetch_count(self, value: int) -> None:
        self._bridge.make(setattr, self._aio, "prefetch_count", value)

    @property
    def session(self) -> ServiceBusSession | None:
        """Always ``None``, because only a :class:`ServiceBusSessionReceiver` has a session."""
        return None

    def process_span(
        self,
        message: ServiceBusReceivedMessage | Sequence[ServiceBusReceivedMessage],
        *,
        continue_trace: bool = True,
    ) -> AbstractContextManager[object]:
        """Return a context manager for handling a message. It records a span ``process <entity>`` and a metric.

        With ``continue_trace``, the span is part of the trace in which the message was sent. It is a child of the span
        of the send, or of the span ``create`` if the message was sent in a batch. It also links to the span that is
        current here, if there is one. Without ``continue_trace``, or if the message carries no trace, the span is a
        child of the current span, and links to the span of the send. For a list of several messages, the span is a
        child of the current span, and links to the sends of all of them.

        The span includes everything inside the context, such as settling the message. If an exception leaves the
        context, the span is marked as failed, and the exception propagates.

        Use the context manager with ``with``, in asynchronous code too. It does nothing if no SDK of OpenTelemetry is
        set up.
        """
        return self._aio.process_span(message, continue_trace=continue_trace)

    @property
    def traces(self) -> bool:
        """Whether :meth:`process_span` records anything now: an SDK of OpenTelemetry is set up, or the log is at DEBUG.

        A program that handles many messages can leave out the context manager if it is false. An addition of sbredis.
        """
        return self._aio.traces

    def __enter__(self) -> Self:
        """Connect. A session receiver also accepts its session. If one of these steps fails, close the receiver."""
        try:
            self._bridge.call(self._aio.__aenter__)
        except Exception:
            raise  # the asynchronous receiver has closed itself
        except BaseException:
            self.close()  # the receiver may have accepted a session, and Python calls no __exit__ if __enter__ raises
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bridge.finish(partial(self._aio.__aexit__, kind, error, traceback))

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None, *, gather: bool = True
    ) -> list[ServiceBusReceivedMessage]:
        """Receive up to ``max_message_count`` messages.

        The call waits for the first message, and then only as long as further messages keep coming. It returns an empty
        list if no message came within ``max_wait_time`` seconds. The default is the ``max_wait_time`` of the receiver,
        or 60 if the receiver has none. With 0 the call returns the messages that are there now. With ``gather=False``
        the call waits for no further messages, but returns all messages that arrived together with the first.

        If no partition of the entity has answered when the wait ends, the call waits up to ten seconds more for the
        first answer, and then raises :class:`~sbredis.exceptions.OperationTimeoutError`. If only some partitions do
        not answer, the call ends in time, or at most half a second later. With 0 it passes them over after one to two
        seconds.
        """
        return self._bridge.call_undoable(
            self._take_back, self._aio.receive_messages, max_message_count, max_wait_time, gather=gather
        )

    # -- credit --------------------------------------------------------------------------------------------------------

    def add_credit(self, count: int) -> None:
        """Let the broker deliver up to ``count`` messages, 0 to 50,000, whether or not a call waits for them.

        It is the link credit of AMQP, for programs that pass messages on, such as gateways. The credit is what is left:
        each message that comes uses one, a second call replaces what the first one has left, and 0 is a pause. The
        messages stay in the receiver until :meth:`receive_messages` or the iteration takes them. If a message has
        waited for half of its lock, it is released, and its credit is used all the same. A call that waits for more
        messages than there is credit gets them too. An addition of sbredis.
        """
        self._bridge.call(self._aio.add_credit, count)

    def drain(self) -> int:
        """Use the credit for messages that are ready, and withdraw the rest. Return the number of messages to receive.

        The call returns when all partitions of the entity have answered: then no more messages come by credit. If one
        of them does not answer within ten seconds, it raises an error, and the credit is withdrawn as soon as it can
        be reached. An addition of sbredis.
        """
        return self._bridge.call(self._aio.drain)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        """Wait for the next message and return it. The iteration ends if no message comes within ``max_wait_time``."""
        for message in self._bridge.call_undoable(self._take_back, self._next):
            return message
        raise StopIteration

    def receive_deferred_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive deferred messages by their sequence numbers. They are locked or deleted like all received messages.

        If one of the messages does not exist, the call receives none of them and raises
        :class:`~sbredis.exceptions.MessageNotFoundError`. If the time to live of a message is over, the request makes
        it expire, and it counts as missing. Many large messages need several calls to the server.
        """
        return self._bridge.call_undoable(
            take_back_by_number, self._aio.receive_deferred_messages, sequence_numbers, timeout=timeout
        )

    def receive_messages_by_number(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive messages by their sequence numbers, also active and delayed ones, in front of all other messages.

        If one of them is not there, is scheduled or locked, the call receives none of them and raises
        :class:`~sbredis.exceptions.MessageNotFoundError`. Messages of a session need the receiver of the session.
        """
        return self._bridge.call_undoable(
            take_back_by_number, self._aio.receive_messages_by_number, sequence_numbers, timeout=timeout
        )

    def delete_messages_by_number(self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None) -> None:
        """Delete the messages that :meth:`receive_messages_by_number` would receive: all of them, or none."""
        self._bridge.call(self._aio.delete_messages_by_number, sequence_numbers, timeout=timeout)

    def dead_letter_messages_by_number(
        self,
        sequence_numbers: int | Sequence[int],
        reason: str | None = None,
        error_description: str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Move the messages that :meth:`receive_messages_by_number` would receive to the dead-letter queue.

        If one of them is not there, none is moved. The call first locks the messages.
        """
        self._bridge.call(
            self._aio.dead_letter_messages_by_number, sequence_numbers, reason, error_description, timeout=timeout
        )

    def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Return messages as they are in the queue, in any state, without locking or changing them.

        Without a ``sequence_number`` it continues after the messages that this receiver has peeked or received. It may
        return fewer messages than there are. An empty list means that there are no more. With ``session_id`` it returns
        only messages of that session. It neither needs the lock on that session nor accepts the session.
        """
        return self._bridge.call(
            self._aio.peek_messages,
            max_message_count,
            sequence_number=sequence_number,
            session_id=session_id,
            timeout=timeout,
        )

    # -- settling ------------------------------------------------------------------------------------------------------

    def complete_message(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> None:
        """Settle a message as done: remove it from the queue."""
        self._bridge.call(self._aio.complete_message, message, timeout=timeout)

    def complete_messages(self, messages: Iterable[ServiceBusReceivedMessage], *, timeout: float | None = None) -> None:
        """Settle many messages as done. This has the same effect as settling each message by itself, but is faster.

        The call completes all messages whose locks hold. If the locks of other messages have ended, it then raises a
        :class:`~sbredis.exceptions.MessageLockLostError`. ``sequence_numbers`` of the error name the messages that were
        not completed.
        """
        self._bridge.call(self._aio.complete_messages, list(messages), timeout=timeout)

    def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Unlock a message, so that it can be received again immediately or after a delay.

        This counts as a failed delivery. A message that was delivered as often as the queue allows goes to the
        dead-letter queue. The application properties in ``properties_to_modify`` are changed or added.
        """
        self._bridge.call(
            self._aio.abandon_message, message, delay=delay, properties_to_modify=properties_to_modify, timeout=timeout
        )

    def release_message(
        self, message: ServiceBusReceivedMessage, *, interrupted: bool = False, timeout: float | None = None
    ) -> None:
        """Unlock a message without counting a delivery.

        The message returns to its place and can be received again immediately. Use this for a message that was not
        handled, for instance because the process is about to end. With ``interrupted``, the work on it has begun:
        :attr:`ServiceBusReceivedMessage.interrupted` is true in the next delivery, and only in that one.
        """
        self._bridge.call(self._aio.release_message, message, interrupted=interrupted, timeout=timeout)

    def defer_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Set a message aside: it can be received again only by its sequence number.

        This counts as a failed delivery. A message that was delivered as often as the queue allows goes to the
        dead-letter queue instead.
        """
        self._bridge.call(self._aio.defer_message, message, properties_to_modify=properties_to_modify, timeout=timeout)

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Move a message to the dead-letter queue, with the reason."""
        self._bridge.call(
            self._aio.dead_letter_message,
            message,
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
            timeout=timeout,
        )

    def renew_message_lock(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> datetime:
        """Lock a message for the full duration from now on, and return the time when the lock ends."""
        return self._bridge.call(self._aio.renew_message_lock, message, timeout=timeout)

    # -- deleting ------------------------------------------------------------------------------------------------------

    def delete_messages(
        self,
        max_message_count: int,
        *,
        before_enqueued_time_utc: datetime | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Delete up to ``max_message_count`` messages, at most 4,000; return the number deleted.

        With ``before_enqueued_time_utc`` it deletes only messages that were enqueued before that time. It keeps locked
        and scheduled messages, and deletes deferred ones. Within a partition it deletes the oldest messages first. With
        ``session_id`` it deletes only messages of that session. The receiver does not need the lock on that session.
        """
        return self._bridge.call(
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
        progress: Callable[[int], object] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Delete all messages, or those that were enqueued before a time; return the number deleted.

        It keeps locked and scheduled messages, and deletes deferred ones. It makes as many calls as it needs. With
        ``session_id`` it deletes only messages of that session. The receiver does not need the lock on that session.

        After each of its calls it calls ``progress`` with the number of messages deleted so far. An error of that
        function ends the purge and is raised; what was deleted stays deleted.
        """
        return self._bridge.call(
            self._aio.purge_messages,
            before_enqueued_time_utc=before_enqueued_time_utc,
            session_id=session_id,
            progress=progress,
            timeout=timeout,
        )

    # -- redriving -----------------------------------------------------------------------------------------------------

    def redrive_messages(
        self,
        *,
        to: str | None = None,
        sequence_numbers: int | Sequence[int] | None = None,
        reason: str | None = None,
        matching: str | RuleFilter | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        rate: float | None = None,
        budget: RedriveBudget | None = None,
        cursor: str | None = None,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
        timeout: float | None = None,
    ) -> RedriveResult:
        """Move dead letters back to the queue or subscription in which they died, as new messages, or to the queue or
        topic ``to``.

        The receiver must be one of a dead-letter queue. Without further arguments, the call moves all dead letters that
        no receiver holds. It moves only those with these ``sequence_numbers``, with this ``reason``, or ``matching``
        this filter in the language of rules, which can also use ``sys.DeadLetterReason`` and
        ``sys.DeadLetterErrorDescription``. Several of these conditions must all hold. The copies of other subscriptions
        do not change.

        A message that is moved is active under a new sequence number. Its delivery count, its enqueued time and its
        time to live begin again, and it loses its reason and its description. It is the last message of its session.
        ``properties_to_modify`` are added to its application properties, or replace them. Each message is moved once:
        messages that die again during the call stay in the dead-letter queue.

        From a transfer dead-letter queue, messages go to the entity to which they were sent. They wait to be moved
        there, as they did before.

        ``rate`` limits the messages a second. With a ``budget`` the call stops by itself when too many of the messages
        have died again. ``cursor`` is that of an earlier result: the call goes on where that redrive has ended. With
        ``dry_run`` the call only counts the messages, by reason and by fingerprint. ``timeout`` limits each call to the
        server.

        The call calls ``progress`` with the number of messages moved so far, or of a dry run counted so far, again and
        again and at its end. An error of that function ends the redrive and is raised; what was moved stays moved.

        Raises :class:`~sbredis.exceptions.RuleSyntaxError` if the filter is not valid,
        :class:`~sbredis.exceptions.MessageNotFoundError` if one of the ``sequence_numbers`` is not there, and
        :class:`~sbredis.exceptions.RedriveInProgressError` if another redrive of this queue is running. In these cases
        nothing was moved, unless the client was away for so long that another redrive has begun.
        """
        return self._bridge.call(
            self._aio.redrive_messages,
            to=to,
            sequence_numbers=sequence_numbers,
            reason=reason,
            matching=matching,
            properties_to_modify=properties_to_modify,
            rate=rate,
            budget=budget,
            cursor=cursor,
            dry_run=dry_run,
            progress=progress,
            timeout=timeout,
        )

    # -- opening and closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop receiving. Release prefetched messages, without an increase of their delivery counts.

        Messages that callers hold stay locked: another receiver of the same queue can settle them. A session receiver
        releases its session with all of the session's messages, so that other receivers can accept the session.
        """
        self._bridge.finish(self._aio.close)

    def next(self) -> ServiceBusReceivedMessage:
        """Return the next message, like an iteration. Raise :class:`StopIteration` after ``max_wait_time``."""
        return self.__next__()

    async def _next(self) -> list[ServiceBusReceivedMessage]:
        """Return the next message of an iteration, in a list that is empty at its end."""
        async for message in self._aio:
            return [message]
        return []
