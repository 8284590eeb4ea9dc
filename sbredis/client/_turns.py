"""Work of very many callers, of which each turn of the event loop does only a part."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["TurnShare"]


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
        if self._left and not self._waiting:
            self._use()
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        await place

    def soon(self, work: Callable[[], None]) -> None:
        """Do some work in the next turn, or in a later one: callers that are told something now run before it."""
        if self._left and not self._waiting:
            self._use()
            asyncio.get_running_loop().call_soon(work)
        else:
            self._waiting.append(work)

    def _use(self) -> None:
        self._left -= 1
        if not self._renews:
            self._renews = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Begin the share of a turn. Callers who have gone away need none."""
        self._left, self._renews = self._most, False
        while self._waiting and self._left:
            first = self._waiting.popleft()
            if callable(first):
                asyncio.get_running_loop().call_soon(first)
                self._use()
            elif not first.done():
                first.set_result(None)
                self._use()
