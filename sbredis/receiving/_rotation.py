"""Decide at which partitions of an entity a receiver is. Pure.

Theory
------

A receiver that is at a partition makes calls to it, and may leave credit there. To come costs a call or two and a
subscription, and to leave costs a call. So a receiver has at most 16 *seats*, each of them at one partition, and learns
of messages in other partitions by a search (:mod:`sbredis.receiving._searching`).

- It begins with one seat, and takes a new one for each partition in which messages were *found*, as long as it wants
  them.
- If a search has found nothing, it takes the seats that are left, so that their partitions can push messages to it.
- If all seats are taken, a found partition gets the seat of a partition that is *idle*: nothing has come from there for
  a moment.
- If no seat is idle, seats go on after a second: the one that is the longest at its partition goes to the partition
  that was found first, and the partition that it leaves is then the last of the found ones.

What was found is known until its partition has answered: it *waits* for a seat, or it has one and is *asked*. If few
receivers were told of it, and this one wants nothing any more before the answer, it passes the partition on.

So if a receiver takes messages all the time, it is at each partition that has some before as many seconds have passed
as there are partitions for each seat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from sbredis.engine import MOST_SEATS

__all__ = ["FoundPlace", "Rotation", "SeatChange"]

_STAY: Final = 1.0
"""The seconds for which a seat stays at a partition that has messages, if others wait for it."""


class SeatChange(NamedTuple):
    """A seat that goes to another partition, or a new seat, whose number is one more than that of the last."""

    seat: int
    place: int
    """The index of the partition among those of the entity."""


@dataclass(slots=True, eq=False, repr=False)
class FoundPlace:
    """A partition that may have messages, and that the receiver has not asked since it was found."""

    calls: int | None = None
    """The number of calls that its driver had made before; ``None`` while the partition waits for a seat."""
    told: bool = False
    """Whether the receiver was told of it, and few others."""


class Rotation:
    """The seats of a receiver at the partitions of an entity, which are named by their indexes."""

    __slots__ = ("_count", "_found", "_since", "most", "seats", "waiting")

    def __init__(self, count: int, first: int, most: int = MOST_SEATS) -> None:
        """Begin with one seat, at the partition ``first`` of ``count``."""
        self.most = min(count, most)
        """The number of seats that the receiver may have."""
        self.seats = [first]
        """The partition of each seat."""
        self._count = count
        self._since = [0.0]
        self._found: dict[int, FoundPlace] = {}
        """The partitions that were found and not asked since, the first found first."""
        self.waiting = 0
        """The number of them that have no seat."""

    @property
    def is_full(self) -> bool:
        """Whether all seats are taken."""
        return len(self.seats) == self.most

    @property
    def is_complete(self) -> bool:
        """Whether the receiver is at all partitions."""
        return len(self.seats) == self._count

    # -- what was found ------------------------------------------------------------------------------------------------

    def found(self, places: Iterable[int], *, told: bool = False) -> None:
        """Note that these partitions may have messages. Those without a seat wait for one."""
        for place in places:
            if place not in self.seats:
                self._wait(place, told=told)

    def found_at(self, seat: int, calls: int, *, told: bool = False) -> None:
        """Note that the partition of a seat may have messages. Its driver has made this number of ``calls`` before."""
        found = self._found.setdefault(self.seats[seat], FoundPlace())
        found.calls, found.told = calls, found.told or told

    @property
    def seeks(self) -> bool:
        """Whether partitions were found that were not asked since."""
        return bool(self._found)

    @property
    def is_asking(self) -> bool:
        """Whether partitions were found that have a seat, and have not answered since."""
        return len(self._found) > self.waiting

    @property
    def asking(self) -> dict[int, int]:
        """The seats of these partitions, each with the number of calls that its driver had made before."""
        if not self.is_asking:
            return {}
        founds = ((seat, self._found.get(place)) for seat, place in enumerate(self.seats))
        return {seat: found.calls for seat, found in founds if found is not None and found.calls is not None}

    def answered(self, seat: int) -> None:
        """Note that the partition of a seat has answered since it was found."""
        self._found.pop(self.seats[seat], None)

    def take_told(self) -> list[int]:
        """Return the partitions to ask of which the receiver was told. From now on they count as found by itself."""
        told = [place for place, found in self._found.items() if found.told]
        for place in told:
            self._found[place].told = False
        return told

    def _wait(self, place: int, *, told: bool) -> None:
        found = self._found.get(place)
        if found is None:
            found = self._found[place] = FoundPlace()
            self.waiting += 1
        found.told = found.told or told

    # -- seats ---------------------------------------------------------------------------------------------------------

    def give(self, now: float, wanted: int, idle: Collection[int], busy: Collection[int]) -> list[SeatChange]:
        """Give seats to partitions that were found, up to ``wanted``. Return the changes.

        The seats ``idle`` have nothing to give, and ``busy`` ones have more messages. A seat in neither stays. Few
        receivers may know of what a busy one leaves, so they are told when this receiver wants it no more.
        """
        changes: list[SeatChange] = []
        wanted = min(wanted, self.waiting)
        while len(changes) < wanted and not self.is_full:
            changes.append(self._seat(len(self.seats), self._next_found(), now))
        if len(changes) < wanted:
            late = [seat for seat in busy if now >= self._since[seat] + _STAY]
            for some in (idle, late):
                for seat in sorted(some, key=self._since.__getitem__)[: wanted - len(changes)]:
                    left = self.seats[seat]
                    self.answered(seat)
                    changes.append(self._seat(seat, self._next_found(), now))
                    if some is late:
                        self._wait(left, told=True)
        return changes

    def fill(self, now: float) -> list[SeatChange]:
        """Give all seats that are left to partitions, going on from the last one. Return the changes."""
        changes: list[SeatChange] = []
        place = self.seats[-1]
        while not self.is_full:
            place = (place + 1) % self._count
            if place not in self.seats:
                changes.append(self._seat(len(self.seats), place, now))
        return changes

    def _next_found(self) -> int:
        return next(place for place, found in self._found.items() if found.calls is None)

    def _seat(self, seat: int, place: int, now: float) -> SeatChange:
        found = self._found.get(place)
        if found is not None:
            found.calls = 0
            self.waiting -= 1
        if seat == len(self.seats):
            self.seats.append(place)
            self._since.append(now)
        else:
            self.seats[seat], self._since[seat] = place, now
        return SeatChange(seat, place)
