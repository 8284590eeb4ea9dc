"""Decide in which partitions of an entity a receiver has its credit. Pure.

Theory
------

A receiver may be at several partitions, at most :data:`MOST_PLACES`. If it wants at least one message from each of
them, all get a share of its credit. Otherwise one partition has all of the credit, the *home*, and the others only send
news of their messages. So the receiver holds no more locks than it wants, and an idle receiver hears of each message.

If there is news of another partition, it becomes the home: the receiver withdraws the credit from the home and grants
it to the other one at the same time. What the earlier home has given before that comes nevertheless. Then the receiver
has more than it wanted, and keeps or gives back the rest.

A receiver that gets no news can choose any home, and begins at a different one each time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from sbredis.receiving._credit import CreditDemand

__all__ = ["MOST_PLACES", "CreditPlaces"]

MOST_PLACES: Final = 16
"""The largest number of partitions that a receiver is at."""


class CreditPlaces:
    """The shares of several partitions in what a receiver wants."""

    __slots__ = ("_count", "_home")

    def __init__(self, count: int, home: int) -> None:
        """Begin with ``count`` partitions. The one with the index ``home`` gets the credit first."""
        if not 0 < count <= MOST_PLACES:
            raise ValueError(f"A receiver is at 1 to {MOST_PLACES} partitions of an entity, not at {count}.")
        self._count, self._home = count, home % count

    def shares(self, demand: CreditDemand, news: Collection[int] = ()) -> list[CreditDemand]:
        """Return what to want from each partition, if there is news of the partitions ``news``."""
        count = self._count
        wanted = demand.callers + demand.stock
        if news and self._home not in news:
            self._home = min(news, key=lambda place: (place - self._home) % count)
        if wanted >= count:
            return self._parts(demand)
        nothing = replace(demand, callers=0, stock=0, announced=wanted > 0)
        return [demand if place == self._home else nothing for place in range(count)]

    def _parts(self, demand: CreditDemand) -> list[CreditDemand]:
        """Divide the messages evenly. The home and those after it get what is over, and the callers come first."""
        parts: list[CreditDemand] = []
        for place in range(self._count):
            turn = (place - self._home) % self._count
            part = (demand.callers + demand.stock + self._count - 1 - turn) // self._count
            callers = (demand.callers + self._count - 1 - turn) // self._count
            room = max(1, demand.room // self._count)
            parts.append(replace(demand, callers=callers, stock=part - callers, room=room))
        return parts
