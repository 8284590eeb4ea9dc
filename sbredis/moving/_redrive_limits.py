"""The decisions of a redrive: which part of the dead-letter queue it is for, how fast it is, and when it stops."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sbredis._quoting import quoted
from sbredis.model import RedriveBudget

__all__ = [
    "LONGEST_LINE",
    "NO_REASON",
    "DeadLetterCounts",
    "PartitionBounds",
    "Portions",
    "RedrivePace",
    "Relapses",
    "cursor_text",
    "fingerprint",
    "read_cursor",
]

_DIGITS = re.compile(r"\d+")
LONGEST_LINE = 200
_MOST_FINGERPRINTS = 1000
NO_REASON = "(no reason)"
OTHERS = "(others)"
_STEPS_A_SECOND = 4
_PAGE_SECONDS = 5


def fingerprint(reason: str | None, description: str | None) -> str:
    """Return a text that is the same for messages that died of the same problem: the reason and the first line of the
    description. Each number is replaced by ``#``.
    """
    line = next((line.strip() for line in (description or "").splitlines() if line.strip()), "")
    line = _DIGITS.sub("#", line[:LONGEST_LINE])
    kind = _DIGITS.sub("#", (reason or NO_REASON)[:LONGEST_LINE])
    return f"{kind}: {line}" if line else kind


class DeadLetterCounts:
    """Counts dead letters by reason and by fingerprint. After 1,000 different texts, new ones count as others."""

    def __init__(self) -> None:
        self.matched = 0
        self.by_reason: Counter[str] = Counter()
        self.by_fingerprint: Counter[str] = Counter()

    def add(self, reason: str | None, description: str | None) -> None:
        """Count a dead letter."""
        self.matched += 1
        pairs = ((self.by_reason, reason or NO_REASON), (self.by_fingerprint, fingerprint(reason, description)))
        for counts, text in pairs:
            counts[text if text in counts or len(counts) < _MOST_FINGERPRINTS else OTHERS] += 1


class Relapses:
    """Remembers the messages that a redrive put back, and decides by a budget whether too many have died again.

    A message is known by a key that is the same before and after. Several messages may have the same key. The times are
    in seconds, and never fall.
    """

    def __init__(self, budget: RedriveBudget) -> None:
        self._budget = budget
        self._alive: dict[bytes, deque[list[float]]] = {}
        """For each key the messages that have not died again, the oldest first: each is its time."""
        self._recent: deque[tuple[float, bytes, list[float]]] = deque()
        """The messages that were put back within the window, the oldest first. The last part is empty if the message
        has died again.
        """
        self._dead = 0
        self.died_again = 0
        """The number of all messages that have died again within the window."""

    def put_back(self, keys: Iterable[bytes], now: float) -> None:
        """Record that messages were put back."""
        self._forget(now)
        for key in keys:
            alive = [now]
            self._alive.setdefault(key, deque()).append(alive)
            self._recent.append((now, key, alive))

    def found_dead(self, key: bytes, now: float) -> bool:
        """Record that a message became a dead letter. Return whether it is one that was put back."""
        self._forget(now)
        waiting = self._alive.get(key)
        if not waiting:
            return False
        waiting.popleft().clear()
        if not waiting:
            del self._alive[key]
        self._dead += 1
        self.died_again += 1
        return True

    def recent(self, now: float) -> tuple[int, int]:
        """Return how many messages were put back within the window, and how many of these have died again."""
        self._forget(now)
        return len(self._recent), self._dead

    def exhausted(self, now: float) -> bool:
        """Return whether the redrive must stop."""
        recent, dead = self.recent(now)
        return recent >= self._budget.minimum and dead > self._budget.share * recent

    def _forget(self, now: float) -> None:
        """Forget messages that were put back before the window."""
        while self._recent and self._recent[0][0] < now - self._budget.window:
            _, key, alive = self._recent.popleft()
            if not alive:
                self._dead -= 1
                continue
            waiting = self._alive[key]
            waiting.popleft()  # the oldest message with this key is the first in both lists
            if not waiting:
                del self._alive[key]


class RedrivePace:
    """The speed of a redrive: the size of its steps, and when the next step may begin."""

    def __init__(self, rate: float | None, most: int) -> None:
        """``rate`` is in messages a second; ``None`` means no limit. ``most`` is the largest step."""
        self._rate = rate
        self._next = 0.0
        self.step = most if rate is None else max(1, int(min(most, rate / _STEPS_A_SECOND)))
        """The number of messages to move at once."""
        self.page = most if rate is None else max(16, int(min(most, rate * _PAGE_SECONDS)))
        """The number of messages to look at ahead: those of a few seconds, because they may change meanwhile."""

    def wait(self, now: float) -> float:
        """Return the seconds until the next step may begin."""
        return max(0.0, self._next - now)

    def moved(self, count: int, now: float) -> None:
        """Record that a step has moved messages."""
        if self._rate is not None:
            self._next = max(self._next, now) + count / self._rate


class Portions:
    """The portions of a redrive that has a budget and no rate. Before each portion, the one before is judged."""

    def __init__(self, minimum: int, most: int) -> None:
        """The first portion has ``minimum`` messages. The largest has ``most``, or ``minimum`` if that is more."""
        self._size = minimum
        self._most = max(minimum, most)
        self.left = minimum
        """The number of messages that may be moved before the portion is judged."""

    def moved(self, count: int) -> None:
        """Record that messages were moved."""
        self.left = max(0, self.left - count)

    def judged(self) -> None:
        """Begin the next portion, which is twice as large."""
        self._size = self.left = min(2 * self._size, self._most)


@dataclass(slots=True)
class PartitionBounds:
    """The part of a partition's dead-letter queue that a redrive is for."""

    start: int
    """The next number to look at."""
    last: int
    """The last number, which bounds the redrive. Messages that die later have higher numbers."""


_CURSOR = re.compile(r"(\d+)=(\d+)-(\d+)", re.ASCII)


def cursor_text(incarnation: str, bounds: Mapping[int, PartitionBounds]) -> str:
    """Return the bounds of a redrive as text."""
    return incarnation + ":" + ",".join(f"{number}={one.start}-{one.last}" for number, one in bounds.items())


def read_cursor(text: object, incarnation: str, numbers: Sequence[int]) -> dict[int, PartitionBounds]:
    """Return the bounds in a cursor. Raises for a text that is no cursor, or the cursor of another redrive."""
    if not isinstance(text, str):
        raise TypeError(f"cursor must be the text of an earlier redrive, not {type(text).__name__}")
    of, _, rest = text.partition(":")
    parts = [_CURSOR.fullmatch(part) for part in rest.split(",")]
    found = {int(part[1]): PartitionBounds(int(part[2]), int(part[3])) for part in parts if part is not None}
    if not of or None in parts or len(found) < len(parts):
        raise ValueError(f"{quoted(text)} is not the cursor of a redrive: give the cursor of an earlier result")
    if of != incarnation or set(found) != set(numbers):
        raise ValueError(
            "The cursor belongs to another queue or subscription, to its other dead-letter queue, or to an entity that "
            "was deleted since: begin without it"
        )
    return found
