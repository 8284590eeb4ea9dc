"""Work of very many callers, of which each turn of the event loop does only a part."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["LaterTurns", "TurnShare"]


_CROWD = 5
"""The number of turns that are used up by those that wait in a crowd."""


class TurnShare:
    """Lets up to ``most`` callers or pieces of work go on in each turn of the event loop, in their order.

    A loop runs everything that is ready in one turn. If thousands of callers begin something at the same time, nothing
    else would run until all of them have begun.
    """

    __slots__ = ("_left", "_most", "_renews", "_waiting")

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._renews = False
        """Whether the next turn of the loop has a share of its own."""
        self._waiting: deque[asyncio.Future[None] | Callable[[], None]] = deque()

    async def take(self) -> None:
        """Go on in this turn, or in the first turn that has a place."""
        if self.takes():
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        await place

    @property
    def crowded(self) -> bool:
        """Whether so many wait that others should wait too before they do anything."""
        return len(self._waiting) > _CROWD * self._most

    def takes(self) -> bool:
        """Take a place of this turn. Return whether there was one that nobody waits for."""
        if not self._left or self._waiting:
            return False
        self._left -= 1
        if not self._renews:
            self._renews = True
            asyncio.get_running_loop().call_soon(self._renew)
        return True

    def soon(self, work: Callable[[], None]) -> None:
        """Do some work in the next turn, or in a later one: callers that are told something now run before it."""
        if self.takes():
            asyncio.get_running_loop().call_soon(work)
        else:
            self._waiting.append(work)

    def _renew(self) -> None:
        """Begin the share of a turn. Callers who have gone away need none."""
        self._left, loop = self._most, asyncio.get_running_loop()
        while self._waiting and self._left:
            first = self._waiting.popleft()
            if callable(first):
                loop.call_soon(first)
                self._left -= 1
            elif not first.done():
                first.set_result(None)
                self._left -= 1
        self._renews = self._left < self._most
        if self._renews:
            loop.call_soon(self._renew)


class LaterTurns:
    """Work of very many that waits for its time, and is then done in turns. One timer is enough for all.

    Each piece waits only once: if it is named again, its time is the new one.
    """

    __slots__ = ("_timer", "_turns", "_waiting")

    def __init__(self, turns: TurnShare) -> None:
        self._turns = turns
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[Callable[[], None], float] = {}

    def at(self, when: float, work: Callable[[], None]) -> None:
        """Do some work at a time of the loop, which is not before that of other work."""
        self._waiting.pop(work, None)
        self._waiting[work] = when
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(when, self._begin, when)

    def _begin(self, planned: float) -> None:
        """Begin the work whose time has come."""
        loop, waiting, due = asyncio.get_running_loop(), self._waiting, list[Callable[[], None]]()
        now = max(planned, loop.time())
        self._timer = None
        for work, when in waiting.items():
            if when > now:
                self._timer = loop.call_at(when, self._begin, when)
                break
            due.append(work)
        for work in due:
            del waiting[work]
            self._turns.soon(work)
