"""The next time of each of many things, and which is the earliest. Pure."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

__all__ = ["DueTimes"]

K = TypeVar("K")
_SPARE = 64


class DueTimes(Generic[K]):
    """The next time of each of many things. A change costs O(log n), and so does finding the earliest."""

    __slots__ = ("_heap", "_order", "_times")

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        """The times in ``_times``, and outdated times, which are skipped."""
        self._order = 0

    def get(self, what: K) -> float | None:
        """Return the time of a thing, if it has one."""
        return self._times.get(what)

    def __setitem__(self, what: K, at: float) -> None:
        """Set the time of a thing, in place of its earlier time."""
        self._times[what] = at
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, what))
        if len(self._heap) > 2 * len(self._times) + _SPARE:  # many of the times are outdated
            self._heap = list({each[2]: each for each in self._heap if self._times.get(each[2]) == each[0]}.values())
            heapq.heapify(self._heap)

    def discard(self, what: K) -> None:
        """Forget the time of a thing, if it has one."""
        self._times.pop(what, None)

    def earliest(self) -> tuple[float, K] | None:
        """Return the earliest time, and the thing that has it. Among equal times, the one that was set first."""
        while self._heap:
            at, _, what = self._heap[0]
            if self._times.get(what) == at:
                return at, what
            heapq.heappop(self._heap)
        return None
