"""The messages that were fetched ahead, and how many to fetch and keep, and for how long. Pure.

Theory
------

A receiver fetches messages for two reasons: callers wait for them, and it *stocks* messages for later callers
(prefetching). It locks every message that it fetches, and locks end. So three rules limit the number of messages:

- *Without a stock, it locks only messages that a caller waits for.*
- *It refills a stock when half of the stock is used up*, or with a call that it makes anyway. Messages that calls under
  way have requested count as if they were in stock. So calls are large. Taking a message from the stock mostly needs no
  decision: :attr:`Stock.refill_at` is the number of messages at which the next decision is needed.
- *It releases stocked messages in time if no caller asks for them.* This does not increase their delivery counts. Then
  the stock *rests*: the receiver fetches nothing ahead until a caller asks again.

An *adaptive* stock holds as many messages as callers take in two seconds, or in a quarter of the lock duration if that
is shorter. The receiver measures their speed whenever it fills the stock.

When the last caller leaves, the receiver *lingers*: its credit stays for a moment, because most callers come back at
once. Then it withdraws the credit, and *hears* news for some seconds more. After that it is *quiet*.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import compress, islice, pairwise
from operator import not_
from typing import TYPE_CHECKING, Final, TypeVar

from sbredis.model import MessageLease, ServiceBusReceiveMode, Taking

if TYPE_CHECKING:
    from sbredis.engine import SidePrefix

__all__ = ["MOST_AT_ONCE", "Buffer", "InboxOptions", "InboxState", "Lingering", "Stock", "keep_for"]

MOST_AT_ONCE: Final = 1000
"""The largest number of messages that one call brings."""
_HORIZON: Final = 2.0
_WEIGHT: Final = 0.3
"""The weight of a new measurement of the speed. The earlier measurements have the rest of the weight."""
_SHORTEST_MEASUREMENT: Final = 0.1
_FIRST_TARGET: Final = 10
_SHARE: Final = 0.5
_LAST, _LAST_SHARE = 3.0, 0.2

_LINGERING: Final = 0.05
"""The seconds for which credit stays without a caller. Most callers come back soon."""
_HEARING: Final = 5.0
"""The seconds for which partitions without credit send news to a receiver without a caller."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class InboxOptions:
    """What an inbox fetches, and how."""

    side: SidePrefix
    mode: ServiceBusReceiveMode
    prefetch: int
    """The largest number of messages to fetch ahead of the callers."""
    adaptive: bool
    """Whether the number of messages to fetch ahead follows the speed of the callers."""
    taking: Taking = field(default_factory=Taking)
    """How the application takes the messages."""


