"""Ticks: times at which exactly one client of a namespace does something."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from sbredis._quoting import quoted
from sbredis._tasks import wait_until
from sbredis.engine import REFUSALS, Request, perform, tick_keys, tick_name
from sbredis.exceptions import ServiceBusError, ServiceBusQuotaExceededError

if TYPE_CHECKING:
    from sbredis.client._connection import Connection

__all__ = ["Tick", "next_tick", "period_of"]

_SHORTEST, _LONGEST = 1000, 31_536_000_000


class Tick(NamedTuple):
    """A tick that this client got, and no other client gets."""

    time: datetime
    """The time of the tick in UTC."""
    missed: int
    """The number of ticks before this one that no client got, since the last one that a client got."""


def _full(detail: str) -> tuple[type[ServiceBusError], str]:
    return ServiceBusQuotaExceededError, (
        f"The namespace remembers the ticks of {detail} names already, and all of them were used within a day. Use "
        "fewer names for ticks: a name is forgotten a day after its last tick."
    )


_REFUSALS = {**REFUSALS, "FULL": _full}


def period_of(every: timedelta | float) -> int:
    """Return the time between two ticks in ms."""
    if isinstance(every, timedelta):
        every = every.total_seconds()
    if isinstance(every, bool) or not isinstance(every, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"every must be a timedelta or a number of seconds, not {type(every).__name__}")
    if not _SHORTEST <= every * 1000 <= _LONGEST:
        raise ValueError(f"every must be from 1 second to 365 days, not {quoted(every)} seconds")
    return round(every * 1000)


async def next_tick(connection: Connection, name: str, period: int, wait: float, calling: float) -> Tick | None:
    """Return the next tick that this caller gets within ``wait`` seconds; ``None`` if it gets none."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    moved = asyncio.Event()
    ended = connection.clock.when_moved(moved.set)
    try:
        while True:
            moved.clear()
            tick, seconds = await _ask(connection, tick_name(name), period, calling)
            left = until - loop.time()
            if tick is not None or left <= 0:
                return tick
            if connection.clock.told() is not None:
                seconds = left  # a test clock moves only by hand
            await wait_until(moved, loop.time() + min(seconds, left))
    finally:
        ended()


async def _ask(connection: Connection, name: str, period: int, calling: float) -> tuple[Tick | None, float]:
    """Return the tick, if this caller gets it, and the seconds until the next tick."""

    def read(reply: list[Any]) -> tuple[Tick | None, float]:
        given, start, missed, wait = reply
        tick = Tick(datetime.fromtimestamp(start / 1000, UTC), missed) if given else None
        return tick, wait / 1000

    now = connection.clock.told()
    keys = tick_keys(connection.namespace.name)
    arguments = (name, period, secrets.token_hex(8), "" if now is None else now)
    request = Request.of("take_tick", keys, arguments, read)
    return await perform(connection.transport, request, timeout=calling, refusals=_REFUSALS)
