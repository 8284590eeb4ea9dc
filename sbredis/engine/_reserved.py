"""Reserved ranges: a reader takes the messages of a partition in ranges of numbers, exactly once. Pure.

A reservation closes the main side of a partition to receivers (:attr:`PartitionSettings.reserved`). Its reader *plans*
a range, reads it as often as it likes, and names it as committed when it plans the next range. The messages of a
planned range are *pinned* until then. The partition removes them when the range is committed.

This module has the values of these calls, which :class:`~sbredis.engine._partition.Partition` makes. All of them may be
repeated. They have no lane: a plan is found again by the plan before it, which the call names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sbredis.engine._columns import Rows
from sbredis.engine._results import Delivery

__all__ = ["MOST", "MOST_ROWS", "Committed", "Pin", "Planned", "Ranged", "Unpinned", "read_planned"]

MOST_ROWS = 999_999_999
"""The largest number of messages of a range."""
MOST = 999_999_999_999_999
"""The largest number that a script takes."""


class Committed(NamedTuple):
    """The position of a reader in a partition: the last plan that it has committed, and the end of this plan."""

    birth: str
    """The birth of the partition: another one means that the partition was lost and made anew."""
    plan: int
    number: int
    """The number of the last committed message."""


class Planned(NamedTuple):
    """The answer to :meth:`~sbredis.engine._partition.Partition.plan`."""

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
    """The answer to :meth:`~sbredis.engine._partition.Partition.unpin`."""

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


def read_planned(reply: list[Any]) -> Planned:
    return Planned(bool(reply[0]), reply[1].decode(), *reply[2:])
