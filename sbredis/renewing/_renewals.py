"""Renew the locks of messages and sessions, in one loop for each renewer; extend leases by their keys.

Locks that end at the same moment are in one :class:`_RenewalGroup`. The groups wait in a heap for their times. A single
timer waits for the first group.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sbredis.client import CallJob
from sbredis.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout, Outcome, ServiceBusError
from sbredis.model import Hold, ServiceBusReceivedMessage
from sbredis.receiving import HeldSession, renewal
from sbredis.telemetry import named, shortened

if TYPE_CHECKING:
    from sbredis.client import Clock, Connection, ConnectionReference, Entity, PartitionClient
    from sbredis.telemetry import Telemetry

__all__ = [
    "LockRenewFailureCallback",
    "RenewalReport",
    "Renewals",
    "RenewedLock",
    "extended",
]

_log = logging.getLogger("sbredis.client")
LockRenewFailureCallback = Callable[[Any, Exception | None], Awaitable[None] | None]
"""A function or coroutine function of the application. It gets the message or session, and the error of the renewal."""
_TOGETHER = 0.05
"""Renewals that are due within this number of seconds are made together."""
_AGAIN = 0.5
_CLOSING = 5.0
"""The seconds that ``close`` waits for running callbacks."""


class RenewedLock(NamedTuple):
    """A message or session whose lock is renewed."""

    subject: Any
    """The received message or the session, as the application has it. It gets the error that ends the renewals."""
    hold: Hold | HeldSession
    """This client's knowledge of the lock."""


class ExtendedLeases(NamedTuple):
    """What a partition has answered."""

    until: float
    """The new end of the leases by the clock of this process, with a margin."""
    until_utc: float
    ended: frozenset[str]
    """The keys of the leases that had ended."""


async def extended(
    connection: Connection, name: str, number: int, keys: Sequence[str], deadline: float
) -> ExtendedLeases:
    """Extend leases of one partition of an entity by one call."""
    job = CallJob(lambda partition, call_id: partition.renew(call_id, (), keys), deadline)
    client = (await connection.entity(name, deadline)).partition_client(number)
    renewed = await client.carry_out("k", job)
    fresh = client.lease("", renewed.lock, job.since)
    return ExtendedLeases(fresh.until, fresh.until_utc, frozenset(renewed.ended))


def _entity(hold: Hold | HeldSession) -> Entity:
    if isinstance(hold, HeldSession):
        return hold.entity
    link: PartitionClient = hold.reception.link
    return link.entity


class RenewalReport(NamedTuple):
    """Reports failed renewals to the telemetry, with the path of a receiver."""

    telemetry: Telemetry
    path: str
    reference: ConnectionReference
    """Keeps the client open while locks are renewed."""

    def failed(self, failures: Sequence[tuple[RenewedLock, Exception]]) -> None:
        """Report the locks that are no longer renewed to the log, spans and metrics, once for each kind of error."""
        by_kind: dict[type[BaseException], list[tuple[RenewedLock, Exception]]] = {}
        for lock, error in failures:
            by_kind.setdefault(type(error.__cause__ or error), []).append((lock, error))
        for group in by_kind.values():
            error = group[0][1]
            reason = error.__cause__ or error
            subjects = [lock.subject for lock, _ in group]
            messages = [each for each in subjects if isinstance(each, ServiceBusReceivedMessage)]
            sessions = [lock.hold for lock, _ in group if isinstance(lock.hold, HeldSession)]
            if messages:
                _log.warning("%s: the lock on %s is not renewed any longer: %s", self.path, named(messages), error)
                self.telemetry.failed("renew_message_lock", self.path, reason, messages)
            for session in sessions:
                name = shortened(session.name)
                _log.warning("%s: the lock on the session %s is not renewed any longer: %s", self.path, name, error)
                self.telemetry.failed("renew_session_lock", self.path, reason)


