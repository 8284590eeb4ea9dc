"""Handle suspects alone: while a process handles one, it holds no other message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.schedules._time import Time

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusClient

__all__ = ["Alone", "Killer", "SuspectTurns", "TurnTaker", "bury"]

_log = logging.getLogger("sbredis.worker")
_EVERY: Final = 30.0
_LASTS: Final = 1.0
_SHARE: Final = 10
_PATIENCE: Final = 3.0
_MOST_PATIENCE: Final = 300.0
_LOOKING: Final = 0.5
_REASON: Final = "MaxDeliveryCountExceeded"
_BURYING: Final = 5.0
"""The seconds for which a worker tries to bury a killer when it starts."""


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

    def __init__(self, time: Time, tell: Callable[[], None] = lambda: None) -> None:
        """``tell`` is called when a suspect is about to be handled, before its handler can end the process."""
        self._time = time
        self._tell = tell
        self.suspect: tuple[str, str, int] | None = None
        """The suspect that is handled alone now: its entity, its lock token, and the number of its delivery."""
        self._takers: list[TurnTaker] = []
        self._owner: TurnTaker | None = None
        self._changed = asyncio.Event()
        self._limit: tuple[asyncio.Timeout, float] | None = None
        """The end of the owner's patience, and its length."""
        self._at_calm: set[Callable[[], None]] = set()

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
        if self._at_calm and not self.held:
            told, self._at_calm = self._at_calm, set()
            for tell in told:
                tell()

    def at_calm(self, tell: Callable[[], None]) -> None:
        """Call a function once, as soon as the process holds nothing."""
        self._at_calm.add(tell)

    async def turn(self, taker: TurnTaker, turns: SuspectTurns, take: Callable[[float], Awaitable[None]]) -> None:
        """Let a consumer take suspects while all others rest. ``take`` is called with the time at which that begins.

        The end of the consumer's patience cancels it. The patience begins anew when a suspect is about to be handled.
        """
        stopped, in_time = self._time.now(), False
        try:
            async with asyncio.timeout(turns.patience) as limit:
                await self.begin(taker)
                self._limit = limit, turns.patience
                await take(self._time.now())
            in_time = True
        except TimeoutError:
            _log.info("%s: suspects wait for a later turn, because handlers are slow", taker.entity)
        finally:
            turns.ended(stopped, self._time.now(), in_time=in_time)
            self.end(taker)

    @contextmanager
    def handling(self, entity: str, message: ServiceBusReceivedMessage) -> Generator[None]:
        """Return a context in which a suspect is handled."""
        self.suspect = entity, str(message.lock_token), message.delivery_count
        self._tell()
        if self._limit is not None and not self._limit[0].expired():
            limit, patience = self._limit
            limit.reschedule(asyncio.get_running_loop().time() + patience)
        try:
            yield
        finally:
            self.suspect = None

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
            self._owner = self._limit = None
            for other in self._takers:
                other.resume()
            self._changed.set()

    async def change(self, longest: float = _LOOKING) -> None:
        """Wait until a consumer may hold less, or for a short time."""
        self._changed.clear()
        await self._time.wait(self._changed, min(longest, _LOOKING))


class Killer(NamedTuple):
    """The suspect that was handled alone by the process before this one, and how that process has ended."""

    entity: str
    lock_token: str
    delivery_count: int
    ending: str


async def bury(client: ServiceBusClient, killer: Killer) -> None:
    """Make a message that has ended a process in its last delivery a dead letter, which says how the process ended.

    If that cannot be done, the end of its lock makes it one, which says less.
    """
    said = f"The process of its handler ended with {killer.ending}."
    try:
        async with client.get_settler(killer.entity) as settler:
            await settler.dead_letter_message(killer.lock_token, _REASON, said, timeout=_BURYING)
    except (ServiceBusError, ValueError) as error:
        _log.info("%s: the message that has ended a process is left to its lock: %s", killer.entity, error)
    else:
        _log.warning("%s: a message that was handled alone is a dead letter now: %s", killer.entity, said)
