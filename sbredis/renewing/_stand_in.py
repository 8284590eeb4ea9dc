"""Decide which locks the process of a renewer renews, and what it and the program tell each other. Pure.

Theory
------

A thread cannot renew locks while other code keeps the GIL. A process can: it *stands in* for the thread. The program
tells the process which locks it holds. The thread renews a lock when a third of its duration has passed. The process
renews a lock only when half of it has passed, so it does nothing while the thread runs.

The process must not keep the locks of a program that is gone or stuck:

- It ends when the pipe from the program is closed, or the program is no longer its parent.
- The program tells it regularly that it is alive, and with each lock. The process renews nothing more when it has heard
  nothing for the *patience* of the renewer.
- Each lock has a last time at which it may be renewed.

Times are those of the monotonic clock of the machine, which all processes share.

Each word between the two is one line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

__all__ = ["CoveredLock", "LockNews", "StandIn", "lines_of", "news_in"]

_TOGETHER: Final = 100
"""The most locks of a line. The process reads lines of up to 64 kB; the name of an entity has up to 260 characters."""
_AGAIN: Final = 0.5
"""The seconds after a failed call, before the next one for the same locks."""
_LONGEST_WAIT: Final = 1.0


class CoveredLock(NamedTuple):
    """A lock that the program holds, as the process knows it."""

    id: int
    """The number that the program has given to the lock."""
    entity: str
    number: int
    """The number of the partition."""
    key: str
    """The key of the lease."""
    duration: float
    until: float
    """The end of the lock, as far as it is known."""
    last: float
    """The last time at which the lock may be renewed."""


class LockNews(NamedTuple):
    """What the process has learned of a lock."""

    id: int
    until: float
    """Its new end; 0 if the partition says that it has ended."""


@dataclass(slots=True)
class StandIn:
    """The locks that the process covers."""

    trusted: float = 0.0
    """Until when the program counts as alive, unless it says so again."""
    locks: dict[int, CoveredLock] = field(default_factory=dict[int, CoveredLock])
    _pauses: dict[int, float] = field(default_factory=dict[int, float])
    """Until when a lock is left alone, because a call for it is under way or has failed."""

    def hear(self, line: bytes) -> None:
        """Take a line of the program."""
        told = json.loads(line)
        self.trusted = max(self.trusted, told.get("trusted", 0.0))
        for each in told.get("locks", ()):
            lock = CoveredLock(*each)
            if (known := self.locks.get(lock.id)) is not None:  # a renewal may have been faster than the line
                lock = lock._replace(until=max(known.until, lock.until))
            self.locks[lock.id] = lock
        for gone in told.get("gone", ()):
            self.locks.pop(gone, None)
            self._pauses.pop(gone, None)

    def due(self, now: float) -> list[list[CoveredLock]]:
        """Return the locks to renew now, those of a partition together. They are left alone until they are told of."""
        if now >= self.trusted:
            return []
        together: dict[tuple[str, int], list[CoveredLock]] = {}
        for lock in self.locks.values():
            if self._time_of(lock) <= now < min(lock.until, lock.last):
                together.setdefault((lock.entity, lock.number), []).append(lock)
                self._pauses[lock.id] = lock.until
        return list(together.values())

    def wait(self, now: float) -> float:
        """Return the seconds until the next look."""
        if now >= self.trusted:
            return _LONGEST_WAIT
        times = [self._time_of(lock) - now for lock in self.locks.values() if now < min(lock.until, lock.last)]
        return max(0.0, min([_LONGEST_WAIT, *times]))

    def renewed(self, locks: Iterable[CoveredLock], until: float, ended: Iterable[str]) -> list[LockNews]:
        """Record the answer of a partition. Return what the program must know."""
        over, news = set(ended), list[LockNews]()
        for lock in locks:
            self._pauses.pop(lock.id, None)
            if lock.key in over:
                self.locks.pop(lock.id, None)
                news.append(LockNews(lock.id, 0.0))
            else:
                if (known := self.locks.get(lock.id)) is not None:
                    self.locks[lock.id] = known._replace(until=max(known.until, until))
                news.append(LockNews(lock.id, until))
        return news

    def failed(self, locks: Iterable[CoveredLock], now: float) -> None:
        """Record that a call has failed. It is made again soon, as long as the locks hold."""
        for lock in locks:
            self._pauses[lock.id] = now + _AGAIN

    def _time_of(self, lock: CoveredLock) -> float:
        return max(lock.until - lock.duration / 2, self._pauses.get(lock.id, 0.0))


def lines_of(locks: Sequence[CoveredLock], gone: Sequence[int], trusted: float) -> list[bytes]:
    """Return the lines that tell the process of locks, and of locks that are not held any more."""
    told: list[dict[str, Any]] = [
        {"locks": locks[first : first + _TOGETHER]} for first in range(0, len(locks), _TOGETHER)
    ]
    told += [{"gone": gone[first : first + 100]} for first in range(0, len(gone), 100)]
    told.append({"trusted": trusted})
    return [json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in told]


def news_in(lines: Iterable[bytes]) -> list[LockNews]:
    """Return what the lines of the process say of locks."""
    return [LockNews(*each) for line in lines for each in json.loads(line)]
