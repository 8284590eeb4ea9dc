"""The reservations of a namespace, as an operator sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

__all__ = ["ReservationPosition", "ReservationStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationPosition:
    """How far a consumer is in one partition of the entity that it has reserved."""

    plan: int
    """The number of the latest range that the consumer has planned; 0 if there was none."""
    committed: int
    """The number of the last message that the consumer has committed. Messages up to it are removed."""
    planned: int
    """The number of the last message of the latest range, which nobody else gets. It is :attr:`committed` if there is
    no range.
    """
    left: int
    """The number of messages that can be planned after the latest range."""
    last_seen: datetime | None
    """The time of the consumer's last call to this partition, in UTC; ``None`` if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationStatus:
    """The reservation of one queue or subscription."""

    path: str
    """The queue, or the subscription as ``topic/subscriptions/name``."""
    consumer: str
    """The name of the consumer."""
    owner: str
    """The run of the consumer, as it has described itself; it may be empty."""
    since: datetime
    """The time since when this run of the consumer has the entity, in UTC."""
    last_seen: datetime | None
    """The time of the consumer's last call, in UTC; ``None`` if there was none yet."""
    state: Literal["reserving", "reserved", "releasing"]
    """``reserving`` while the reservation waits for other receivers; ``releasing`` while a release is unfinished."""
    stale: bool
    """Whether the consumer has made no call for longer than expected, so that it may be dead."""
    positions: Mapping[int, ReservationPosition]
    """A mapping from the number of each partition that answered to how far the consumer is there."""
    unreachable_partitions: tuple[int, ...]
    """The partitions that did not answer."""
