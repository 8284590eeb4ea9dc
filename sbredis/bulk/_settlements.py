"""Read what has happened to the messages of an audited entity, partition by partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from sbredis.client._connection import connection_of
from sbredis.engine import CallId, Partition, Request, SettlementsPlace, SettlementsRead, read_settlements

if TYPE_CHECKING:
    from sbredis.client._connection import Connected

__all__ = ["read_settled"]


async def read_settled(
    client: Connected, path: str, partition: int, *, timeout: float = 60.0
) -> AsyncIterator[SettlementsRead]:
    """Yield pages of the settlements of a partition, up to those that are there when this begins.

    The pages say how many settlements are lost before them.
    """
    loop = asyncio.get_running_loop()
    entity = await connection_of(client).entity(path, loop.time() + timeout)
    there = entity.partition_client(partition)
    place, last = SettlementsPlace(), None
    while last is None or place.record < last.record:

        def make(of: Partition, call_id: CallId, after: SettlementsPlace = place) -> Request[SettlementsRead]:
            return read_settlements(of, after, call_id=CallId("", 0, call_id.now))

        page = await there.call("p", make, loop.time() + timeout)
        last = last or page.last
        if not len(page.columns):
            return
        yield page
        place = page.next
