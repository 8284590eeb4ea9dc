"""Handle suspects alone: while a process handles one, it holds no other message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from sbredis.workers.schedules._time import Time

__all__ = ["Alone", "SuspectTurns", "TurnTaker"]

_log = logging.getLogger("sbredis.worker")
_EVERY: Final = 30.0
_LASTS: Final = 1.0
_SHARE: Final = 10
_PATIENCE: Final = 3.0
_MOST_PATIENCE: Final = 300.0
_LOOKING: Final = 0.5


class SuspectTurns:
    """Decides when a consumer takes suspects. Pure.

    A worker that holds nothing takes suspects at once. One that does stops taking other messages, at most once in 30 s,
    until it holds nothing, takes suspects one at a time for a second, and goes on. It does not stop for longer than its
    patience, which doubles each time that handlers last longer. If a turn is long, the next one comes later, so that
    all turns take a tenth of its time at most.
    """

    __slots__ = ("_next_at", "patience")

    def __init__(self) -> None:
        self._next_at = 0.0
        self.patience = _PATIENCE
        """The seconds that the next turn may take."""

    def due_in(self, now: float, held: int) -> float:
        """Return the seconds until the consumer takes the suspects that wait. ``held`` messages are held now."""
        return max(0.0, self._next_at - now) if held else 0.0

    def goes_on(self, began: float, now: float) -> bool:
        """Return whether a turn that began to take suspects at a time goes on."""
        return now < began + _LASTS

    def ended(self, stopped: float, now: float, *, in_time: bool = True) -> None:
        """Note a turn: when the consumer stopped taking other messages, and whether its patience was long enough."""
        self._next_at = stopped + max(_EVERY, _SHARE * (now - stopped))
        self.patience = _PATIENCE if in_time else min(2 * self.patience, _MOST_PATIENCE)


class TurnTaker(Protocol):
    """A consumer of one entity, as the other consumers of its process see it."""

    @property
    def entity(self) -> str:
        """The path of the entity."""
        ...

    @property
    def held(self) -> int:
        """The number of messages, calls or sessions that must end before a suspect is alone."""
        ...

    def rest(self) -> None:
        """Stop receiving until :meth:`resume`: another consumer takes suspects."""
        ...

    async def let_go(self) -> None:
        """Give back all messages that no handler has begun, and let no more come."""
        ...

    def resume(self) -> None:
        """Receive again."""
        ...


class Alone:
    """Lets one consumer of a process handle suspects while all others rest."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._takers: list[TurnTaker] = []
        self._owner: TurnTaker | None = None
        self._changed = asyncio.Event()

    def join(self, taker: TurnTaker) -> None:
        """Add a consumer."""
        self._takers.append(taker)

    def lets_begin(self, taker: TurnTaker) -> bool:
        """Return whether a consumer may begin messages."""
        return self._owner is None or self._owner is taker

    @property
    def is_taken(self) -> bool:
        """Whether a consumer takes suspects, or waits until all others rest."""
        return self._owner is not None

    @property
    def held(self) -> int:
        """The number of messages that the process holds."""
        return sum([taker.held for taker in self._takers])

    def noted(self) -> None:
        """Look again, because a consumer may hold less."""
        self._changed.set()

    @asynccontextmanager
    async def turn(self, taker: TurnTaker, turns: SuspectTurns) -> AsyncGenerator[float]:
        """Return a context in which a consumer takes suspects while all others rest, and the time at which it begins.

        Its patience ends the context.
        """
        stopped, in_time = self._time.now(), False
        try:
            async with asyncio.timeout(turns.patience):
                await self.begin(taker)
                yield self._time.now()
            in_time = True
        except TimeoutError:
            _log.info("%s: suspects wait for a later turn, because handlers are slow", taker.entity)
        finally:
            turns.ended(stopped, self._time.now(), in_time=in_time)
            self.end(taker)

    async def begin(self, taker: TurnTaker) -> None:
        """Wait until no other consumer takes suspects, let all others rest, and wait until nothing is held."""
        while self._owner is not None:
            await self.change()
        self._owner = taker
        for other in self._takers:
            if other is not taker:
                other.rest()
        await asyncio.gather(*(each.let_go() for each in self._takers))
        await self.calm()

    async def calm(self) -> None:
        """Wait until the process holds nothing."""
        while self.held:
            await self.change()

    def end(self, taker: TurnTaker) -> None:
        """Let all consumers receive again."""
        if self._owner is taker:
            self._owner = None
            for other in self._takers:
                other.resume()
            self._changed.set()

    async def change(self, longest: float = _LOOKING) -> None:
        """Wait until a consumer may hold less, or for a short time."""
        self._changed.clear()
        await self._time.wait(self._changed, min(longest, _LOOKING))
