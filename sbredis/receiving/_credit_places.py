"""Decide how much credit a receiver grants to each partition of an entity. Pure.

Theory
------

A receiver locks no more messages than it wants, so it divides what it wants between the partitions. Each change of a
share is a call. So shares change only as far as they must:

- *Without news*, half of what the receiver wants is divided between the partitions, but at least one message for each
  if there are enough. All is divided if the credit ends with the replies. If the receiver wants fewer messages than
  half of the partitions, none gets a share: they only send news of their messages. Partitions push to their shares. A
  partition gets more when it has used up half of its share, and not before half of what the receiver wants is used up.
  While some of the partitions have not answered a call, the others get no more than their part.
- *With news* of messages, a partition without credit gets all that the receiver wants and has not granted: the other
  half of it, for example. What it does not use ends with the reply. A partition that has pushed all of a share of more
  than one message probably has more, so it is asked in the same way. If nothing is left to grant, partitions with news
  get half of the largest share of a partition without news: so only one partition loses credit for it. Partitions with
  news take turns.
- *If the receiver wants less*, the partitions without news lose credit first, the largest share first.

What a partition has given before it loses credit comes nevertheless. Then the receiver has more than it wanted, and
keeps or gives back the rest.

A receiver that wants only what is there now asks all partitions at once. If it wants less than one message from every
other one, one of them has all of the credit, the *home*, and the others say whether they have messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from sbredis.engine import MAXIMUM_REPLY_BYTES
from sbredis.receiving._credit import CreditDemand
from sbredis.receiving._fetching import MOST_AT_ONCE

__all__ = ["CreditPlace", "CreditPlaces", "SeatsStanding", "demand_of"]

_MOST: Final = MOST_AT_ONCE
"""The largest share of a partition: a reply brings no more messages at once."""


@lru_cache(maxsize=256)
def demand_of(
    callers: int, stock: int, terms: tuple[bool, int, bool], now: bool = False, announced: bool = False
) -> CreditDemand:
    """Return what is wanted from a partition, with the terms of an inbox. Receivers that want the same share it."""
    suspects, first, yields = terms
    return CreditDemand(
        callers=callers,
        stock=stock,
        room=MAXIMUM_REPLY_BYTES,
        now=now,
        announced=announced,
        suspects=suspects,
        first=first,
        first_room=MAXIMUM_REPLY_BYTES if first else 0,
        yields=yields,
    )


class CreditPlace(Protocol):
    """The part of a partition's credit that the division between partitions needs."""

    demand: CreditDemand
    """The latest demand of the receiver at this partition."""
    news: bool
    """Whether the partition has messages."""
    silent: bool
    """Whether the partition tells nothing before the next call."""
    spent: bool
    """Whether it is silent because it has pushed all that it might."""

    @property
    def outstanding_for_callers(self) -> int:
        """The number of messages that it may still give as to waiting callers."""
        ...


class SeatsStanding(NamedTuple):
    """How the partitions stand that a receiver is at."""

    known: Sequence[CreditPlace]
    hungry: bool
    """Whether one of them has messages, and may give none."""
    outstanding: Sequence[int]
    """The number of messages that each of them may still give; 0 while it is late or paused."""
    able: Collection[int]
    """Those that may get credit."""
    asked: Collection[int]
    """Those that are told what is wanted from them."""
    answering: Collection[int]
    """Those with a call under way that is not late."""


