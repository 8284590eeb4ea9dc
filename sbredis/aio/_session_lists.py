"""The sessions of an entity, page by page: one partition after the other."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sbredis.aio._arguments import deadline_of, seconds_of
from sbredis.aio._changes import milliseconds_of
from sbredis.aio._paging import AsyncItemPaged, Page
from sbredis.engine import NEVER, Partition, Request, SessionsListed, Turn, list_sessions, list_sessions_since

if TYPE_CHECKING:
    from sbredis.aio._connection import Connection

__all__ = ["sessions_of"]

_PAGE = 1000


def sessions_of(
    connection: Connection, path: str, state_updated_after: datetime | None, timeout: float | None
) -> AsyncItemPaged[str]:
    """Those that have active messages or a state; or, in the order of that, those whose state was set after a time."""
    connection.check_open()
    since = None if state_updated_after is None else milliseconds_of(state_updated_after, "state_updated_after")
    since = None if since is None else min(since + 1, NEVER)
    if timeout is not None:
        seconds_of(timeout, "timeout")

    async def read(token: str) -> Page[str]:
        deadline = deadline_of(timeout)
        entity = await connection.entity(path, deadline)
        place, _, onwards = token.partition(" ")
        at = int(place or 0)
        desk = entity.desk(entity.numbers[at])
        told, _, skipped = onwards.partition(" ")

        def make(partition: Partition, turn: Turn) -> Request[SessionsListed]:
            reading = Turn("", 0, turn.now)
            if since is None:
                return list_sessions(partition, _PAGE, onwards[1:] if onwards else None, reading)
            return list_sessions_since(partition, _PAGE, int(told or since), int(skipped or 0), reading)

        found = await desk.call("w", make, deadline)
        following = None
        if since is None:
            following = None if found.onwards is None else f"={found.onwards}"
        elif len(found.names) == _PAGE:
            last = found.times[-1]
            before = int(skipped or 0) if told and int(told) == last else 0
            following = f"{last} {before + sum(time == last for time in found.times)}"
        if following is not None:
            return Page(found.names, f"{at} {following}")
        return Page(found.names, f"{at + 1} " if at + 1 < len(entity.numbers) else None)

    return AsyncItemPaged(read)
