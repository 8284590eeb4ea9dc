"""What is to be visited when, and what is to be read: decided here, without waiting and without a clock of its own.

A *place* is a partition of an entity. Whoever maintains a namespace visits a place when something is due in it, and
hears from three sides when that will be: the place announces it, a visit answers it, and reading a slot tells it of
many places at once. An announcement may go unheard, so a slot is read when nobody has listened to it for a while, and
all of them are read once in a long while.

Events come in through methods; ``next`` says what to do now: read, visit, or nothing for a while. Times are in seconds,
and passed in. There are two clocks, because tests move one of them by hand: ``now`` measures how long something takes
here, ``clock`` is the one by which something is due.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sbredis.aio.core._pauses import Pauses

__all__ = ["Agenda", "Pace", "Place", "Read", "Sleep", "Visit"]


class Place(NamedTuple):
    """A partition of an entity."""

    number: int
    """Of the partition, which says in which slot it lies."""
    entity: str
    """The id of the entity."""


@dataclass(frozen=True, slots=True)
class Read:
    """Ask these entities' partitions of one number when something will be due."""

    number: int
    entities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Visit:
    """Have done what is due at a place."""

    place: Place


@dataclass(frozen=True, slots=True)
class Sleep:
    """There is nothing to do for so many seconds, unless something happens."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is done in what time."""

    together: int = 4
    """How many visits may be under way."""
    patience: float = 1.0
    """A visit or a read that takes longer than so many seconds no longer counts: others go on beside it."""
    batch: int = 500
    """How many places are read at once."""
    between_reads: float = 0.05
    """How many seconds pass from one read to the next."""
    round: float = 600.0
    """In how many seconds every place is read again, although nothing was missed."""
    first_pause: float = 1.0
    """How long a place, or a slot, is left alone after a failure at most; after each further one for twice as long."""
    longest_pause: float = 30.0


