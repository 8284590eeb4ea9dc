"""The thread that renews locks for an event loop, also while code blocks that loop.

The thread has an event loop and a connection of its own. It extends whole leases by their keys. So the event loop of
the application can settle messages, or renew their locks, at the same time. Of the objects of that loop, the thread
writes only the times when leases end.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sbredis._loop_thread import LoopThread
from sbredis._tasks import wait_until
from sbredis.engine import MAXIMUM_CALL_MESSAGES
from sbredis.exceptions import AutoLockRenewTimeout, MessagingEntityNotFoundError, ServiceBusError
from sbredis.model import Hold, MessageLease
from sbredis.receiving import HeldSession, lock_ended
from sbredis.renewing._renewals import RenewedLock, extended
from sbredis.renewing._stand_in_process import HeldLock, StandInProcess

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity, PartitionClient

__all__ = ["RenewalThread"]

_log = logging.getLogger("sbredis.client")
_TOGETHER = 0.5
"""The renewals of a partition that are due within this number of seconds share a call."""
_AGAIN = 0.5
"""The seconds to wait after a failed call, before the next call to the partition."""
_STAND_IN = "", 1
"""The key of the start of a process, beside those of the calls to partitions."""
_CALLING = 10.0
"""The most seconds that one call may take."""


@dataclass(slots=True, eq=False)
class _Seen:
    """The thread's knowledge of a message or session that the application holds."""

    hold: Hold | HeldSession
    since: float
    """The time of the thread's first look at it."""
    lost: bool = False
    """Whether the loss of the lock was reported."""


@dataclass(slots=True, eq=False)
class _RenewedLease:
    """A lock, and the messages or the session that it covers."""

    lease: MessageLease
    entity: Entity
    number: int
    """The number of the partition."""
    covered: list[RenewedLock] = field(default_factory=list[RenewedLock])
    since: float = 0.0
    """The time of the first look at the message that was seen last."""