@dataclass(slots=True, eq=False)
class _RenewalGroup:
    """Messages that were registered at the same moment, with locks that end at the same moment.

    Their locks are renewed together. A session has a group of its own.
    """

    entity: Entity
    report: RenewalReport
    until: float
    """The time when the first of the locks ended at the registration of the group."""
    ends: float
    """The time when the renewals stop."""
    asked: float
    """The number of seconds for which the application asked for renewals."""
    on_failure: LockRenewFailureCallback | None
    locks: dict[int, RenewedLock] = field(default_factory=dict[int, RenewedLock])
    """A mapping from the identity of each hold to its lock."""

    def drop(self, hold: Hold | HeldSession) -> None:
        """Drop a message or session that was settled."""
        self.locks.pop(id(hold), None)

    def release(self, hold: Hold | HeldSession) -> None:
        """Stop renewing a message or session in this group."""
        self.drop(hold)
        hold.watchers = tuple(watcher for watcher in hold.watchers if watcher != self.drop)

    def release_all(self) -> None:
        """Stop renewing all messages or the session of the group."""
        for lock in list(self.locks.values()):
            self.release(lock.hold)

    def first_end(self) -> float | None:
        """Return the time when the first of the locks ends; ``None`` if the group has no lock any more."""
        ends = [lock.hold.lease.until for lock in self.locks.values() if lock.hold.lease is not None]
        return min(ends, default=None)


