"""Reading a range of messages, page by page, from any process that knows the range."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from sbredis.client._arguments import deadline_of
from sbredis.client._connection import connection_of
from sbredis.engine import CallId, Partition, Ranged, Request, Rows, number_of
from sbredis.engine import read_range as part_of_range

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sbredis.client._connection import Connected
    from sbredis.client._partition_client import PartitionClient

__all__ = ["range_pages", "read_range"]

_LANE = "m"


async def read_range(  # noqa: PLR0917 -- where, and the range
    client: Connected, path: str, number: int, birth: str, after: int, upto: int, *, timeout: float = 60.0
) -> AsyncIterator[Rows]:
    """Read the messages of a planned range, page by page: those after the number ``after`` and up to ``upto``.

    Nothing is locked or removed, and no reservation object is needed: another process can read a range that a
    :class:`Reservation` has planned. As long as the range is planned, each reading brings the same messages. ``birth``
    is that of the position. ``timeout`` is the time-out of each page.

    Raises :class:`~sbredis.exceptions.MessagesLostError` if the partition was lost and made again, or if the range is
    not planned any more.
    """
    entity = await connection_of(client).entity(path, deadline_of(timeout))
    async with aclosing(range_pages(entity.partition_client(number), birth, after, upto, timeout)) as pages:
        async for page in pages:
            yield page


async def range_pages(
    partition_client: PartitionClient, birth: str, after: int, upto: int, timeout: float, *, pinned: bool = True
) -> AsyncGenerator[Rows]:
    """Yield the pages of a planned range. While the caller works on a page, the next one is fetched.

    If the range need not be ``pinned``, messages of it may be missing.
    """

    async def fetch(after: int) -> Ranged:
        def make(partition: Partition, call_id: CallId) -> Request[Ranged]:
            return part_of_range(partition, birth, after, upto, pinned=pinned, call_id=CallId("", 0, call_id.now))

        return await partition_client.call(_LANE, make, deadline_of(timeout), catches_up=False)

    if after >= upto:
        return
    page = await fetch(after)
    while page.more:
        after = number_of(page.rows.names[-1].decode())
        ahead = asyncio.ensure_future(fetch(after))
        try:
            yield page.rows
            page = await ahead
        finally:
            if not ahead.cancel() and not ahead.cancelled():
                ahead.exception()  # asyncio would report an error that nobody reads, if the caller has stopped
    if page.rows.names:
        yield page.rows
