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

So if a receiver takes messages all the time, it is at each partition that has some before as many seconds have passed
as there are partitions for each seat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from sbredis.engine import MOST_SEATS

__all__ = ["Rotation", "SeatChange"]

_STAY: Final = 1.0
"""The seconds for which a seat stays at a partition that has messages, if others wait for it."""


class SeatChange(NamedTuple):
    """A seat that goes to another partition, or a new seat, whose number is one more than that of the last."""

    seat: int
    place: int
    """The index of the partition among those of the entity."""


class Rotation:
    """The seats of a receiver at the partitions of an entity, which are named by their indexes."""

    __slots__ = ("_count", "_found", "_since", "most", "seats")

    def __init__(self, count: int, first: int, most: int = MOST_SEATS) -> None:
        """Begin with one seat, at the partition ``first`` of ``count``."""
        self.most = min(count, most)
        """The number of seats that the receiver may have."""
        self.seats = [first]
        """The partition of each seat."""
        self._count = count
        self._since = [0.0]
        self._found: dict[int, None] = {}
        """Partitions without a seat that have messages, the first found first."""

    @property
    def waiting(self) -> int:
        """The number of partitions that have messages and no seat."""
        return len(self._found)

    @property
    def is_full(self) -> bool:
        """Whether all seats are taken."""
        return len(self.seats) == self.most

    @property
    def is_complete(self) -> bool:
        """Whether the receiver is at all partitions."""
        return len(self.seats) == self._count

    def has_to_seat(self, place: int) -> bool:
        """Return whether a partition has messages and no seat."""
        return place in self._found

    def found(self, places: Iterable[int]) -> None:
        """Note that these partitions may have messages."""
        for place in places:
            if place not in self.seats:
                self._found.setdefault(place)

    def give(self, now: float, wanted: int, idle: Collection[int], busy: Collection[int]) -> list[SeatChange]:
        """Give seats to partitions that were found, up to ``wanted``. Return the changes.

        The seats ``idle`` have nothing to give, and ``busy`` ones have more messages. A seat in neither stays.
        """
        changes: list[SeatChange] = []
        wanted = min(wanted, len(self._found))
        while len(changes) < wanted and not self.is_full:
            changes.append(self._seat(len(self.seats), self._next_found(), now))
        if len(changes) < wanted:
            late = [seat for seat in busy if now >= self._since[seat] + _STAY]
            for some in (idle, late):
                for seat in sorted(some, key=self._since.__getitem__)[: wanted - len(changes)]:
                    left = self.seats[seat]
                    changes.append(self._seat(seat, self._next_found(), now))
                    if some is late:
                        self._found[left] = None
        return changes

    def fill(self, now: float) -> list[SeatChange]:
        """Give all seats that are left to partitions, going on from the last one. Return the changes."""
        changes: list[SeatChange] = []
        place = self.seats[-1]
        while not self.is_full:
            place = (place + 1) % self._count
            if place not in self.seats:
                self._found.pop(place, None)
                changes.append(self._seat(len(self.seats), place, now))
        return changes

    def _next_found(self) -> int:
        place = next(iter(self._found))
        del self._found[place]
        return place

    def _seat(self, seat: int, place: int, now: float) -> SeatChange:
        if seat == len(self.seats):
            self.seats.append(place)
            self._since.append(now)
        else:
            self.seats[seat], self._since[seat] = place, now
        return SeatChange(seat, place)
