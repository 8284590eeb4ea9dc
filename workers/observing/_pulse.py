"""Whether an event loop turns, as other threads see it. Pure.

Theory
------

The event loop notes the time twice a second. A handler that blocks the loop, or a deadlock, stops these notes. After
``stuck_after`` seconds of silence the worker counts as stuck: it is not ready, and its locks are no longer renewed, so
that its messages become free for others. After a quarter of that time more the worker counts as dead: an orchestrator
that asks for its liveness replaces it. In between, a loop that turns again is ready again, and nothing was replaced.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Pulse"]

_DEAD: Final = 1.25


class Pulse:
    """The times at which an event loop has turned. Times are in seconds of any clock that never goes back."""

    __slots__ = ("_stuck_after", "_turned")

    def __init__(self, stuck_after: float, now: float) -> None:
        self._stuck_after = stuck_after
        self._turned = now

    def turned(self, now: float) -> None:
        """Note that the event loop has turned."""
        self._turned = now

    def silence(self, now: float) -> float:
        """Return the seconds since the event loop has turned."""
        return max(0.0, now - self._turned)

    def stuck(self, now: float) -> bool:
        """Return whether the event loop has not turned for so long that others should have its messages."""
        return self.silence(now) >= self._stuck_after

    def dead(self, now: float) -> bool:
        """Return whether the event loop has not turned for so long that its process should be replaced."""
        return self.silence(now) >= self._stuck_after * _DEAD
