"""The sessions of an entity, for callers that do not hold their locks: their list, page by page, and their states."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from sbredis.client import count_of, deadline_of, milliseconds_of, seconds_of
from sbredis.engine import NEVER, CallId, Partition, Request, SessionsListed
from sbredis.entities._paging import AsyncItemPaged, ListPage
from sbredis.entities._paths import split_sub_queue
from sbredis.registry import split_path

if TYPE_CHECKING:
    from sbredis.client import Connection

__all__ = ["sessions_of", "state_of_session"]

_PAGE = 1000


class _ListPosition(NamedTuple):
    """The position where a page begins, and the numbers of sessions to skip and to list."""

    at: int
    """The index of the partition in the list of the entity's partitions."""
    skip: int
    """The number of sessions that must still be skipped."""
    left: int | None
    """The largest number of sessions to list; ``None`` for all."""
    onwards: str
    """The position in the partition; empty for its beginning."""


def _position_of(token: str, skip: int, top: int | None) -> _ListPosition:
    if not token:
        return _ListPosition(0, skip, top, "")
    at, skipping, left, onwards = token.split(" ", 3)
    return _ListPosition(int(at), int(skipping), None if left == "-" else int(left), onwards)


def _token(position: _ListPosition) -> str:
    return f"{position.at} {position.skip} {'-' if position.left is None else position.left} {position.onwards}"


def sessions_of(
    connection: Connection,
    path: str,
    state_updated_after: datetime | None,
    timeout: float | None,
    *,
    skip: int = 0,
    top: int | None = None,
) -> AsyncItemPaged[str]:
    """List the sessions that have active messages or a state.

    With ``state_updated_after``, list the sessions whose state was set after this time, in the order of these times.
    The first ``skip`` sessions are left out, and at most ``top`` are listed. No call returns more sessions than a page
    holds, so skipped sessions are read page by page too.
    """
    connection.check_open()
    count_of(skip, "skip", least=0)
    if top is not None:
        count_of(top, "top")
    since = None if state_updated_after is None else milliseconds_of(state_updated_after, "state_updated_after")
    since = None if since is None else min(since + 1, NEVER)
    if timeout is not None:
        seconds_of(timeout, "timeout")

    async def read(token: str) -> ListPage[str]:
        deadline = deadline_of(timeout)
        position: _ListPosition | None = _position_of(token, skip, top)
        names: Sequence[str] = ()
        while position is not None and not names:
            names, position = await read_on(position, deadline)
        return ListPage(names, None if position is None else _token(position))

    async def read_on(position: _ListPosition, deadline: float) -> tuple[Sequence[str], _ListPosition | None]:
        """Return the next sessions after the skipped ones, and the next position, which is ``None`` at the end."""
        entity = await connection.entity(path, deadline)
        partition_client = entity.partition_client(entity.numbers[position.at])
        wanted = min(_PAGE, position.skip or _PAGE if position.left is None else position.skip + position.left)
        told, _, skipped = position.onwards.partition(" ")

        def make(partition: Partition, call_id: CallId) -> Request[SessionsListed]:
            reading = CallId("", 0, call_id.now)
            if since is None:
                return partition.list_sessions(wanted, position.onwards[1:] if position.onwards else None, reading)
            return partition.list_sessions_since(wanted, int(told or since), int(skipped or 0), reading)

        found = await partition_client.read("w", make, deadline)
        onwards = ""
        if since is None:
            onwards = "" if found.onwards is None else f"={found.onwards}"
        elif len(found.names) == wanted:
            last = found.times[-1]
            before = int(skipped or 0) if told and int(told) == last else 0
            onwards = f"{last} {before + sum(time == last for time in found.times)}"
        names = found.names[position.skip :]
        skipping = max(position.skip - len(found.names), 0)
        left = None if position.left is None else position.left - len(names)
        at = position.at if onwards else position.at + 1
        ends = left == 0 or at == len(entity.numbers)
        return names, None if ends else _ListPosition(at, skipping, left, onwards)

    return AsyncItemPaged(read)


async def state_of_session(connection: Connection, entity_path: str, session_id: str, deadline: float) -> bytes | None:
    """Return the state of a session of a queue or subscription, whoever has locked it; ``None`` if it has none."""
    path, sub_queue = split_sub_queue(entity_path, None)
    if sub_queue is not None:
        raise ValueError(f"{entity_path!r} is a sub-queue, which has no sessions: name the entity itself")
    split_path(path)  # refuse an invalid path before anything is sent
    entity = await connection.entity(path, deadline)

    def make(partition: Partition, call_id: CallId) -> Request[bytes | None]:
        return partition.peek_state(session_id, CallId("", 0, call_id.now))

    return await entity.pinned(session_id).call("w", make, deadline)
