"""What to fetch, from which partition, and how much of it to keep for later. Pure.

Theory
------

A receiver fetches for two reasons: callers wait for messages, and it *stocks* messages ahead of those who will ask
(prefetching). Everything it fetches is locked, and the locks tick. So three rules bound what it does:

- *Without a stock, no message is locked that nobody waits for.* It asks one partition at a time, for no more than is
  waited for.
- *A stock is filled when half of it is used up*, or along with a call that is made anyway. What is on its way counts as
  if it were there. So calls are large, and most messages that are taken from the stock cost no thought at all:
  :attr:`Stock.refill_at` says when the next thought is due.
- *What nobody asks for is given back in time.* That counts no delivery. Then the stock *rests*: nothing is fetched
  ahead until somebody asks again.

An *adaptive* stock holds what is used up in two seconds, or in a quarter of a lock, whichever is less. The speed is
measured whenever the stock is filled.

Of several partitions, those that are known to have something are asked in turns. The others are all looked at, at the
same time, which locks nothing. If there is only one of them, it is asked without a look. When nothing is wanted, a
partition that has woken us is looked at once without waiting, so that it wakes somebody else (see
:mod:`sbredis.aio.core._watching`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from sbredis.aio.core._watching import Watch

__all__ = ["MOST_AT_ONCE", "Fetch", "Stock", "fetches", "keep_for", "passings"]

MOST_AT_ONCE: Final = 1000
"""A call brings at most so many messages."""
_HORIZON: Final = 2.0
_WEIGHT: Final = 0.3
"""How much a new measurement of the speed counts beside those before it."""
_SHORTEST_MEASUREMENT: Final = 0.1
_FIRST_TARGET: Final = 10
_SHARE: Final = 0.5
_LAST, _LAST_SHARE = 3.0, 0.2


class Fetch(NamedTuple):
    """A call to make."""

    place: int
    """To which of the partitions."""
    wanted: int
    """For how many messages; 0 for a look."""
    waiting_for: int
    """For how many messages to wait, those that the call brings included; 0 to be registered no longer."""


def fetches(
    watches: Sequence[Watch],
    start: int,
    missing: int,
    only: Collection[int] | None = None,
    *,
    any_will_do: bool = False,
) -> tuple[list[Fetch], int]:
    """Return the calls that bring so many missing messages, and with whose turn to start the next time.

    ``start`` is whose turn it is. With ``only``, no other partitions are asked. If ``any_will_do``, nobody waits for
    the rest of them when some have come.
    """
    made: list[Fetch] = []
    unknown: list[int] = []
    left, count = missing, len(watches)
    for offset in range(count):
        place = (start + offset) % count
        watch = watches[place]
        if not watch.may_ask or (only is not None and place not in only):
            continue
        if not watch.known:
            unknown.append(place)
        elif left > 0:
            wanted = min(left, MOST_AT_ONCE)
            made.append(Fetch(place, wanted, 1 if any_will_do else wanted))
            left -= wanted
    if len(unknown) == 1 and left > 0:
        wanted = min(left, MOST_AT_ONCE)
        made.append(Fetch(unknown[0], wanted, 1 if any_will_do else wanted))
    else:
        made += [Fetch(place, 0, 1 if any_will_do else missing) for place in unknown]
    last = next((fetch.place for fetch in reversed(made) if fetch.wanted), None)
    return made, start if last is None else (last + 1) % count


def passings(watches: Sequence[Watch]) -> list[Fetch]:
    """Return the looks by which partitions that have woken us wake somebody else, when nothing is wanted."""
    return [Fetch(place, 0, 0) for place, watch in enumerate(watches) if watch.owes_a_look]


class Stock:
    """How many messages to keep ahead of those who will ask."""

    __slots__ = ("_adaptive", "_measured_at", "_most", "_speed", "_taken", "lock", "resting", "target")

    def __init__(self, most: int, *, adaptive: bool, lock: float, now: float) -> None:
        self._most = most
        self._adaptive = adaptive
        self.lock = lock
        """How many seconds a lock lasts."""
        self._speed: float | None = None
        self._measured_at = now
        self._taken = 0
        self.resting = False
        """What was kept was given back unread: keep nothing until somebody asks again."""
        self.target = min(most, _FIRST_TARGET) if adaptive else most
        """How many messages to keep at the moment."""

    @property
    def most(self) -> int:
        """The largest stock there may be; 0 for none."""
        return self._most

    @property
    def refill_at(self) -> int:
        """With so few messages kept or on their way, :meth:`missing` finds that more are missing; -1 for never."""
        return -1 if self.resting or not self._most else self.target // 2

    def wants_more(self, kept: int) -> bool:
        """Whether anything would be fetched ahead if it were there."""
        return self._most > 0 and not self.resting and kept < self.target

    def missing(self, kept: int, coming: int, demand: int, now: float, *, stocks: bool = True) -> int:
        """Return for how many more messages to ask now.

        So many are kept; calls under way ask for ``coming``; callers wait for ``demand``. Without ``stocks`` nothing is
        fetched ahead.
        """
        left = kept + coming - demand
        if demand:
            self.resting = False
        if not self._most or self.resting or not stocks:
            return max(0, -left)
        self._measure(now)
        return max(0, self.target - left) if left < 0 or left <= self.refill_at else 0

    def took(self, count: int) -> None:
        """Count messages that were given to those who asked."""
        self._taken += count
        self.resting = False

    def gave_back(self) -> None:
        """Rest: something was kept for too long."""
        self.resting = True

    def _measure(self, now: float) -> None:
        if not self._adaptive or not self._taken:
            return
        passed = now - self._measured_at
        if passed < _SHORTEST_MEASUREMENT:
            return
        speed = self._taken / passed
        self._speed = speed if self._speed is None else self._speed + _WEIGHT * (speed - self._speed)
        self._taken, self._measured_at = 0, now
        self.target = max(1, min(self._most, round(self._speed * min(_HORIZON, self.lock / 4))))


def keep_for(left: float, lock: float, *, in_session: bool) -> float:
    """Return for how many seconds a message may still be kept, of whose lock so many seconds are ``left``.

    Half of a lock is for handling it. In a session nobody else could have the message meanwhile, so it is kept until
    just before the lock ends: early enough to be given back uncounted.
    """
    return left - (min(_LAST, lock * _LAST_SHARE) if in_session else lock * _SHARE)
