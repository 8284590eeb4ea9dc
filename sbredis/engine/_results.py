"""What the scripts answer, as it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sbredis.engine._lifecycle import NEVER

__all__ = [
    "NEVER",
    "Accepted",
    "Awoken",
    "Counts",
    "Delivery",
    "Looked",
    "Peeked",
    "Purged",
    "Received",
    "Record",
    "Renewed",
    "Sent",
    "SessionsListed",
    "Settled",
    "Undone",
    "payload_offset",
    "read_record",
]


class Record(NamedTuple):
    """A message as it is stored, taken apart."""

    level: int
    enqueued: int | None
    """When, in ms since 1970; ``None`` for one that is scheduled."""
    expires: int
    payload: bytes


def read_record(record: bytes) -> Record:
    """Take a stored message apart: a letter for its form, its level, its times, and what the sender gave."""
    form, level = record[:1], int(record[1:2])
    if form == b"a":
        return Record(level, int(record[2:15]), NEVER, record[15:])
    if form == b"x":
        return Record(level, int(record[2:15]), int(record[15:28]), record[28:])
    if form == b"s":
        return Record(level, None, NEVER, record[15:])
    raise ValueError(f"a record of an unknown form, {form!r}")


def payload_offset(record: bytes) -> int:
    """Where in a stored message begins what the sender gave."""
    form = record[:1]
    if form not in (b"a", b"s", b"x"):
        raise ValueError(f"a record of an unknown form, {form!r}")
    return 28 if form == b"x" else 15


class Delivery(NamedTuple):
    """A message as it is given out or shown."""

    name: str
    """Its number; with a ``d`` before it in the dead-letter queue."""
    record: bytes
    failures: int = 0
    """How many deliveries of it failed before."""
    reason: str = "-"
    """Why it is a dead letter: A application, T expired, M delivery limit."""
    changes: bytes = b""
    """Changed properties, as the last one who changed them gave them."""
    state: str = "l"
    """Its state: a active, l locked, w delayed, f deferred, g locked from among the deferred, s scheduled."""
    expires: int | None = None
    """When it expires, if that is another time than its record says: a copy has a life of its own."""


class Sent(NamedTuple):
    """What became of a send."""

    more: bool
    """More was due in the partition than a call does on its way: it wants another call."""
    first: int
    """The number of the first message; the others follow without a gap."""
    dropped: int
    """How many were duplicates."""
    scheduled: tuple[int, ...] = ()
    """On a topic: the numbers of those that are to be published later."""


class Received(NamedTuple):
    """What was given out."""

    more: bool
    due: int
    """In how many ms something is due in the partition, if nothing is left to give out; 0 for never."""
    lock: int
    """For how many ms the messages are locked, from when the script ran."""
    messages: tuple[Delivery, ...]
    missing: tuple[str, ...] = ()
    """What was asked for by name and is not there; then nothing was given out."""
    left: int = 0
    """How many of the last names found no room in the answer. They are still deferred."""
    waits: bool = False
    """The receiver waits for other messages from now on: these are all there are, or there are none."""


class Looked(NamedTuple):
    """What a look found."""

    more: bool
    due: int
    """In how many ms something is due in the partition, if nothing was found; 0 for never."""
    found: bool
    """There is something to be received, unless it has expired; if not, whoever looked waits from then on."""


class Accepted(NamedTuple):
    """What became of an attempt to lock a session."""

    more: bool
    due: int
    """In how many ms something is due in the partition, if none was locked; 0 for never."""
    lock: int
    """For how many ms it is locked, from when the script ran."""
    outcome: Literal["taken", "found", "locked", "lapsing", "none"]
    """It is the caller's; or a look has found one; it is somebody else's; or it will be free when the next call has
    released what was held of it; or there is none, and whoever was to be woken waits.
    """
    session: str


@dataclass(frozen=True, slots=True)
class SessionsListed:
    """Some sessions, in order."""

    names: tuple[str, ...]
    times: tuple[int, ...]
    """When the state of each was set, in ms since 1970, where they are in the order of that."""
    onwards: str | None
    """The session behind which the next page begins; ``None`` at the end."""
    more: bool = False
    """Something was due that may change the list: :meth:`Partition.due` does it."""


class Settled(NamedTuple):
    """What became of a settlement: all but those named were settled."""

    more: bool
    lost: tuple[str, ...]
    """Whose lock had ended, or is another's."""
    unfit: tuple[str, ...] = ()
    """What is a dead letter already and cannot become one."""


class Renewed(NamedTuple):
    """What became of a renewal."""

    more: bool
    lock: int
    """For how many ms they are locked, from when the script ran."""
    lost: tuple[str, ...]
    moved: tuple[str, ...]
    """Those that are held under the new token from now on."""


@dataclass(frozen=True, slots=True)
class Undone:
    """What became of a cancellation: all of it, or nothing if some were not scheduled."""

    more: bool
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Purged:
    """What a step of a purge did."""

    more: bool
    count: int
    onwards: int | None
    """Where the next step begins; ``None`` at the end."""


@dataclass(frozen=True, slots=True)
class Peeked:
    """What was shown: messages as they are once what is due has happened."""

    messages: tuple[Delivery, ...]
    more: bool = False
    """More was due than the call works out: :meth:`Partition.due` does it, and then the call can be made again."""


@dataclass(frozen=True, slots=True)
class Awoken:
    """What is left to be done by the clock."""

    more: bool
    due: int
    """In how many ms something is due in the partition; 0 for never."""


class Counts(NamedTuple):
    """How many messages a partition holds, by where they are once what is due has happened."""

    more: int
    """1 if more was due than the call works out: :meth:`Partition.due` does it, and then the call can be made again."""
    due: int
    """In how many ms something is due in the partition; 0 for never."""
    bytes: int
    last: int
    active: int
    held: int
    locked: int
    delayed: int
    deferred: int
    frozen: int
    scheduled: int
    dead_active: int
    dead_held: int
    dead_locked: int
    dead_delayed: int
    dead_deferred: int
    dead_frozen: int


def names(list_: list[bytes]) -> tuple[str, ...]:
    """Names of messages in a reply."""
    return tuple(name.decode() for name in list_)


def deliveries(given: list[bytes], records: list[bytes], extras: list[Any], states: str = "") -> tuple[Delivery, ...]:
    """Messages in a reply; ``extras`` are place, failures, reason, expiry and changes of those that have any."""
    if not extras and not states:
        return tuple([Delivery(name.decode(), record) for name, record in zip(given, records, strict=True)])
    known = {extras[at]: extras[at + 1 : at + 5] for at in range(0, len(extras), 5)}
    result: list[Delivery] = []
    for place, (name, record) in enumerate(zip(given, records, strict=True), 1):
        state = states[place - 1] if states else "l"
        if place in known:
            failures, reason, expires, changes = known[place]
            own = None if name.startswith(b"d") else int(expires)  # a dead letter expires no more, and says when it did
            if own == (int(record[15:28]) if record.startswith(b"x") else NEVER):
                own = None
            result.append(Delivery(name.decode(), record, failures, reason.decode(), changes, state, own))
        else:
            result.append(Delivery(name.decode(), record, state=state))
    return tuple(result)


def spelled_out(runs: bytes) -> tuple[int, ...]:
    """Numbers that a reply gives as runs: ``4-6,9`` is 4, 5, 6 and 9."""
    numbers: list[int] = []
    for run in runs.decode().split(","):
        first, _, last = run.partition("-")
        numbers += range(int(first), int(last or first) + 1) if first else ()
    return tuple(numbers)
