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

import math
from collections.abc import Collection, Sequence
from typing import Final

from sbredis.receiving._fetching import MOST_AT_ONCE

__all__ = ["CreditPlaces"]

_MOST: Final = MOST_AT_ONCE
"""The largest share of a partition: a reply brings no more messages at once."""


class CreditPlaces:
    """The shares of the partitions of an entity in what a receiver wants, and what is known of the partitions.

    The partitions are named by their indexes. The owner of the object notes what happens at them.
    """

    __slots__ = ("_home", "answering", "asked", "coming", "free", "news", "next_at", "outstanding", "silent", "spent")

    def __init__(self, home: int, count: int = 0) -> None:
        """Begin with the partition at the index ``home``. Each receiver begins at a different one."""
        self._home = home
        self.outstanding = [0] * count
        """The messages that each partition may still give."""
        self.coming = 0
        """All of them together."""
        self.asked = [0] * count
        """What calls under way may bring from each partition."""
        self.next_at = [math.inf] * count
        """The time at which to look at each partition again."""
        self.free = set[int]()
        """The partitions that may be asked now: they have no call under way."""
        self.answering = set[int]()
        """The partitions with a call under way that is not late."""
        self.news = set[int]()
        """The partitions that have messages."""
        self.silent = set[int]()
        """The partitions that tell nothing before the next call."""
        self.spent = set[int]()
        """Those of them that have pushed all that they might."""

    def add(self) -> None:
        """Add a partition."""
        self.outstanding.append(0)
        self.asked.append(0)
        self.next_at.append(math.inf)

    def divide(
        self, wanted: int, full: int, able: Collection[int], *, now: bool, replies_only: bool
    ) -> tuple[list[int], Collection[int]]:
        """Return the number of messages to want from each partition, and the partitions that push what they give.

        The receiver wants the number ``wanted``, and has room for ``full``; ``now`` if it wants only what is there.
        """
        count, outstanding = len(self.outstanding), self.outstanding
        pushes = now or (2 * full >= count and not replies_only)
        more: Collection[int] = able if pushes else ()
        if full > wanted and pushes and (silent := self.silent.intersection(able)):
            wanted, more = full, silent  # these are called anyway
        left = max(0, wanted - sum(self.asked))
        answering = len(able) + (0 if now else len(self.answering))
        most = wanted if len(more) == answering else max(1, wanted // answering)
        hungry = self.news
        if self.spent and wanted > 2 * count and left > sum(outstanding):
            hungry = hungry | self.spent  # these may have no more, so they take nothing from others
        keeps = not now and self.silent <= self.spent
        shares = self.shares(left, outstanding, able, hungry, more=more, most=most, keeps=keeps)
        if not pushes:
            return shares, [place for place, given in enumerate(outstanding) if given]
        if count > 1 and hungry:
            return shares, [place for place, given in enumerate(outstanding) if given or place not in hungry]
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
