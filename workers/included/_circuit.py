"""The circuit: a state machine that decides when a failing service is called. Pure.

Theory
------

The circuit is *closed* while the service works. After a number of failures in a row it *opens*: nothing is tried. Each
time ``pause`` seconds have passed, it allows one trial. If the trial succeeds, the circuit closes; if it fails, the
circuit stays open, and the pause begins again. A trial that ends in another way, because it was cancelled or failed for
a reason of its own, says nothing about the service: the next trial may begin at once. While the circuit is open, every
other call is refused. Calls that began before it opened may still end: they close it or extend its pause, but are no
trials.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

__all__ = ["UNLIMITED", "Circuit", "CircuitCall"]

UNLIMITED: Final = 1 << 30


class CircuitCall(NamedTuple):
    """A call that the circuit has let begin."""

    trial: bool
    """Whether it tries whether the service works again."""


class Circuit:
    """The state of one circuit. Times are in seconds of any clock that never goes back."""

    __slots__ = ("_failures", "_limit", "_next_trial", "_pause", "_trying")

    def __init__(self, limit: int, pause: float) -> None:
        self._limit = limit
        self._pause = pause
        self._failures = 0
        self._next_trial = -math.inf
        self._trying = False

    @property
    def open(self) -> bool:
        """Whether the service is regarded as failing."""
        return self._failures >= self._limit

    def room(self, now: float) -> int:
        """Return the number of calls that may begin."""
        if not self.open:
            return UNLIMITED
        return int(not self._trying and now >= self._next_trial)

    def wait(self, now: float) -> float | None:
        """Return the seconds until a call may begin by the clock alone; ``None`` if no call waits for the clock."""
        return max(0.0, self._next_trial - now) if self.open and not self._trying else None

    def begins(self, now: float) -> CircuitCall | None:
        """Note that a call begins. Return ``None`` if it must not."""
        if not self.open:
            return CircuitCall(trial=False)
        if self.room(now) <= 0:
            return None
        self._trying = True
        return CircuitCall(trial=True)

    def succeeded(self, call: CircuitCall) -> None:
        """Note that a call was answered by the service."""
        self._failures = 0
        self.ended_otherwise(call)

    def failed(self, call: CircuitCall, now: float) -> bool:
        """Note that the service failed a call. Return whether this has opened the circuit."""
        was_open = self.open
        self._failures += 1
        if self.open:
            self._next_trial = now + self._pause
        self.ended_otherwise(call)
        return self.open and not was_open

    def ended_otherwise(self, call: CircuitCall) -> None:
        """Note that a call ended and says nothing about the service."""
        if call.trial:
            self._trying = False
