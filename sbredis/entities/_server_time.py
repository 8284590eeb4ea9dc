"""The time of the server of an entity, and how its clock differs from that of this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from sbredis.entities._paths import split_sub_queue
from sbredis.registry import split_path

if TYPE_CHECKING:
    from sbredis.client import Connection

__all__ = ["ClockReading", "read_clock", "server_time"]


class ClockReading(NamedTuple):
    """The clock of a server, as one call has shown it."""

    ahead: float
    """The seconds by which the server's clock is ahead of the clock of this machine. Negative if it is behind.

    The server is taken to have read its clock in the middle of the call, so half of ``round_trip`` is uncertain.
    """
    round_trip: float
    """The seconds that the call took."""

    def now(self) -> float:
        """Return the time of the server in seconds since 1970, soon after the reading."""
        return time.time() + self.ahead


async def read_clock(ask: Callable[[], Awaitable[float]]) -> ClockReading:
    """Read the clock of a server. ``ask`` calls the server, and returns its time in seconds since 1970."""
    sent_at, began = time.time(), time.perf_counter()
    answered = await ask()
    round_trip = time.perf_counter() - began
    return ClockReading(answered - (sent_at + round_trip / 2), round_trip)


async def server_time(connection: Connection, entity_path: str, partition_key: str | None, deadline: float) -> datetime:
    """Return the time of the server of a partition: that of the messages with this key, or else the first one."""
    path, _ = split_sub_queue(entity_path, None)
    split_path(path)  # refuse an invalid path before anything is sent
    entity = await connection.entity(path, deadline)
    told = connection.clock.told()
    if told is not None:  # the partitions have the clock of a test
        return datetime.fromtimestamp(told / 1000, UTC)
    link = entity.partition_client(entity.numbers[0]) if partition_key is None else entity.pinned(partition_key)
    loop, key = asyncio.get_running_loop(), link.partition.keys[0]

    async def ask() -> float:
        seconds, microseconds = await connection.transport.command("TIME", key=key, timeout=deadline - loop.time())
        return int(seconds) + int(microseconds) / 1e6

    return datetime.fromtimestamp((await read_clock(ask)).now(), UTC)
