"""A session that was accepted, as applications see it."""

# A function of this module hands out what the class holds.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Unpack

from sbredis.aio.calls._arguments import NoOptions, deadline_of, seconds_of, warn_of_unknown
from sbredis.aio.core._handles import LockHandle
from sbredis.aio.receiving._changes import require_reason
from sbredis.aio.receiving._held_session import HeldSession, state_bytes
from sbredis.engine import Changes, encode_changes

if TYPE_CHECKING:
    from sbredis.aio.telemetry._telemetry import Telemetry

__all__ = ["ServiceBusSession", "held_session"]


class ServiceBusSession:
    """The session that a receiver has accepted: :attr:`ServiceBusReceiver.session`.

    Its lock stands over all of its messages: no other receiver gets one of them as long as it holds. Whoever works on
    the session for longer renews it, or lets an :class:`AutoLockRenewer` do so.
    """

    auto_renew_error: Exception | None = None
    """Why its lock could not be renewed automatically; ``None`` as long as nothing went wrong."""

    def __init__(self, held: HeldSession, telemetry: Telemetry) -> None:
        self._held = held
        self._telemetry = telemetry

    def __repr__(self) -> str:
        held = self._held
        state = "given back" if held.settled else f"locked until {self.locked_until_utc.isoformat()}"
        return f"<ServiceBusSession {held.name!r} of {held.entity.name!r}, {state}>"

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """What it is called; the empty text is a name as well."""
        return self._held.name

    @property
    def locked_until_utc(self) -> datetime:
        """When its lock ends, unless it is renewed."""
        return datetime.fromtimestamp(self._held.lease.until_utc, UTC)

    @property
    def locked(self) -> bool:
        """Whether its lock holds, as far as this client knows; not when it has ended or the session was given back."""
        return self._held.locked

    @property
    def lock_handle(self) -> str:
        """What another process needs to renew, read, write or give back this session: :class:`ServiceBusSettler`.

        It stays the same as long as the session is locked. Whoever has it can do so: keep it out of logs.
        """
        held = self._held
        held.check()
        number, token = held.partition_client.number, held.lease.token
        return LockHandle(held.entity.record.incarnation, number, token, "", held.name).text()

    # -- what is done with it ------------------------------------------------------------------------------------------

    async def renew_lock(self, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]) -> datetime:
        """Lock it for the full duration from now on, and return when the lock ends."""
        warn_of_unknown("renew_lock", kwargs)
        with self._telemetry.operation("renew_session_lock", self._held.entity.name):
            self._held.check()
            await self._held.renew(deadline_of(timeout))
        return self.locked_until_utc

    async def get_state(self, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]) -> bytes | None:
        """What was kept for it, by this receiver or one before; ``None`` if nothing was, or no longer."""
        warn_of_unknown("get_state", kwargs)
        with self._telemetry.operation("get_session_state", self._held.entity.name):
            self._held.check()
            return await self._held.read_state(deadline_of(timeout))

    async def set_state(
        self, state: str | bytes | bytearray | None, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]
    ) -> None:
        """Keep something for the session that outlives its messages, up to the size of a message; ``None`` for nothing.

        Text is kept in UTF-8.
        """
        warn_of_unknown("set_state", kwargs)
        kept = state_bytes(state)
        with self._telemetry.operation("set_session_state", self._held.entity.name):
            self._held.check()
            await self._held.write_state(kept, deadline_of(timeout))

    async def dead_letter_messages(
        self, reason: str | None = None, error_description: str | None = None, *, timeout: float | None = None
    ) -> int:
        """Move all of its messages to the dead-letter queue, also deferred ones and those in the hands of callers, and
        return how many were moved. Scheduled ones are not there yet, and stay.
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
        """Wait until the lock is lost, and return ``True``; ``False`` if the session is given back before, or if so
        many seconds have passed. Without a ``timeout`` there is no limit.

        The lock is lost when its time has passed by the clock of this process, or a call was told that it is lost.
        """
        return await self._held.wait_lost(None if timeout is None else seconds_of(timeout, "timeout"))


def held_session(session: ServiceBusSession) -> HeldSession:
    """The lock on a session, and what is done under it."""
    return session._held
