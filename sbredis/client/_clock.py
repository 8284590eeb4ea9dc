"""The clock that a client uses for its locks and for the times that it shows. Calls may send the time to servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Literal

__all__ = ["Clock"]

_seconds: Callable[[], float] = time.monotonic  # the monotonic clock of macOS counts suspension
if hasattr(time, "CLOCK_BOOTTIME"):  # that of Linux does not
    _seconds = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Clock:
    """The clock of this machine.

    If a test uses another clock, the client also sends the time of that clock to the partitions.
    """

    kind: Literal["server", "test"] = "server"
    """The clock that queues created by this client use."""

    def now(self) -> float:
        """Return a time in seconds for measuring durations. It never goes back.

        It also counts the time for which the machine is suspended, because locks end meanwhile.
        """
        return _seconds()

    def utc(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    @property
    def still(self) -> bool:
        """Whether the clock stands still until a test moves it."""
        return False

    def told(self) -> int | None:
        """Return the time that calls give to servers, in ms since 1970; ``None`` if servers use their own clocks."""
        return None

    def when_moved(self, moved: Callable[[], None]) -> Callable[[], None]:
        """Call ``moved`` whenever the clock is moved by hand. Return a function that stops this.

        This clock is never moved by hand.
        """
        del moved
        return _nothing


def _nothing() -> None:
    """Do nothing."""
