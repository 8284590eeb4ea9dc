"""Delete messages, one partition after the other, in as many calls as are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sbredis.engine import MAXIMUM_CALL_MESSAGES, CallId, Partition, Purged, Request, SidePrefix

if TYPE_CHECKING:
    from sbredis.client import Entity

__all__ = ["purge"]


async def purge(  # noqa: PLR0917 -- the messages to delete, and the limits
    entity: Entity,
    side: SidePrefix,
    session: str | None,
    until: int,
    most: int | None,
    deadline: float,
    progress: Callable[[int], object],
) -> int:
    """Delete up to ``most`` messages that were enqueued before ``until``, in one session or in the whole entity.

    Call ``progress`` with the number of messages deleted so far, after each call to the server. Return the number
    of deleted messages.
    """
    deleted = 0
    for number in entity.numbers if session is None else (entity.of_session(session).number,):
        start: int | None = 0
        while start is not None and deleted != most:
            share = MAXIMUM_CALL_MESSAGES if most is None else min(MAXIMUM_CALL_MESSAGES, most - deleted)

            def make(partition: Partition, call_id: CallId, share: int = share, start: int = start) -> Request[Purged]:
                return partition.purge(call_id, until, side=side, share=share, start=start, session=session)

            purged = await entity.partition_client(number).call("g", make, deadline)
            deleted += purged.count
            progress(deleted)
            start = purged.onwards
    return deleted