class Renewals:
    """The locks that one renewer renews."""

    def __init__(self) -> None:
        self.closed = False
        """Whether the renewer was closed."""
        self._due: list[tuple[float, int, _RenewalGroup]] = []
        self._numbers = itertools.count()
        self._last: _RenewalGroup | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When the timer fires. The handle of uvloop does not always tell."""
        self._calling: set[asyncio.Task[None]] = set()
        self._renewals: set[asyncio.Future[Any]] = set()
        """The renewals under way."""
        self._unwatched: dict[Clock, Callable[[], None]] = {}

    def add(
        self,
        lock: RenewedLock,
        until: float,
        asked: float,
        report: RenewalReport,
        on_failure: LockRenewFailureCallback | None,
    ) -> None:
        """Renew a lock that ends at the time ``until``. The renewals go on for ``asked`` seconds."""
        hold, last = lock.hold, self._last
        entity = _entity(hold)
        now = entity.connection.clock.now()
        if (
            last is None
            or not 0 <= until - last.until < _TOGETHER
            or not 0 <= now + asked - last.ends < _TOGETHER
            or last.asked != asked
            or last.on_failure is not on_failure
            or last.report is not report
            or last.entity is not entity
        ):
            last = self._last = _RenewalGroup(entity, report, until, now + asked, asked, on_failure)
            self._schedule(last, until)
        last.locks[id(hold)] = lock
        if last.drop not in hold.watchers:
            hold.watchers = (*hold.watchers, last.drop)

    async def close(self) -> None:
        """Stop renewing, and wait a short time for running callbacks."""
        self.closed = True
        for each in list(self._renewals):
            each.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for _, _, group in self._due:
            group.release_all()
        self._due.clear()
        self._last = None
        for unwatch in self._unwatched.values():
            unwatch()
        self._unwatched.clear()
        calling = [task for task in self._calling if task is not asyncio.current_task()]
        await asyncio.sleep(0)  # let the renewals end
        if calling:
            _, late = await asyncio.wait(calling, timeout=_CLOSING)
            for task in late:
                task.cancel()
            if late:
                _log.warning(
                    "the AutoLockRenewer is closed; %d calls of on_lock_renew_failure had not ended after %g s and are "
                    "cancelled",
                    len(late),
                    _CLOSING,
                )
                await asyncio.sleep(0)  # let the cancelled calls begin to end

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _schedule(self, group: _RenewalGroup, until: float, *, soon: bool = False) -> None:
        """Schedule the next renewal of a group whose first lock ends at ``until``."""
        clock = group.entity.connection.clock
        if clock.kind == "test" and clock not in self._unwatched:
            self._unwatched[clock] = clock.when_moved(self._clock_moved)
        left = until - clock.now()
        lock = group.entity.record.settings.lock_duration / 1000
        wait = min(_AGAIN, max(left / 2, _TOGETHER * 2)) if soon else left - min(lock / 2, max(10.0, lock / 3))
        wait = min(wait, group.ends - clock.now())
        loop = asyncio.get_running_loop()
        heapq.heappush(self._due, (loop.time() + max(0.0, wait), next(self._numbers), group))
        when = self._due[0][0]
        if self._timer is None or self._timer.cancelled() or when < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = loop.call_at(when, self._renew), when

    def _clock_moved(self) -> None:
        """Schedule all renewals again, because the clock was moved and locks end earlier. Start those that are due."""
        scheduled, self._due = self._due, []
        for _, _, group in scheduled:
            first = group.first_end()
            if first is not None:
                self._schedule(group, first)

    def _renew(self) -> None:
        self._timer = None
        if self.closed:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._due and self._due[0][0] <= now + _TOGETHER:
            _, _, group = heapq.heappop(self._due)
            if group is self._last:
                self._last = None  # messages that are registered from now on get a group of their own
            if group.locks:
                self._renew_one(group)
        if self._due and self._timer is None:
            self._timer_at = self._due[0][0]
            self._timer = loop.call_at(self._timer_at, self._renew)

    def _renew_one(self, group: _RenewalGroup) -> None:
        """Start the renewal of a group, or stop it if the requested time is over."""
        connection = group.entity.connection
        if connection.closed:
            group.release_all()
            return
        now = connection.clock.now()
        if group.ends <= now + _TOGETHER:
            said = f"The lock was renewed for {group.asked:g} s, and is not renewed any longer."
            self._give_up(group, [(lock, AutoLockRenewTimeout(said)) for lock in group.locks.values()])
            return
        # Skip messages that are being settled: a renewal would change the lease while the settlement uses it.
        locks = [lock for lock in group.locks.values() if not lock.hold.settled]
        loop = asyncio.get_running_loop()
        renewals: list[asyncio.Future[Any]] = []
        for _, hold in locks:
            left = 0.0 if hold.lease is None else hold.lease.until - now
            deadline = loop.time() + max(left, _AGAIN)
            if isinstance(hold, HeldSession):
                renewals.append(asyncio.ensure_future(hold.renew(deadline)))
            else:
                renewals.append(renewal(hold, deadline))
        together = asyncio.gather(*renewals, return_exceptions=True)
        self._renewals.add(together)
        together.add_done_callback(lambda done: self._renewed(group, locks, done))

    def _renewed(
        self, group: _RenewalGroup, locks: list[RenewedLock], done: asyncio.Future[list[BaseException | None]]
    ) -> None:
        self._renewals.discard(done)
        if not done.cancelled():
            self._finish(group, locks, done.result())

    def _finish(self, group: _RenewalGroup, locks: list[RenewedLock], errors: Sequence[BaseException | None]) -> None:
        connection = group.entity.connection
        if self.closed or connection.closed:
            group.release_all()
            return
        now = connection.clock.now()
        again = len(locks) < len(group.locks)
        failed: list[tuple[RenewedLock, Exception]] = []
        for lock, error in zip(locks, errors, strict=True):
            hold = lock.hold
            lease = hold.lease
            if error is None or id(hold) not in group.locks or lease is None:
                continue
            if isinstance(error, ServiceBusError) and error.is_transient and lease.until > now:
                again = True
            elif not hold.settled:
                failed.append((lock, _failed(error)))
        self._give_up(group, failed)
        for _, hold in list(group.locks.values()):
            if hold.settled and hold.lock_expired(now):
                group.release(hold)  # the settlement of the message reports its lost lock to the caller
        first = group.first_end()
        if first is not None:
            self._schedule(group, first, soon=again)

    def _give_up(self, group: _RenewalGroup, failed: list[tuple[RenewedLock, Exception]]) -> None:
        """Stop renewing these locks. Report the errors to the log, to spans and metrics, and to the application."""
        if failed:
            group.report.failed(failed)
        for (subject, hold), error in failed:
            group.release(hold)
            subject.auto_renew_error = error
            if group.on_failure is not None:
                task = asyncio.get_running_loop().create_task(_tell(group.on_failure, subject, error))
                self._calling.add(task)
                task.add_done_callback(self._calling.discard)


def _failed(cause: BaseException) -> AutoLockRenewFailed:
    said = cause.message if isinstance(cause, ServiceBusError) else f"{type(cause).__name__}: {cause}"
    error = AutoLockRenewFailed(f"The lock could not be renewed. {said}", outcome=Outcome.REFUSED)
    error.__cause__ = cause
    return error


async def _tell(callback: LockRenewFailureCallback, subject: object, error: Exception) -> None:
    try:
        said = callback(subject, error)
        if inspect.isawaitable(said):
            await said
    except Exception:  # noqa: BLE001  # the callback belongs to the application and may raise anything
        _log.exception("on_lock_renew_failure failed")
