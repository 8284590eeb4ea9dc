"""The messages of a batch, and its tasks, which have about the same work each. Pure.

A Python task of Spark costs about 0.1 s before it reads anything. So few tasks, with several partitions each, are much
faster than one task for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sbredis.spark._options import QueryOptions

__all__ = [
    "MOST_ROWS",
    "Admission",
    "Contribution",
    "PartitionRange",
    "admitted",
    "limits",
    "split_rows",
    "spread",
    "tasks_of",
]


class PartitionRange(NamedTuple):
    """The messages of one partition whose numbers are greater than ``after`` and at most ``upto``."""

    partition: int
    birth: str
    after: int
    upto: int

    @property
    def size(self) -> int:
        """The largest number of messages in the range."""
        return max(self.upto - self.after, 0)


def limits(least: int | None, most: int | None, cores: int) -> tuple[int, int]:
    """Return the least and the largest number of tasks. Without options, there are at most two tasks for each core."""
    largest = most if most is not None else max(2 * cores, least or 1)
    return min(least or 1, largest), largest


def tasks_of(ranges: Iterable[PartitionRange], least: int, most: int) -> list[list[PartitionRange]]:
    """Return the ranges of each task. Empty ranges are left out; an order of numbers within a partition remains."""
    pieces = [piece for piece in ranges if piece.size]
    while pieces and len(pieces) < least:
        largest = max(pieces, key=lambda piece: piece.size)
        if largest.size < 2:
            break
        at = pieces.index(largest)
        middle = largest.after + largest.size // 2
        pieces[at : at + 1] = [largest._replace(upto=middle), largest._replace(after=middle)]
    tasks: list[list[PartitionRange]] = [[] for _ in range(min(most, len(pieces)))]
    loads = [0] * len(tasks)
    for piece in sorted(pieces, key=lambda piece: -piece.size):
        lightest = loads.index(min(loads))
        tasks[lightest].append(piece)
        loads[lightest] += piece.size
    return [sorted(task, key=lambda piece: (piece.partition, piece.after)) for task in tasks]


def split_rows(most: int | None, waiting: Mapping[int, int], oldest: Mapping[int, int]) -> dict[int, int]:
    """Return how many rows of a limited batch each partition gives.

    Partitions with few messages give all of them, and the others share the rest evenly. So no partition waits while
    another one is full. Each partition that has messages gives at least one. If there are more of them than rows, those
    with the oldest messages give one each. ``oldest`` has the times of these messages, as far as they are known.
    """
    if most is None:
        return dict(waiting)
    counts = dict.fromkeys(waiting, 0)
    left = most
    order = sorted((number for number in waiting if waiting[number] > 0), key=lambda number: (waiting[number], number))
    if most < len(order):
        order.sort(key=lambda number: (oldest.get(number, 0), number))
        return counts | dict.fromkeys(order[:most], 1)
    for position, number in enumerate(order):
        counts[number] = min(waiting[number], left // (len(order) - position))
        left -= counts[number]
    return counts


def spread(rows: int, numbers: Sequence[int]) -> dict[int, int]:
    """Return a number of rows for each partition, as even as possible."""
    count, rest = divmod(rows, len(numbers))
    return {number: count + (position < rest) for position, number in enumerate(numbers)}


# -- the messages that the next batch of a consuming stream takes ------------------------------------------------------


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
