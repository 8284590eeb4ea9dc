"""A clock that tests move."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Literal, final

from sbredis._tasks import running_loop
from sbredis.client import Clock

__all__ = ["MovableClock", "TestClock", "movable"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = datetime(2286, 1, 1, tzinfo=UTC)
"""The partitions store times in ms with up to 13 digits."""
_MICROSECOND = timedelta(microseconds=1)


class MovableClock(Clock):
    """The clock of the clients: real time plus the time by which the clock was moved, or a time that stands still."""

    kind: Literal["server", "test"] = "test"

    def __init__(self, begins: datetime) -> None:
        self._ahead = (begins - _EPOCH) // _MICROSECOND * 1000 - time.monotonic_ns()
        self._held: int | None = None
        """The time in ns while the clock stands still; ``None`` while it runs."""
        self._holds = 0
        self._lock = threading.Lock()
        self._watchers: dict[object, tuple[asyncio.AbstractEventLoop | None, Callable[[], None]]] = {}

    @property
    def nanoseconds(self) -> int:
        """The time in ns since 1970."""
        held = self._held
        return time.monotonic_ns() + self._ahead if held is None else held

    @property
    def still(self) -> bool:
        """Whether the clock stands still until a test moves it."""
        return self._held is not None

    @contextmanager
    def held(self) -> Generator[None]:
        """Let the clock stand still while the block runs, except when it is moved."""
        with self._lock:
            if not self._holds:
                self._held = self.nanoseconds
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1
                if not self._holds and self._held is not None:
                    self._ahead = self._held - time.monotonic_ns()
                    self._held = None
            if not self.still:
                self._notify()

    def now(self) -> float:
        """Return the time in seconds.

        Durations are measured with this time too, so locks end when the clock is moved.
        """
        return self.nanoseconds / 1e9

    def utc(self) -> float:
        """Return the time in seconds since 1970."""
        return self.nanoseconds / 1e9

    def told(self) -> int:
        """Return the time for the partitions, in ms since 1970."""
        return self.nanoseconds // 1_000_000

    def when_moved(self, moved: Callable[[], None]) -> Callable[[], None]:
        """Call ``moved`` in the running loop whenever the clock is moved, or runs again after it stood still. Return a
        function that stops these calls.
        """
        key = object()
        self._watchers[key] = (running_loop(), moved)

        def unwatch() -> None:
            self._watchers.pop(key, None)

        return unwatch

    def move(self, ahead: Callable[[int], int]) -> None:
        """Call ``ahead`` with the time in ns, move the clock by its result, and notify all watchers in their loops."""
        with self._lock:
            step = ahead(self.nanoseconds)
            if self._held is None:
                self._ahead += step
            else:
                self._held += step
        self._notify()

    def _notify(self) -> None:
        """Call all watchers in their loops."""
        here = running_loop()
        for key, (loop, moved) in list(self._watchers.items()):
            if loop is None or loop is here:
                moved()
                continue
            try:
                loop.call_soon_threadsafe(moved)
            except RuntimeError:  # the loop has ended, so its watcher needs no call
                self._watchers.pop(key, None)


@final
class TestClock:
    """The clock of a bus. It runs like any clock. Tests can also move it forward, but not back.

    While a worker runs on the bus (:meth:`Bus.running`), the clock stands still unless the test moves it.

    Locks, schedules, delays, expiry and duplicate detection use it, in all clients of the bus. A receiver that is
    waiting notices a move at once. Waits of the test itself, such as ``asyncio.sleep``, and the time-outs of calls use
    real time.
    """

    __test__ = False  # so pytest does not collect the class, although its name begins with Test

    def __init__(self, begins: datetime | None = None) -> None:
        """``begins`` is the first time of the clock, with a time zone; the current time by default."""
        self._clock = MovableClock(datetime.now(UTC) if begins is None else _checked(begins, "begins"))

    @property
    def now(self) -> datetime:
        """The time on the bus, in UTC."""
        return _EPOCH + timedelta(microseconds=self._clock.nanoseconds // 1000)

    def advance(
        self,
        by: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> datetime:
        """Move the clock forward by a :class:`~datetime.timedelta`, by the named units, or by the sum of both.

        Returns the new time. May be called in any thread. Raises :class:`ValueError` for a negative duration.
        """
        if by is not None and not isinstance(by, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(
                f"by must be a timedelta, not {type(by).__name__}: name the unit, as in advance(seconds=30)"
            )
        named = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        step = named + (by or timedelta())
        if step < timedelta():
            raise ValueError(f"The clock of a bus cannot go back by {-step} from {self.now.isoformat()}.")
        nanoseconds = step // _MICROSECOND * 1000

        def ahead(now: int) -> int:
            if now + nanoseconds > _nanoseconds(_END):
                raise ValueError(
                    f"The clock of a bus ends with the year {_END.year - 1}: it cannot go forward by {step} from "
                    f"{self.now.isoformat()}."
                )
            return nanoseconds

        self._clock.move(ahead)
        return self.now

    def move_to(self, when: datetime) -> datetime:
        """Move the clock forward to a time, which must have a time zone. Returns the new time.

        May be called in any thread. Raises :class:`ValueError` for a time before the clock's present time.
        """
        until = _nanoseconds(_checked(when, "when"))

        def ahead(now: int) -> int:
            if until < now:
                raise ValueError(
                    f"The clock of a bus cannot go back to {when.isoformat()} from {self.now.isoformat()}."
                )
            return until - now

        self._clock.move(ahead)
        return self.now

    def __repr__(self) -> str:
        return f"<TestClock {self.now.isoformat(timespec='milliseconds')}>"


def movable(clock: TestClock) -> MovableClock:
    """Return the clock that the clients of a bus use."""
    return clock._clock  # pyright: ignore[reportPrivateUsage]  # this function is the way to it for other modules


def _checked(moment: datetime, name: str) -> datetime:
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"{name} must be a datetime, not {type(moment).__name__}")
    if moment.tzinfo is None:
        raise ValueError(f"{name} has no time zone: add one, as in datetime.now(timezone.utc)")
    if not _EPOCH <= moment < _END:
        raise ValueError(f"{name} must be from 1970 to {_END.year - 1}, not {moment.isoformat()}")
    return moment


def _nanoseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND * 1000
