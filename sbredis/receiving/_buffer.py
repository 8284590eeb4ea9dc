"""The buffer of messages that were fetched ahead, ordered by the end of their locks.

The buffer never returns a message whose lock has ended. :mod:`sbredis.receiving._fetching` decides how many messages it
keeps, and for how long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import compress, islice, pairwise
from operator import not_
from typing import TypeVar

from sbredis.model import MessageLease

__all__ = ["Buffer"]

Item = TypeVar("Item")


class Buffer(deque[Item]):
    """Messages, or sessions, that no caller has asked for yet."""

    __slots__ = ("_lease_of",)

    def __init__(self, lease_of: Callable[[Item], MessageLease | None]) -> None:
        super().__init__()
        self._lease_of = lease_of

    @property
    def first_end(self) -> float:
        """The time when the first lock on a message ends. The buffer must not be empty."""
        return self._end(self[0])

    @property
    def first(self) -> Item | None:
        """The first message; ``None`` if there is none."""
        return self[0] if self else None

    def first_token(self, partition: int) -> str | None:
        """Return the token of the lease of the first message of a partition."""
        for message in self:
            lease = self._lease_of(message)
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
            in_order = in_order and (self._under_one_lock(messages) or self._in_order(messages))
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
        ended: list[MessageLease | None] = [
            lease
            for lease in {*map(self._lease_of, items)}
            if lease is not None and lease.until <= now and lease.ended(now)
        ]
        if not ended:
            return items, ()
        held = [self._lease_of(item) not in ended for item in items]
        return list(compress(items, held)), list(compress(items, map(not_, held)))

    def _end(self, message: Item) -> float:
        """Return the time when the lock of a message ends. All messages without a lock have the same value."""
        lease = self._lease_of(message)
        return 0.0 if lease is None else lease.until

    def _under_one_lock(self, messages: Sequence[Item]) -> bool:
        """Return whether messages share one lock, as the messages of one call do."""
        return len({id(self._lease_of(message)) for message in messages}) <= 1

    def _in_order(self, messages: Sequence[Item]) -> bool:
        """Return whether the lock of each message ends no later than the lock of the next message."""
        return all(self._end(one) <= self._end(other) for one, other in pairwise(messages))
