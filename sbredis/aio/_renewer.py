# pyright: reportPrivateUsage=false
"""Renewing the locks of messages and sessions while they are being worked on."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from sbredis._public import public_name
from sbredis.aio.calls._arguments import seconds_of
from sbredis.aio.receiving._held_session import HeldSession
from sbredis.aio.receiving._session import ServiceBusSession, held_session
from sbredis.aio.receiving._settling import Settler
from sbredis.aio.telemetry._log_text import named, shortened
from sbredis.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout, Outcome, ServiceBusError
from sbredis.model import Hold, ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of

if TYPE_CHECKING:
    from sbredis.aio._receiver import ServiceBusReceiver
    from sbredis.aio.calls._clock import Clock

__all__ = ["AutoLockRenewer", "LockRenewFailureCallback"]

_log = logging.getLogger("sbredis.client")
Renewable = ServiceBusReceivedMessage | ServiceBusSession
LockRenewFailureCallback = Callable[[Any, Exception | None], Awaitable[None] | None]
"""Called with what could not be renewed, and why."""
_TOGETHER = 0.05
"""What is due within so many seconds is renewed together."""
_AGAIN = 0.5
_CLOSING = 5.0
"""How long closing waits for callbacks that are running."""


@dataclass(slots=True, eq=False)
class _Watched:
    """Messages that were registered in the same moment, with locks that end in the same moment: they are renewed
    together.
    """

    receiver: ServiceBusReceiver
    until: float
    """When the first of their locks ended, when they were registered."""
    ends: float
    """When they are not renewed any longer."""
    asked: float
    """For how long they are to be renewed."""
    on_failure: LockRenewFailureCallback | None
    messages: dict[int, Renewable] = field(default_factory=dict[int, Renewable])
    """By the identity of their holds."""

    def drop(self, hold: Hold | HeldSession) -> None:
        """It was settled."""
        self.messages.pop(id(hold), None)

    def release(self, renewable: Renewable) -> None:
        """It is not renewed here any longer."""
        hold = _hold(renewable)
        self.drop(hold)
        hold.watchers = tuple(watcher for watcher in hold.watchers if watcher != self.drop)

    def first_end(self) -> float | None:
        """When the first of the locks ends; ``None`` if there is none left."""
        ends = [hold.lease.until for hold in map(_hold, self.messages.values()) if hold.lease is not None]
        return min(ends, default=None)


class AutoLockRenewer:
    """Renews the locks of the messages and sessions that are registered with it, in one loop, for a limited time each.

    A lock is renewed when a third of it is left, or ten seconds, whichever is more; of a short one half. What is due at
    the same moment shares a call. A message is let go when it is settled, a session when its receiver is closed. If a
    lock is lost, cannot be renewed, or has been renewed for as long as was asked for, ``auto_renew_error`` says so, and
    ``on_lock_renew_failure(renewable, error)`` is called, which may be a coroutine function.
    """

    def __init__(
        self,
        max_lock_renewal_duration: float = 300,
        on_lock_renew_failure: LockRenewFailureCallback | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        del loop  # Azure's; there is only the running one
        self._duration = seconds_of(max_lock_renewal_duration, "max_lock_renewal_duration")
        self._on_failure = _callable(on_lock_renew_failure)
        self._due: list[tuple[float, int, _Watched]] = []
        self._numbers = itertools.count()
        self._last: _Watched | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._calling: set[asyncio.Task[None]] = set()
        self._renewals: set[asyncio.Future[Any]] = set()
        """Renewals that are under way."""
        self._unwatched: dict[Clock, Callable[[], None]] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        self.check_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def register(
        self,
        receiver: ServiceBusReceiver,
        renewable: ServiceBusReceivedMessage | ServiceBusSession,
        max_lock_renewal_duration: float | None = None,
        on_lock_renew_failure: LockRenewFailureCallback | None = None,
    ) -> None:
        """Renew the lock of a message or a session from now on, until it is settled or the duration has passed.

        Raises :class:`ValueError` for a message without a lock, and :class:`TypeError` for what is neither.
        """
        self.check_open()
        if not isinstance(receiver, Settler):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            raise TypeError(
                f"A receiver of sbredis.aio is needed, not {public_name(receiver)}: what "
                "is asynchronous and what is not cannot be mixed."
            )
        if not isinstance(renewable, (ServiceBusReceivedMessage, ServiceBusSession)):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            raise TypeError(
                f"What is renewed is a message that was received, or a session, not {type(renewable).__name__}."
            )
        hold = _hold(renewable)
        lease = hold.lease
        if lease is None or (isinstance(hold, Hold) and hold.source.mode is not ServiceBusReceiveMode.PEEK_LOCK):
            raise ValueError("The message has no lock that could be renewed: it was peeked, or received and deleted.")
        if hold.settled:
            what = "session" if isinstance(renewable, ServiceBusSession) else "message"
            raise ValueError(f"The {what} has no lock that could be renewed: it was settled.")
        if lease.session is not None and not isinstance(renewable, ServiceBusSession):
            raise ValueError("The message has no lock of its own that could be renewed: register its session instead.")
        asked = (
            self._duration
            if max_lock_renewal_duration is None
            else seconds_of(max_lock_renewal_duration, "max_lock_renewal_duration")
        )
        on_failure = _callable(on_lock_renew_failure) or self._on_failure
        now, last = receiver._connection.clock.now(), self._last
        if (
            last is None
            or not 0 <= lease.until - last.until < _TOGETHER
            or not 0 <= now + asked - last.ends < _TOGETHER
            or last.asked != asked
            or last.on_failure is not on_failure
            or last.receiver is not receiver
        ):
            last = self._last = _Watched(receiver, lease.until, now + asked, asked, on_failure)
            self._plan(last, lease.until)
        last.messages[id(hold)] = renewable
        if last.drop not in hold.watchers:
            hold.watchers = (*hold.watchers, last.drop)

    async def close(self) -> None:
        """Renew no more. Locks run on for as long as they have been renewed; nobody is called for that.

        Does not wait for renewals that are under way. Waits at most five seconds for callbacks that are running, and
        then cancels them.
        """
        self._closed = True
        for renewal in list(self._renewals):
            renewal.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for _, _, watched in self._due:
            self._let_go(watched)
        self._due.clear()
        self._last = None
        for unwatch in self._unwatched.values():
            unwatch()
        self._unwatched.clear()
        calling = [task for task in self._calling if task is not asyncio.current_task()]
        await asyncio.sleep(0)  # so that the renewals end
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
                await asyncio.sleep(0)  # so that they begin to end

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def check_open(self) -> None:
        """Raise if it was closed."""
        if self._closed:
            raise ServiceBusError("The AutoLockRenewer is closed and cannot be used again: make another one.")

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _plan(self, watched: _Watched, until: float, *, soon: bool = False) -> None:
        """Put messages in the line, whose lock ends at ``until``."""
        clock = watched.receiver._connection.clock
        if clock.kind == "test" and clock not in self._unwatched:
            self._unwatched[clock] = clock.when_moved(self._clock_moved)
        left = until - clock.now()
        entity = watched.receiver._entity
        lock = left if entity is None else entity.record.settings.lock_duration / 1000
        wait = min(_AGAIN, max(left / 2, _TOGETHER * 2)) if soon else left - min(lock / 2, max(10.0, lock / 3))
        wait = min(wait, watched.ends - clock.now())
        loop = asyncio.get_running_loop()
        heapq.heappush(self._due, (loop.time() + max(0.0, wait), next(self._numbers), watched))
        when = self._due[0][0]
        if self._timer is None or self._timer.cancelled() or when < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(when, self._renew)

    def _clock_moved(self) -> None:
        """Locks have less left, or nothing: put all of them in the line anew. What is late is found out at once."""
        planned, self._due = self._due, []
        for _, _, watched in planned:
            first = watched.first_end()
            if first is not None:
                self._plan(watched, first)

    def _renew(self) -> None:
        self._timer = None
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._due and self._due[0][0] <= now + _TOGETHER:
            _, _, watched = heapq.heappop(self._due)
            if watched is self._last:
                self._last = None  # what is registered from now on has a time of its own
            if watched.messages:
                self._renew_one(watched)
        if self._due and self._timer is None:
            self._timer = loop.call_at(self._due[0][0], self._renew)

    def _renew_one(self, watched: _Watched) -> None:
        """Begin the renewal of messages, or let them go if it is enough."""
        receiver = watched.receiver
        clock = receiver._connection.clock
        if receiver._connection.closed:
            self._let_go(watched)
            return
        now = clock.now()
        if watched.ends <= now + _TOGETHER:
            said = f"The lock was renewed for {watched.asked:g} s, and is not renewed any longer."
            self._give_up(watched, [(each, AutoLockRenewTimeout(said)) for each in watched.messages.values()])
            return
        # What is being settled is left alone: a renewal would take its lock from under the settlement.
        messages = [message for message in watched.messages.values() if not _hold(message).settled]
        loop = asyncio.get_running_loop()
        renewals: list[asyncio.Future[Any]] = []
        for message in messages:
            lease = _hold(message).lease
            left = 0.0 if lease is None else lease.until - now
            renewals.append(receiver._begin_renewal(message, loop.time() + max(left, _AGAIN)))
        together = asyncio.gather(*renewals, return_exceptions=True)
        self._renewals.add(together)
        together.add_done_callback(lambda done: self._renewed(watched, messages, done))

    def _renewed(
        self, watched: _Watched, messages: list[Renewable], done: asyncio.Future[list[BaseException | None]]
    ) -> None:
        self._renewals.discard(done)
        if not done.cancelled():
            self._finish(watched, messages, done.result())

    def _finish(self, watched: _Watched, messages: list[Renewable], errors: Sequence[BaseException | None]) -> None:
        if self._closed or watched.receiver._connection.closed:
            self._let_go(watched)
            return
        now = watched.receiver._connection.clock.now()
        again = len(messages) < len(watched.messages)
        failed: list[tuple[Renewable, Exception]] = []
        for message, error in zip(messages, errors, strict=True):
            hold = _hold(message)
            lease = hold.lease
            if error is None or id(hold) not in watched.messages or lease is None:
                continue
            if isinstance(error, ServiceBusError) and error.is_transient and lease.until > now:
                again = True
            elif not hold.settled:
                failed.append((message, _failed(error)))
        self._give_up(watched, failed)
        for message in list(watched.messages.values()):
            hold = _hold(message)
            if hold.settled and hold.lock_expired(now):
                watched.release(message)  # its settlement tells what became of it
        first = watched.first_end()
        if first is not None:
            self._plan(watched, first, soon=again)

    def _give_up(self, watched: _Watched, failed: list[tuple[Renewable, Exception]]) -> None:
        """Renew these no longer, and tell why: the log, spans and metrics, and the application."""
        if failed:
            _tell_of(watched.receiver, failed)
        for message, error in failed:
            watched.release(message)
            message.auto_renew_error = error
            if watched.on_failure is not None:
                task = asyncio.get_running_loop().create_task(_tell(watched.on_failure, message, error))
                self._calling.add(task)
                task.add_done_callback(self._calling.discard)

    def _let_go(self, watched: _Watched) -> None:
        for message in list(watched.messages.values()):
            watched.release(message)


def _hold(renewable: Renewable) -> Hold | HeldSession:
    """What this client knows of a lock that is renewed."""
    return held_session(renewable) if isinstance(renewable, ServiceBusSession) else hold_of(renewable)


def _callable(given: LockRenewFailureCallback | None) -> LockRenewFailureCallback | None:
    if given is not None and not callable(given):
        raise TypeError(f"on_lock_renew_failure is a function, not {type(given).__name__}.")
    return given


def _failed(cause: BaseException) -> AutoLockRenewFailed:
    said = cause.message if isinstance(cause, ServiceBusError) else f"{type(cause).__name__}: {cause}"
    error = AutoLockRenewFailed(f"The lock could not be renewed. {said}", outcome=Outcome.REFUSED)
    error.__cause__ = cause
    return error


def _tell_of(receiver: ServiceBusReceiver, failed: Sequence[tuple[Renewable, Exception]]) -> None:
    """Tell the log, spans and metrics what is renewed no longer: once for each kind of error."""
    by_kind: dict[type[BaseException], list[tuple[Renewable, Exception]]] = {}
    for message, error in failed:
        by_kind.setdefault(type(error.__cause__ or error), []).append((message, error))
    telemetry, path = receiver._telemetry, receiver.entity_path
    for group in by_kind.values():
        error = group[0][1]
        reason = error.__cause__ or error
        messages: list[ServiceBusReceivedMessage] = []
        sessions: list[ServiceBusSession] = []
        for each, _ in group:
            if isinstance(each, ServiceBusSession):
                sessions.append(each)
            else:
                messages.append(each)
        if messages:
            _log.warning("%s: the lock on %s is not renewed any longer: %s", path, named(messages), error)
            telemetry.failed("renew_message_lock", path, reason, messages)
        for session in sessions:
            name = shortened(session.session_id)
            _log.warning("%s: the lock on the session %s is not renewed any longer: %s", path, name, error)
            telemetry.failed("renew_session_lock", path, reason)


async def _tell(callback: LockRenewFailureCallback, message: Renewable, error: Exception) -> None:
    try:
        said = callback(message, error)
        if inspect.isawaitable(said):
            await said
    except Exception:  # noqa: BLE001  # the application's own
        _log.exception("on_lock_renew_failure failed")
