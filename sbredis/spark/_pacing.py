"""The pauses of an idle stream between two polls of the server. Spark itself would poll 90 times a second."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PollPacer"]

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
