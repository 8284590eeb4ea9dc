"""The clock of a server, compared with that of this machine."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

__all__ = ["ClockReading", "read_clock"]


class ClockReading(NamedTuple):
    """The clock of a server, as one call has shown it."""

    ahead: float
    """The seconds by which the server's clock is ahead of the clock of this machine. Negative if it is behind.

    The server is taken to have read its clock in the middle of the call, so half of ``round_trip`` is uncertain.
    """
    round_trip: float
    """The seconds that the call took."""

    def now(self) -> float:
        """Return the time of the server in seconds since 1970, soon after the reading."""
        return time.time() + self.ahead


async def read_clock(ask: Callable[[], Awaitable[float]]) -> ClockReading:
    """Read the clock of a server. ``ask`` calls the server, and returns its time in seconds since 1970."""
    sent_at, began = time.time(), time.perf_counter()
    answered = await ask()
    round_trip = time.perf_counter() - began
    return ClockReading(answered - (sent_at + round_trip / 2), round_trip)
