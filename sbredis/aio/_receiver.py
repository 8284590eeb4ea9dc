"""Receiving messages from a queue or a subscription, and settling them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sbredis import moving
from sbredis._public import public
from sbredis.client import (
    TIMEOUT,
    count_of,
    deadline_of,
    milliseconds_of,
    progress_of,
    seconds_of,
    sequence_numbers_of,
)
from sbredis.engine import (
    NEVER,
    SidePrefix,
    identifier,
    is_dead,
)
from sbredis.entities import SIDES, SUFFIXES
from sbredis.model import (
    PrimitiveTypes,
    RedriveBudget,
    RedriveResult,
    RuleFilter,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    Taking,
    hold_of,
)
from sbredis.receiving import (
    Deferred,
    EntityLookup,
    Inbox,
    InboxOptions,
    MessageInbox,
    MessageSettler,
    Peekings,
    SessionInbox,
    delay_of,
    purge,
    require_messages,
    require_no_sessions,
    require_not_forwarding,
    require_reason,
    require_receivable,
)
from sbredis.registry import require_unreserved
from sbredis.renewing import RenewalReport
from sbredis.telemetry import UNOBSERVED

if TYPE_CHECKING:
    from sbredis.aio._options import ReceiverOptions
    from sbredis.aio._session import ServiceBusSession
    from sbredis.client import Connection, Creation, Entity
    from sbredis.receiving import HeldSession
    from sbredis.telemetry import Telemetry

__all__ = [
    "ServiceBusReceiver",
    "mover_to",
    "prefetch_count_of",
    "report_of",
    "take_back",
    "take_back_by_number",
    "watch_redrives",
]

_CLOSED = "The receiver is closed. Get another receiver from the client."
_MOST_DELETED = 4000
_MOST_PREFETCHED = 50_000


def prefetch_count_of(value: int) -> int:
    """Return the number of messages to fetch ahead. Raise if it is invalid."""
    return count_of(value, "prefetch_count", _MOST_PREFETCHED, least=0)


@public
class ServiceBusReceiver(AsyncIterator[ServiceBusReceivedMessage]):
    """Receives messages from one queue or subscription, from one of its sessions, or from its dead-letter queue.

    Made by :meth:`ServiceBusClient.get_queue_receiver` and ``get_subscription_receiver``.

    A message that was received is locked for the receiver until it is settled: completed, abandoned, deferred or
    dead-lettered. The lock also ends after its duration, unless it is renewed. In the mode ``RECEIVE_AND_DELETE`` a
    message leaves the queue when it is received. All calls may be made concurrently.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        telemetry: Telemetry,
        *,
        client_identifier: str,
        create: Creation | None,
        options: ReceiverOptions,
        among: set[Any],
    ) -> None:
        self._connection = connection
        self._reference = connection.reference()
        self._telemetry = telemetry
        self._lookup = EntityLookup(connection, name, create=create, when_closed=_CLOSED)
        sub_queue = options.sub_queue
        self._client_identifier = client_identifier
        self._sub_queue = sub_queue
        self._side: SidePrefix = SIDES[sub_queue]
        self._mode = options.receive_mode
        wait = options.max_wait_time
        self._max_wait_time = None if wait is None else seconds_of(wait, "max_wait_time", zero=True)
        self._renewer = options.auto_lock_renewer
        self._prefetch = options.prefetch_count
        self._adaptive = options.adaptive_prefetch
        self._session_id = options.session_id
        self._held: HeldSession | None = None
        """The accepted session, in a :class:`ServiceBusSessionReceiver`."""
        self._inbox: Inbox[ServiceBusReceivedMessage] | None = None
        self._taking = Taking()
        self._peekings = Peekings(self._side)
        self._settler = MessageSettler(self._lookup)
        self._redrive_goes_on: Callable[[int], bool] = _always
        self._report: RenewalReport | None = None
        self._among = among
        """The open senders and receivers of the client."""
        among.add(self)
        self._ending: asyncio.Future[None] | None = None

    # -- properties, opening -------------------------------------------------------------------------------------------

    @property
    def entity_path(self) -> str:
        """The path of the queue or subscription that the receiver receives from, with the sub-queue if there is one."""
        return self._lookup.name + SUFFIXES[self._sub_queue]

    @property
    def client_identifier(self) -> str:
        """The name of this receiver in logs."""
        return self._client_identifier

    @property
    def receive_mode(self) -> ServiceBusReceiveMode:
        """Whether received messages are locked or deleted."""
        return self._mode

    @property
    def prefetch_count(self) -> int:
        """The number of messages that the receiver fetches ahead of its callers, 0 to 50,000.

        It can be changed while the receiver is open. If fewer messages are to be kept than before, the receiver
        releases the others, without an increase of their delivery counts.
        """
        return self._prefetch

    @prefetch_count.setter
    def prefetch_count(self, value: int) -> None:
        count = prefetch_count_of(value)
        self._lookup.check_open()
        self._prefetch = count
        if self._inbox is not None:
            self._inbox.resize(count)

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
        messages: Sequence[ServiceBusReceivedMessage] = message if isinstance(message, Sequence) else (message,)
        for each in messages:
            if not isinstance(each, ServiceBusReceivedMessage):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
                raise TypeError(f"process_span() takes messages that were received, not {type(each).__name__}.")
        if not self._telemetry.watching or not messages:
            return UNOBSERVED
        return self._telemetry.processing(self.entity_path, *messages, continues_trace=continue_trace)

    @property
    def traces(self) -> bool:
        """Whether :meth:`process_span` records anything now: an SDK of OpenTelemetry is set up, or the log is at DEBUG.

        A program that handles many messages can leave out the context manager if it is false. An addition of sbredis.
        """
        return self._telemetry.watching

    async def __aenter__(self) -> Self:
        """Connect. A session receiver also accepts its session. If one of these steps fails, close the receiver."""
        try:
            deadline = self._deadline()
            await self._connection.openings.take()
            with self._telemetry.operation("open", self.entity_path):
                await self._check_kind(await self._ready(deadline), deadline)
                if self._prefetch:
                    (await self._open(deadline)).pump()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<ServiceBusReceiver {self.entity_path!r} {'closed' if self._lookup.closed else 'open'}>"

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def receive_messages(
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
        if max_message_count is None:
            max_message_count = max(1, self._prefetch)
        wanted = count_of(max_message_count, "max_message_count")
        seconds = self._max_wait_time
        if max_wait_time is not None:
            seconds = seconds_of(max_wait_time, "max_wait_time", zero=True)
        return await self._receive(wanted, 60.0 if seconds is None else seconds, gather=gather)

    # -- credit --------------------------------------------------------------------------------------------------------

    async def add_credit(self, count: int) -> None:
        """Let the broker deliver up to ``count`` messages, 0 to 50,000, whether or not a call waits for them.

        It is the link credit of AMQP, for programs that pass messages on, such as gateways. The credit is what is left:
        each message that comes uses one, a second call replaces what the first one has left, and 0 is a pause. The
        messages stay in the receiver until :meth:`receive_messages` or the iteration takes them. If a message has
        waited for half of its lock, it is released, and its credit is used all the same. A call that waits for more
        messages than there is credit gets them too. An addition of sbredis.
        """
        wanted = count_of(count, "count", _MOST_PREFETCHED, least=0)
        (await self._crediting("add_credit()")).set_credit(wanted)

    async def drain(self) -> int:
        """Use the credit for messages that are ready, and withdraw the rest. Return the number of messages to receive.

        The call returns when all partitions of the entity have answered: then no more messages come by credit. If one
        of them does not answer within ten seconds, it raises an error, and the credit is withdrawn as soon as it can
        be reached. An addition of sbredis.
        """
        return await (await self._crediting("drain()")).drain()

    async def _crediting(self, call: str) -> MessageInbox:
        """Return the inbox that grants the credit of the application."""
        self._lookup.check_open()
        if self._session_id is not None or self._held is not None:
            raise ValueError(f"{call} is not for the receiver of a session. Set its prefetch_count instead.")
        inbox = await self._open(self._deadline())
        assert isinstance(inbox, MessageInbox)
        inbox.check_loop()
        return inbox

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ServiceBusReceivedMessage:
        """Wait for the next message and return it. The iteration ends if no message comes within ``max_wait_time``."""
        inbox = self._inbox
        if inbox is not None and len(inbox.buffer) and self._hands_over_directly and not inbox.entity.gone:
            kept = inbox.take_kept(1)
            if kept:
                self._peekings.received(hold_of(kept[0]))
                return kept[0]
        messages = await self._receive(1, self._max_wait_time, iterates=True)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    async def _receive(
        self, wanted: int, seconds: float | None, *, gather: bool = True, watched: bool = True, iterates: bool = False
    ) -> list[ServiceBusReceivedMessage]:
        if watched and self._telemetry.watching:
            with self._telemetry.operation("receive", self.entity_path) as operation:
                messages = await self._receive(wanted, seconds, gather=gather, watched=False, iterates=iterates)
                operation.received(messages)
                return messages
        inbox = self._inbox
        if self._renewer is not None:
            self._renewer.check_open()
        closed = self._lookup.closed or self._connection.closed
        if inbox is None or closed or inbox.entity.gone or not inbox.entity.keeps_messages:
            inbox = await self._open(self._deadline(seconds), seconds, wanted)
        elif self._held is not None and not (len(inbox.buffer) and self._mode is not ServiceBusReceiveMode.PEEK_LOCK):
            self._held.check()  # buffered messages that are already deleted need no lock
        messages = await inbox.take(wanted, seconds, gather=gather, comes_back=iterates)
        if messages:
            for message in messages:
                self._peekings.received(hold_of(message))
            if self._renewer is not None or self._held is not None:  # a session knows what its holder has begun
                self._hand_over(messages)
        return messages

    @property
    def _hands_over_directly(self) -> bool:
        """Whether the receiver can return a prefetched message without further steps."""
        return self._renewer is None and self._held is None and not self._lookup.closed and not self._telemetry.watching

    def _hand_over(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Let the receiver's renewer, if there is one, renew the locks of messages that a caller gets."""
        if self._renewer is not None and not self._renewer.closed and self._held is None:
            for message in messages:
                self._renewer.register(self, message)

    async def receive_deferred_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive deferred messages by their sequence numbers. They are locked or deleted like all received messages.

        If one of the messages does not exist, the call receives none of them and raises
        :class:`~sbredis.exceptions.MessageNotFoundError`. If the time to live of a message is over, the request makes
        it expire, and it counts as missing. Many large messages need several calls to the server.
        """
        return await self._by_number(sequence_numbers, timeout, wide=False)

    async def receive_messages_by_number(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive messages by their sequence numbers, also active and delayed ones, in front of all other messages.

        If one of them is not there, is scheduled or locked, the call receives none of them and raises
        :class:`~sbredis.exceptions.MessageNotFoundError`. Messages of a session need the receiver of the session.
        """
        return await self._by_number(sequence_numbers, timeout)

    async def delete_messages_by_number(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> None:
        """Delete the messages that :meth:`receive_messages_by_number` would receive: all of them, or none."""
        await self._by_number(sequence_numbers, timeout, ServiceBusReceiveMode.RECEIVE_AND_DELETE)

    async def dead_letter_messages_by_number(
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
        require_reason(reason, error_description)
        if self._side:
            raise ValueError("The messages of this receiver are dead letters already.")
        found = await self._by_number(sequence_numbers, timeout, ServiceBusReceiveMode.PEEK_LOCK)
        moves = [self.dead_letter_message(one, reason, error_description, timeout=timeout) for one in found]
        await asyncio.gather(*moves)

    async def _by_number(
        self,
        numbers: int | Sequence[int],
        timeout: float | None,
        mode: ServiceBusReceiveMode | None = None,
        *,
        wide: bool = True,
    ) -> list[ServiceBusReceivedMessage]:
        deadline = deadline_of(timeout)
        numbers = sequence_numbers_of(numbers)
        with self._telemetry.operation("receive_deferred", self.entity_path, count=len(numbers)) as operation:
            operation.numbered(numbers)
            entity = await self._ready(deadline)
            found = await Deferred(entity, self._held, self._side, mode or self._mode, deadline, wide=wide).receive(
                numbers
            )
            operation.received(found)
        if mode is None:
            self._hand_over(found)
        return found

    async def peek_messages(
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
        wanted = count_of(max_message_count, "max_message_count")
        count_of(sequence_number, "sequence_number", least=0)
        self._check_named(session_id)
        deadline = deadline_of(timeout)
        with self._telemetry.operation("peek", self.entity_path) as operation:
            entity, session = await self._entity_and_session(session_id, deadline)
            peeking = self._peekings.of(entity, session, own=session == self._own_session)
            messages = await peeking.peek(wanted, sequence_number, deadline)
            operation.received(messages)
            return messages

    @property
    def _own_session(self) -> str | None:
        """The session that the receiver has accepted, or the named session that it will accept."""
        if self._held is not None:
            return self._held.name
        return self._session_id if isinstance(self._session_id, str) else None

    def _check_named(self, session_id: str | None) -> None:
        """Raise if this receiver may not peek or delete messages of this session."""
        if session_id is None:
            return
        identifier(session_id, "session_id", may_be_empty=True)
        if self._sub_queue is not None:
            raise ValueError("A dead-letter queue has no sessions: leave out session_id.")
        if self._session_id is not None and session_id != self._own_session:
            raise ValueError("This receiver is for another session. Use a receiver that was made without session_id.")

    async def _entity_and_session(self, session_id: str | None, deadline: float) -> tuple[Entity, str | None]:
        """Return the entity, and the session whose messages a call reads or deletes; ``None`` means all messages.

        A named session is not locked for this. The next available session is accepted first, because only then its id
        is known.
        """
        if self._session_id is None or self._own_session is not None:
            return await self._found(deadline), self._own_session if session_id is None else session_id
        entity = await self._ready(deadline)  # the session's id is known only after it was accepted
        return entity, self._own_session

    # -- settling ------------------------------------------------------------------------------------------------------

    async def complete_message(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> None:
        """Settle a message as done: remove it from the queue."""
        if not self._telemetry.watching:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + TIMEOUT if timeout is None else deadline_of(timeout, loop)
            future = self._settler.begin("complete", message, loop, deadline)
            if future is not None:
                await future
                return
        with self._telemetry.operation("complete", self.entity_path, messages=(message,)):
            await self._settler.settle(self._ready, "complete", message, timeout)

    async def complete_messages(
        self, messages: Iterable[ServiceBusReceivedMessage], *, timeout: float | None = None
    ) -> None:
        """Settle many messages as done. This has the same effect as settling each message by itself, but is faster.

        The call completes all messages whose locks hold. If the locks of other messages have ended, it then raises a
        :class:`~sbredis.exceptions.MessageLockLostError`. ``sequence_numbers`` of the error name the messages that were
        not completed.
        """
        listed = list(messages)
        with self._telemetry.operation("complete", self.entity_path, count=len(listed), messages=listed):
            await self._settler.complete_all(self._ready, listed, deadline_of(timeout))

    async def abandon_message(
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
        wait = delay_of(delay)
        with self._telemetry.operation("abandon", self.entity_path, messages=(message,)):
            async with self._recalled(message, timeout):
                await self._settler.settle(
                    self._ready, "abandon", message, timeout, modify=properties_to_modify, delay=wait
                )

    async def release_message(
        self, message: ServiceBusReceivedMessage, *, interrupted: bool = False, timeout: float | None = None
    ) -> None:
        """Unlock a message without counting a delivery.

        The message returns to its place and can be received again immediately. Use this for a message that was not
        handled, for instance because the process is about to end. With ``interrupted``, the work on it has begun:
        :attr:`ServiceBusReceivedMessage.interrupted` is true in the next delivery, and only in that one.
        """
        with self._telemetry.operation("release", self.entity_path, messages=(message,)):
            self._settler.check(message, "release")
            async with self._recalled(message, timeout):
                await self._settler.settle(self._ready, "interrupt" if interrupted else "release", message, timeout)

    async def defer_message(
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
        with self._telemetry.operation("defer", self.entity_path, messages=(message,)):
            await self._settler.settle(self._ready, "defer", message, timeout, modify=properties_to_modify)

    async def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Move a message to the dead-letter queue, with the reason."""
        with self._telemetry.operation("dead_letter", self.entity_path, messages=(message,)):
            if is_dead(self._settler.check(message, "dead_letter").name):
                raise ValueError(
                    "The message is on the dead-letter queue already. Complete it, abandon it or defer it."
                )
            await self._settler.settle(
                self._ready,
                "dead_letter",
                message,
                timeout,
                modify=properties_to_modify,
                reason=reason,
                description=error_description,
            )

    async def renew_message_lock(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> datetime:
        """Lock a message for the full duration from now on, and return the time when the lock ends."""
        deadline = deadline_of(timeout)
        with self._telemetry.operation("renew_message_lock", self.entity_path, messages=(message,)):
            return await self._settler.renew(self._ready, message, deadline)

    def _recalled(self, message: ServiceBusReceivedMessage, timeout: float | None) -> AbstractAsyncContextManager[None]:
        """Return a context in which the receiver keeps no later messages of the message's session, if it has one."""
        del message, timeout
        return nullcontext()

    # -- deleting ------------------------------------------------------------------------------------------------------

    async def delete_messages(
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
        count = count_of(max_message_count, "max_message_count", _MOST_DELETED)
        return await self._purge(count, before_enqueued_time_utc, session_id, deadline_of(timeout), progress_of(None))

    async def purge_messages(
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
        told = progress_of(progress)
        return await self._purge(None, before_enqueued_time_utc, session_id, deadline_of(timeout), told)

    async def _purge(
        self,
        most: int | None,
        before: datetime | None,
        session_id: str | None,
        deadline: float,
        progress: Callable[[int], object],
    ) -> int:
        self._check_named(session_id)
        until = NEVER if before is None else milliseconds_of(before, "before_enqueued_time_utc")
        with self._telemetry.operation("delete", self.entity_path) as operation:
            entity, session = await self._entity_and_session(session_id, deadline)
            deleted = await purge(entity, self._side, session, until, most, deadline, progress)
            operation.counted(deleted)
            return deleted

    # -- redriving -----------------------------------------------------------------------------------------------------

    async def redrive_messages(
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
        arguments = moving.RedriveArguments(
            to=to,
            sequence_numbers=None if sequence_numbers is None else sequence_numbers_of(sequence_numbers),
            reason=reason,
            matching=matching,
            modify=properties_to_modify,
            rate=rate,
            budget=budget,
            cursor=cursor,
            dry_run=dry_run,
            timeout=timeout,
            progress=progress_of(progress),
        )
        redriver = moving.Redriver(self._connection, self._side, self._redrive_goes_on)
        chosen = redriver.check(arguments)
        with self._telemetry.operation("redrive", self.entity_path) as operation:
            result = await redriver.redrive(await self._found(deadline_of(timeout)), arguments, chosen)
            operation.counted(result.moved)
            return result

    # -- opening and closing -------------------------------------------------------------------------------------------

    @property
    def _longest_wait(self) -> float | None:
        """The time to wait for a free session if a call gives no time. ``None`` if the receiver does not wait."""
        return None

    def _deadline(self, seconds: float | None = None) -> float:
        """Return the deadline of a call that waits these seconds for messages. The server has more time to answer."""
        wait = self._longest_wait if seconds is None else seconds
        return deadline_of(None if wait is None else wait + self._connection.timings.answering)

    async def _ready(self, deadline: float, wait: float | None = None, wanted: int = 0) -> Entity:
        del wait, wanted
        return await self._found(deadline)

    async def _found(self, deadline: float) -> Entity:
        """Return the entity, without accepting a session. Raise if the entity keeps no messages."""
        entity = await self._lookup.entity(deadline)
        if self._side != "t":  # a topic keeps no messages, except those that it could not pass on
            await entity.require(require_messages, deadline)
        return entity

    async def _check_kind(self, entity: Entity, deadline: float) -> None:
        """Raise if messages cannot be received from this entity without a session."""
        if self._sub_queue is None:
            await entity.require(require_no_sessions, deadline)
            await entity.require(require_not_forwarding, deadline)

    async def _open(
        self, deadline: float, wait: float | None = None, wanted: int = 0
    ) -> Inbox[ServiceBusReceivedMessage]:
        begins = self._inbox is None
        if begins:
            await self._connection.openings.take()
        entity = await self._ready(deadline, wait, wanted)
        await self._check_kind(entity, deadline)
        if begins:
            self._lookup.check_open()
        return self._inbox_of(entity)

    def _inbox_of(self, entity: Entity) -> Inbox[ServiceBusReceivedMessage]:
        """Return the inbox of the receiver, whose entity was checked."""
        if self._inbox is None:
            if entity.record.settings.forwards or entity.record.settings.forwards_dead:
                self._connection.observer.moves_from(self._connection, entity.record, waits=False)
            held = self._held
            options = InboxOptions(self._side, self._mode, self._prefetch, adaptive=self._adaptive, taking=self._taking)
            if held is None:
                self._inbox = MessageInbox(entity, secrets.token_hex(5), options)
            else:
                inbox = self._inbox = SessionInbox(entity, held.lease.token, options, held)
                held.recalled = held.lease.recalled = inbox.recalled
        return self._inbox

    async def close(self) -> None:
        """Stop receiving. Release prefetched messages, without an increase of their delivery counts.

        Messages that callers hold stay locked: another receiver of the same queue can settle them. A session receiver
        releases its session with all of the session's messages, so that other receivers can accept the session.
        """
        self._connection.check_loop()
        self._lookup.closed = True
        if self._connection.orphaned:
            self._among.discard(self)
            return
        if self._ending is None and self._leave():
            self._among.discard(self)
            return
        if self._inbox is not None:
            self._inbox.callers.close()  # at once: the application could not settle what they would still get
        try:
            await self._connection.turns.take()  # very many receivers may be closed at once
        finally:
            ending = self._begin_to_end()
        await asyncio.shield(ending)

    def _begin_to_end(self) -> asyncio.Future[None]:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        return self._ending

    def _leave(self) -> bool:
        """Stop receiving as far as that needs no waiting. Return whether nothing is left to do."""
        return self._inbox is None

    async def _end(self) -> None:
        try:
            await self._wind_up()
        finally:
            self._among.discard(self)  # called here, so that the cancellation of a caller of close() cannot prevent it

    async def _wind_up(self) -> None:
        """Release the messages that the receiver still has."""
        if self._inbox is not None:
            await self._inbox.aclose()


def _always(_: int) -> bool:
    return True


# -- for the rest of the library, which may not use private attributes -------------------------------------------------


def report_of(receiver: ServiceBusReceiver) -> RenewalReport:
    """Return the object that reports failed renewals of this receiver's message locks."""
    report = receiver._report  # pyright: ignore[reportPrivateUsage]
    if report is None:
        report = RenewalReport(receiver._telemetry, receiver.entity_path, receiver._reference)  # pyright: ignore[reportPrivateUsage]
        receiver._report = report  # pyright: ignore[reportPrivateUsage]
    return report


async def mover_to(receiver: ServiceBusReceiver, to: str) -> moving.ChosenMover:
    """Return what moves messages of a receiver's entity, which the caller chooses, to another queue or topic."""
    deadline, find = deadline_of(None), moving.finding(receiver._connection)  # pyright: ignore[reportPrivateUsage]
    entity = await receiver._found(deadline)  # pyright: ignore[reportPrivateUsage]
    await entity.require(require_not_forwarding, deadline)
    await entity.require(require_receivable, deadline)
    if not receiver._side:  # pyright: ignore[reportPrivateUsage]  # dead letters are not reserved
        await entity.require(partial(require_unreserved, doing="its messages stay"), deadline)
    mover = moving.ChosenMover(moving.MessageSide(entity, receiver._side), await find(to), find)  # pyright: ignore[reportPrivateUsage]
    await mover.open()
    return mover


def watch_redrives(receiver: ServiceBusReceiver, goes_on: Callable[[int], bool]) -> None:
    """Let the redrives of a receiver call a function with the number of messages that were moved so far.

    If the function returns false, the redrive stops and returns its result.
    """
    receiver._redrive_goes_on = goes_on  # pyright: ignore[reportPrivateUsage]


def take_back(receiver: ServiceBusReceiver, messages: list[ServiceBusReceivedMessage]) -> None:
    """Take messages back that a receive has brought for a caller who was interrupted. Call this in the event loop.

    The messages go to other callers, or they are released. So no message is lost and no delivery count increases.
    """
    for message in messages:
        hold_of(message).let_go()
    inbox = receiver._inbox  # pyright: ignore[reportPrivateUsage]
    if inbox is not None:
        inbox.take_back(messages, first=True)


def take_back_by_number(messages: list[ServiceBusReceivedMessage]) -> None:
    """Release messages that were received by number for a caller who was interrupted. Call this in the event loop."""
    for hold in map(hold_of, messages):
        hold.let_go()
        hold.reception.link.give_back(hold)
