"""Pauses between attempts that grow while they fail. Pure, but for the random part of a pause.

The arithmetic is tenacity's. Half of each pause is fixed, so an attempt never follows at once on one that failed. The
other half is random, so clients that failed together do not come back together.
"""

from __future__ import annotations

from typing import cast

from tenacity import RetryCallState, wait_combine, wait_exponential, wait_random_exponential

__all__ = ["Pauses"]


class _Failures:
    """All that tenacity's waits read of an attempt: how many have failed."""

    __slots__ = ("attempt_number",)

    def __init__(self) -> None:
        self.attempt_number = 0


class Pauses:
    """The pauses of one thing that is tried again and again."""

    __slots__ = ("_failures", "_wait")

    def __init__(self, first: float, longest: float) -> None:
        half_first, half_longest = first / 2, longest / 2
        self._wait = wait_combine(
            wait_exponential(multiplier=half_first, max=half_longest),
            wait_random_exponential(multiplier=half_first, max=half_longest),
        )
        self._failures = _Failures()

    def __bool__(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures.attempt_number > 0

    def next(self) -> float:
        """Count a failure. Returns for how many seconds to wait before the next attempt."""
        self._failures.attempt_number += 1
        return self._wait(cast("RetryCallState", self._failures))

    def reset(self) -> None:
        """Begin anew: an attempt succeeded."""
        self._failures.attempt_number = 0
