"""Which messages the next batch of a consuming stream takes: limits, and patience while there are few. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sbredis.spark._options import QueryOptions
from sbredis.spark._planning import split_rows

__all__ = ["MOST_ROWS", "Admission", "Contribution", "admitted"]

MOST_ROWS = 999_999_999
"""The largest number of rows that one partition gives to a batch."""
_MOST_BYTES = 1 << 49


@dataclass(frozen=True, slots=True)
class Admission:
    """The limits of one batch."""

    most_rows: int | None = None
    most_bytes: int | None = None
    least_rows: int = 0
    least_bytes: int = 0
    longest_delay: float = 0.0
    """The age in seconds of the oldest message from which on fewer messages are enough."""

    @classmethod
    def of(cls, options: QueryOptions, *, limited: bool, patient: bool) -> Admission:
        """Return the limits that the options set. Spark may ask for everything, and a draining query does not wait."""
        if not limited:
            return cls()
        if not patient:
            return cls(options.most_rows, options.most_bytes)
        least = options.least_rows or 0, options.least_bytes or 0
        return cls(options.most_rows, options.most_bytes, *least, options.longest_delay)

    def too_few(self, rows: int, mean: float) -> bool:
        """Return whether the stream should wait for more rows. ``mean`` is the size of a row; 0 if unknown."""
        return rows < self.least_rows or 0 < rows * mean < self.least_bytes


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much one partition gives to a batch."""

    rows: int
    bytes: int


def admitted(
    limits: Admission,
    waiting: Mapping[int, int],
    *,
    planned: int,
    planned_bytes: int = 0,
    oldest: Mapping[int, int],
    now: int,
    mean: float = 0.0,
) -> dict[int, Contribution] | None:
    """Return what each partition gives to the next batch; ``None`` if the stream should wait for more messages.

    ``waiting`` has the number of messages of each partition. ``planned`` messages are in the batch in any case, because
    an earlier run has planned them, and have about ``planned_bytes``. ``oldest`` has for each partition when its oldest
    waiting message was enqueued, in ms, as far as that is known. ``mean`` is the mean size of a message in bytes; 0 if
    unknown.
    """
    there = sum(waiting.values())
    if not planned:
        patient = oldest and now - min(oldest.values()) < limits.longest_delay * 1000
        if not there or (patient and limits.too_few(there, mean)):
            return None
    room = _MOST_BYTES if limits.most_bytes is None else limits.most_bytes - planned_bytes
    if planned and room <= 0:
        return {}
    most = None if limits.most_rows is None else max(limits.most_rows - planned, 0)
    rows = split_rows(most, {number: min(each, MOST_ROWS) for number, each in waiting.items()}, oldest)
    total = sum(rows.values())
    return {
        number: Contribution(each, room if limits.most_bytes is None else max(room * each // total, 1))
        for number, each in rows.items()
        if each
    }