class Agenda:
    """Which places there are, when something is due in each as far as is known, and what is to be read."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._entities: dict[str, tuple[int, ...]] = {}
        self._slots: dict[int, dict[str, None]] = {}
        self._unread: dict[int, dict[str, None]] = {}
        """What has to be read soon, by slot."""
        self._due: dict[Place, float] = {}
        self._heap: list[tuple[float, int, Place]] = []
        """What stands in ``_due``, and older times, which are passed over."""
        self._order = 0
        self._visits: dict[Place, float] = {}
        """Those that are under way, and since when."""
        self._meanwhile: dict[Place, float] = {}
        """When something is due at those places, as was heard since the visit began."""
        self._reads: dict[int, float] = {}
        """The slots that are being read, and since when."""
        self._read_at = -math.inf
        """Before then nothing is read."""
        self._shut: dict[int, float] = {}
        """Until when a slot is not read after a failure."""
        self._pauses: dict[Place | int, Pauses] = {}
        """Of the places and slots whose last visit or read failed."""
        self._round: Iterator[Read] = iter(())
        self._round_at = math.inf
        """When the next part of the long round is read."""

    # -- what there is -------------------------------------------------------------------------------------------------

    def knows(self, entity: str) -> bool:
        """Whether this entity is among those that are looked after."""
        return entity in self._entities

    def there_are(self, entities: Mapping[str, Sequence[int]], now: float) -> None:
        """These are all entities there are, with the numbers of their partitions. New ones will be read."""
        for gone in [entity for entity in self._entities if entity not in entities]:
            self.gone(gone)
        for entity, numbers in entities.items():
            if entity not in self._entities:
                self._entities[entity] = tuple(numbers)
                for number in numbers:
                    self._slots.setdefault(number, {})[entity] = None
                    self._unread.setdefault(number, {})[entity] = None
        if self._round_at == math.inf and self._slots:
            self._round_at = now + self._between_parts()

    def gone(self, entity: str) -> None:
        """This entity is not there any more."""
        for number in self._entities.pop(entity, ()):
            place = Place(number, entity)
            for slots in (self._slots, self._unread):
                if number in slots:
                    slots[number].pop(entity, None)
                    if not slots[number]:
                        del slots[number]
            self._due.pop(place, None)
            self._visits.pop(place, None)
            self._meanwhile.pop(place, None)
            self._pauses.pop(place, None)

    # -- what is heard -------------------------------------------------------------------------------------------------

    def announced(self, place: Place, at: float) -> bool:
        """A place has announced that something is due at this time. Returns whether it is known."""
        if place.number not in self._entities.get(place.entity, ()):
            return False
        self._expect(place, at)
        return True

    def missed(self, number: int) -> None:
        """Nobody has listened to a slot for a while: all of it is to be read."""
        if number in self._slots:
            self._unread[number] = dict(self._slots[number])

    def missed_all(self) -> None:
        """The same for all slots: for whoever begins."""
        for number in self._slots:
            self.missed(number)

    def has_read(self, read: Read, times: Iterable[float | None]) -> None:
        """What a read has brought: for each place when something is due at the earliest."""
        self._reads.pop(read.number, None)
        self._pauses.pop(read.number, None)
        self._shut.pop(read.number, None)
        for entity, at in zip(read.entities, times, strict=True):
            if at is not None:
                self.announced(Place(read.number, entity), at)

    def has_visited(self, place: Place, at: float | None) -> None:
        """A visit has brought when something is due next; now, if there is more of it."""
        if self._visits.pop(place, None) is None:
            return
        self._pauses.pop(place, None)
        times = [time for time in (at, self._meanwhile.pop(place, None)) if time is not None]
        if times:
            self._expect(place, min(times))

    # -- what has failed -----------------------------------------------------------------------------------------------

    def read_failed(self, read: Read, now: float) -> None:
        """It is read again, after a pause for its slot."""
        self._reads.pop(read.number, None)
        self._shut[read.number] = now + self._pause(read.number)
        there = self._slots.get(read.number, {})
        again = {entity: None for entity in read.entities if entity in there}
        if again:
            self._unread[read.number] = again | self._unread.get(read.number, {})

    def visit_failed(self, place: Place, clock: float) -> None:
        """It is visited again after a pause."""
        if self._visits.pop(place, None) is not None:
            self._meanwhile.pop(place, None)
            self._expect(place, clock + self._pause(place))

    def _pause(self, what: Place | int) -> float:
        pauses = self._pauses.get(what)
        if pauses is None:
            pauses = self._pauses[what] = Pauses(self._pace.first_pause, self._pace.longest_pause)
        return pauses.next()

    # -- what to do ----------------------------------------------------------------------------------------------------

    def next(self, now: float, clock: float) -> Read | Visit | Sleep:
        """What to do now. Of what is due, the place that has been so for longest comes first."""
        return self._next_visit(now, clock) or self._next_read(now) or Sleep(self._seconds(now, clock))

    @property
    def read_up(self) -> bool:
        """Whether nothing has to be read soon."""
        return not self._unread and not self._reads

    def due_at(self, place: Place) -> float | None:
        """When something is due at a place, as far as is known."""
        return self._due.get(place)

    def _expect(self, place: Place, at: float) -> None:
        times = self._meanwhile if place in self._visits else self._due
        known = times.get(place)
        if known is not None and known <= at:
            return
        times[place] = at
        if times is self._due:
            self._push(place, at)

    def _push(self, place: Place, at: float) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, place))
        if len(self._heap) > 2 * len(self._due) + 64:  # older times have gathered
            self._heap = list({each[2]: each for each in self._heap if self._due.get(each[2]) == each[0]}.values())
            heapq.heapify(self._heap)

    def _first(self) -> tuple[float, Place] | None:
        """The place where something is due first."""
        while self._heap:
            at, _, place = self._heap[0]
            if self._due.get(place) == at:
                return at, place
            heapq.heappop(self._heap)
        return None

    def _next_visit(self, now: float, clock: float) -> Visit | None:
        first = self._first()
        if first is None or first[0] > clock or self._young(self._visits, now) >= self._pace.together:
            return None
        place = first[1]
        heapq.heappop(self._heap)
        del self._due[place]
        self._visits[place] = now
        return Visit(place)

    def _next_read(self, now: float) -> Read | None:
        if now < self._read_at or self._young(self._reads, now):
            return None
        for number, entities in self._unread.items():
            if self._open_at(number) <= now:
                batch = tuple(entity for entity, _ in zip(entities, range(self._pace.batch), strict=False))
                for entity in batch:
                    del entities[entity]
                del self._unread[number]
                if entities:
                    self._unread[number] = entities  # behind the others
                return self._begin_read(Read(number, batch), now)
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
        self._read_at = now + self._pace.between_reads
        return read

    def _parts(self) -> Iterator[Read]:
        """All places there are, a part at a time; what has gone in the meantime is left out."""
        for number in list(self._slots):
            entities = list(self._slots.get(number, ()))
            for start in range(0, len(entities), self._pace.batch):
                there = self._slots.get(number, {})
                part = tuple(each for each in entities[start : start + self._pace.batch] if each in there)
                if part:
                    yield Read(number, part)

    def _between_parts(self) -> float:
        parts = sum(math.ceil(len(entities) / self._pace.batch) for entities in self._slots.values())
        return self._pace.round / max(1, parts)

    def _open_at(self, number: int) -> float:
        """When a slot may be read."""
        return math.inf if number in self._reads else self._shut.get(number, -math.inf)

    def _young(self, begun: Mapping[Any, float], now: float) -> int:
        """How many of what is under way have not taken so long yet that nobody waits for them any more."""
        return sum(now - since < self._pace.patience for since in begun.values())

    def _seconds(self, now: float, clock: float) -> float:
        """In how long ``next`` would answer something else than now, if nothing happens before."""
        times = [math.inf]
        if self._young(self._visits, now) >= self._pace.together:
            times += self._old(self._visits, now)
        elif (first := self._first()) is not None:
            times.append(first[0] - clock)
        earliest = max([self._read_at - now, *self._old(self._reads, now)])
        times += [max(earliest, self._open_at(number) - now) for number in self._unread]
        times.append(max(earliest, self._round_at - now))
        return max(0.0, min(times))

    def _old(self, begun: Mapping[Any, float], now: float) -> list[float]:
        """In how long each of those that are young will not be so any more."""
        patience = self._pace.patience
        return [since + patience - now for since in begun.values() if now - since < patience]
