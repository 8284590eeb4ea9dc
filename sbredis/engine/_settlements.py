"""The stream of settlements of a partition: what has happened to its messages. Pure.

A partition whose setting ``audited`` is on appends a record to the stream in each call that gives out, settles or
expires messages. The record is written by ``lua/includes/calls/write_settlements.lua``, and this module reads it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import NamedTuple

from sbredis._unreadable import decodes, unreadable
from sbredis.engine._bands import EPOCH_LEAP
from sbredis.engine._results import run_of
from sbredis.exceptions import DataLayoutError

__all__ = [
    "BEGINNING",
    "Settlement",
    "SettlementColumns",
    "SettlementEvent",
    "SettlementsPlace",
    "SettlementsRead",
    "read_records",
]

_WHAT = "The settlements of a partition"
_RUN = re.compile(r"([dt]?)([0-9]{1,15})(?:-([0-9]{1,15}))?", re.ASCII)
_MOST_OF_CALL = 1 << 17
"""The largest number of settlements of one call: of a transaction of many operations."""
_MOST_PER_RECORD = 4096
"""The largest number of settlements per record, if a read has many records: few calls are such transactions."""


class SettlementEvent(Enum):
    """What has happened to a message. The value is the letter in the record."""

    GIVEN = "g"
    """A receiver got it under a lock."""
    TAKEN = "k"
    """A receiver got it, and it was deleted at once."""
    COMPLETED = "c"
    ABANDONED = "a"
    RELEASED = "r"
    """It was given back, and the delivery did not count as failed."""
    LAPSED = "l"
    """Its lock has ended."""
    DEFERRED = "f"
    DEAD_LETTERED = "d"
    """An application has made it a dead letter, or it could not be forwarded."""
    DELIVERIES_EXCEEDED = "m"
    """It became a dead letter at the delivery limit."""
    EXPIRED_TO_DEAD_LETTERS = "t"
    """It became a dead letter because it has expired."""
    EXPIRED = "x"
    """It has expired, and was deleted."""


_NOTE = re.compile(rf"([{''.join(event.value for event in SettlementEvent)}])([dt0-9,-]+)(?:=([0-9,-]+))?", re.ASCII)


class Settlement(NamedTuple):
    """One event in the life of a message."""

    event: SettlementEvent
    name: str
    """The name of the message in its partition, before the event."""
    at: int
    """The time of the call, in ms since 1970."""
    enqueued_at: int | None = None
    """The time when the message was enqueued, if the message was given out."""


@dataclass(slots=True)
class SettlementColumns:
    """Settlements in columns, for readers of many of them: an object for each would cost most of the time of a read."""

    events: bytearray = field(default_factory=bytearray)
    """The letter of each event."""
    sides: bytearray = field(default_factory=bytearray)
    """The side of each message: ``-`` for the main queue, ``d`` or ``t`` for a dead-letter queue."""
    numbers: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))
    """When the events happened, in ms since 1970."""
    enqueued: array[int] = field(default_factory=lambda: array("q"))
    """When the messages were enqueued that were given out, in ms since 1970; otherwise 0."""

    def __len__(self) -> int:
        return len(self.numbers)

    @decodes(_WHAT)
    def add(self, notes: str, at: int) -> None:
        """Add the settlements of one record, whose call was made ``at`` this time.

        Raises :class:`~sbredis.exceptions.DataLayoutError` if this release cannot read the record.
        """
        most = len(self) + _MOST_OF_CALL
        for note in notes.split(" "):
            match = _NOTE.fullmatch(note)
            if match is None:
                raise _unreadable("a note is malformed")
            before = len(self)
            for run in match[2].split(","):
                self._add_run(run, most - len(self))
            count = len(self) - before
            self.events += match[1].encode() * count
            self.times += array("q", (at,)) * count
            if match[3] is None:
                self.enqueued += array("q", (0,)) * count
            else:
                self.enqueued += array("q", accumulate(map(int, match[3].split(","))))
            if len(self.enqueued) != len(self):
                raise _unreadable("a time is missing")

    def _add_run(self, run: str, most: int) -> None:
        match = _RUN.fullmatch(run)
        if match is None:
            raise _unreadable("a run of numbers is malformed")
        side, first, last = match.groups()
        numbers = run_of(first, last or "", most)
        self.numbers.extend(numbers)
        self.sides += (side or "-").encode() * len(numbers)

    def __iter__(self) -> Iterator[Settlement]:
        columns = zip(self.events, self.sides, self.numbers, self.times, self.enqueued, strict=True)
        for event, side, number, at, enqueued in columns:
            name = f"{chr(side)}{number}".removeprefix("-")
            yield Settlement(SettlementEvent(chr(event)), name, at, enqueued or None)


class SettlementsPlace(NamedTuple):
    """A place in the stream of settlements of a partition."""

    record: int = 0
    """The id of the last record before the place."""
    leaps: int = 0
    """How often the ids have leapt before the place, after restarts and failovers."""

    @property
    def number(self) -> int:
        """The number of settlements before the place."""
        return self.record - self.leaps * EPOCH_LEAP


BEGINNING = SettlementsPlace()


class SettlementsRead(NamedTuple):
    """Settlements in order, and the place from which to read on."""

    columns: SettlementColumns
    next: SettlementsPlace
    lost: int
    """The number of settlements that are missing between the caller's place and these settlements.

    The stream keeps about the last million.
    """
    last: SettlementsPlace
    """The end of the stream."""
    other: bool
    """Whether the caller's place belongs to another partition, or to this one before it lost data.

    Then these settlements are the first ones of the stream.
    """

    @property
    def settlements(self) -> tuple[Settlement, ...]:
        """The settlements one by one."""
        return tuple(self.columns)


def read_records(
    after: SettlementsPlace, last: SettlementsPlace, records: Sequence[Sequence[bytes]]
) -> SettlementsRead:
    found = SettlementColumns()
    other = after.record > last.record
    lost, place = 0, BEGINNING if other else after
    most = _MOST_OF_CALL + _MOST_PER_RECORD * len(records)
    for record, at, notes, leaps in records:
        before = len(found)
        found.add(notes.decode(), int(at))
        if len(found) > most:
            raise _unreadable("they are more than the calls can have made")
        end = SettlementsPlace(int(record), int(leaps))
        lost += max(0, end.number - (len(found) - before) - place.number)
        place = end
    return SettlementsRead(found, place, lost, last, other)


def _unreadable(why: str) -> DataLayoutError:
    return unreadable(_WHAT, why)
