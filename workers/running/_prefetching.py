"""Decide how many messages are fetched ahead of the handlers. Pure.

Theory
------

A message that waits in a buffer waits with its lock running, and no other worker can take it. So fetching ahead pays
only while handlers are fast, and the buffer is never larger than what the handlers do in a short time.

- Nothing is fetched ahead before the handling time is known, nor while it is longer than a tenth of the lock.
- The buffer is filled with at most a quarter of a second of work, and at most 1,000 messages.
- It shrinks only when it holds more than a second of work. Giving messages back and fetching them again costs more than
  handling them, and the average time of handlers that wait for a server changes all the time.
- If no handler can start for a while, the worker gives the buffer back: its average does not know yet that the handlers
  have become slow.
- A number that the application has fixed is kept. But the lock must outlast the handling of the whole buffer and of one
  message more, and a number that breaks this rule is worth a warning.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Prefetching"]

_MOST: Final = 1000
_HORIZON: Final = 0.25
_STEADY: Final = 4
"""How many times as large as a new buffer a present one may be before it shrinks."""
_SHARE_OF_LOCK: Final = 0.1
_MEASUREMENTS: Final = 10
_WEIGHT: Final = 0.1


class Prefetching:
    """The size of the buffer of one entity."""

    __slots__ = ("_concurrency", "_count", "_fixed", "_handling", "_lock", "_warned")

    def __init__(self, fixed: int | None, concurrency: int, lock: float) -> None:
        self._fixed = fixed
        self._concurrency = concurrency
        self._lock = lock
        self._handling = 0.0
        """The average time of a call in seconds, in which late calls count more."""
        self._count = 0
        self._warned = False

    def handled(self, seconds: float) -> None:
        """Note how long a call of a handler took."""
        count = self._count = self._count + 1
        weight = _WEIGHT if count * _WEIGHT >= 1 else 1 / count
        self._handling += weight * (seconds - self._handling)

    @property
    def adapts(self) -> bool:
        """Whether the buffer adapts to the handlers."""
        return self._fixed is None

    @property
    def size(self) -> int:
        """The number of messages to fetch ahead now."""
        if self._fixed is not None:
            return self._fixed
        if self._count < _MEASUREMENTS or self._handling > self._lock * _SHARE_OF_LOCK:
            return 0
        return min(_MOST, int(self._concurrency * _HORIZON / max(self._handling, 1e-6)))

    def size_after(self, present: int) -> int:
        """Return the number of messages to fetch ahead now, if ``present`` is the number up to now."""
        size = self.size
        return present if 0 < size < present <= size * _STEADY else size

    @property
    def largest_safe(self) -> int:
        """The largest buffer whose last message is handled before its lock ends."""
        rounds = self._lock / max(self._handling, 1e-6) - 1
        return max(0, int(rounds * self._concurrency) - 1)

    def warning(self) -> str | None:
        """Return a warning about a fixed number that is too large, once."""
        if not self._fixed or self._warned or self._count < _MEASUREMENTS or self._fixed <= self.largest_safe:
            return None
        self._warned = True
        return (
            f"prefetch={self._fixed} is too large: a call takes {self._handling:.3g} s, so messages at the end of the "
            f"buffer lose their lock of {self._lock:g} s before they are handled. The largest safe number is "
            f"{self.largest_safe}; None adapts to the handlers."
        )
