"""Settling messages and administering sessions with the lock tokens of messages that another process received."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Self, TypeVar
from uuid import UUID

from sbredis.client import CallJob, RenewJob, count_of, deadline_of, lock_lost, sequence_numbers_of
from sbredis.engine import (
    CallId,
    Lock,
    LockToken,
    Partition,
    Peeked,
    Request,
    identifier,
    is_dead,
    number_of,
    read_lock_token,
    side_of,
)
from sbredis.entities import SIDES, SUB_QUEUES, SUFFIXES
from sbredis.exceptions import MessageLockLostError, Outcome, ServiceBusError, SessionLockLostError
from sbredis.model import (
    MessageLease,
    PrimitiveTypes,
    Reception,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
    delivered,
    hold_of,
)
from sbredis.receiving import (
    Deferred,
    EntityLookup,
    Peekings,
    changes_of,
    delay_of,
    lane_for,
    require_messages,
    require_modification,
    require_reason,
    state_bytes,
)

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity, PartitionClient
    from sbredis.telemetry import Observation, Telemetry

__all__ = ["ServiceBusSettler"]

T = TypeVar("T")
_CLOSED = "The settler is closed: get another settler from the client."


@dataclass(slots=True)
class _LockedMessage:
    """The lock of a message, as its token describes it, and the client of its partition."""

    name: str
    lease: MessageLease | None
    partition_client: PartitionClient
    lock: Lock

    @property
    def sequence_number(self) -> int:
        """The sequence number that users see."""
        return self.partition_client.base + number_of(self.name)


class ServiceBusSettler:
    """Settles messages and manages sessions that another process or connection has locked.

    Made by :meth:`ServiceBusClient.get_settler`. Its methods take the :attr:`~ServiceBusReceivedMessage.lock_token` of
    a message, or :attr:`ServiceBusSession.lock_token`, as a UUID or as text. A token is valid as long as the lock
    holds, also after renewals, in every process and on every machine. Nobody needs to call the server for it first.

    A text that is not a lock token, or belongs to another sub-queue, raises :class:`ValueError`, and changes nothing.
    The broker decides whether the lock still holds. If the lock is lost, or is one of another entity or of an entity
    that was deleted, the call raises :class:`~sbredis.exceptions.MessageLockLostError` or
    :class:`~sbredis.exceptions.SessionLockLostError`. All calls may be made concurrently.
    """

    def __init__(
        self, connection: Connection, name: str, sub_queue: ServiceBusSubQueue | None, telemetry: Telemetry
    ) -> None:
        self._reference = connection.reference()
        self._lookup = EntityLookup(connection, name, when_closed=_CLOSED)
        self._sub_queue = sub_queue
        self._peekings = Peekings(SIDES[sub_queue])
        self._telemetry = telemetry

    @property
    def entity_path(self) -> str:
        """The path of the queue or subscription whose messages the settler settles, and of its sub-queue if any."""
        return self._lookup.name + SUFFIXES[self._sub_queue]

    async def __aenter__(self) -> Self:
        """Connect, and look up the entity."""
        with self._telemetry.operation("open", self.entity_path):
            await self._entity(deadline_of(None))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<ServiceBusSettler {self.entity_path!r} {'closed' if self._lookup.closed else 'open'}>"

    async def close(self) -> None:
        """Stop settling. Locks are not changed."""
        self._lookup.closed = True

    # -- messages ------------------------------------------------------------------------------------------------------

    async def complete_message(self, lock_token: UUID | str, *, timeout: float | None = None) -> None:
        """Settle a message as done: remove it from the queue."""
        await self._settle("complete", lock_token, timeout)

    async def abandon_message(
        self,
        lock_token: UUID | str,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Unlock a message, so that it can be received again immediately or after a delay.

        This counts as a failed delivery. A message that reaches the queue's delivery limit goes to the dead-letter
        queue. The application properties in ``properties_to_modify`` are changed or added. For this, one more call
        reads the message.
        """
        await self._settle("abandon", lock_token, timeout, modify=properties_to_modify, delay=delay_of(delay))

    async def release_message(
        self, lock_token: UUID | str, *, interrupted: bool = False, timeout: float | None = None
    ) -> None:
        """Unlock a message without counting a delivery.

        The message returns to its place and can be received again immediately. With ``interrupted``, the next delivery
        reports that the work on the message had begun.
        """
        await self._settle("release", lock_token, timeout, lane="interrupt" if interrupted else "release")

    async def defer_message(
        self,
        lock_token: UUID | str,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Set a message aside: it can be received again only by its sequence number.

        This counts as a failed delivery. A message that reaches the queue's delivery limit goes to the dead-letter
        queue instead.
        """
        await self._settle("defer", lock_token, timeout, modify=properties_to_modify)

    async def dead_letter_message(
        self,
        lock_token: UUID | str,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Move a message to the dead-letter queue, with a reason. One more call reads the message first."""
        await self._settle(
            "dead_letter",
            lock_token,
            timeout,
            modify=properties_to_modify,
            reason=reason,
            description=error_description,
        )

    async def renew_message_lock(self, lock_token: UUID | str, *, timeout: float | None = None) -> datetime:
        """Lock a message for the full duration from now on, and return when the lock ends. The token stays the same.

        The locks on other messages do not change. A message of a session has no lock of its own: renew the lock of the
        session.
        """
        deadline = deadline_of(timeout)
        given = self._message_token(lock_token)
        with self._telemetry.operation("renew_message_lock", self.entity_path) as operation:
            held = await self._locked_message(given, deadline, operation)
            assert held.lease is not None
            if self._has_sessions(held.partition_client.entity):
                raise ValueError("A message of a session has no lock of its own: renew the lock of the session.")
            await held.partition_client.renewing.submit(RenewJob(held.lock, deadline, held))
            return datetime.fromtimestamp(held.lease.until_utc, UTC)

    async def _settle(
        self,
        kind: Literal["complete", "abandon", "release", "defer", "dead_letter"],
        lock_token: UUID | str,
        timeout: float | None,
        *,
        modify: Mapping[str, PrimitiveTypes] | None = None,
        reason: str | None = None,
        description: str | None = None,
        delay: int = 0,
        lane: str | None = None,
    ) -> None:
        deadline = deadline_of(timeout)
        given = self._message_token(lock_token)
        if kind == "dead_letter" and is_dead(given.name):
            raise ValueError("The message is on the dead-letter queue already: complete it, abandon it or defer it.")
        require_reason(reason, description)
        require_modification(modify)
        with self._telemetry.operation(kind, self.entity_path) as operation:
            held = await self._locked_message(given, deadline, operation)
            changes = b""
            if modify is not None or reason is not None or description is not None:
                changes = await self._changes(given, held, modify, reason, description, deadline)
            settling = held.partition_client.settling(lane or kind)
            await settling.settle(held.lock, asyncio.get_running_loop(), deadline, changes, delay)

    async def _changes(  # noqa: PLR0917 -- the changes, and the message they are for
        self,
        given: LockToken,
        held: _LockedMessage,
        modify: Mapping[str, PrimitiveTypes] | None,
        reason: str | None,
        description: str | None,
        deadline: float,
    ) -> bytes:
        """Read the message. Return the earlier changes of its properties together with those of this settlement."""
        side = side_of(given.name)
        number = number_of(given.name)

        def make(partition: Partition, call_id: CallId) -> Request[Peeked]:
            return partition.peek(number, 1, side=side, room=1, call_id=CallId("", 0, call_id.now))

        shown = (await held.partition_client.read("p", make, deadline)).messages
        if not shown or shown[0].name != given.name:
            raise lock_lost(held.partition_client, given.name)
        link = held.partition_client
        reception = Reception(link.base, ServiceBusReceiveMode.PEEK_LOCK, link, peeked=True)
        return changes_of(hold_of(delivered(shown[0], reception, None)), modify, reason, description)

    def _message_token(self, lock_token: UUID | str) -> LockToken:
        given = read_lock_token(lock_token)
        if not given.name:
            raise ValueError("This is the lock token of a session. Use the lock token of one of its messages.")
        sub_queue = SUB_QUEUES[side_of(given.name)]
        if sub_queue is not self._sub_queue:
            raise ValueError(
                f"The lock token does not belong to a message of {self.entity_path!r}: it belongs to "
                + ("a dead letter." if sub_queue else "a message that is not a dead letter.")
            )
        return given

    async def _locked_message(self, given: LockToken, deadline: float, operation: Observation) -> _LockedMessage:
        partition_client = await self._partition_client(given, deadline)
        lease = MessageLease(given.lease, math.inf, math.inf, partition=given.partition)
        held = _LockedMessage(given.name, lease, partition_client, Lock(given.lease, given.name))
        operation.numbered([held.sequence_number])
        return held

    # -- other messages ------------------------------------------------------------------------------------------------

    async def receive_deferred_messages(
        self,
        sequence_numbers: int | Sequence[int],
        *,
        session_lock_token: UUID | str | None = None,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Receive deferred messages by their sequence numbers, and lock them.

        The messages of a session need the lock on the session: ``session_lock_token`` is its lock token, or the lock
        token of one of its messages. If one of the messages does not exist, the call receives none of them and raises
        :class:`~sbredis.exceptions.MessageNotFoundError`.
        """
        deadline = deadline_of(timeout)
        numbers = sequence_numbers_of(sequence_numbers)
        given = None if session_lock_token is None else read_lock_token(session_lock_token)
        with self._telemetry.operation("receive_deferred", self.entity_path, count=len(numbers)) as operation:
            operation.numbered(numbers)
            entity, lease = await self._entity(deadline), None
            if given is not None:
                self._require_sessions(entity)
                lease = MessageLease(given.lease, math.inf, math.inf, session="", partition=given.partition)
            mode = ServiceBusReceiveMode.PEEK_LOCK
            found = await Deferred(entity, None, SIDES[self._sub_queue], mode, deadline, lease=lease).receive(numbers)
            if lease is not None and found:
                lease.session = found[0].session_id
            operation.received(found)
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

        Without a ``sequence_number`` it continues after the messages that this settler has peeked. It may return fewer
        messages than there are. An empty list means that there are no more. With ``session_id`` it returns only
        messages of that session, whose lock it does not need.
        """
        wanted = count_of(max_message_count, "max_message_count")
        count_of(sequence_number, "sequence_number", least=0)
        if session_id is not None:
            identifier(session_id, "session_id", may_be_empty=True)
        deadline = deadline_of(timeout)
        with self._telemetry.operation("peek", self.entity_path) as operation:
            entity = await self._entity(deadline)
            if session_id is not None:
                self._require_sessions(entity)
            peeking = self._peekings.of(entity, session_id, own=False)
            messages = await peeking.peek(wanted, sequence_number, deadline)
            operation.received(messages)
            return messages

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def renew_session_lock(self, lock_token: UUID | str, *, timeout: float | None = None) -> datetime:
        """Lock a session for the full duration from now on, and return when the lock ends.

        Like all methods for sessions it takes the lock token of the session, or of one of its messages.
        """
        deadline = deadline_of(timeout)
        given = read_lock_token(lock_token)
        with self._telemetry.operation("renew_session_lock", self.entity_path):
            job = CallJob(lambda partition, call_id: partition.renew_session(call_id, given.lease), deadline)
            partition_client = await self._session_partition(given, deadline)
            milliseconds = await self._carry_out("n", partition_client, given, job)
            return datetime.fromtimestamp(partition_client.lease("", milliseconds, job.since).until_utc, UTC)

    async def get_session_state(self, lock_token: UUID | str, *, timeout: float | None = None) -> bytes | None:
        """Return the state of a session; ``None`` if the session has no state now."""
        deadline = deadline_of(timeout)
        given = read_lock_token(lock_token)

        def make(partition: Partition, call_id: CallId) -> Request[bytes | None]:
            return partition.get_state(given.lease, CallId("", 0, call_id.now))

        with self._telemetry.operation("get_session_state", self.entity_path):
            return await self._call("q", make, given, deadline)

    async def set_session_state(
        self, lock_token: UUID | str, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        """Set the state of a session, up to the size of a message.

        ``None`` removes the state. Text is stored in UTF-8.
        """
        deadline = deadline_of(timeout)
        given, kept = read_lock_token(lock_token), state_bytes(state)

        def make(partition: Partition, call_id: CallId) -> Request[bool]:
            return partition.set_state(call_id, given.lease, kept)

        with self._telemetry.operation("set_session_state", self.entity_path):
            await self._call("t", make, given, deadline)

    async def release_session(self, lock_token: UUID | str, *, timeout: float | None = None) -> None:
        """Release a session with all of its locked messages, so that other receivers can accept it.

        This does not increase the delivery counts of the messages.
        """
        deadline = deadline_of(timeout)
        given = read_lock_token(lock_token)

        def make(partition: Partition, call_id: CallId) -> Request[int]:
            return partition.release_session(call_id, given.lease)

        with self._telemetry.operation("release_session", self.entity_path):
            await self._call("v", make, given, deadline)

    async def _call(
        self, letter: str, make: Callable[[Partition, CallId], Request[T]], given: LockToken, deadline: float
    ) -> T:
        """Make a call about the session that a token locks."""
        partition_client = await self._session_partition(given, deadline)
        return await self._carry_out(letter, partition_client, given, CallJob(make, deadline))

    async def _carry_out(self, letter: str, partition_client: PartitionClient, given: LockToken, job: CallJob[T]) -> T:
        try:
            return await partition_client.carry_out(lane_for(letter, given.lease), job)
        except ServiceBusError as error:
            error.entity = error.entity or partition_client.entity.name
            raise

    async def _session_partition(self, given: LockToken, deadline: float) -> PartitionClient:
        """Return the client of the partition of a session."""
        return await self._partition_client(given, deadline, of_session=True)

    def _has_sessions(self, entity: Entity) -> bool:
        return entity.record.settings.sessions and self._sub_queue is None

    def _require_sessions(self, entity: Entity) -> None:
        if not self._has_sessions(entity):
            raise ValueError(f"{self.entity_path!r} has no sessions.")

    # -- the entity ----------------------------------------------------------------------------------------------------

    async def _entity(self, deadline: float) -> Entity:
        entity = await self._lookup.entity(deadline)
        await entity.require(require_messages, deadline)
        return entity

    async def _partition_client(
        self, given: LockToken, deadline: float, *, of_session: bool = False
    ) -> PartitionClient:
        """Return the client of the lock's partition."""
        entity = await self._entity(deadline)
        if given.partition not in entity.numbers:
            # This client's data may be stale: the entity may have been deleted and created again.
            seen = entity.record
            if (await self._lookup.connection.record(self._lookup.name, deadline)).incarnation != seen.incarnation:
                await entity.reload(seen, deadline)
        if of_session:
            self._require_sessions(entity)
        if given.partition not in entity.numbers:
            raise self._foreign(entity, given)
        return entity.partition_client(given.partition)

    def _foreign(self, entity: Entity, given: LockToken) -> ServiceBusError:
        """Return the error for a lock in a partition in which the entity has no messages."""
        of_message = given.name and not self._has_sessions(entity)
        error = (MessageLockLostError if of_message else SessionLockLostError)(
            f"The lock is not one of {entity.name!r}, which is in other partitions. It is a lock of another entity, or "
            f"of an earlier {entity.record.kind} of this name, which was deleted with its messages. This call has "
            "changed nothing.",
            outcome=Outcome.REFUSED,
        )
        error.entity = entity.name
        return error
