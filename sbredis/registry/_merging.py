"""Decide which buckets to read for a list of all entities, and merge what they contain. Pure.

The buckets are read in pages. The next entity of the list is the first one of all buckets, so it is known only when the
first entity of each bucket is known. A bucket is read again only when all that was read from it is in the list. So each
entity is read once, however long the list is.

A bucket that cannot be read is left out from then on; the list has the entities of the other buckets.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["BucketMerge", "BucketRead"]

_FIRST = 16
_FURTHER = 128
"""The first page of a bucket is short, because many callers want only the beginning of the list."""

Row = tuple[bytes, bytes]
"""The name of an entity in lower case, and its record."""


class BucketRead(NamedTuple):
    """A page of a bucket that must be read: the entities after a name, up to a number."""

    number: int
    after: bytes
    limit: int


class BucketMerge:
    """The list of a namespace, as far as its buckets have been read."""

    def __init__(self, buckets: int, after: bytes = b"") -> None:
        self._rows: dict[int, deque[Row]] = {number: deque() for number in range(buckets)}
        """What was read from each bucket and is not in the list yet."""
        self._dry: dict[int, BucketRead] = {number: BucketRead(number, after, _FIRST) for number in range(buckets)}
        """The next page of each bucket that has run out and may have more."""
        self._firsts: list[tuple[bytes, int]] = []
        """A heap of the first name of each bucket that has not run out."""
        self._further: dict[int, bool] = {}

    @property
    def ended(self) -> bool:
        """Whether the list has no more entities."""
        return not self._dry and not self._firsts

    def to_read(self) -> list[BucketRead]:
        """Return the pages that must be read before the list can go on."""
        return list(self._dry.values())

    def took(self, read: BucketRead, rows: Sequence[Row]) -> None:
        """Add a page that was read. A page that is not full is the last one of its bucket."""
        del self._dry[read.number]
        self._further[read.number] = len(rows) >= read.limit
        if rows:
            self._rows[read.number].extend(rows)
            heapq.heappush(self._firsts, (rows[0][0], read.number))

    def failed(self, number: int) -> None:
        """Leave out a bucket that cannot be read."""
        self._dry.pop(number, None)

    def take(self, most: int) -> list[Row]:
        """Take the next entities, in the order of their names, up to a bucket that must be read first."""
        taken: list[Row] = []
        while self._firsts and not self._dry and len(taken) < most:
            _, number = self._firsts[0]
            rows = self._rows[number]
            taken.append(rows.popleft())
            if rows:
                heapq.heapreplace(self._firsts, (rows[0][0], number))
                continue
            heapq.heappop(self._firsts)
            if self._further[number]:
                self._dry[number] = BucketRead(number, taken[-1][0], _FURTHER)
        return taken
