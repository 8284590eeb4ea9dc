"""Decide whether a failure is logged whole or only counted. Pure.

Theory
------

A handler may fail for thousands of messages a minute, and each time for the same reason. Then only the first failures
of a kind are logged whole, each with its traceback. All further ones are counted, and a line once a minute has their
number. A kind that has not failed for a minute begins anew.

A kind is what has failed, such as a handler, and the class of the error: so a new error of a handler is logged whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["EVERY", "Counted", "FailureLog"]

EVERY: Final = 60.0
"""The seconds between two lines with the number of failures of a kind."""
_WHOLE: Final = 10
"""The number of failures of a kind that are logged whole."""
_MOST: Final = 1000
"""The largest number of kinds. Names of classes may come from data, and so be endlessly many."""


class Counted(NamedTuple):
    """Failures of one kind that were not logged."""

    what: str
    """The handler, or another part, that has failed."""
    error: str
    """The name of the class of the errors."""
    times: int
    last: object
    """The last message that failed in this way."""


@dataclass(slots=True)
class _FailureTally:
    last_at: float
    whole: int = 0
    """The number of failures that were logged whole."""
    counted: int = 0
    """The number of failures that no line has told of."""
    last: object = None


class FailureLog:
    """The failures of a process, by their kinds. Times are in seconds of any clock that never goes back."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _FailureTally] = {}

    def is_whole(self, what: str, error: BaseException, last: object, now: float) -> bool:
        """Note a failure. Return whether it is logged whole. ``last`` names its message."""
        name = what, type(error).__name__
        kind = self._kinds.get(name)
        if kind is None:
            if len(self._kinds) >= _MOST:
                del self._kinds[next(iter(self._kinds))]
            kind = self._kinds[name] = _FailureTally(now)
        elif now - kind.last_at > EVERY:
            kind.whole = 0
        kind.last_at = now
        if kind.whole < _WHOLE:
            kind.whole += 1
            return True
        kind.counted += 1
        kind.last = last
        return False

    def counted(self) -> list[Counted]:
        """Return the failures that were not logged since the last call of this method."""
        found: list[Counted] = []
        for (what, error), kind in self._kinds.items():
            if kind.counted:
                found.append(Counted(what, error, kind.counted, kind.last))
                kind.counted, kind.last = 0, None
        return found