@dataclass(slots=True, eq=False, repr=False)
class Stock:
    """The number of messages to keep for later callers."""

    most: int
    """The largest possible stock; 0 for none."""
    adaptive: bool
    lock: float
    """The seconds that a lock lasts."""
    _measured_at: float
    _speed: float | None = None
    _taken: int = 0
    _fills: bool = False
    """Whether the stock is being filled: from the time when it has become small until it is full."""
    _used: bool = False
    """Whether callers have received messages since the stock was last being filled."""
    resting: bool = False
    """Whether the stock rests: no caller asked, so it was released. It stays empty until a caller asks."""
    target: int = 0
    """The number of messages to keep now."""

    def __post_init__(self) -> None:
        self.target = self._aim()

    def resize(self, most: int) -> None:
        """Change the largest possible stock."""
        self.most = most
        self.target = self._aim()
        self.resting = False

    @property
    def refill_at(self) -> int:
        """The number of kept and requested messages at which :meth:`missing` refills the stock; -1 for never."""
        return -1 if self.resting or not self.most else self.target // 2

    def wants_more(self, kept: int) -> bool:
        """Return whether the stock has room for more messages and does not rest."""
        return self.most > 0 and not self.resting and kept < self.target

    def wanted(
        self, kept: int, coming: int, demand: int, now: float, *, stocks: bool, exactly: bool, rides: bool
    ) -> int:
        """Return how many messages to want in all, with those that are ``coming`` already.

        If it is not ``exactly`` what is missing, credit of which less than half is used up is left as it is; with
        ``rides``, less than a quarter: a grant that rides with another call costs little. Without ``stocks`` nothing is
        fetched ahead.
        """
        missing = max(0, demand - kept)
        if not stocks:
            if missing and not exactly and missing <= 2 * coming <= 2 * missing:
                return missing if rides and _is_used_up(coming, missing) else coming
            return missing
        more = self.missing(kept, coming, demand, now)
        room = max(0, self.target + demand - kept)
        self._fills = bool(more) or (self._fills and bool(room))
        if rides and _is_used_up(kept + coming - demand, self.target):
            return room
        # Partitions without messages may have lost credit that no other partition has got: fill the stock all the same.
        fills = self._fills and exactly and not coming and (not self._used or _is_used_up(kept - demand, self.target))
        if more or fills:
            self._used = False
        return coming + more if more else room if fills else min(coming, room)

    def missing(self, kept: int, coming: int, demand: int, now: float) -> int:
        """Return the number of further messages to ask for now.

        ``kept`` messages are in stock, calls under way ask for ``coming``, and callers wait for ``demand``.
        """
        left = kept + coming - demand
        if demand:
            self.resting = False
        if not self.most or self.resting:
            return max(0, -left)
        self._measure(now)
        return max(0, self.target - left) if left < 0 or left <= self.refill_at else 0

    def took(self, count: int) -> None:
        """Count messages that callers have received."""
        self._taken += count
        self._used = self._used or count > 0
        self.resting = False

    def gave_back(self) -> None:
        """Let the stock rest, because messages were in stock for too long."""
        self.resting = True

    def _measure(self, now: float) -> None:
        if not self.adaptive or not self._taken:
            return
        passed = now - self._measured_at
        if passed < _SHORTEST_MEASUREMENT:
            return
        speed = self._taken / passed
        self._speed = speed if self._speed is None else self._speed + _WEIGHT * (speed - self._speed)
        self._taken, self._measured_at = 0, now
        self.target = self._aim()

    def _aim(self) -> int:
        """Return the number of messages to keep, according to the last measurement."""
        if not self.adaptive:
            return self.most
        if self._speed is None:
            return min(self.most, _FIRST_TARGET)
        return min(self.most, max(1, round(self._speed * min(_HORIZON, self.lock / 4))))


class Buffer(deque[Item]):
    """Messages, or sessions, that no caller has asked for yet, ordered by the end of their locks.

    It never returns one whose lock has ended.
    """

    __slots__ = ("_lease_of",)

    def __init__(self, lease_of: Callable[[Item], MessageLease | None]) -> None:
        super().__init__()
        self._lease_of = lease_of

    @property
    def first_end(self) -> float:
        """The time when the first lock on a message ends. The buffer must not be empty."""
        return self._end(self[0])

    def first_token(self, partition: int) -> str | None:
        """Return the token of the lease of the first message of a partition."""
        for lease in map(self._lease_of, self):
            if lease is not None and lease.partition == partition:
                return lease.token
        return None

    def put(self, messages: Sequence[Item], *, first: bool = False) -> None:
        """Add messages behind the others or, with ``first``, in front of them.

        Keep the order by the end of the locks.
        """
        if first:
            in_order = self._in_order([*messages, *islice(self, 1)])
            self.extendleft(reversed(messages))
        else:
            in_order = not self or not messages or self._end(self[-1]) <= self._end(messages[0])
            under_one_lock = len({id(self._lease_of(message)) for message in messages}) <= 1
            in_order = in_order and (under_one_lock or self._in_order(messages))
            self.extend(messages)
        if not in_order:
            kept = sorted(self, key=self._end)
            self.clear()
            self.extend(kept)

    def take(self, wanted: int, now: float) -> list[Item]:
        """Take up to ``wanted`` messages whose locks have not ended."""
        taken: list[Item] = []
        while self and len(taken) < wanted:
            message = self.popleft()
            lease = self._lease_of(message)
            if lease is None or not lease.ended(now):
                taken.append(message)
        return taken

    def take_until(self, end: float) -> list[Item]:
        """Take the messages whose locks end at the time ``end`` or earlier."""
        taken: list[Item] = []
        while self and self._end(self[0]) <= end:
            taken.append(self.popleft())
        return taken

    def cut(self, most: int) -> list[Item]:
        """Take the last messages, so that at most ``most`` are left."""
        cut = [self.pop() for _ in range(len(self) - most)]
        return cut[::-1]

    def empty(self) -> list[Item]:
        """Take all messages."""
        left = list(self)
        self.clear()
        return left

    def split(self, items: Sequence[Item], now: float) -> tuple[Sequence[Item], Sequence[Item]]:
        """Return the items whose locks hold, and the others. Most items have the same lock."""
        ended = set[MessageLease | None]()
        for lease in {*map(self._lease_of, items)}:
            if lease is not None and lease.until <= now and lease.ended(now):
                ended.add(lease)
        if not ended:
            return items, ()
        held = [self._lease_of(item) not in ended for item in items]
        return list(compress(items, held)), list(compress(items, map(not_, held)))

    def _end(self, message: Item) -> float:
        """Return the time when the lock of a message ends. All messages without a lock have the same value."""
        lease = self._lease_of(message)
        return 0.0 if lease is None else lease.until

    def _in_order(self, messages: Sequence[Item]) -> bool:
        return all(self._end(one) <= self._end(other) for one, other in pairwise(messages))


