"""Decide which entities may be unused, and when to ask their partitions. Pure: nothing here waits or reads a clock.

An entity is *idle* when all its partitions are. A partition only tells when it was last used, so the client asks again
when that time is long enough ago. It asks the partitions of an entity one after the other, and begins with the one that
was used last. So one answer is enough for an entity that is in use. Questions to partitions of one slot are joined: one
*read* asks up to 500 of them, and at most 500 are asked in a second.

If all partitions of an entity were quiet for long enough, the caller tries to remove the entity. This attempt asks all
partitions again, so the agenda need not be right: it only saves attempts that would fail.

The caller reports events by calling methods; ``next`` returns the next action. There are two clocks, because tests move
one of them by hand: ``now`` measures pauses, and times of use are compared with ``clock``. All times are in seconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sbredis.client import Pauses
from sbredis.maintenance._agenda import BySlot, DueTimes, pause_after

__all__ = ["MARGIN", "IdleAgenda", "IdlePace", "ReadQuiet", "RemoveIdle", "Temporary", "Wait"]

MARGIN = 60.0
"""A partition writes the time of its last use at most once a minute, so it may have been used this much later."""


class Temporary(NamedTuple):
    """An entity that is removed when it is idle."""

    numbers: tuple[int, ...]
    """The numbers of its partitions."""
    idle: float
    """The seconds without use after which it is removed."""


@dataclass(frozen=True, slots=True)
class ReadQuiet:
    """Ask these entities' partitions with this number for the time since their last use."""

    number: int
    entities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveIdle:
    """Try to remove this entity."""

    entity: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for this number of seconds, unless an event comes before that."""

    seconds: float


@dataclass(frozen=True, slots=True)
class IdlePace:
    """Limits and pauses."""

    between_reads: float = 1.0
    """The seconds between the start of a read of ``batch`` partitions and the start of the next read."""
    batch: int = 500
    """The largest number of partitions in one read."""
    removals_at_once: int = 4
    first_pause: float = 5.0
    """The longest first pause after a failure. The limit doubles with each further failure."""
    longest_pause: float = 300.0


@dataclass(slots=True)
class _Watched:
    what: Temporary
    used: dict[int, float] = field(default_factory=dict[int, float])
    """The last known use of each partition."""
    quiet: set[int] = field(default_factory=set[int])
    """The partitions that were quiet for long enough, since the present series of questions began."""
    asking: int | None = None
    """The partition that is being asked or will be."""
    removing: bool = False
    pauses: Pauses | None = None


class IdleAgenda:
    """The entities that are removed when they are idle, and the time at which each may be idle."""

    def __init__(self, pace: IdlePace | None = None) -> None:
        self._pace = pace or IdlePace()
        self._entities: dict[str, _Watched] = {}
        self._idle_at = DueTimes[str]()
        """The earliest time at which each entity may be idle, unless it is being asked or removed."""
        self._waiting = BySlot()
        """The entities whose partition in a slot is to be asked."""
        self._reading = False
        self._read_at = -math.inf
        self._candidates: deque[str] = deque()
        """The entities whose partitions were all quiet for long enough."""
        self._removing: set[str] = set()

    # -- events --------------------------------------------------------------------------------------------------------

    def set_entities(self, entities: Mapping[str, Temporary], clock: float) -> None:
        """Replace the list of entities."""
        for gone in [entity for entity in self._entities if entity not in entities]:
            self.forget(gone)
        for entity, what in entities.items():
            self.set_entity(entity, what, clock)

    def set_entity(self, entity: str, what: Temporary, clock: float) -> None:
        """Add an entity, or note what it is now."""
        watched = self._entities.get(entity)
        if watched is None:
            self._entities[entity] = _Watched(what)
            self._idle_at[entity] = clock
        elif watched.what != what:
            watched.what = what
            if not watched.removing:
                self._restart(entity, watched, clock)

    def read_done(self, read: ReadQuiet, used: Sequence[float | None], clock: float) -> None:
        """End a read. ``used`` has the time of the last use of each partition; ``None`` if it does not exist."""
        self._reading = False
        for entity, at in zip(read.entities, used, strict=True):
            watched = self._entities.get(entity)
            if watched is None or watched.asking != read.number:
                continue
            watched.asking = None
            last = -math.inf if at is None else at
            watched.used[read.number] = last
            may_be_idle_at = last + watched.what.idle + MARGIN
            if may_be_idle_at > clock:
                watched.pauses = None
                self._restart(entity, watched, may_be_idle_at)
            else:
                watched.quiet.add(read.number)
                self._ask(entity, watched)

    def read_failed(self, read: ReadQuiet, clock: float) -> None:
        """End a failed read. Its entities are asked again after a pause."""
        self._reading = False
        for entity in read.entities:
            watched = self._entities.get(entity)
            if watched is not None and watched.asking == read.number:
                self._restart(entity, watched, clock + self._pause(watched))

    def kept(self, entity: str, quiet: float, clock: float) -> None:
        """End an attempt to remove an entity that was used ``quiet`` seconds ago, or is in use if this is 0."""
        watched = self._ended(entity)
        if watched is not None:
            watched.pauses = None
            self._restart(entity, watched, clock + max(1.0, watched.what.idle + MARGIN - quiet))

    def removal_failed(self, entity: str, clock: float) -> None:
        """End a failed attempt to remove an entity. It is tried again after a pause."""
        watched = self._ended(entity)
        if watched is not None:
            self._restart(entity, watched, clock + self._pause(watched))

    def removed(self, entity: str) -> None:
        """End a successful attempt to remove an entity."""
        self._ended(entity)
        self.forget(entity)

    # -- what to do ----------------------------------------------------------------------------------------------------

    def next(self, now: float, clock: float) -> ReadQuiet | RemoveIdle | Wait:
        """Return what to do now."""
        while (first := self._idle_at.earliest()) is not None and first[0] <= clock:
            self._idle_at.discard(first[1])
            self._ask(first[1], self._entities[first[1]])
        while self._candidates and len(self._removing) < self._pace.removals_at_once:
            entity = self._candidates.popleft()
            watched = self._entities.get(entity)
            if watched is not None and not watched.removing and watched.quiet.issuperset(watched.what.numbers):
                watched.removing = True
                self._removing.add(entity)
                return RemoveIdle(entity)
        if self._waiting and not self._reading:
            if now >= self._read_at:
                return self._begin_read(now)
            return Wait(min(self._read_at - now, self._until_next(clock)))
        return Wait(self._until_next(clock))

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being asked or removed."""
        return not (self._waiting or self._reading or self._removing or self._candidates)

    # ------------------------------------------------------------------------------------------------------------------

    def _until_next(self, clock: float) -> float:
        first = self._idle_at.earliest()
        return math.inf if first is None else max(0.0, first[0] - clock)

    def _restart(self, entity: str, watched: _Watched, at: float) -> None:
        """Ask the partitions of an entity again from ``at`` on."""
        if watched.asking is not None:
            self._waiting.discard(watched.asking, entity)
            watched.asking = None
        watched.quiet.clear()
        self._idle_at[entity] = at

    def _ask(self, entity: str, watched: _Watched) -> None:
        """Ask the next partition of an entity: of those not asked yet, the one that was used last."""
        left = [number for number in watched.what.numbers if number not in watched.quiet]
        if not left:
            self._candidates.append(entity)
            return
        watched.asking = max(left, key=lambda number: watched.used.get(number, -math.inf))
        self._waiting.add(watched.asking, entity)

    def _begin_read(self, now: float) -> ReadQuiet:
        number = next(iter(self._waiting))
        batch = self._waiting.take(number, self._pace.batch)
        self._reading = True
        self._read_at = now + pause_after(len(batch), self._pace.batch, self._pace.between_reads)
        return ReadQuiet(number, batch)

    def _ended(self, entity: str) -> _Watched | None:
        self._removing.discard(entity)
        watched = self._entities.get(entity)
        if watched is not None:
            watched.removing = False
        return watched

    def forget(self, entity: str) -> None:
        """Forget an entity that is gone, or is never removed."""
        watched = self._entities.pop(entity, None)
        self._idle_at.discard(entity)
        if watched is not None and watched.asking is not None:
            self._waiting.discard(watched.asking, entity)

    def _pause(self, watched: _Watched) -> float:
        if watched.pauses is None:
            watched.pauses = Pauses(self._pace.first_pause, self._pace.longest_pause)
        return watched.pauses.next()
