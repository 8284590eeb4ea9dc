# pyright: reportPrivateUsage=false
"""A session that was accepted: its lock, its state, and what is done with all of its messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from zlib import crc32

from sbredis.aio.calls._arguments import NoOptions, deadline_of, seconds_of, warn_of_unknown
from sbredis.aio.calls._lane_kinds import CallJob, SettleJob
from sbredis.aio.core._handles import LockHandle
from sbredis.aio.receiving._changes import require_reason
from sbredis.engine import (
    Changes,
    Partition,
    Purged,
    Request,
    SessionLock,
    Turn,
    bury_session,
    encode_changes,
    get_state,
    release_session,
    renew_session,
    set_state,
)
from sbredis.exceptions import Outcome, ServiceBusError, SessionLockLostError
from sbredis.model import Hold, Lease

if TYPE_CHECKING:
    from sbredis.aio.calls._partition_client import PartitionClient
    from sbredis.aio.receiving._inbox import Inbox
    from sbredis.aio.telemetry._telemetry import Telemetry

__all__ = ["ServiceBusSession", "SessionHold", "lane_for", "session_hold_of", "state_bytes"]

T = TypeVar("T")
_log = logging.getLogger("sbredis.client")
_LANES = 8
_RELEASING = 5.0


def lane_for(letter: str, session: str) -> str:
    """A lane for calls about a session: a few of them share all sessions, so that no partition keeps one for each."""
    return f"{letter}{crc32(session.encode()) % _LANES}"


def state_bytes(state: str | bytes | bytearray | None) -> bytes | None:
    """What is kept as the state of a session."""
    if state is not None and not isinstance(state, (str, bytes, bytearray)):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"the state of a session is str, bytes or None, not {type(state).__name__}")
    return state.encode() if isinstance(state, str) else None if state is None else bytes(state)


@dataclass(slots=True, eq=False)
class SessionHold:
    """The lock on a session, as those see it that receive from the session and renew its lock."""

    lease: Lease
    settled: bool = False
    """It was given back."""
    watchers: tuple[Callable[[Any], None], ...] = ()
    """Called once when the session is given back."""

    def lock_expired(self, now: float) -> bool:
        """Whether the lock has ended by the clock of this process."""
        return self.lease.until <= now

    def let_go(self) -> None:
        """Tell all watchers that nobody needs to watch over the lock any more."""
        watchers, self.watchers = self.watchers, ()
        for watcher in watchers:
            watcher(self)


class ServiceBusSession:
    """The session that a receiver has accepted: :attr:`ServiceBusReceiver.session`.

    Its lock stands over all of its messages: no other receiver gets one of them as long as it holds. Whoever works on
    the session for longer renews it, or lets an :class:`AutoLockRenewer` do so.
    """

    auto_renew_error: Exception | None = None
    """Why its lock could not be renewed automatically; ``None`` as long as nothing went wrong."""

    def __init__(
        self, partition_client: PartitionClient, lock: SessionLock, lease: Lease, telemetry: Telemetry
    ) -> None:
        self._partition_client = partition_client
        self._entity = partition_client.entity
        self._runtime = partition_client.runtime
        self._name = lock.name
        self._hold = SessionHold(lease)
        self._telemetry = telemetry
        self._inbox: Inbox | None = None
        """Of its receiver: what was fetched ahead."""
        self._given_back = False
        """It was given back while its lock held."""
        self._waiting: set[asyncio.Event] = set()
        """Of those who wait for the end of the lock: set when something about it has changed."""

    def __repr__(self) -> str:
        state = "given back" if self._hold.settled else f"locked until {self.locked_until_utc.isoformat()}"
        return f"<ServiceBusSession {self._name!r} of {self._entity.name!r}, {state}>"

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """What it is called; the empty text is a name as well."""
        return self._name

    @property
    def locked_until_utc(self) -> datetime:
        """When its lock ends, unless it is renewed."""
        return datetime.fromtimestamp(self._hold.lease.until_utc, UTC)

    @property
    def locked(self) -> bool:
        """Whether its lock holds, as far as this client knows; not when it has ended or the session was given back."""
        return not self._hold.settled and not self._hold.lock_expired(self._runtime.clock.now())

    @property
    def lock_handle(self) -> str:
        """What another process needs to renew, read, write or give back this session: :class:`ServiceBusSettler`.

        It stays the same as long as the session is locked. Whoever has it can do so: keep it out of logs.
        """
        self._check()
        return LockHandle(
            self._entity.record.incarnation, self._partition_client.number, self._hold.lease.token, "", self._name
        ).text()

    @property
    def _lock(self) -> SessionLock:
        return SessionLock(self._name, self._hold.lease.token)

    # -- what is done with it ------------------------------------------------------------------------------------------

    async def renew_lock(self, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]) -> datetime:
        """Lock it for the full duration from now on, and return when the lock ends."""
        warn_of_unknown("renew_lock", kwargs)
        with self._telemetry.operation("renew_session_lock", self._entity.name):
            self._check()
            await self._renew(deadline_of(timeout))
        return self.locked_until_utc

    async def get_state(self, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]) -> bytes | None:
        """What was kept for it, by this receiver or one before; ``None`` if nothing was, or no longer."""
        warn_of_unknown("get_state", kwargs)

        with self._telemetry.operation("get_session_state", self._entity.name):
            self._check()
            return await self._read_state(deadline_of(timeout))

    async def set_state(
        self, state: str | bytes | bytearray | None, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]
    ) -> None:
        """Keep something for the session that outlives its messages, up to the size of a message; ``None`` for nothing.

        Text is kept in UTF-8.
        """
        warn_of_unknown("set_state", kwargs)
        kept = state_bytes(state)
        with self._telemetry.operation("set_session_state", self._entity.name):
            self._check()
            await self._write_state(kept, deadline_of(timeout))

    async def dead_letter_messages(
        self, reason: str | None = None, error_description: str | None = None, *, timeout: float | None = None
    ) -> int:
        """Move all of its messages to the dead-letter queue, also deferred ones and those in the hands of callers, and
        return how many it were. Scheduled ones are not there yet, and stay.
        """
        require_reason(reason, error_description)
        changes = encode_changes(Changes(reason=reason, description=error_description))
        deadline, count = deadline_of(timeout), 0

        def make(partition: Partition, turn: Turn) -> Request[Purged]:
            return bury_session(partition, turn, self._lock, changes)

        recalled = nullcontext() if self._inbox is None else self._inbox.recalled(deadline)
        with self._telemetry.operation("dead_letter_session", self._entity.name) as operation:
            self._check()
            async with recalled:
                while True:
                    step = await self._call("u", make, deadline)
                    count += step.count
                    if step.onwards is None:
                        operation.counted(count)
                        return count

    async def wait_lock_lost(self, *, timeout: float | None = None) -> bool:
        """Wait until the lock is lost, and return ``True``; ``False`` if the session is given back before, or if so
        many seconds have passed. Without a ``timeout`` there is no limit.

        The lock is lost when its time has passed by the clock of this process, or a call was told that it is lost.
        """
        loop, clock = asyncio.get_running_loop(), self._runtime.clock
        ends = None if timeout is None else loop.time() + seconds_of(timeout, "timeout")
        changed = asyncio.Event()
        self._waiting.add(changed)
        unwatch = clock.when_moved(changed.set)
        try:
            while self.locked:
                if ends is not None and loop.time() >= ends:
                    return False
                changed.clear()
                wake = loop.time() + self._hold.lease.until - clock.now()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(wake if ends is None else min(wake, ends)):
                        await changed.wait()
            return not self._given_back
        finally:
            unwatch()
            self._waiting.discard(changed)

    # -- for its receiver, and for settlers ----------------------------------------------------------------------------

    async def _read_state(self, deadline: float) -> bytes | None:
        def make(partition: Partition, turn: Turn) -> Request[bytes | None]:
            return get_state(partition, self._lock, Turn("", 0, turn.now))

        return await self._call("q", make, deadline)

    async def _write_state(self, kept: bytes | None, deadline: float) -> None:
        def make(partition: Partition, turn: Turn) -> Request[bool]:
            return set_state(partition, turn, self._lock, kept)

        await self._call("t", make, deadline)

    async def _hand_back(self, deadline: float) -> None:
        def make(partition: Partition, turn: Turn) -> Request[int]:
            return release_session(partition, turn, self._lock)

        await self._call("v", make, deadline)

    async def _renew(self, deadline: float) -> None:
        def make(partition: Partition, turn: Turn) -> Request[int]:
            return renew_session(partition, turn, self._lock)

        job = CallJob(make, deadline)
        renewed = self._partition_client.lease(self._hold.lease.token, await self._carry_out("n", job), job.since)
        self._hold.lease.until, self._hold.lease.until_utc = renewed.until, renewed.until_utc

    def _begin_renewal(self, deadline: float) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._renew(deadline))

    async def _abandon(self, holds: Sequence[Hold]) -> None:
        """Count a failed delivery for these; if that cannot be said, the end of the lock counts it."""
        if self._hold.settled or self._hold.lock_expired(self._runtime.clock.now()):
            return
        deadline = asyncio.get_running_loop().time() + _RELEASING
        jobs: list[SettleJob] = []
        for hold in holds:
            if hold.lease is not None and not hold.settled:
                hold.settled = True
                jobs.append(SettleJob(hold.lock(), deadline, hold))
        lane = self._partition_client.settling("abandon")
        for error in await asyncio.gather(*map(lane.submit, jobs), return_exceptions=True):
            if error is not None:
                _log.debug("%s: a failed delivery was not counted: %s", self._entity.name, error)

    async def _release(self) -> None:
        """Give it back, with what is held of it; if that cannot be said, its lock ends by itself."""
        if self._hold.settled:
            return
        self._given_back = self.locked
        self._hold.settled = True
        self._tell_waiting()
        self._hold.let_go()
        if self._hold.lease.until > self._runtime.clock.now():
            try:
                await self._hand_back(asyncio.get_running_loop().time() + _RELEASING)
            except ServiceBusError as error:
                _log.debug(
                    "%s: a session was not given back, and is free when its lock ends: %s", self._entity.name, error
                )

    def _lose(self) -> None:
        """A call was told that its lock is lost."""
        self._hold.lease.until = min(self._hold.lease.until, self._runtime.clock.now())
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        for changed in self._waiting:
            changed.set()

    def _give_back(self) -> None:
        """The same beside everything else."""
        self._runtime.see_off(self._release())

    def _check(self) -> None:
        if self._hold.settled:
            raise ValueError("The session was given back: accept it again.")
        self._runtime.check_open()
        if self._hold.lease.until <= self._runtime.clock.now():
            raise self._lost()

    def _lost(self) -> SessionLockLostError:
        error = SessionLockLostError(
            f"The lock on the session {self._name!r} has ended. Accept it again, and renew the lock of what takes "
            "longer.",
            outcome=Outcome.NEVER_SENT,
        )
        error.entity = self._entity.name
        return error

    async def _call(self, letter: str, make: Callable[[Partition, Turn], Request[T]], deadline: float) -> T:
        return await self._carry_out(letter, CallJob(make, deadline))

    async def _carry_out(self, letter: str, job: CallJob[T]) -> T:
        try:
            return await self._partition_client.carry_out(lane_for(letter, self._name), job)
        except ServiceBusError as error:
            error.entity = error.entity or self._entity.name
            if isinstance(error, SessionLockLostError):
                self._lose()
            raise


def session_hold_of(session: ServiceBusSession) -> SessionHold:
    """The lock on a session."""
    return session._hold