class CreditPlaces:
    """The shares of the partitions of an entity in what a receiver wants. Partitions are named by their indexes."""

    __slots__ = ("_home",)

    def __init__(self, home: int) -> None:
        """Begin with the partition at the index ``home``. Each receiver begins at a different one."""
        self._home = home

    def changes(
        self,
        wanted: int,
        full: int,
        callers: int,
        standing: SeatsStanding,
        terms: tuple[bool, int, bool],
        *,
        now: bool,
        rides: bool,
        replies_only: bool,
    ) -> Iterator[tuple[int, CreditDemand]]:
        """Yield the partitions from which something else is wanted than before, and what. See :meth:`divide`.

        The first messages are for ``callers``. A grant that ``rides`` with another call costs little.
        """
        shares, pushing = self.divide(wanted, full, standing, now=now, replies_only=replies_only)
        nothing = demand_of(0, 0, terms, now, True)
        for place in standing.asked:
            share, credit, demand = shares[place], standing.known[place], nothing
            if share:
                waiting = min(callers, share) if callers else 0
                callers -= waiting
                if waiting and share == standing.outstanding[place]:
                    left = credit.outstanding_for_callers
                    if 0 < left < waiting and not (rides and 2 * left <= waiting):
                        waiting = left  # the partition need not know of more callers before it gets more credit
                demand = demand_of(waiting, share - waiting, terms, now, place not in pushing)
            if demand is not credit.demand and demand != credit.demand:
                yield place, demand

    def divide(
        self,
        wanted: int,
        full: int,
        standing: SeatsStanding,
        *,
        now: bool,
        replies_only: bool,
    ) -> tuple[Sequence[int], Collection[int]]:
        """Return the number of messages to want from each partition, and the partitions that push what they give.

        The receiver wants the number ``wanted``, and has room for ``full``; ``now`` if it wants only what is there.
        """
        known, _, outstanding, able, _, answering = standing
        count = len(known)
        pushes = now or (2 * full >= count and not replies_only)
        if count == 1:
            (place,), (given,) = known, outstanding
            most = max(given, _MOST) if pushes or (not given and place.news) else given
            return [min(full if pushes and place.silent else wanted, most)], range(1) if pushes or given else ()
        news, silent, spent = set[int](), set[int](), set[int]()
        for at, place in enumerate(known):
            if place.news:
                news.add(at)
            if place.silent:
                (spent if place.spent else silent).add(at)
        more: Collection[int] = able if pushes else ()
        if full > wanted and pushes and (asleep := (silent | spent).intersection(able)):
            wanted, more = full, asleep  # these are called anyway
        left = max(0, wanted - sum([outstanding[place] for place in answering]))
        called = len(able) + (0 if now else len(answering))
        most = wanted if len(more) == called else max(1, wanted // called)
        if spent and wanted > 2 * count and left > sum(outstanding):
            news |= spent  # these may have no more, so they take nothing from others
        keeps = not (now or silent)
        shares = self.shares(left, outstanding, able, news, more=more, most=most, keeps=keeps)
        if not pushes:
            return shares, [place for place, given in enumerate(outstanding) if given]
        if news:
            return shares, [place for place, given in enumerate(outstanding) if given or place not in news]
        return shares, range(count)

    def shares(
        self,
        wanted: int,
        outstanding: Sequence[int],
        able: Collection[int],
        news: Collection[int] = (),
        *,
        more: Collection[int] | None = None,
        most: int = _MOST,
        keeps: bool = True,
    ) -> list[int]:
        """Return the number of messages to want from each partition, at most ``wanted`` in all.

        The partitions may still give the numbers ``outstanding``. Only those in ``able`` get a share: the others do not
        answer, or need not be asked. Those in ``news`` have messages. Of the partitions without news, only those in
        ``more`` may get more credit, without this argument all of them; and no share becomes larger than ``most``. The
        receiver ``keeps`` half of what it wants for partitions with news.
        """
        shares = [count if place in able else 0 for place, count in enumerate(outstanding)]
        hungry = [place for place in able if place in news and not shares[place]]
        left = wanted - sum(shares)
        if left < 0:
            self._cut(-left, shares, able, news)
        elif hungry:
            if not left:
                left = (max([shares[place] for place in able if place not in news], default=0) + 1) // 2
                self._cut(left, shares, able, news)
            while left and hungry:
                count = len(shares)
                self._home = min(hungry, key=lambda place: (place - self._home - 1) % count)
                hungry.remove(self._home)
                shares[self._home] = min(left, _MOST)
                left -= shares[self._home]
        elif left and able:
            more = able if more is None else more
            if keeps and len(shares) > 1 and 2 * wanted >= len(able):
                wanted = max(min(wanted, len(able)), (wanted + 1) // 2)
                more = [place for place in more if 2 * len(able) * shares[place] <= wanted]
            self._spread(wanted, shares, len(able), more, min(most, _MOST))
        return shares

    def _cut(self, left: int, shares: list[int], able: Collection[int], news: Collection[int]) -> None:
        """Take this number of messages from the shares."""
        for place in sorted(able, key=lambda place: (place in news, -shares[place])):
            cut = min(shares[place], left)
            shares[place] -= cut
            left -= cut

    def _spread(self, wanted: int, shares: list[int], count: int, more: Collection[int], most: int) -> None:
        """Add to the smallest shares, or to that of the home if there is too little for half of the partitions."""
        if 2 * wanted < count:
            if more:
                home = max(more, key=lambda place: (shares[place], place == self._home))
                shares[home] += wanted - sum(shares)
                self._home = home
            return
        left = wanted - sum([share for place, share in enumerate(shares) if place not in more])
        rest = sorted(more, key=lambda place: (-shares[place], (place - self._home) % len(shares)))
        for at, place in enumerate(rest):
            share = max(shares[place], min(-(-left // (len(rest) - at)), most))
            left -= share
            shares[place] = share
