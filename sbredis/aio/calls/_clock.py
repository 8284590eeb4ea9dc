"""The clock of a client: for its locks, for the times that it shows, and for partitions to which it tells the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

__all__ = ["Clock"]


class Clock:
    """The clock of this machine. A test may use another clock, which then also tells the partitions the time."""

    kind: Literal["server", "test"] = "server"
    """The clock that queues created by this client use."""

    def now(self) -> float:
        """Return a time in seconds for measuring durations. It never goes back."""
        return time.monotonic()

    def utc(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def told(self) -> int | None:
        """Return the time that calls give to servers, in ms since 1970; ``None`` if servers use their own clocks."""
        return None

    def when_moved(self, moved: Callable[[], None]) -> Callable[[], None]:
        """Call ``moved`` whenever the clock is moved by hand. Return a function that stops this.

        This clock is never moved by hand.
        """
        del moved
        return lambda: None
