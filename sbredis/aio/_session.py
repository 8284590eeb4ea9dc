"""An accepted session, as applications use it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from sbredis.client import deadline_of, seconds_of
from sbredis.engine import Changes, LockToken, encode_changes
from sbredis.model import ServiceBusReceivedMessage, hold_of
from sbredis.receiving import HeldSession, require_reason, state_bytes
from sbredis.renewing import RenewedLock

if TYPE_CHECKING:
    from sbredis.telemetry import Telemetry

__all__ = ["ServiceBusSession", "held_session", "renewed"]


class ServiceBusSession:
    """The session that a receiver has accepted: :attr:`ServiceBusReceiver.session`.

    The lock of the session covers all of its messages: no other receiver gets one of them while the lock holds. To work
    on the session for longer, renew the lock, or let an :class:`AutoLockRenewer` renew it.
    """

    auto_renew_error: Exception | None = None
    """The error that ended the automatic renewal of the session's lock; ``None`` if there was no error."""

    def __init__(self, held: HeldSession, telemetry: Telemetry) -> None:
        self._held = held
        self._telemetry = telemetry

    def __repr__(self) -> str:
        held = self._held
        state = "given back" if held.settled else f"locked until {self.locked_until_utc.isoformat()}"
        return f"<ServiceBusSession {held.name!r} of {held.entity.name!r}, {state}>"

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The id of the session. An empty text is a valid id."""
        return self._held.name

    @property
    def locked_until_utc(self) -> datetime:
        """The time when the lock ends, unless the lock is renewed."""
        return datetime.fromtimestamp(self._held.lease.until_utc, UTC)

    @property
    def fence(self) -> int:
        """A number with which an outside resource can recognise the later of two holders of this session.

        Each lock of a session gets a higher number than all earlier locks in the same partition. It stays the same when
        the lock is renewed. An addition of sbredis.
        """
        return self._held.lease.fence

    @property
    def locked(self) -> bool:
        """Whether the lock holds, as far as this client knows. False if the lock has ended or was released."""
        return self._held.locked

    @property
    def lock_token(self) -> UUID:
        """An identifier of the lock, with which another process can use this session: see :class:`ServiceBusSettler`.

        It stays the same as long as the session is locked. The lock token of each message of the session does the same.
        """
        self._held.check()
        lease = self._held.lease
        return LockToken(lease.token, lease.partition, "").uuid()

    # -- operations ----------------------------------------------------------------------------------------------------

    async def renew_lock(self, *, timeout: float | None = None) -> datetime:
        """Lock the session for the full duration from now on, and return the time when the lock ends."""
        with self._telemetry.operation("renew_session_lock", self._held.entity.name):
            self._held.check()
            await self._held.renew(deadline_of(timeout))
        return self.locked_until_utc

    async def get_state(self, *, timeout: float | None = None) -> bytes | None:
        """Return the state of the session, which this or an earlier receiver has set; ``None`` if there is none."""
        with self._telemetry.operation("get_session_state", self._held.entity.name):
            self._held.check()
            return await self._held.read_state(deadline_of(timeout))

    async def set_state(self, state: str | bytes | bytearray | None, *, timeout: float | None = None) -> None:
        """Set the state of the session, up to the size of a message. ``None`` removes the state.

        The state remains when the session has no more messages. Text is stored in UTF-8.
        """
        kept = state_bytes(state)
        with self._telemetry.operation("set_session_state", self._held.entity.name):
            self._held.check()
            await self._held.write_state(kept, deadline_of(timeout))

    async def dead_letter_messages(
        self, reason: str | None = None, error_description: str | None = None, *, timeout: float | None = None
    ) -> int:
        """Move all messages of the session to the dead-letter queue. Return the number of moved messages.

        Deferred messages are moved too, and so are messages that callers have received and not settled. Scheduled
        messages are not moved, because they are not in the session yet.
        """
        require_reason(reason, error_description)
        changes = encode_changes(Changes(reason=reason, description=error_description))
        deadline = deadline_of(timeout)
        with self._telemetry.operation("dead_letter_session", self._held.entity.name) as operation:
            self._held.check()
            async with self._held.recalled(deadline):
                count = await self._held.bury(changes, deadline)
            operation.counted(count)
            return count

    async def wait_lock_lost(self, *, timeout: float | None = None) -> bool:
        """Wait until the lock is lost, and return ``True``.

        Return ``False`` if the session is released before that, or if ``timeout`` seconds are over. Without a
        ``timeout`` there is no limit.

        The lock is lost when it has ended according to the clock of this process, or when a call has reported the loss.
        """
        return await self._held.wait_lost(None if timeout is None else seconds_of(timeout, "timeout"))


def held_session(session: ServiceBusSession) -> HeldSession:
    """Return the lock on a session, with the calls that are made under it."""
    return session._held  # pyright: ignore[reportPrivateUsage]  # for this package only


def renewed(renewable: ServiceBusReceivedMessage | ServiceBusSession) -> RenewedLock:
    """Return the lock of a message or session, in the form that renewers take."""
    hold = held_session(renewable) if isinstance(renewable, ServiceBusSession) else hold_of(renewable)
    return RenewedLock(renewable, hold)
