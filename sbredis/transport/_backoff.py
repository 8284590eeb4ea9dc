"""How long to wait between attempts, and when to stop. Pure arithmetic around tenacity's interface."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Backoff", "RefreshPacing"]

Random = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter over its upper half.

    The lower half is kept, so that an attempt never follows at once on one that failed; the jitter keeps callers that
    failed together from coming back together.
    """

    first: float = 0.02
    longest: float = 1.0
    random: Random = random.random
    free_redirections: int = 5
    """So many redirections in a row are followed without waiting; more of them are a cluster in motion."""
    doubling: bool = True
    """Whether the pauses grow; otherwise all are as long as the first."""
    repetitions: int | None = None
    """How often a call is repeated at most, redirections not counted; ``None`` as often as its deadline lets it."""

    def delay(self, failures: int, redirections: int) -> float:
        """Seconds to wait after ``failures`` failed attempts, the last ``redirections`` of them redirections."""
        if 0 < redirections <= self.free_redirections:
            return 0.0
        exponent = max(0, failures - max(0, redirections - 1) - 1) if redirections else failures - 1
        exponent = max(exponent, redirections - self.free_redirections - 1)
        ceiling = min(self.longest, self.first * (2.0 ** min(exponent, 60) if self.doubling else 1.0))
        return ceiling * (0.5 + 0.5 * self.random())

    def within(self, delay: float, left: float) -> float | None:
        """The delay, cut so that one more attempt fits into what is left of the time; ``None`` if none does."""
        if left <= self.first:
            return None
        return delay if delay < left else left / 2


@dataclass(frozen=True, slots=True)
class RefreshPacing:
    """How far apart the questions about the slot map are: a storm of redirections asks once."""

    apart: float = 0.1
    after_failure: float = 0.25
    random: Random = random.random

    def pause(self, since_last: float, failed: int) -> float:
        """Seconds to wait before asking, given when it was last asked and how often in a row nobody answered."""
        apart = self.apart if not failed else min(2.0, self.after_failure * 2.0 ** min(failed - 1, 10))
        return max(0.0, apart - since_last) + 0.5 * self.apart * self.random() * (1 if since_last < apart else 0)
