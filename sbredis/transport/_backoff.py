"""The length of pauses between attempts, and when to stop. Pure arithmetic."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Backoff", "RefreshPacing"]

Random = Callable[[], float]


class Backoff(NamedTuple):
    """Exponential back-off whose upper half is random.

    The lower half of a pause is fixed, so an attempt never follows a failed one at once. The upper half is random, so
    callers that failed together do not come back together.
    """

    first: float = 0.02
    longest: float = 1.0
    random: Random = random.random
    free_redirections: int = 5
    """The number of redirections in a row that are followed without a pause. More redirections in a row mean that the
    cluster is changing.
    """
    doubling: bool = True
    """Whether the pauses grow. If not, all pauses are as long as the first."""
    repetitions: int | None = None
    """The largest number of repetitions, not counting redirections. With ``None`` only the deadline limits them."""

    def delay(self, failures: int, redirections: int) -> float:
        """Return the seconds to wait after this number of failed attempts.

        ``redirections`` says how many of the attempts at the end, in a row, were redirections.
        """
        if 0 < redirections <= self.free_redirections:
            return 0.0
        exponent = max(0, failures - max(0, redirections - 1) - 1) if redirections else failures - 1
        exponent = max(exponent, redirections - self.free_redirections - 1)
        ceiling = min(self.longest, self.first * (2.0 ** min(exponent, 60) if self.doubling else 1.0))
        return ceiling * (0.5 + 0.5 * self.random())

    def within(self, delay: float, left: float) -> float | None:
        """Return the delay, cut so that one more attempt fits into the time ``left``; ``None`` if no attempt fits."""
        if left <= self.first:
            return None
        return delay if delay < left else left / 2


class RefreshPacing(NamedTuple):
    """The pauses between questions about the slot map. Many redirections in a short time cause only one question."""

    apart: float = 0.1
    after_failure: float = 0.25
    random: Random = random.random

    def pause(self, since_last: float, failed: int) -> float:
        """Return the seconds to wait before asking. The last ``failed`` questions had no answer."""
        apart = self.apart if not failed else min(2.0, self.after_failure * 2.0 ** min(failed - 1, 10))
        return max(0.0, apart - since_last) + 0.5 * self.apart * self.random() * (1 if since_last < apart else 0)
