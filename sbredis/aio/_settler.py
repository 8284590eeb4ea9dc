"""Settling messages and administering sessions with handles of locks that another process holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Self

from sbredis.client import RenewJob, SettleJob, deadline_of, lock_lost
from sbredis.engine import CallId, Lock, Partition, Peeked, Request, is_dead, number_of, side_of
from sbredis.entities import SUB_QUEUES, SUFFIXES
from sbredis.model import (
    MessageLease,
    PrimitiveTypes,
    Reception,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
    delivered,
    hold_of,
)
from sbredis.receiving import (
    EntityLookup,
    HeldSession,
    LockHandle,
    changes_of,
    delay_of,
    read_handle,
    require_messages,
    require_modification,
    require_reason,
    state_bytes,
)

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity, PartitionClient
    from sbredis.telemetry import Observation, Telemetry

__all__ = ["ServiceBusSettler"]

_CLOSED = "The settler is closed: get another settler from the client."


@dataclass(slots=True)
class _LockedMessage:
    """The lock of a message, as its handle describes it, and the client of its partition."""

    name: str
    lease: MessageLease | None
    partition_client: PartitionClient
    lock: Lock


class ServiceBusSettler:
    """Settles messages and manages sessions that another process or connection has locked.

    Made by :meth:`ServiceBusClient.get_settler`. A settler receives no messages. Its methods take handles, which
    :meth:`ServiceBusReceiver.get_lock_handle` and :attr:`ServiceBusSession.lock_handle` make.

    The settler checks a handle before it changes anything. A handle that is malformed, or was made for another entity
    or sub-queue, raises :class:`ValueError`. The broker decides whether the lock still holds. If the lock is lost, the
    call raises :class:`~sbredis.exceptions.MessageLockLostError` or :class:`~sbredis.exceptions.SessionLockLostError`.
    All calls may be made concurrently.
    """

    def __init__(
        self, connection: Connection, name: str, sub_queue: ServiceBusSubQueue | None, telemetry: Telemetry
    ) -> None:
        self._reference = connection.reference()
        self._lookup = EntityLookup(connection, name, when_closed=_CLOSED)
        self._sub_queue = sub_queue
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

    async def complete_message(self, handle: str, *, timeout: float | None = None) -> None:
        """Settle a message as done: remove it from the queue."""
        await self._settle("complete", handle, timeout)

    async def abandon_message(
        self,
        handle: str,
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
        await self._settle("abandon", handle, timeout, modify=properties_to_modify, delay=delay_of(delay))

    async def release_message(self, handle: str, *, interrupted: bool = False, timeout: float | None = None) -> None:
        """Unlock a message without counting a delivery.

        The message returns to its place and can be received again immediately. With ``interrupted``, the next delivery
        reports that the work on the message had begun.
        """
        await self._settle("release", handle, timeout, lane="interrupt" if interrupted else "release")

    async def defer_message(
        self,
        handle: str,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Set a message aside: it can be received again only by its sequence number.

        This counts as a failed delivery. A message that reaches the queue's delivery limit goes to the dead-letter
        queue instead.
        """
        await self._settle("defer", handle, timeout, modify=properties_to_modify)

    async def dead_letter_message(
        self,
        handle: str,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Move a message to the dead-letter queue, with a reason. One more call reads the message first."""
        await self._settle(
            "dead_letter",
            handle,
            timeout,
            modify=properties_to_modify,
            reason=reason,
            description=error_description,
        )

    async def renew_message_lock(self, handle: str, *, timeout: float | None = None) -> datetime:
        """Lock a message for the full duration from now on, and return when the lock ends. The handle stays the same.

        A message of a session has no lock of its own: renew the lock of the session.
        """
        deadline = deadline_of(timeout)
        given = self._message_handle(handle)
        if given.session is not None:
            raise ValueError("A message of a session has no lock of its own: renew the lock of the session.")
        with self._telemetry.operation("renew_message_lock", self.entity_path) as operation:
            held = await self._locked_message(given, deadline, operation)
            assert held.lease is not None
            await held.partition_client.renewing.submit(RenewJob(held.lock, deadline, held))
            return datetime.fromtimestamp(held.lease.until_utc, UTC)

    async def _settle(
        self,
        kind: Literal["complete", "abandon", "release", "defer", "dead_letter"],
        handle: str,
        timeout: float | None,
        *,
        modify: Mapping[str, PrimitiveTypes] | None = None,
        reason: str | None = None,
        description: str | None = None,
        delay: int = 0,
        lane: str | None = None,
    ) -> None:
        deadline = deadline_of(timeout)
        given = self._message_handle(handle)
        if kind == "dead_letter" and is_dead(given.name):
            raise ValueError("The message is on the dead-letter queue already: complete it, abandon it or defer it.")
        require_reason(reason, description)
        require_modification(modify)
        with self._telemetry.operation(kind, self.entity_path) as operation:
            held = await self._locked_message(given, deadline, operation)
            lock = held.lock
            if modify is not None or reason is not None or description is not None:
                lock = lock._replace(changes=await self._changes(given, held, modify, reason, description, deadline))
            job = SettleJob(lock._replace(delay=delay), deadline, None, given.session)
            await held.partition_client.settling(lane or kind).submit(job)

    async def _changes(  # noqa: PLR0917 -- the changes, and the message they are for
        self,
        given: LockHandle,
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
            raise lock_lost(held.partition_client, given.name, given.session)
        base = held.partition_client.entity.base(given.partition)
        reception = Reception(base, ServiceBusReceiveMode.PEEK_LOCK, held.partition_client.entity, peeked=True)
        return changes_of(hold_of(delivered(shown[0], reception, None)), modify, reason, description)

    def _message_handle(self, handle: str) -> LockHandle:
        given = read_handle(handle, "message")
        sub_queue = SUB_QUEUES[side_of(given.name)]
        if sub_queue is not self._sub_queue:
            raise ValueError(
                f"The handle does not belong to a message of {self.entity_path!r}: it belongs to "
                + ("a dead letter." if sub_queue else "a message that is not a dead letter.")
            )
        return given

    async def _locked_message(self, given: LockHandle, deadline: float, operation: Observation) -> _LockedMessage:
        partition_client = await self._partition_client(given, deadline)
        operation.numbered([partition_client.entity.base(partition_client.number) + number_of(given.name)])
        return _LockedMessage(
            given.name,
            MessageLease(given.token, math.inf, math.inf, session=given.session),
            partition_client,
            Lock(given.token, given.name),
        )

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def renew_session_lock(self, handle: str, *, timeout: float | None = None) -> datetime:
        """Lock a session for the full duration from now on, and return when the lock ends."""
        deadline = deadline_of(timeout)
        given = self._session_handle(handle)
        with self._telemetry.operation("renew_session_lock", self.entity_path):
            session = await self._session(given, deadline)
            await session.renew(deadline)
        return datetime.fromtimestamp(session.lease.until_utc, UTC)

    async def get_session_state(self, handle: str, *, timeout: float | None = None) -> bytes | None:
        """Return the state of a session; ``None`` if the session has no state now."""
        deadline = deadline_of(timeout)
        given = self._session_handle(handle)
        with self._telemetry.operation("get_session_state", self.entity_path):
            return await (await self._session(given, deadline)).read_state(deadline)

    async def set_session_state(
        self, handle: str, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        """Set the state of a session, up to the size of a message.

        ``None`` removes the state. Text is stored in UTF-8.
        """
        deadline = deadline_of(timeout)
        given, kept = self._session_handle(handle), state_bytes(state)
        with self._telemetry.operation("set_session_state", self.entity_path):
            await (await self._session(given, deadline)).write_state(kept, deadline)

    async def release_session(self, handle: str, *, timeout: float | None = None) -> None:
        """Release a session with all of its locked messages, so that other receivers can accept it.

        This does not increase the delivery counts of the messages.
        """
        deadline = deadline_of(timeout)
        given = self._session_handle(handle)
        with self._telemetry.operation("release_session", self.entity_path):
            await (await self._session(given, deadline)).unlock(deadline)

    def _session_handle(self, handle: str) -> LockHandle:
        given = read_handle(handle, "session")
        if self._sub_queue is not None:
            raise ValueError(f"{self.entity_path!r} has no sessions: use the settler of the queue or subscription.")
        return given

    async def _session(self, given: LockHandle, deadline: float) -> HeldSession:
        """Return the session, assuming that its lock still holds."""
        assert given.session is not None
        partition_client = await self._partition_client(given, deadline)
        lease = MessageLease(given.token, math.inf, math.inf, session=given.session)
        return HeldSession(partition_client, given.session, lease)

    # -- the entity ----------------------------------------------------------------------------------------------------

    async def _entity(self, deadline: float) -> Entity:
        entity = await self._lookup.entity(deadline)
        await entity.require(require_messages, deadline)
        return entity

    async def _partition_client(self, given: LockHandle, deadline: float) -> PartitionClient:
        """Return the client of the lock's partition, if the lock belongs to this entity."""
        entity = await self._entity(deadline)
        seen = entity.record
        if seen.incarnation != given.incarnation:
            # This client's data may be stale: the entity may have been deleted and created again.
            found = await self._lookup.connection.record(self._lookup.name, deadline)
            if found.incarnation == given.incarnation:
                await entity.reload(seen, deadline)
        if entity.record.incarnation != given.incarnation or given.partition not in entity.numbers:
            raise ValueError(
                f"The handle does not belong to {entity.name!r}: it was made for another entity, or for an entity of "
                "this name that has been deleted."
            )
        return entity.partition_client(given.partition)
