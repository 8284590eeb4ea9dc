"""The state of a session, for callers that do not hold its lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis.engine import CallId, Partition, Request, peek_state
from sbredis.entities._sub_queues import split_sub_queue
from sbredis.registry import split_path

if TYPE_CHECKING:
    from sbredis.client._connection import Connection

__all__ = ["state_of_session"]


async def state_of_session(connection: Connection, entity_path: str, session_id: str, deadline: float) -> bytes | None:
    """Return the state of a session of a queue or subscription, whoever has locked it; ``None`` if it has none."""
    path, sub_queue = split_sub_queue(entity_path, None)
    if sub_queue is not None:
        raise ValueError(f"{entity_path!r} is a sub-queue, which has no sessions: name the entity itself")
    split_path(path)  # refuse an invalid path before anything is sent
    entity = await connection.entity(path, deadline)

    def make(partition: Partition, call_id: CallId) -> Request[bytes | None]:
        return peek_state(partition, session_id, CallId("", 0, call_id.now))

    return await entity.pinned(session_id).call("w", make, deadline)
