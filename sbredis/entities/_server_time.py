"""The time of the server of an entity."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sbredis.client._server_time import read_clock
from sbredis.entities._sub_queues import split_sub_queue
from sbredis.registry import split_path

if TYPE_CHECKING:
    from sbredis.client._connection import Connection

__all__ = ["server_time"]


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