class RenewalThread(LoopThread):
    """Renews the locks that ``held`` names.

    The thread ends when it is stopped, when the client of the application is closed, or after the application's event
    loop was closed.
    """

    def __init__(
        self,
        connection: Connection,
        held: Callable[[], Iterable[RenewedLock]],
        on_lost: Callable[[Any, Exception], object] | None,
        while_alive: Callable[[], bool] | None,
        longest: float | None,
        *,
        stand_in: StandInProcess | None = None,
    ) -> None:
        super().__init__(f"sbredis lock renewal {connection.target}")
        self._connection = connection
        self._own = connection.another()
        self._home = asyncio.get_running_loop()
        self._held = held
        self._on_lost = on_lost
        self._while_alive = while_alive
        self._longest = longest
        self._stand_in = stand_in
        """The process that renews locks while code of this program keeps the GIL."""
        self._over_soon = False
        """Whether :meth:`stop` was called."""
        self._changed = asyncio.Event()
        """An event that is set when the thread must look at the locks again."""
        self._seen: dict[int, _Seen] = {}
        self._calling: dict[tuple[str, int], asyncio.Task[None]] = {}
        """The calls under way, by entity and partition."""
        self._failures: dict[tuple[str, int], Exception] = {}
        """The error of the last call to each partition, if it failed."""
        self._broken = False
        """Whether a function of the application failed at the last look, and that was logged."""
        self.stop_after(self._renew)  # when the thread is started

    def stop(self) -> None:
        """Let the thread end soon. May be called in any thread."""
        self._over_soon = True
        self._check_again()

    def _check_again(self) -> None:
        self.post(self._changed.set)

    @property
    def _over(self) -> bool:
        return self._over_soon or self._connection.closed or self._home.is_closed()

    async def _renew(self) -> None:
        try:
            await self._look_and_renew()
        finally:
            if self._stand_in is not None:
                self._stand_in.close()

    async def _look_and_renew(self) -> None:
        unwatch = self._own.clock.when_moved(self._check_again)
        if self._own.test_hooks is None:  # on the bus of a test this takes no time, and most tests end before a renewal
            self._start(("", 0), self._open())
        try:
            while not self._over:
                self._changed.clear()
                wait = self._check()
                await wait_until(self._changed, self.loop.time() + wait)
        except Exception:  # noqa: BLE001  # a defect: without the thread, all locks would end without a word
            _log.exception("the renewal of locks for %s has ended because of a defect", self._own.target)
        finally:
            unwatch()
            calling = list(self._calling.values())
            for task in calling:
                task.cancel()
            await asyncio.gather(*calling, return_exceptions=True)
            await self._own.aclose()

    # -- checking ------------------------------------------------------------------------------------------------------

    def _check(self) -> float:
        """Start the renewals that are due now. Return the time in seconds until the next look."""
        if (stand_in := self._stand_in) is not None:
            if stand_in.gone and _STAND_IN not in self._calling:
                self._start(_STAND_IN, stand_in.start_again())
            stand_in.read()
        locks = self._locks()
        now, wait = self._own.clock.now(), self._own.timings.checking_renewals
        if stand_in is not None:
            stand_in.hold([self._for_process(lock) for lock in locks], now)
        due: dict[tuple[str, int], list[_RenewedLease]] = {}
        for lock in locks:
            key = lock.entity.name, lock.number
            if lock.lease.ended(now):  # it asks the process again: code may have kept the GIL since the last time
                self._lose(lock, self._failures.get(key))
                continue
            left = lock.lease.until - now
            wait = min(wait, left)
            if now >= self._longest_until(lock):
                continue
            early = left - lock.entity.record.settings.lock_duration / 1000 * 2 / 3
            if early <= _TOGETHER and key not in self._calling:
                due.setdefault(key, []).append(lock)
                wait = min(wait, max(early, 0.0))
            elif key not in self._calling:
                wait = min(wait, early)
        for key, together in due.items():
            if any(self._is_due(lock, now) for lock in together):
                together.sort(key=lambda lock: lock.lease.until)
                self._start(key, self._extend(key, together[:MAXIMUM_CALL_MESSAGES]))
        return max(wait, 0.0)

    def cover(self, held: Iterable[RenewedLock], longest: float | None) -> None:
        """Let the process know locks before code runs that may keep the GIL. Called in the loop of the application."""
        if self._stand_in is None:
            return
        now, leases = self._own.clock.now(), dict[int, HeldLock]()
        for _, hold in held:
            if (lock := self._lock_of(hold)) is not None and lock.lease.refresh is None:
                lock.since = now
                covered = self._for_process(lock)
                last = covered.last if longest is None else min(covered.last, now + longest)
                leases[id(lock.lease)] = covered._replace(last=last)
        if leases:
            self._stand_in.add(leases.values(), now)

    def _for_process(self, lock: _RenewedLease) -> HeldLock:
        seconds = lock.entity.record.settings.lock_duration / 1000
        return HeldLock(lock.lease, lock.entity.name, lock.number, seconds, self._longest_until(lock))

    def _longest_until(self, lock: _RenewedLease) -> float:
        """Return the time from which on a lock is no longer renewed."""
        return math.inf if self._longest is None else lock.since + self._longest

    def _is_due(self, lock: _RenewedLease, now: float) -> bool:
        """Return whether a third of a lock's duration has passed."""
        return lock.lease.until - now <= lock.entity.record.settings.lock_duration / 1000 * 2 / 3

    def _start(self, key: tuple[str, int], work: Coroutine[Any, Any, None]) -> None:
        """Start a call, and look again when it has ended."""

        def ended(_: asyncio.Task[None]) -> None:
            del self._calling[key]
            self._changed.set()

        self._calling[key] = self.loop.create_task(work)
        self._calling[key].add_done_callback(ended)

    async def _open(self) -> None:
        """Connect before the first renewal, because this can take longer than a short lock."""
        with suppress(ServiceBusError):  # the first renewal connects again
            await self._own.open(self.loop.time() + _CALLING)

    def _locks(self) -> Sequence[_RenewedLease]:
        """Return the locks of all messages and sessions that the application holds and has not settled."""
        try:
            if self._while_alive is not None and not self._while_alive():
                return ()
            held = list(self._held())
        except Exception:  # noqa: BLE001  # the functions belong to the application and may raise anything
            if not self._broken:
                _log.exception("locks are not renewed: a function of the BackgroundLockRenewer failed")
            self._broken = True
            return ()
        self._broken = False
        now, known, self._seen = self._own.clock.now(), self._seen, {}
        locks: dict[int, _RenewedLease] = {}
        for renewed in held:
            hold = renewed.hold
            seen = self._seen[id(hold)] = known.get(id(hold)) or _Seen(hold, now)
            if seen.lost or (found := self._lock_of(hold)) is None:
                continue
            lock = locks.setdefault(id(found.lease), found)
            lock.covered.append(renewed)
            lock.since = max(lock.since, seen.since)
        return list(locks.values())

    def _lock_of(self, hold: Hold | HeldSession) -> _RenewedLease | None:
        """Return the lock that a message or session has now, if it needs one."""
        lease = hold.lease
        if hold.settled or lease is None:
            return None
        if isinstance(hold, HeldSession):
            return _RenewedLease(lease, hold.entity, hold.partition_client.number)
        if hold.locked:
            link: PartitionClient = hold.reception.link
            return _RenewedLease(lease, link.entity, link.number)
        return None

    # -- renewing ------------------------------------------------------------------------------------------------------

    async def _extend(self, key: tuple[str, int], locks: Sequence[_RenewedLease]) -> None:
        """Extend the leases of one partition by one call."""
        name, number = key
        left = locks[0].lease.until - self._own.clock.now()
        deadline = self.loop.time() + min(max(left, _AGAIN), _CALLING)
        keys = [lock.lease.key for lock in locks]
        try:
            answer = await extended(self._own, name, number, keys, deadline)
        except MessagingEntityNotFoundError as error:
            for lock in locks:
                self._lose(lock, error)
        except Exception as error:  # noqa: BLE001  # whatever it is, the call is made again until the locks end
            self._failures[key] = error
            _log.debug("%s, partition %d: locks could not be renewed; tried again: %s", name, number, error)
            await asyncio.sleep(_AGAIN)
        else:
            self._failures.pop(key, None)
            for lock in locks:
                if lock.lease.key in answer.ended:
                    self._lose(lock, None)
                else:
                    lock.lease.until, lock.lease.until_utc = answer.until, answer.until_utc

    # -- lost locks ----------------------------------------------------------------------------------------------------

    def _lose(self, lock: _RenewedLease, cause: Exception | None) -> None:
        """Report a lock that was lost to the application, in its event loop."""
        for renewed in lock.covered:
            hold = renewed.hold
            if hold.settled or hold.lease is not lock.lease:
                continue  # it was settled meanwhile, or it was renewed alone, and has a lease of its own
            seen = self._seen.get(id(hold))
            if seen is not None:
                seen.lost = True
            with suppress(RuntimeError):  # the event loop of the application was closed
                self._home.call_soon_threadsafe(self._report, renewed, lock, cause)

    def _report(self, renewed: RenewedLock, lock: _RenewedLease, cause: Exception | None) -> None:
        """Report a lost lock. This runs in the event loop of the application."""
        subject, hold = renewed
        if self._over or hold.settled or hold.lease is not lock.lease:
            return
        now, longest = self._connection.clock.now(), self._longest
        error: ServiceBusError
        if longest is not None and now - lock.since >= longest and cause is None:
            error = AutoLockRenewTimeout(f"The lock was renewed for {longest:g} s, and has ended.")
        else:
            error = hold.lock_lost() if isinstance(hold, HeldSession) else lock_ended(hold, lock.entity.name)
            error.__cause__ = cause
        if isinstance(hold, HeldSession):
            hold.lose()
        else:
            lock.lease.until = min(lock.lease.until, now)
        subject.auto_renew_error = error
        _log.warning("%s: a lock is lost, and is not renewed any longer: %s", lock.entity.name, cause or error)
        if self._on_lost is not None:
            try:
                self._on_lost(subject, error)
            except Exception:  # noqa: BLE001  # the function belongs to the application and may raise anything
                _log.exception("on_lost failed")
