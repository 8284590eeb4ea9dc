"""The clock of a client: for locks that it holds, for times that it shows, and for partitions that need the time."""

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
        """Return seconds for measuring durations. They never go back."""
        return time.monotonic()

    def utc(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def told(self) -> int | None:
        """Return the time that calls pass on, in ms since 1970; ``None`` if the servers use their own clocks."""
        return None

    def when_moved(self, moved: Callable[[], None]) -> Callable[[], None]:
        """Call ``moved`` whenever the clock is moved by hand. Return a function that stops this.

        This clock is never moved by hand.
        """
        del moved
        return lambda: None
