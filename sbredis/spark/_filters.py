"""The filters that Spark offers to a batch read: which partitions, numbers and times they leave.

Spark applies each filter to the rows as well, so these bounds may leave too many rows, but never too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

__all__ = ["Bounds", "bounds_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVERY, _LATEST = -(1 << 63), 1 << 63


@dataclass(frozen=True, slots=True)
class Bounds:
    """The rows that filters leave."""

    partitions: frozenset[int] | None = None
    """The partitions; ``None`` for all."""
    least: int = _EVERY
    """The lowest sequence number."""
    most: int = _LATEST
    """The highest sequence number."""
    since: int | None = None
    """The earliest time when a message was enqueued, in ms since 1970."""
    until: int | None = None
    """The latest time."""

    def includes(self, partition: int) -> bool:
        """Return whether a partition may have rows."""
        return self.partitions is None or partition in self.partitions

    def narrowed(self, after: int, last: int, base: int) -> tuple[int, int]:
        """Return a range of a partition with these sequence numbers only: the numbers after which it begins and ends.

        ``base`` makes sequence numbers of the numbers of the partition.
        """
        return max(after, self.least - base - 1), min(last, self.most - base)


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Return what filters leave that all apply."""
    return reduce(_bounded, filters, Bounds())


def _bounded(bounds: Bounds, condition: Filter) -> Bounds:
    match condition:
        case In(attribute=("partition",), value=values):
            return _in_partitions(bounds, values)
        case EqualTo(attribute=("partition",), value=value) | EqualNullSafe(attribute=("partition",), value=value):
            return _in_partitions(bounds, [value])
        case EqualTo(attribute=(column,), value=value) | EqualNullSafe(attribute=(column,), value=value):
            return _between(bounds, column, value, value)
        case GreaterThan(attribute=(column,), value=value) | GreaterThanOrEqual(attribute=(column,), value=value):
            return _between(bounds, column, value, None)
        case LessThan(attribute=(column,), value=value) | LessThanOrEqual(attribute=(column,), value=value):
            return _between(bounds, column, None, value)
        case _:
            return bounds


def _between(bounds: Bounds, column: str, least: Any, most: Any) -> Bounds:
    """Return bounds that leave only values from ``least`` to ``most``, which may be missing."""
    given = [each for each in (least, most) if each is not None]
    if column == "sequence_number" and all(type(each) is int for each in given):
        least, most = bounds.least if least is None else least, bounds.most if most is None else most
        return replace(bounds, least=max(bounds.least, least), most=min(bounds.most, most))
    if column == "enqueued_time" and all(isinstance(each, datetime) for each in given):
        earliest = [each for each in (bounds.since, _milliseconds(least)) if each is not None]
        latest = [each for each in (bounds.until, _milliseconds(most)) if each is not None]
        return replace(bounds, since=max(earliest, default=None), until=min(latest, default=None))
    return bounds


def _in_partitions(bounds: Bounds, values: Sequence[Any]) -> Bounds:
    found = frozenset(each for each in values if type(each) is int)
    return replace(bounds, partitions=found if bounds.partitions is None else found & bounds.partitions)


def _milliseconds(at: datetime | None) -> int | None:
    """Return the whole milliseconds of a time: messages have no more. Without a zone, it is in UTC."""
    if at is None:
        return None
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
