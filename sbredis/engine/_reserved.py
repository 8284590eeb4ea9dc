"""Reserved ranges: a reader takes the messages of a partition in ranges of numbers, exactly once. Pure: requests.

A reservation closes the main side of a partition to receivers (:attr:`PartitionSettings.reserved`). Its reader *plans*
a range, reads it as often as it likes, and names it as committed when it plans the next range. The messages of a
planned range are *pinned* until then. The partition removes them when the range is committed.

All these calls may be repeated. They have no lane: a plan is found again by the plan before it, which the call names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sbredis.engine._bands import BAND_WIDTH
from sbredis.engine._columns import Rows
from sbredis.engine._packing import MAXIMUM_CALL_BYTES, MAXIMUM_CALL_MESSAGES, within
from sbredis.engine._partition import NO_CALL_ID, CallId, Partition
from sbredis.engine._request import Request
from sbredis.engine._results import Delivery
from sbredis.transport import Argument

__all__ = ["Committed", "Pin", "Planned", "Ranged", "Unpinned", "plan", "read_pin", "read_range", "unpin"]

_MOST_ROWS = 999_999_999
_MOST = 999_999_999_999_999
"""The largest number that a script takes."""


class Committed(NamedTuple):
    """The position of a reader in a partition: the last plan that it has committed, and the end of this plan."""

    birth: str
    """The birth of the partition: another one means that the partition was lost and made anew."""
    plan: int
    number: int
    """The number of the last committed message."""


class Planned(NamedTuple):
    """The answer to :func:`plan`."""

    more: bool
    """Whether the call must be made again, because committed messages, due work or events of expiry are left.

    The other fields then say nothing about the next range.
    """
    birth: str
    plan: int
    """The number of the plan."""
    floor: int
    """The number after which the range begins: the last committed one."""
    end: int
    """The number of the last message of the range. It is the floor if there is no range."""
    rows: int
    """The number of messages in the range."""
    bytes: int
    """About the stored bytes of these messages; exact for up to 500 messages."""
    left: int
    """The number of ready messages after the range."""
    oldest: int
    """The time when the first message after the range was enqueued, in ms since 1970.

    It is 0 if there is none, or if that message has more than 1 MB.
    """

    @property
    def committed(self) -> Committed:
        """The position of a reader that has committed this range."""
        return Committed(self.birth, self.plan, self.end)


class Ranged(NamedTuple):
    """A part of a range."""

    rows: Rows
    """Messages in the order of their numbers."""
    more: bool
    """Whether the range has more messages after these."""

    @property
    def messages(self) -> tuple[Delivery, ...]:
        """The messages one by one. Their state is ``a``."""
        return self.rows._replace(states="a" * len(self.rows.names)).deliveries


class Unpinned(NamedTuple):
    """The answer to :func:`unpin`."""

    more: bool
    """Whether messages are left that are committed or pinned. Then make the call again."""
    plan: int
    floor: int
    end: int


class Pin(NamedTuple):
    """How far a reservation is in a partition."""

    birth: str
    fence: int
    """The fence of the latest call of a reservation; 0 if the partition was never reserved."""
    plan: int
    """The number of the latest plan."""
    floor: int
    """The number of the last committed message."""
    end: int
    """The number of the last pinned message."""
    at: int
    """The time of the latest call of a reservation, in ms since 1970."""
    left: int
    """The number of ready messages after the last pinned one."""


def plan(
    partition: Partition,
    fence: int,
    committed: Committed | None,
    rows: int,
    *,
    room: int = _MOST,
    accept: bool = False,
    call_id: CallId = NO_CALL_ID,
) -> Request[Planned]:
    """Remove the messages of the committed range, and plan the next one.

    Without ``committed``, the call only answers where to begin: at :attr:`Planned.committed` of its result. With 0
    ``rows``, it only removes messages. ``room`` limits the bytes of the range by an estimate; a range has at least one
    message. A fence that is lower than an earlier one is refused. If the committed plan is not that of the partition,
    messages were lost, and the call is refused. With ``accept`` it goes on, from the committed number or a later one.
    """
    within("fence", fence, 1, _MOST)
    within("rows", rows, 0, _MOST_ROWS)
    within("room", room, 1, _MOST)
    scalars: dict[str, Argument] = {"fence": fence, "birth": "", "plan": "", "committed": ""}
    if committed is not None:
        within("plan", committed.plan, 0, _MOST)
        within("committed", committed.number, 0, BAND_WIDTH - 1)
        scalars |= {"birth": committed.birth, "plan": committed.plan, "committed": committed.number}
    scalars |= {"rows": rows, "room": room, "accept": int(accept)}
    return partition.request("plan", call_id, _planned, scalars)


def read_range(
    partition: Partition,
    birth: str,
    after: int,
    upto: int,
    *,
    wanted: int = MAXIMUM_CALL_MESSAGES,
    room: int = MAXIMUM_CALL_BYTES,
    pinned: bool = True,
    call_id: CallId = NO_CALL_ID,
) -> Request[Ranged]:
    """Return the ready messages after a number and up to another one, in the order of their numbers.

    If ``pinned``, the call is refused unless the whole range is pinned, so no message of it can be missing.
    """
    within("after", after, 0, BAND_WIDTH - 1)
    within("upto", upto, 0, BAND_WIDTH - 1)
    within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
    within("room", room, 1, 1 << 30)

    def read(reply: list[Any]) -> Ranged:
        return Ranged(Rows(reply[1], reply[2], reply[3]), bool(reply[0]))

    scalars: dict[str, Argument] = {"birth": birth, "after": after, "upto": upto, "wanted": wanted, "room": room}
    scalars["pinned"] = int(pinned)
    return partition.request("read_range", call_id, read, scalars)


def unpin(partition: Partition, fence: int, *, call_id: CallId = NO_CALL_ID) -> Request[Unpinned]:
    """Remove messages that are committed, and then end the latest plan: its messages expire again as before."""
    within("fence", fence, 1, _MOST)

    def read(reply: list[Any]) -> Unpinned:
        return Unpinned(bool(reply[0]), *reply[1:])

    return partition.request("unpin", call_id, read, {"fence": fence})


def read_pin(partition: Partition, *, call_id: CallId = NO_CALL_ID) -> Request[Pin]:
    """Return how far a reservation is, without changing anything."""

    def read(reply: list[Any]) -> Pin:
        return Pin(reply[0].decode(), *reply[1:])

    return partition.request("read_pin", call_id, read, {})


def _planned(reply: list[Any]) -> Planned:
    return Planned(bool(reply[0]), reply[1].decode(), *reply[2:])
