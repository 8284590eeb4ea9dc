"""Decide which partitions to visit and which due times to read. Pure: nothing here waits or reads a clock.

A *place* is a partition of an entity. A *visit* does the work that is due in a place. The agenda learns the next due
time of a place in three ways. The place announces the time. A visit returns the time. And a *read* of a slot returns
the due times of many places at the same time.

An announcement may be lost. So if the client did not listen to a slot for a while, it reads that slot. It also reads
all slots once in a long *round*.

The caller reports events by calling methods. ``next`` returns the next action: read, visit, or sleep. The caller passes
all times to the agenda, in seconds. There are two clocks, because tests move one of them by hand: ``now`` measures the
duration of visits and reads, and due times are compared with ``clock``.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from sbredis.client import Pauses

__all__ = ["Agenda", "BySlot", "DueTimes", "Read", "Sleep", "Visit", "VisitPace", "VisitPlace", "pause_after"]


class BySlot:
    """Entities by the number of their slot. Batches are taken from the slots in turn, so no slot waits forever."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def __contains__(self, number: int) -> bool:
        return number in self._slots

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the slots in which there are entities. The first one had to wait longest."""
        return iter(self._slots)

    def of(self, number: int) -> tuple[str, ...]:
        """Return the entities in a slot."""
        return tuple(self._slots.get(number, ()))

    def has(self, number: int, entity: str) -> bool:
        """Return whether an entity is in a slot."""
        return entity in self._slots.get(number, ())

    def add(self, number: int, entity: str) -> None:
        """Add an entity to a slot."""
        self._slots.setdefault(number, {})[entity] = None

    def discard(self, number: int, entity: str) -> None:
        """Take an entity out of a slot, if it is there."""
        entities = self._slots.get(number)
        if entities is not None:
            entities.pop(entity, None)
            if not entities:
                del self._slots[number]

    def take(self, number: int, most: int) -> tuple[str, ...]:
        """Take the first entities out of a slot. The slot then has to wait for the other slots."""
        entities = self._slots.pop(number)
        batch = tuple(entity for entity, _ in zip(entities, range(most), strict=False))
        for entity in batch:
            del entities[entity]
        if entities:
            self._slots[number] = entities
        return batch


K = TypeVar("K")
_SPARE = 64


class DueTimes(Generic[K]):
    """The next time of each of many things. A change costs O(log n), and so does finding the earliest."""

    __slots__ = ("_heap", "_order", "_times")

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        """The times in ``_times``, and outdated times, which are skipped."""
        self._order = 0

    def get(self, what: K) -> float | None:
        """Return the time of a thing, if it has one."""
        return self._times.get(what)

    def __setitem__(self, what: K, at: float) -> None:
        """Set the time of a thing, in place of its earlier time."""
        self._times[what] = at
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, what))
        if len(self._heap) > 2 * len(self._times) + _SPARE:  # many of the times are outdated
            self._heap = list({each[2]: each for each in self._heap if self._times.get(each[2]) == each[0]}.values())
            heapq.heapify(self._heap)

    def discard(self, what: K) -> None:
        """Forget the time of a thing, if it has one."""
        self._times.pop(what, None)

    def earliest(self) -> tuple[float, K] | None:
        """Return the earliest time, and the thing that has it. Among equal times, the one that was set first."""
        while self._heap:
            at, _, what = self._heap[0]
            if self._times.get(what) == at:
                return at, what
            heapq.heappop(self._heap)
        return None


_LEAST = 1 / 16


def pause_after(places: int, batch: int, pause: float) -> float:
    """Return the pause after a read of some places; ``pause`` is the pause after a read of ``batch`` places.

    A smaller read has a shorter pause, so reading all places takes the same time in however many slots they are. But a
    call costs something even if it reads one place, so the pause has a lower limit.
    """
    return pause * max(places / batch, _LEAST)


class VisitPlace(NamedTuple):
    """A place to visit: a partition of an entity."""

    number: int
    """The number of the partition and of its slot."""
    entity: str
    """The id of the entity."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next due times of these entities' partitions with this number."""

    number: int
    entities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Visit:
    """Do the work that is due at a place, and at the other places of its slot ``beside`` it."""

    place: VisitPlace
    beside: tuple[VisitPlace, ...] = ()
    alone: bool = False
    """Whether a visit to several places has left this place to a visit to it alone."""

    @property
    def places(self) -> tuple[VisitPlace, ...]:
        """All places to visit."""
        return (self.place, *self.beside)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for this number of seconds, unless an event comes before that."""

    seconds: float


@dataclass(frozen=True, slots=True)
class VisitPace:
    """Limits and pauses for visits and reads."""

    visits_at_once: int = 16
    """The number of visits that may run at the same time."""
    together: int = 1
    """The largest number of places of one slot in one visit."""
    patience: float = 1.0
    """A visit or read that takes longer than this number of seconds is *late*.

    It then no longer delays other visits and reads.
    """
    batch: int = 500
    """The largest number of places in one read."""
    between_reads: float = 0.05
    """The seconds between the start of a read of ``batch`` places and the start of the next read."""
    round: float = 1200.0
    """The seconds in which every place is read once, even if no announcement was lost."""
    first_pause: float = 1.0
    """The longest first pause after a failure at a place or slot. The limit doubles with each further failure."""
    longest_pause: float = 30.0


class Agenda:
    """The places that the client maintains, the known due time of each, and the places that it must still read."""

    def __init__(self, pace: VisitPace | None = None) -> None:
        self._pace = pace or VisitPace()
        self._entities: dict[str, tuple[int, ...]] = {}
        self._slots = BySlot()
        """All places."""
        self._unread = BySlot()
        """The places that must be read soon."""
        self._due = DueTimes[VisitPlace]()
        self._waiting = BySlot()
        """The places that have a due time."""
        self._alone: set[VisitPlace] = set()
        """The places whose next visit is a visit to them alone."""
        self._visits: dict[int, float] = {}
        """A mapping from the number of each visit under way to the time when it began."""
        self._visited: dict[VisitPlace, int] = {}
        """A mapping from each place that is being visited to the number of the visit."""
        self._left: Counter[int] = Counter()
        """For each visit under way the number of its places that it has not done yet."""
        self._numbers = itertools.count()
        self._due_after_visit: dict[VisitPlace, float] = {}
        """A mapping from a place to the due time that it announced during its visit."""
        self._reads: dict[int, float] = {}
        """A mapping from each slot that is being read to the time when the read began."""
        self._read_at = -math.inf
        """The earliest time of the next read."""
        self._closed_until: dict[int, float] = {}
        """A mapping from a slot whose read failed to the time until which the slot is not read."""
        self._pauses: dict[VisitPlace | int, Pauses] = {}
        """The pauses of the places and slots whose last visit or read failed."""
        self._round: Iterator[Read] = iter(())
        self._round_at = math.inf
        """The time to read the next part of the round."""

    # -- entities ------------------------------------------------------------------------------------------------------

    def knows(self, entity: str) -> bool:
        """Return whether this entity is in the list of entities."""
        return entity in self._entities

    def set_entities(self, entities: Mapping[str, Sequence[int]], now: float) -> None:
        """Replace the list of entities, each with its partition numbers. New places will be read."""
        gone: dict[str, Sequence[int]] = {entity: () for entity in self._entities if entity not in entities}
        self.update_entities({**gone, **entities}, now)

    def update_entities(self, entities: Mapping[str, Sequence[int]], now: float) -> None:
        """Note which partitions these entities have: none if they are gone. New places will be read."""
        for entity, numbers in entities.items():
            before = self._entities.get(entity, ())
            if not numbers:
                self.remove_entity(entity)
            if before == numbers or not numbers:
                continue
            self._entities[entity] = tuple(numbers)
            for number in numbers:
                if number not in before:
                    self._slots.add(number, entity)
                    self._unread.add(number, entity)
            for number in before:
                if number not in numbers:
                    self._remove(VisitPlace(number, entity))
        if self._slots:
            self._round_at = min(self._round_at, now + self._between_parts())

    def remove_entity(self, entity: str) -> None:
        """Forget an entity that does not exist any more."""
        for number in self._entities.pop(entity, ()):
            self._remove(VisitPlace(number, entity))

    def _remove(self, place: VisitPlace) -> None:
        self._slots.discard(*place)
        self._unread.discard(*place)
        self._due.discard(place)
        self._waiting.discard(*place)
        self._alone.discard(place)
        self._leave(place)
        self._due_after_visit.pop(place, None)
        self._pauses.pop(place, None)

    def _leave(self, place: VisitPlace) -> bool:
        """End the visit to a place. Return whether there was one. A visit to several places ends with the last one."""
        visit = self._visited.pop(place, None)
        if visit is None:
            return False
        self._left[visit] -= 1
        if not self._left[visit]:
            del self._left[visit], self._visits[visit]
        return True

    # -- due times -----------------------------------------------------------------------------------------------------

    def announced(self, place: VisitPlace, at: float) -> bool:
        """Record a due time that a place announced. Return whether the place is known."""
        if place.number not in self._entities.get(place.entity, ()):
            return False
        self._expect(place, at)
        return True

    def missed(self, number: int) -> None:
        """Read the whole slot soon, because the client did not listen to it for a while."""
        for entity in self._slots.of(number):
            self._unread.add(number, entity)

    def missed_everywhere(self) -> None:
        """Read all slots soon. A client that starts to maintain a namespace does this."""
        for number in self._slots:
            self.missed(number)

    def read_done(self, read: Read, times: Iterable[float | None]) -> None:
        """End a read. ``times`` are the next due times of its places."""
        self._reads.pop(read.number, None)
        self._pauses.pop(read.number, None)
        self._closed_until.pop(read.number, None)
        for entity, at in zip(read.entities, times, strict=True):
            if at is not None:
                self.announced(VisitPlace(read.number, entity), at)

    def visit_done(self, place: VisitPlace, at: float | None, *, alone: bool = False) -> None:
        """End the visit to a place. ``at`` is its next due time. It is not in the future if some due work is left.

        With ``alone``, no other place is in the next visit to this one.
        """
        if not self._leave(place):
            return
        if alone:
            self._alone.add(place)
        self._pauses.pop(place, None)
        times = [time for time in (at, self._due_after_visit.pop(place, None)) if time is not None]
        if times:
            self._expect(place, min(times))

    # -- failures ------------------------------------------------------------------------------------------------------

    def read_failed(self, read: Read, now: float) -> None:
        """End a failed read. Its places are read again, after a pause for the slot."""
        self._reads.pop(read.number, None)
        self._closed_until[read.number] = now + self._pause_for(read.number)
        for entity in read.entities:
            if self._slots.has(read.number, entity):
                self._unread.add(read.number, entity)

    def visit_failed(self, place: VisitPlace, clock: float) -> None:
        """End a failed visit. The place is visited again after a pause, alone."""
        if self._leave(place):
            if self._pace.together > 1:
                self._alone.add(place)
            self._due_after_visit.pop(place, None)
            self._expect(place, clock + self._pause_for(place))

    def _pause_for(self, what: VisitPlace | int) -> float:
        pauses = self._pauses.get(what)
        if pauses is None:
            pauses = self._pauses[what] = Pauses(self._pace.first_pause, self._pace.longest_pause)
        return pauses.next()

    # -- what to do ----------------------------------------------------------------------------------------------------

    def next(self, now: float, clock: float) -> Read | Visit | Sleep:
        """Return what to do now. Among the places with due work, the one with the oldest due time comes first."""
        return self._next_visit(now, clock) or self._next_read(now) or Sleep(self._idle_seconds(now, clock))

    @property
    def all_read(self) -> bool:
        """Whether no place must be read soon, and no read is under way."""
        return not self._unread and not self._reads

    def due_at(self, place: VisitPlace) -> float | None:
        """Return the known due time of a place, if there is one."""
        return self._due.get(place)

    def _expect(self, place: VisitPlace, at: float) -> None:
        times = self._due_after_visit if place in self._visited else self._due
        known = times.get(place)
        if known is not None and known <= at:
            return
        times[place] = at
        if times is self._due:
            self._waiting.add(*place)

    def _next_visit(self, now: float, clock: float) -> Visit | None:
        first = self._due.earliest()
        if first is None or first[0] > clock or self._punctual_count(self._visits, now) >= self._pace.visits_at_once:
            return None
        place = first[1]
        alone, number = place in self._alone, next(self._numbers)
        visit = Visit(place, () if alone else tuple(self._beside(place, clock)), alone)
        for each in visit.places:
            self._due.discard(each)
            self._waiting.discard(*each)
            self._alone.discard(each)
            self._visited[each] = number
        self._visits[number], self._left[number] = now, len(visit.places)
        return visit

    def _beside(self, place: VisitPlace, clock: float) -> Iterator[VisitPlace]:
        """Yield other places of a slot in which work is due, as many as one visit may have."""
        if self._pace.together == 1:
            return
        room = self._pace.together - 1
        for entity in self._waiting.of(place.number):
            other = VisitPlace(place.number, entity)
            due = self._due.get(other)
            if room and other != place and other not in self._alone and due is not None and due <= clock:
                room -= 1
                yield other

    def _next_read(self, now: float) -> Read | None:
        if now < self._read_at or self._punctual_count(self._reads, now):
            return None
        for number in self._unread:
            if self._open_at(number) <= now:
                return self._begin_read(Read(number, self._unread.take(number, self._pace.batch)), now)
        if now >= self._round_at:
            self._round_at = now + self._between_parts()
            part = next(self._round, None)
            if part is None:
                self._round = self._parts()
                part = next(self._round, None)
            if part is not None and self._open_at(part.number) <= now:
                return self._begin_read(part, now)
        return None

    def _begin_read(self, read: Read, now: float) -> Read:
        self._reads[read.number] = now
        self._read_at = now + pause_after(len(read.entities), self._pace.batch, self._pace.between_reads)
        return read

    def _parts(self) -> Iterator[Read]:
        """Yield reads of all places, a part at a time. Leave out entities that were removed after the start."""
        for number in list(self._slots):
            entities = self._slots.of(number)
            for start in range(0, len(entities), self._pace.batch):
                stretch = entities[start : start + self._pace.batch]
                part = tuple(each for each in stretch if self._slots.has(number, each))
                if part:
                    yield Read(number, part)

    def _between_parts(self) -> float:
        parts = sum(math.ceil(len(self._slots.of(number)) / self._pace.batch) for number in self._slots)
        return self._pace.round / max(1, parts)

    def _open_at(self, number: int) -> float:
        """Return the time from which a slot may be read."""
        return math.inf if number in self._reads else self._closed_until.get(number, -math.inf)

    def _punctual_count(self, begun: Mapping[Any, float], now: float) -> int:
        """Count the visits or reads under way that are not late yet."""
        return sum(now - since < self._pace.patience for since in begun.values())

    def _idle_seconds(self, now: float, clock: float) -> float:
        """Return the seconds until ``next`` would return another action, if no event comes before that."""
        times = [math.inf]
        if self._punctual_count(self._visits, now) >= self._pace.visits_at_once:
            times += self._seconds_until_late(self._visits, now)
        elif (first := self._due.earliest()) is not None:
            times.append(first[0] - clock)
        earliest = max([self._read_at - now, *self._seconds_until_late(self._reads, now)])
        times += [max(earliest, self._open_at(number) - now) for number in self._unread]
        times.append(max(earliest, self._round_at - now))
        return max(0.0, min(times))

    def _seconds_until_late(self, begun: Mapping[Any, float], now: float) -> list[float]:
        """Return the seconds until each visit or read under way will be late. Leave out those that are late already."""
        patience = self._pace.patience
        return [since + patience - now for since in begun.values() if now - since < patience]
