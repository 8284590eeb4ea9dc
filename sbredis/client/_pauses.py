"""Growing pauses between failed attempts, and whether another attempt may help. Pure, except for the random part.

The package tenacity computes the pauses. It is imported at the first failure. Half of each pause is fixed, so an
attempt never follows a failed one immediately. The other half is random, so clients that failed at the same time do not
try again at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sbredis.exceptions import MessagingEntityDisabledError, ServiceBusError

if TYPE_CHECKING:
    from tenacity import RetryCallState
    from tenacity.wait import wait_base

__all__ = ["Pauses", "may_recover"]


def may_recover(error: BaseException) -> bool:
    """Return whether another attempt may succeed."""
    if not isinstance(error, ServiceBusError):
        return True
    return error.is_transient and not isinstance(error, MessagingEntityDisabledError)


class Pauses:
    """The pauses between the attempts at one operation."""

    __slots__ = ("_first", "_longest", "_wait", "attempt_number")

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._wait: wait_base | None = None
        self.attempt_number = 0
        """The number of failed attempts, under the name that tenacity's waits read."""

    def __bool__(self) -> bool:
        """Return whether the last attempt failed."""
        return self.attempt_number > 0

    def next(self) -> float:
        """Count a failure. Return the seconds to wait before the next attempt."""
        self.attempt_number += 1
        if self._wait is None:
            self._wait = _growing(self._first / 2, self._longest / 2)
        return self._wait(cast("RetryCallState", self))

    def reset(self) -> None:
        """Start again with the shortest pause, because an attempt succeeded."""
        self.attempt_number = 0


def _growing(first: float, longest: float) -> wait_base:
    from tenacity import wait_combine, wait_exponential, wait_random_exponential  # the import takes 40 ms

    return wait_combine(
        wait_exponential(multiplier=first, max=longest), wait_random_exponential(multiplier=first, max=longest)
    )