def _is_used_up(coming: int, wanted: int) -> bool:
    """Return whether at least a quarter of what is wanted is missing."""
    return 4 * coming <= 3 * wanted


def keep_for(left: float, lock: float, *, in_session: bool) -> float:
    """Return the seconds to keep a message whose lock ends in ``left`` seconds.

    The second half of a lock is reserved for the handling of the message. In a session, no other receiver could get the
    message in this time. So it is kept longer, until just before the lock ends. It can then still be released without
    an increase of its delivery count.
    """
    return left - (min(_LAST, lock * _LAST_SHARE) if in_session else lock * _SHARE)


class InboxState(Enum):
    """What an inbox does with the credit of its partitions."""

    WANTING = auto()
    """It wants messages: callers wait, the application has given credit, or the stock has room."""
    LINGERING = auto()
    """Credit stays as it is."""
    HEARING = auto()
    """Partitions without credit send news."""
    QUIET = auto()
    """Nothing is wanted from the partitions."""
    CLOSED = auto()


@dataclass(slots=True, eq=False, repr=False)
class Lingering:
    """The states of an inbox that wants nothing, one after the other.

    Only an event changes the state: a caller has left, or a timer has fired. So a caller who comes back at once finds
    what was kept for it, even if the process stood still meanwhile.
    """

    state: InboxState = InboxState.QUIET
    """The state if nothing is wanted now."""
    _lingers_until: float = 0.0
    _hears_until: float = 0.0

    def begin(self, now: float, *, lingers: float = _LINGERING, hears: float = _HEARING) -> float:
        """Linger for these seconds, and hear news until ``hears`` seconds from now: the last caller has left.

        Return the time at which the lingering ends.
        """
        self._lingers_until, self._hears_until = now + lingers, now + hears
        self.state = InboxState.LINGERING
        self.pass_time(now)
        return self._lingers_until

    def end(self) -> None:
        """Be quiet at once."""
        self.state = InboxState.QUIET

    def pass_time(self, now: float) -> None:
        """Change the state if its time is over."""
        if self.state is InboxState.LINGERING and now >= self._lingers_until:
            self.state = InboxState.HEARING
        if self.state is InboxState.HEARING and now >= self._hears_until:
            self.state = InboxState.QUIET

    @property
    def next_at(self) -> float:
        """The time at which the state ends; infinity if it does not."""
        if self.state is InboxState.LINGERING:
            return self._lingers_until
        return self._hears_until if self.state is InboxState.HEARING else math.inf
