"""What time it is: for the locks that a client holds, for what it shows, and for partitions that are told the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

__all__ = ["Clock"]


class Clock:
    """The clock of this machine. Another one may stand in for it in tests, and then tells the partitions the time."""

    kind: Literal["server", "test"] = "server"
    """By which clock the queues go that are created here."""

    def now(self) -> float:
        """Seconds, for measuring how long something lasts; never goes back."""
        return time.monotonic()

    def utc(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def told(self) -> int | None:
        """What calls say the time is, in ms since 1970; ``None`` where the servers go by their own clocks."""
        return None

    def when_moved(self, moved: Callable[[], None]) -> Callable[[], None]:
        """Be called when the clock was moved by hand; returns what ends that. This clock is never moved."""
        del moved
        return lambda: None
