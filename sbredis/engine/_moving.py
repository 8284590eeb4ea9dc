"""Moves of messages from one partition to a partition of another entity. Pure.

Within a slot, one transaction withdraws the messages and stores them at their destination. Between slots there are
three calls. The source *freezes* messages as a batch, the destination *takes* the batch, and the source *settles* it
by the verdict of the destination. None of these calls needs a lane, because any client may repeat each of them at any
time. This module has the values of these calls, which :class:`~sbredis.engine._partition.Partition` makes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

from sbredis._quoting import quoted
from sbredis.engine._bands import number_of, side_of
from sbredis.engine._packing import MAXIMUM_CALL_MESSAGES, MAXIMUM_CHANGES_BYTES, named, within
from sbredis.engine._results import Delivery, deliveries, run_of
from sbredis.transport import Argument

__all__ = [
    "MAXIMUM_MOVE_BYTES",
    "MAXIMUM_REFUSED_CHANGES",
    "MOST_HOPS",
    "Batch",
    "Destination",
    "Destroyed",
    "MovesRead",
    "Origin",
    "Swept",
    "SweptState",
    "Taken",
    "Verdict",
    "destination_text",
    "exact_names",
    "names_of_runs",
    "origin_text",
    "read_moves",
    "read_swept",
    "read_taken",
    "runs_of",
]

MOST_HOPS = 4
"""How often a message may be forwarded. Azure has the same limit."""

MAXIMUM_MOVE_BYTES = 2 * 1024 * 1024
"""The largest total size of the messages of one move; a single message may be larger."""

Verdict = Literal["taken", "back", "again", "refused"]

SweptState = Literal["frozen", "nothing", "limits", "other"]
"""- ``frozen``: a batch is outstanding.
- ``nothing``: nothing waits.
- ``limits``: messages may wait, but the other sources have used up the limits of the call.
- ``other``: the source needs other calls.
"""
_SWEPT: dict[bytes, SweptState] = {b"f": "frozen", b"n": "nothing", b"l": "limits", b"o": "other"}

MAXIMUM_REFUSED_CHANGES = MAXIMUM_CHANGES_BYTES + 4096
"""The largest size of changed properties with the reason for which a message is given up."""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


class Destination(NamedTuple):
    """A partition to which messages are moved."""

    entity: str
    """The id of the entity."""
    number: int
    """The number of the partition in the namespace, counted from 0."""

    def __str__(self) -> str:
        return f"{self.entity}:{self.number}"


class Origin(NamedTuple):
    """A partition from which messages are moved, as it was made once."""

    entity: str
    """The id of the entity."""
    birth: str
    """A random text that no other partition ever has."""

    def __str__(self) -> str:
        return f"{self.entity}:{self.birth}"


class Batch(NamedTuple):
    """Messages of one source that are being moved to one destination."""

    destination: Destination
    incarnation: str
    """The incarnation of the destination."""
    number: int
    """A number that rises from batch to batch of the source."""
    names: tuple[str, ...]
    """The names of the messages at the source, in the order of the move."""
    purpose: bytes = b""
    """The text that was given to :meth:`~sbredis.engine._partition.Partition.freeze`."""


class MovesRead(NamedTuple):
    """The messages of a partition that wait to be moved."""

    more: bool
    """Whether due work was left. Then nothing was read, and the caller makes the call again."""
    now: int
    """The time of the partition, in ms since 1970."""
    birth: str
    batches: tuple[Batch, ...]
    """The outstanding batches."""
    messages: tuple[Delivery, ...]
    """The first messages that wait. The state is ``a`` for an active message, and ``x`` for a transfer."""
    onward: int
    """The place of the next message, if more may wait; 0 at the end."""


class Swept(NamedTuple):
    """What a sweep has found in a source."""

    state: SweptState
    now: int
    """The time of the partition, in ms since 1970."""
    birth: str = ""
    batch: Batch | None = None
    """The outstanding batch, if there is one."""
    messages: tuple[Delivery, ...] = ()
    """The messages of the batch."""


class Taken(NamedTuple):
    """The answer of a destination."""

    more: bool
    verdict: str
    """- ``taken``: the messages are stored, by this call or an earlier one.
    - ``again``: none was stored, because the source was rolled back; the messages in ``names`` were stored before.
    - ``over``: a later batch of this source was judged before, so this one will never be stored.
    - ``door``: the source is new here, and the caller does not know the door, which is in ``detail``.
    - ``later``: the batch was not judged, because due work must be done first and other batches were stored.
    - ``QUOTA``, ``DISABLED``, ``TOOLARGE``, ``SESSIONS``: the batch will never be stored. ``detail`` is the detail of
      this refusal; empty if one call could not carry the messages.
    """
    detail: str
    names: tuple[str, ...]
    strangers: tuple[Origin, ...]
    """If the source is new here, some other origins. The caller may check whether their entities still exist."""


class Destroyed(NamedTuple):
    """The result of a step that deletes a partition."""

    more: bool
    """Whether another step is needed."""
    birth: str
    """The birth of the partition; empty if it was not there."""
    destinations: tuple[str, ...]
    """The ids of the entities that may remember this partition as a source."""


# -- arguments and replies ---------------------------------------------------------------------------------------------


def destination_text(destination: Destination) -> str:
    if not _WORD.fullmatch(destination.entity):
        raise ValueError(f"{quoted(destination.entity)} is not an entity id")
    within("the number of a partition", destination.number, 0, 999_999)
    return str(destination)


def origin_text(origin: Origin) -> str:
    if not _WORD.fullmatch(origin.entity) or not re.fullmatch(r"[\w-]+", origin.birth, re.ASCII):
        raise ValueError(f"{quoted(str(origin))} is not an origin")
    return str(origin)


def exact_names(messages: Sequence[Delivery]) -> list[Argument]:
    """Return the name of each message and its changed properties."""
    names = named([message.name for message in messages])
    return [part for name, message in zip(names, messages, strict=True) for part in (name, message.changes)]


def runs_of(names: Sequence[str]) -> str:
    """Return names as runs: ``d4-6,9``."""
    named(names)
    runs: list[str] = []
    rising = groupby(enumerate(names), lambda pair: (side_of(pair[1]), number_of(pair[1]) - pair[0]))
    for (side, _), group in rising:
        numbers = [number_of(name) for _, name in group]
        runs.append(f"{side}{numbers[0]}" if len(numbers) == 1 else f"{side}{numbers[0]}-{numbers[-1]}")
    return ",".join(runs)


def names_of_runs(runs: bytes) -> tuple[str, ...]:
    names: list[str] = []
    for run in runs.decode().split(",") if runs else ():
        first, _, last = run.partition("-")
        side = side_of(first)
        names += (
            f"{side}{each}" for each in run_of(first.removeprefix(side), last, MAXIMUM_CALL_MESSAGES - len(names))
        )
    return tuple(names)


def read_moves(reply: list[Any]) -> MovesRead:
    more, now, birth, listed, given, states, records, extras, onward = reply
    batches: list[Batch] = []
    for at in range(0, len(listed), 5):
        key, number, incarnation, runs, purpose = listed[at : at + 5]
        entity, _, partition = key.decode().rpartition(":")
        place = Destination(entity, int(partition))
        batches.append(Batch(place, incarnation.decode(), int(number), names_of_runs(runs), purpose))
    messages = deliveries(given, records, extras, states.decode())
    return MovesRead(bool(more), int(now), birth.decode(), tuple(batches), messages, int(onward))


def read_swept(destination: Destination, incarnation: str, reply: list[Any]) -> Swept:
    _, now, (letter, *found) = reply
    state = _SWEPT[letter]
    if state != "frozen":
        return Swept(state, int(now))
    birth, number, runs, states, records, extras = found
    names = names_of_runs(runs)
    batch = Batch(destination, incarnation, int(number), names)
    messages = deliveries([name.encode() for name in names], records, extras, states.decode())
    return Swept(state, int(now), birth.decode(), batch, messages)


def read_taken(reply: list[Any]) -> Taken:
    more, verdict, detail, runs, strangers = reply
    listed = (each.decode().rpartition(":") for each in strangers)
    origins = tuple(Origin(entity, birth) for entity, _, birth in listed)
    return Taken(bool(more), verdict.decode(), detail.decode(), names_of_runs(runs), origins)
