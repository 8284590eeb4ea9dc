"""Settle messages that were received, and renew their locks."""

# `report_of` in this module reads private attributes of the class.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from sbredis.client._arguments import deadline_of
from sbredis.client._lane_kinds import SettleJob
from sbredis.engine import is_dead
from sbredis.exceptions import MessageAlreadySettled
from sbredis.model import Hold, PrimitiveTypes, ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of
from sbredis.receiving._changes import changes_of, delay_of
from sbredis.receiving._completing import complete
from sbredis.receiving._handles import LockHandle
from sbredis.receiving._lost_locks import lock_ended, locks_ended
from sbredis.receiving._renewing import RenewalReport, renewal
from sbredis.telemetry._telemetry import UNOBSERVED

if TYPE_CHECKING:
    from sbredis.client._connection import Connection
    from sbredis.client._entity import Creation, Entity
    from sbredis.telemetry._telemetry import Telemetry

__all__ = ["Settler", "report_of", "require_lock"]


class Settler:
    """Settles the messages of one queue: the part of a receiver that works on received messages."""

    def __init__(self, connection: Connection, name: str, telemetry: Telemetry, create: Creation | None) -> None:
        self._connection = connection
        self._telemetry = telemetry
        self._name = name
        self._create = create
        self._entity: Entity | None = None
        self._closed = False
        self._report: RenewalReport | None = None

    @property
    def entity_path(self) -> str:
        """The path of the queue that the receiver receives from, with the sub-queue if there is one."""
        return self._name

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

    # -- settling ------------------------------------------------------------------------------------------------------

    async def complete_message(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> None:
        """Settle a message as done: remove it from the queue."""
        if not self._telemetry.watching:
            future = self._begin_settling("complete", message, deadline_of(timeout))
            if future is not None:
                await future
                return
        await self._settle("complete", message, timeout)

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
            await self._complete_all(listed, deadline_of(timeout))

    async def _complete_all(self, listed: list[ServiceBusReceivedMessage], deadline: float) -> None:
        live, lost = self._live_and_lost(listed)
        if not listed:
            return
        entity = self._entity
        holds = [*live, *lost] if lost else live
        if entity is None or any([hold.reception.owner is not entity for hold in holds]):  # noqa: C419 -- faster
            for hold in holds:
                entity = await self._entity_of(hold, deadline)
            live, lost = self._live_and_lost(listed)  # another task may have settled a message meanwhile
        assert entity is not None
        lost += await complete(entity, live, deadline)
        if lost:
            raise locks_ended(lost, self._name)

    def _live_and_lost(self, messages: Sequence[ServiceBusReceivedMessage]) -> tuple[list[Hold], list[Hold]]:
        """Return the messages whose locks hold according to our clock, and the messages whose locks have ended."""
        now = self._connection.clock.now()
        live: list[Hold] = []
        lost: list[Hold] = []
        for message in messages:
            hold = require_lock(message, "complete")
            lease = hold.lease
            (lost if lease is not None and lease.until <= now else live).append(hold)
        if messages:
            self._check_open()
        if len(set(map(id, messages))) < len(messages):
            raise MessageAlreadySettled("A message is in the list twice, but can be settled only once. Name it once.")
        return live, lost

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
                await self._settle("abandon", message, timeout, modify=properties_to_modify, delay=wait, watched=False)

    def _recalled(self, message: ServiceBusReceivedMessage, timeout: float | None) -> AbstractAsyncContextManager[None]:
        """Return a context in which the receiver keeps no later messages of the message's session, if it has one."""
        del message, timeout
        return nullcontext()

    async def release_message(
        self, message: ServiceBusReceivedMessage, *, interrupted: bool = False, timeout: float | None = None
    ) -> None:
        """Unlock a message without counting a delivery.

        The message returns to its place and can be received again immediately. Use this for a message that was not
        handled, for instance because the process is about to end. With ``interrupted``, the work on it has begun:
        :attr:`ServiceBusReceivedMessage.interrupted` is true in the next delivery, and only in that one.
        """
        with self._telemetry.operation("release", self.entity_path, messages=(message,)):
            self._check(message, "release")
            async with self._recalled(message, timeout):
                await self._settle("interrupt" if interrupted else "release", message, timeout, watched=False)

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
        await self._settle("defer", message, timeout, modify=properties_to_modify)

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
            if is_dead(self._check(message, "dead_letter").name):
                raise ValueError(
                    "The message is on the dead-letter queue already. Complete it, abandon it or defer it."
                )
            await self._settle(
                "dead_letter",
                message,
                timeout,
                modify=properties_to_modify,
                reason=reason,
                description=error_description,
                watched=False,
            )

    async def renew_message_lock(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> datetime:
        """Lock a message for the full duration from now on, and return the time when the lock ends."""
        deadline = deadline_of(timeout)
        with self._telemetry.operation("renew_message_lock", self.entity_path, messages=(message,)):
            hold = self._check(message, "renew")
            if hold.session is not None:
                raise TypeError(
                    "Renewing message lock is an invalid operation when working with sessions. Renew the lock of the "
                    "session."
                )
            await self._entity_of(hold, deadline)
            await renewal(hold, deadline)
        until = message.locked_until_utc
        if until is None:  # the message was settled meanwhile
            raise MessageAlreadySettled
        return until

    async def get_lock_handle(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> str:
        """Return a handle with which another process can settle this message or renew its lock.

        That process passes the handle to a :class:`ServiceBusSettler`. The handle is a text that is safe in a URL. It
        is valid as long as the message is locked, also after renewals. Making the handle renews the lock, unless the
        message belongs to a session. Everyone who has the handle can settle the message: keep it out of logs.
        """
        deadline = deadline_of(timeout)
        hold = self._check(message, "hand on")
        if hold.session is None:
            with self._telemetry.operation("renew_message_lock", self.entity_path, messages=(message,)):
                await self._entity_of(hold, deadline)
                await renewal(hold, deadline, alone=True)
        entity = await self._entity_of(hold, deadline)
        self._check(message, "hand on")
        lease = hold.lease
        assert lease is not None  # the message was received in a mode that locks
        number = entity.partition_client_of(hold).number
        return LockHandle(entity.record.incarnation, number, lease.token, hold.name, lease.session).text()

    async def _settle(
        self,
        kind: Literal["complete", "abandon", "release", "interrupt", "defer", "dead_letter"],
        message: ServiceBusReceivedMessage,
        timeout: float | None,
        *,
        modify: Mapping[str, PrimitiveTypes] | None = None,
        reason: str | None = None,
        description: str | None = None,
        delay: int = 0,
        watched: bool = True,
    ) -> None:
        if watched and self._telemetry.watching:
            with self._telemetry.operation(
                "release" if kind == "interrupt" else kind, self.entity_path, messages=(message,)
            ):
                await self._settle(
                    kind,
                    message,
                    timeout,
                    modify=modify,
                    reason=reason,
                    description=description,
                    delay=delay,
                    watched=False,
                )
            return
        hold = self._check(message, kind)
        deadline = deadline_of(timeout)
        changes = b""
        if modify is not None or reason is not None or description is not None:
            changes = changes_of(hold, modify, reason, description)
        entity = await self._entity_of(hold, deadline)
        future = self._begin_settling(
            kind, message, deadline, changes, delay
        )  # this checks again, because the message may be settled by now
        if future is None:
            partition_client = entity.partition_client_of(hold)
            hold.settled = True
            renewal = partition_client.renewing.last_renewal(hold)
            assert renewal is not None  # only a renewal under way can prevent an immediate settlement
            try:
                await asyncio.wait((renewal,), timeout=deadline - asyncio.get_running_loop().time())
            except BaseException:
                hold.settled = False
                raise
            # Read the lock only now, because the renewal may have moved the message to another lease.
            future = partition_client.settling(kind).submit(SettleJob(hold.lock(changes, delay), deadline, hold))
        await future
        if entity.record.settings.forwards_dead and kind in {"dead_letter", "abandon"}:
            certain = kind == "dead_letter"  # too many deliveries make a dead letter, too
            self._connection.observer.moves_from(self._connection, entity.record, waits=certain)

    def _begin_settling(
        self, kind: str, message: ServiceBusReceivedMessage, deadline: float, changes: bytes = b"", delay: int = 0
    ) -> asyncio.Future[None] | None:
        """Queue a settlement. Return ``None`` if the settlement must first wait for the entity, or for a renewal."""
        hold = self._check(message, kind)
        entity = self._entity
        if entity is None or hold.reception.owner is not entity:
            return None
        partition_client = entity.partition_client_of(hold)
        if partition_client.renewing.last_renewal(hold) is not None:
            return None
        hold.settled = True
        return partition_client.settling(kind).submit(SettleJob(hold.lock(changes, delay), deadline, hold))

    def _check_fit(self, message: ServiceBusReceivedMessage, what: str) -> Hold:
        """Check that a message can be settled or renewed, without a check of its lock. Return its hold."""
        hold = require_lock(message, what)
        self._check_open()
        return hold

    def _check(self, message: ServiceBusReceivedMessage, what: str) -> Hold:
        """Make all checks that need no call, in Azure's order. Return the hold of the message."""
        hold = self._check_fit(message, what)
        if hold.lock_expired(self._connection.clock.now()):
            raise lock_ended(hold, self._name)
        return hold

    async def _ready(self, deadline: float, wait: float | None = None) -> Entity:
        """Look up the entity in the registry before the deadline. Only session receivers use ``wait``."""
        del wait
        self._check_open()
        entity = self._entity
        if entity is None or entity.gone:
            entity = self._entity = await self._connection.entity(self._name, deadline, self._create)
            self._check_open()
        return entity

    async def _entity_of(self, hold: Hold, deadline: float) -> Entity:
        entity = await self._ready(deadline)
        if hold.reception.owner is not entity:
            raise ValueError(
                f"The message was not received from {self._name!r} through this client. Settle it with a receiver "
                "of the queue that it came from."
            )
        return entity

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("The receiver is closed. Get another receiver from the client.")
        self._connection.check_open()


def require_lock(message: ServiceBusReceivedMessage, what: str) -> Hold:
    """Return the hold of a message. Raise if the message was not received under a lock, or was settled."""
    if not isinstance(message, ServiceBusReceivedMessage):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"Only a received message can be used here, not {type(message).__name__}.")
    hold = hold_of(message)
    reception = hold.reception
    if reception.peeked:
        raise ValueError(f"The message was peeked, not received: without a lock, {what} is not possible. Receive it.")
    if reception.owner is None:
        raise ValueError(
            f"This is a copy of a message, and has no lock: {what} is not possible. Use the received message."
        )
    if hold.lease is None or reception.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
        raise ValueError(f"The message was received and deleted, so it has no lock, and {what} is not possible.")
    if hold.settled:
        raise MessageAlreadySettled
    return hold


def report_of(settler: Settler) -> RenewalReport:
    """Return the object that reports failed renewals of this receiver's message locks."""
    report = settler._report
    if report is None:
        report = settler._report = RenewalReport(
            settler._telemetry, settler.entity_path, settler._connection.reference()
        )
    return report
