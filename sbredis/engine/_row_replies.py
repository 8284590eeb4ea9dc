"""A peek whose reply stays rows: for readers of many messages, who make columns of them. Pure.

It is the same call as :meth:`Partition.peek`. An object for each message would cost a reader a quarter of its time.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from sbredis.engine._columns import Rows
from sbredis.engine._lifecycle import SidePrefix
from sbredis.engine._packing import MAXIMUM_CALL_BYTES
from sbredis.engine._partition import NO_CALL_ID, CallId, Partition
from sbredis.engine._request import Request

__all__ = ["RowsRead", "peek_rows"]


class RowsRead(NamedTuple):
    """The rows of one reply."""

    rows: Rows
    more: bool
    """Whether more work was due than the call could consider."""


def peek_rows(
    partition: Partition,
    start: int,
    wanted: int,
    *,
    side: SidePrefix = "",
    room: int = MAXIMUM_CALL_BYTES,
    states: str = "alwfs",
    call_id: CallId = NO_CALL_ID,
) -> Request[RowsRead]:
    """Return messages in the given states as rows, as :meth:`Partition.peek` does."""

    def read(reply: list[Any]) -> RowsRead:
        return RowsRead(Rows(reply[1], reply[3], reply[4], reply[2].decode()), bool(reply[0]))

    request: Request[Any] = partition.peek(start, wanted, side=side, room=room, states=states, call_id=call_id)
    return cast("Request[RowsRead]", request._replace(read=read))
