"""Pauses: of an idle stream between two polls of the server, and of a read whose speed is limited.

Spark itself would poll 90 times a second.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PollPacer", "RatePacer"]

_SLOWDOWN = 10
"""How many times longer the longest pause is than the first one."""


@dataclass
class PollPacer:
    """How often a stream polls. The pauses of an idle stream grow, and the first poll after a batch does not wait."""

    interval: float
    """The length of the first pause, in seconds."""
    clock: Callable[[], float] = time.monotonic
    _pause: float = field(default=0.0, init=False)
    _polled: float = field(default=0.0, init=False)

    def polled(self, *, idle: bool) -> None:
        """Note that the stream has polled, and whether it found nothing."""
        self._polled = self.clock()
        self._pause = min(max(2 * self._pause, self.interval), _SLOWDOWN * self.interval) if idle else 0.0

    def left(self) -> float:
        """Return for how many seconds to wait before the next poll. Time that Spark's trigger has waited counts."""
        return max(0.0, self._polled + self._pause - self.clock())

    async def wait(self) -> None:
        """Wait until it is time for the next poll."""
        await asyncio.sleep(self.left())


@dataclass
class RatePacer:
    """How fast a task reads. A task that was slow for a while does not catch up."""

    rate: float | None
    """The most bytes in a second; ``None`` for no limit."""
    clock: Callable[[], float] = time.monotonic
    _free: float = field(default=0.0, init=False)
    """The time from which the next bytes may be read."""

    def left(self, size: int) -> float:
        """Note that bytes were read, and return for how many seconds to wait before more are read."""
        if self.rate is None:
            return 0.0
        now = self.clock()
        self._free = max(self._free, now) + size / self.rate
        return self._free - now
