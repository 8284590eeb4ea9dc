"""The messages of a batch, and its tasks, which have about the same work each. Pure.

A Python task of Spark costs about 0.1 s before it reads anything. So few tasks, with several partitions each, are much
faster than one task for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from sbredis.spark._options import QueryOptions

__all__ = [
    "MOST_ROWS",
    "ONE_TASK",
    "Admission",
    "Contribution",
    "EntityPartition",
    "PartitionRange",
    "TaskLimits",
    "Waiting",
    "admitted",
    "ends_of",
    "limits",
    "split_rows",
    "tasks_of",
]

_MOST_TASKS = 100_000
_ROWS_OF_TASK = 250_000
"""The rows for which a task needs about a second. A large batch has more tasks than the driver has cores."""


class EntityPartition(NamedTuple):
    """A partition of one of the entities that a query reads."""

    entity: str
    """The path of the entity, in the form in which names are compared."""
    number: int


K = TypeVar("K", int, EntityPartition)
"""What distinguishes partitions: their number, and the entity if there are several."""


class PartitionRange(NamedTuple):
    """The messages of one partition whose numbers are greater than ``after`` and at most ``upto``."""

    entity: str
    partition: int
    birth: str
    after: int
    upto: int

    @property
    def size(self) -> int:
        """The largest number of messages in the range."""
        return max(self.upto - self.after, 0)


class TaskLimits(NamedTuple):
    """The least and the largest number of tasks of a batch, and the largest number of rows of each task."""

    least: int
    most: int
    rows: int | None = None


ONE_TASK = TaskLimits(1, 1)


def limits(least: int | None, most: int | None, rows: int | None, cores: int, waiting: int = 0) -> TaskLimits:
    """Return the limits that the options set, for a batch of up to ``waiting`` rows.

    Without options, there are at most two tasks for each core, but more for a large batch: the process that plans does
    not know all cores of the executors. A limit of the rows of a task decides how many tasks there are.
    """
    if rows is not None:
        return TaskLimits(least or 1, _MOST_TASKS, rows)
    largest = most if most is not None else max(2 * cores, least or 1, -(-waiting // _ROWS_OF_TASK))
    usual = min(largest, -(-waiting // _ROWS_OF_TASK)) if most is None else 1
    return TaskLimits(min(max(least or 1, usual), largest), largest)


def tasks_of(ranges: Iterable[PartitionRange], limits: TaskLimits) -> list[list[PartitionRange]]:
    """Return the ranges of each task. Empty ranges are left out; an order of numbers within a partition remains.

    The numbers of a range may have gaps, so a task may have fewer rows than numbers.
    """
    pieces = [piece for piece in ranges if piece.size]
    tasks = _even(pieces, limits.least, limits.most) if limits.rows is None else _small(pieces, limits)
    return [sorted(task, key=lambda piece: (piece.entity, piece.partition, piece.after)) for task in tasks]


def _even(pieces: list[PartitionRange], least: int, most: int) -> list[list[PartitionRange]]:
    """Return tasks with about the same number of rows."""
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
    return tasks


def _small(pieces: Sequence[PartitionRange], limits: TaskLimits) -> list[list[PartitionRange]]:
    """Return tasks of which each has a limited number of rows."""
    total = sum(piece.size for piece in pieces)
    rows = max(min(limits.rows or total, -(-total // limits.least)), -(-total // limits.most), 1)
    tasks: list[list[PartitionRange]] = []
    rests: list[PartitionRange] = []
    for piece in pieces:
        full = piece.after + piece.size // rows * rows
        tasks += [[piece._replace(after=at, upto=at + rows)] for at in range(piece.after, full, rows)]
        rests += [piece._replace(after=full)] * (full < piece.upto)
    loads: list[int] = []
    together: list[list[PartitionRange]] = []
    for rest in sorted(rests, key=lambda piece: -piece.size):
        place = next((at for at, load in enumerate(loads) if load + rest.size <= rows), len(loads))
        if place == len(loads):
            together.append([])
            loads.append(0)
        together[place].append(rest)
        loads[place] += rest.size
    return tasks + together


def split_rows(most: int | None, waiting: Mapping[K, int], oldest: Mapping[K, int]) -> dict[K, int]:
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

    def should_wait(self, rows: int, mean: float, oldest: Iterable[int], now: int) -> bool:
        """Return whether the stream should wait for more rows.

        ``mean`` is the size of a row; 0 if unknown. ``oldest`` has the times of old messages, in ms.
        """
        if rows >= self.least_rows and not 0 < rows * mean < self.least_bytes:
            return False
        first = min(oldest, default=None)
        return first is not None and now - first < self.longest_delay * 1000


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much one partition gives to a batch."""

    rows: int
    bytes: int


def admitted(
    limits: Admission,
    waiting: Mapping[K, int],
    *,
    planned: int,
    planned_bytes: int = 0,
    oldest: Mapping[K, int],
    now: int,
    mean: float = 0.0,
) -> dict[K, Contribution] | None:
    """Return what each partition gives to the next batch; ``None`` if the stream should wait for more messages.

    ``waiting`` has the number of messages of each partition. ``planned`` messages are in the batch in any case, because
    an earlier run has planned them, and have about ``planned_bytes``. ``oldest`` has for each partition when its oldest
    waiting message was enqueued, in ms, as far as that is known. ``mean`` is the mean size of a message in bytes; 0 if
    unknown.
    """
    there = sum(waiting.values())
    if not planned and (not there or limits.should_wait(there, mean, oldest.values(), now)):
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


# -- the messages that the next batch of a browsing stream takes -------------------------------------------------------


class Waiting(NamedTuple):
    """The messages of a partition that a browsing stream has not read: numbers, which may have gaps."""

    first: int
    """The number of the first message."""
    last: int
    mean: float
    """The mean size of the first messages, in bytes."""
    enqueued: int
    """When the first message was enqueued, in ms since 1970."""

    @property
    def rows(self) -> int:
        """The largest number of messages."""
        return self.last - self.first + 1

    @property
    def bytes(self) -> int:
        """About the largest number of bytes."""
        return round(self.rows * self.mean)


def ends_of(limits: Admission, waiting: Mapping[K, Waiting], turn: K | None, now: int) -> dict[K, int] | None:
    """Return the last number of each partition that the next batch reads; ``None`` if the stream should wait for more.

    Partitions without an end give nothing. If there are more partitions than rows, they take turns, and ``turn`` is the
    first one that gets a row.
    """
    rows = {key: each.rows for key, each in waiting.items()}
    there, size = sum(rows.values()), sum(each.bytes for each in waiting.values())
    mean = size / there if there else 0.0
    if not there or limits.should_wait(there, mean, [each.enqueued for each in waiting.values()], now):
        return None
    most = limits.most_rows
    if limits.most_bytes is not None and mean:
        fitting = max(int(limits.most_bytes / mean), 1)
        most = fitting if most is None else min(most, fitting)
    if most is not None and most < len(rows):
        order = sorted(rows, key=lambda key: (turn is not None and key < turn, key))
        counts = dict.fromkeys(order[:most], 1)
    else:
        counts = split_rows(most, rows, {})
    return {key: waiting[key].first + count - 1 for key, count in counts.items() if count}
