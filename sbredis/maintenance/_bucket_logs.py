"""Decide which buckets of the registry to read, and what a reply says of the entities there. Pure.

The registry lies in buckets, and each bucket has a log of changes: a number for each entity, that of its last change.
A client that has read a log up to a number asks for what came later. It reads a bucket

- at once, after the bucket has announced a change,
- soon, after the client may have missed an announcement,
- again after a long *round*, even if no announcement was lost.

A log is read from the beginning if it may lack a change that the client has not seen: a deletion that is no longer in
it, or changes that were lost with the life of the bucket. Then everything that is not found is gone. Until the reading
from the beginning has ended, what was known before stays.

A reading from the beginning notes the last number of the bucket, and follows the log from there while it reads what is
older. So deletions that come meanwhile are seen before the log loses them, however long the reading lasts.

A *reading* of a log has pages. If another page follows, the bucket is read again at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from sbredis.client import Pauses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sbredis.registry import BucketChanges

__all__ = ["BucketLog", "BucketLogs", "LogPace", "News"]


class News(NamedTuple):
    """What a reply says."""

    records: tuple[tuple[str, bytes | None], ...] = ()
    """For each changed entity its path and its record; ``None`` if the entity is gone."""
    only: frozenset[str] | None = None
    """The paths of all entities of the bucket, if it was read from the beginning to the end."""


class BucketLog:
    """How far a client has read the log of a bucket."""

    __slots__ = ("_begun", "_follows", "_found", "_life", "_listed", "_number")

    def __init__(self) -> None:
        self._life: str = ""
        self._number: int = 0
        """The number up to which all changes were read that came after the beginning."""
        self._listed: int | None = 0
        """The number up to which all entries were read, while the log is read from the beginning."""
        self._begun: int = 0
        """The last number of the bucket at the beginning."""
        self._follows = False
        """Whether the next page has changes that came after the beginning, although older entries are unread."""
        self._found: set[str] | None = set()
        """The paths that were found since the beginning, until the log is read to the end."""

    @property
    def after(self) -> int:
        """The number after which the next page begins."""
        return self._number if self._listed is None or self._follows else self._listed

    @property
    def whole(self) -> bool:
        """Whether the log was read to the end."""
        return self._found is None

    def took(self, changes: BucketChanges | None) -> tuple[News, bool]:
        """Take a reply, ``None`` if there is no bucket. Return what it says, and whether another page follows."""
        if changes is None:
            self.restart()
            self._found = None
            return News(only=frozenset()), False
        if self._listed == 0:
            self._life, self._number, self._begun, self._found = changes.life, changes.last, changes.last, set()
        elif changes.life != self._life or changes.floor > self._number:
            self.restart()
            self._found = set()
            return News(), True
        self._advance(changes)
        if self._found is None:
            return News(changes.records), changes.more
        self._found.update(path for path, record in changes.records if record is not None)
        self._found.difference_update(path for path, record in changes.records if record is None)
        if self._listed is not None or changes.more:
            return News(changes.records), True
        only, self._found = frozenset(self._found), None
        return News(changes.records, only), False

    def restart(self) -> None:
        """Read the log from the beginning next time."""
        self._listed, self._follows = 0, False

    def _advance(self, changes: BucketChanges) -> None:
        """Note how far a page has read. Older entries and later changes take turns."""
        if self._listed is None or self._follows:
            self._number, self._follows = changes.number, False
        elif changes.more and changes.number < self._begun:
            self._listed, self._follows = changes.number, changes.last > self._number
        else:  # no older entry is left, and this page may have later changes too
            self._listed, self._number = None, max(self._number, changes.number)


class LogPace(NamedTuple):
    """Limits and pauses of the reading of buckets."""

    at_once: int = 32
    """The number of buckets that are read at the same time."""
    patience: float = 1.0
    """A reading that takes longer than this number of seconds is *late*. Then it no longer counts, so the buckets of a
    server that is away do not delay those of the others until their time-out.
    """
    kept: int = 32
    """The number of further buckets that are read at once if they announce a change. So they do not even wait for
    readings to be late.
    """
    between: float = 0.1
    """The seconds between two rounds of calls, unless a bucket has announced a change."""
    round: float = 600.0
    """The seconds after which each bucket is read again."""


class BucketLogs:
    """The buckets of a namespace: how far each was read, and when each is read next. Times are in seconds."""

    def __init__(self, buckets: int, pace: LogPace) -> None:
        self._pace = pace
        self.logs = [BucketLog() for _ in range(buckets)]
        self._unread = set(range(buckets))
        """The buckets whose logs were not read to the end."""
        self._soon = dict.fromkeys(range(buckets))
        """The buckets that are read at the next opportunity. The first one has waited longest."""
        self._heard: dict[int, None] = {}
        """The buckets that have announced a change since they were read last."""
        self._reading: dict[int, float] = {}
        """The buckets that are being read: when each reading began. The first one has lasted longest."""
        self._at_rest: dict[int, float] = {}
        """The buckets that need not be read soon: when each was read. The first one has waited longest."""
        self._failed: dict[int, tuple[float, Pauses]] = {}
        """The buckets whose last reading failed: when each is read again."""
        self._next_round = -math.inf

    @property
    def whole(self) -> bool:
        """Whether each bucket was read to the end at least once, and nothing newer is known to be unread."""
        return not (self._soon or self._heard or self._reading or self._unread)

    @property
    def tried(self) -> bool:
        """Whether each bucket was read to the end once, or could not be read."""
        return self._unread | self._soon.keys() <= self._failed.keys()

    def heard(self, number: int) -> None:
        """Read a bucket at once, because it has announced a change."""
        self._heard[number] = None

    def missed(self, number: int) -> None:
        """Read a bucket soon, because an announcement may have been lost."""
        self._soon[number] = None

    def missed_everywhere(self) -> None:
        """Read all buckets soon."""
        self._soon |= dict.fromkeys(range(len(self.logs)))

    def begin(self, now: float, *, hurries: bool = True) -> list[int]:
        """Return the buckets to read now, and count them as being read.

        A client that does not hurry reads one bucket in each round, and those that have announced a change.
        """
        for number, read_at in list(self._at_rest.items()):
            if read_at + self._pace.round > now:
                break
            del self._at_rest[number]
            self._soon[number] = None
        room = self._pace.at_once - self._punctual(now)
        heard = [number for number in self._heard if self._may_read(number, now)]
        chosen = heard[: max(0, room + self._pace.kept)]
        if now >= self._next_round:
            soon = [number for number in self._soon if number not in self._heard and self._may_read(number, now)]
            chosen += soon[: max(0, room - len(chosen)) if hurries else int(room > 0)]
        for number in chosen:
            self._heard.pop(number, None)
            if number in self._soon:
                del self._soon[number]
                self._next_round = now + self._pace.between
            self._at_rest.pop(number, None)
        self._reading |= dict.fromkeys(chosen, now)
        return chosen

    def _punctual(self, now: float) -> int:
        """Return the number of buckets whose reading is not late."""
        return sum(began + self._pace.patience > now for began in self._reading.values())

    def _may_read(self, number: int, now: float) -> bool:
        failed = self._failed.get(number)
        return number not in self._reading and (failed is None or failed[0] <= now)

    def took(self, number: int, changes: BucketChanges | None, now: float) -> News:
        """End the reading of a page of a bucket, and return what it says."""
        self._reading.pop(number, None)
        self._failed.pop(number, None)
        log = self.logs[number]
        news, more = log.took(changes)
        (self._unread.discard if log.whole else self._unread.add)(number)
        if more:
            self._heard[number] = None
        else:
            self._at_rest[number] = now
        return news

    def failed(self, number: int, now: float) -> None:
        """End a reading that has failed. The bucket is read again after a pause."""
        self._reading.pop(number, None)
        _, pauses = self._failed.get(number) or (0.0, Pauses(1.0, 30.0))
        self._failed[number] = now + pauses.next(), pauses
        self._soon[number] = None

    def seconds(self, now: float) -> float:
        """Return the seconds until :meth:`begin` has something to return, if no event comes before."""
        room, times = self._pace.at_once - self._punctual(now), list[float]()
        roomy = now if room > 0 else self._roomy_at(now)
        times += [max(roomy, read_at + self._pace.round) for read_at in list(self._at_rest.values())[:1]]
        times.append(max(roomy, self._next_round, self._first(self._soon)))
        roomy = now if room + self._pace.kept > 0 else roomy
        times.append(max(roomy, self._first(self._heard)))
        return max(0.0, min(times) - now)

    def _roomy_at(self, now: float) -> float:
        """Return when the next reading will be late."""
        return min((at for began in self._reading.values() if (at := began + self._pace.patience) > now), default=now)

    def _first(self, numbers: Iterable[int]) -> float:
        """Return when the first of these buckets may be read again that is not being read; infinity without one."""
        first = math.inf
        for number in numbers:
            if number not in self._reading:
                failed = self._failed.get(number)
                if failed is None:
                    return -math.inf
                first = min(first, failed[0])
        return first
