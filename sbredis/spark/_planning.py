"""The tasks of a batch: ranges of numbers, put together so that each task has about the same work. Pure.

A Python task of Spark costs about 0.1 s before it reads anything. So few tasks, with several partitions each, are much
faster than one task for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["PartitionRange", "limits", "split_rows", "spread", "tasks_of"]


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
