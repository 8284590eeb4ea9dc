"""The results of the scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from sbredis._unreadable import decodes, unreadable
from sbredis.engine._lifecycle import NEVER, Reason
from sbredis.engine._packing import MAXIMUM_CALL_MESSAGES

__all__ = [
    "FACTS",
    "LOST_RECORD",
    "NEVER",
    "Accepted",
    "Awoken",
    "Counts",
    "Delivery",
    "Inspection",
    "Peeked",
    "Purged",
    "Received",
    "Record",
    "Redriven",
    "Renewed",
    "Ripe",
    "Sent",
    "SessionsListed",
    "Settled",
    "Undone",
    "Watermark",
    "WatermarksRead",
    "payload_offset",
    "read_record",
]


_START, _EXPIRING_START = 15, 28
"""The place of the payload in a record, without and with the time when the message expires."""
_NAMES: Final = re.compile(rb"(?:[dt]?[0-9]{1,15} )*")
"""Names of messages, each with a blank after it."""

LOST_RECORD: Final = b"a0" + b"0" * 13 + b"\x01\x00"
"""The record that the scripts return in place of one that is missing or damaged: that of an empty message, enqueued at
the beginning of 1970. No other record has this time.
"""

_NEVER: Final = b"%d" % NEVER
FACTS: Final = 3
"""The number of values about one message in the extras of a reply."""


class Record(NamedTuple):
    """A stored message, parsed."""

    level: int
    enqueued: int | None
    """When it was enqueued, in ms since 1970; ``None`` for a scheduled message, and for one whose record is lost."""
    expires: int
    payload: bytes


@decodes("A message")
def read_record(record: bytes) -> Record:
    """Parse a stored message: a letter for its form, its level, its times, and the sender's payload."""
    start = payload_offset(record)
    if len(record) < start or not record[1:start].isdigit():
        raise unreadable("A message", "its times are malformed")
    level, payload = int(record[1:2]), record[start:]
    if record[:1] == b"s" or record == LOST_RECORD:
        return Record(level, None, NEVER, payload)
    return Record(level, int(record[2:15]), int(record[15:28]) if start == _EXPIRING_START else NEVER, payload)


def payload_offset(record: bytes) -> int:
    """Return the position in a stored message at which the sender's payload begins."""
    form = record[:1]
    if form not in (b"a", b"s", b"x"):
        raise unreadable("A message", "its record has a form that this release does not know")
    return _EXPIRING_START if form == b"x" else _START


class Delivery(NamedTuple):
    """A message that was received or peeked."""

    name: str
    """Its number; in the dead-letter queue, with a ``d`` before the number."""
    record: bytes
    failures: int = 0
    """The number of earlier deliveries that failed."""
    reason: str = "-"
    """Why it is a dead letter, as the letter of a :class:`~sbredis.engine._lifecycle.Reason`."""
    changes: bytes = b""
    """Changed properties, as given by the last change."""
    state: str = "l"
    """Its state: a active, l locked, w delayed, f deferred, g locked while deferred, s scheduled."""
    expires: int | None = None
    """The time when it expires; ``None`` means the time in its record. A copy may expire before that time."""
    interrupted: bool = False
    """Whether the client that had the message before was interrupted, and released it uncounted."""
    died_as: int | None = None
    """The number that a dead letter had before it died; ``None`` for a message that is no dead letter."""
    suspect: bool = False
    """Whether its last deliveries ended with the end of their locks, so that its handler may have ended its process."""


class Sent(NamedTuple):
    """The result of a send."""

    more: bool
    """Whether due work is left in the partition, because a call does only a share of it. Another call is needed."""
    first: int
    """The number of the first message. The numbers of the other messages follow without a gap."""
    dropped: int
    """The number of messages that were dropped as duplicates."""
    scheduled: tuple[int, ...] = ()
    """On a topic: the numbers of the messages that will be published later."""


class Ripe(NamedTuple):
    """A message that is scheduled on a topic and is due."""

    message: Delivery
    reached: str
    """The incarnation up to which subscriptions have their copies, if the message is being spread; else empty."""


class Received(NamedTuple):
    """The result of a receive of deferred messages."""

    more: bool
    lock: int
    """The ms for which the messages are locked, counted from the run of the script."""
    messages: tuple[Delivery, ...]
    missing: tuple[str, ...] = ()
    """The requested names that the partition does not have. If there are any, no message was given out."""
    left: int = 0
    """The number of messages at the end of the list that did not fit into the answer. These messages stay deferred."""
    fence: int = 0
    """The fence of the new lock; 0 if messages were deleted, and in a session, whose lock has a fence of its own."""


class Accepted(NamedTuple):
    """The result of an attempt to lock a session."""

    more: bool
    lock: int
    """The ms for which the session is locked, counted from the run of the script."""
    outcome: Literal["taken", "locked", "lapsing", "none"]
    """``taken``: the caller has the lock. ``locked``: another receiver has the lock. ``lapsing``: the session will be
    free when the next call has released its held messages. ``none``: this is a repetition, and the lock has ended.
    """
    session: str
    fence: int
    """The fence of the lock; 0 if the session was not locked."""


class SessionsListed(NamedTuple):
    """A page of a list of sessions, in order."""

    names: tuple[str, ...]
    times: tuple[int, ...]
    """When the state of each session was set, in ms since 1970, if the list is in the order of these times."""
    onwards: str | None
    """The session after which the next page begins; ``None`` at the end."""
    more: bool = False
    """Whether work is due that may change the list. :meth:`Partition.due` does this work."""


class Settled(NamedTuple):
    """The result of a settlement: all messages were settled except the ones named here."""

    more: bool
    lost: tuple[str, ...]
    """Messages whose lock had ended, or belongs to another token."""
    unfit: tuple[str, ...] = ()
    """Messages that are dead letters already and cannot be dead-lettered."""


class Renewed(NamedTuple):
    """The result of a renewal."""

    more: bool
    lock: int
    """The ms for which the messages are locked, counted from the run of the script."""
    lost: tuple[str, ...]
    apart: tuple[str, ...]
    """The messages that have a lease of their own, because only a part of their lease was named."""
    ended: tuple[str, ...] = ()
    """The keys of the leases that were to be extended as a whole, and have ended."""


class Undone(NamedTuple):
    """The result of a cancellation. If some messages were not scheduled, nothing was cancelled."""

    more: bool
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Purged:
    """The result of one step of a purge."""

    more: bool
    count: int
    onwards: int | None
    """The place where the next step begins; ``None`` at the end."""


class Redriven(NamedTuple):
    """The result of moving dead letters back to the main side."""

    more: bool
    first: int
    """The number of the first message on the main side. The numbers of the other messages follow without a gap."""
    missing: tuple[str, ...]
    """The names of messages that are no dead letters here, that a receiver holds, or whose records are lost."""
    unfit: tuple[str, ...]
    """The names of messages that stay, because the entity requires sessions and they have none."""
    left: int
    """The number of messages at the end of the list that did not fit into the call, without the missing ones."""
    last: int
    """The last number of the dead-letter queue. Messages that become dead letters later have higher numbers."""

    def moved(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of the named messages that were moved, in the order of their new numbers."""
        there = [name for name in names if name not in self.missing]
        return tuple(name for name in there[: len(there) - self.left] if name not in self.unfit)


class Peeked(NamedTuple):
    """The result of a peek: messages as they will be when all due work is done."""

    messages: tuple[Delivery, ...]
    more: bool = False
    """Whether more work was due than the call could consider.

    If so, call :meth:`Partition.due`, then repeat the call.
    """


class Awoken(NamedTuple):
    """The result of doing due work."""

    more: bool
    due: int
    """The ms until something is due in the partition; 0 if nothing will be due."""


class Closing(NamedTuple):
    """The result of a call that closes a partition if it is idle."""

    closed: bool
    quiet: int
    """The time in ms since the last use of the partition; 0 if it is in use now."""


class Counts(NamedTuple):
    """The numbers of messages in a partition, by side and state after all due work."""

    more: int
    """1 if more work was due than the call could consider. If so, call :meth:`Partition.due`, then repeat the call."""
    due: int
    """The ms until something is due in the partition; 0 if nothing will be due."""
    bytes: int
    last: int
    active: int
    held: int
    locked: int
    delayed: int
    deferred: int
    frozen: int
    scheduled: int
    transfer: int
    dead_active: int
    dead_kept: int
    dead_locked: int
    dead_delayed: int
    dead_deferred: int
    dead_frozen: int
    transfer_dead_active: int
    transfer_dead_held: int
    transfer_dead_locked: int
    transfer_dead_delayed: int
    transfer_dead_deferred: int
    transfer_dead_frozen: int
    used: int = 0
    """The time of the last use in ms since 1970. It may be up to a minute behind."""


class Inspection(NamedTuple):
    """What a partition reports beside the counts, as it is stored, without the effects of due work."""

    waiting: int
    """The number of receivers that wait for messages or sessions."""
    free_sessions: int
    """The number of sessions that have messages and wait for a receiver."""
    locked_sessions: int
    oldest: int | None
    """When the oldest message that can be received was enqueued, in ms since 1970; ``None`` without such a message."""


class Watermark(NamedTuple):
    """A watermark as a partition keeps it."""

    name: bytes
    value: str
    number: int
    """The number of the last message that was sent with it; 0 if there was none."""


class WatermarksRead(NamedTuple):
    """A part of the watermarks of a partition."""

    watermarks: tuple[Watermark, ...]
    onwards: str | None
    """The cursor for the next part; ``None`` after the last part."""


def names(list_: list[bytes]) -> tuple[str, ...]:
    """Read the names of messages in a reply."""
    require_names(list_)
    return tuple([name.decode() for name in list_])


def require_names(list_: list[bytes]) -> None:
    """Raise :class:`ValueError` unless all of these are names of messages."""
    if list_ and not _NAMES.fullmatch(b"%b " % b" ".join(list_)):
        raise ValueError("a name of a message is malformed")


def deliveries(given: list[bytes], records: list[bytes], extras: list[Any], states: str = "") -> tuple[Delivery, ...]:
    """Read the messages in a reply. ``extras`` has :data:`FACTS` about some of them: the index from 1, a part of the
    entry, and the changes. The part of the entry has the home (in capitals if the message is a suspect), the reason,
    the failures in five digits, the expiry in 13 digits, and the number that a dead letter had before.

    The reason of a message whose record is lost is always that.
    """
    require_names(given)
    lost = LOST_RECORD in records
    if not extras and not states and not lost:
        if len(given) != len(records):
            raise ValueError("a reply has another number of records than of names")
        return tuple(map(Delivery, map(bytes.decode, given), records))
    known = {extras[at]: (extras[at + 1], extras[at + 2]) for at in range(0, len(extras), FACTS)}
    result: list[Delivery] = []
    for place, (name, record) in enumerate(zip(given, records, strict=True), 1):
        state = states[place - 1] if states else "l"
        if place in known:
            entry, changes = known[place]
            was, reason, interrupted, suspect = _past(entry[:7])
            expires = record[15:28] if record.startswith(b"x") else _NEVER
            dead = name[:1] in b"dt"  # a dead letter never expires
            own = None if dead or entry[7:20] == expires else int(entry[7:20])
            died_as = int(entry[20:36]) if name[:1] == b"d" else None
            result.append(
                Delivery(name.decode(), record, was, reason, changes, state, own, interrupted, died_as, suspect)
            )
        else:
            result.append(Delivery(name.decode(), record, state=state))
    if lost:
        return tuple([one._replace(reason=Reason.LOST.value) if one.record == LOST_RECORD else one for one in result])
    return tuple(result)


@lru_cache(maxsize=64)  # many messages have the same past
def _past(entry: bytes) -> tuple[int, str, bool, bool]:
    """Return what the beginning of an entry says: the failures, the reason, and whether the message was interrupted or
    is a suspect.
    """
    home, reason = entry[:1].decode(), entry[1:2].decode()
    return int(entry[2:7]), reason, home in "iIgG", home.isupper()


def settled(reply: list[Any]) -> Settled:
    """Read the result of a settlement."""
    lost, unfit = reply[1], reply[2] if len(reply) > 2 else None
    return Settled(bool(reply[0]), names(lost) if lost else (), names(unfit) if unfit else ())


def renewed(reply: list[Any]) -> Renewed:
    """Read the result of a renewal."""
    ended = tuple(token.decode() for token in reply[4]) if len(reply) > 4 else ()
    return Renewed(bool(reply[0]), reply[1], names(reply[2]), names(reply[3]), ended)


def spelled_out(runs: bytes) -> tuple[int, ...]:
    """Return the numbers that a reply contains as runs: ``4-6,9`` is 4, 5, 6 and 9."""
    numbers: list[int] = []
    for run in runs.decode().split(",") if runs else ():
        first, _, last = run.partition("-")
        numbers += run_of(first, last, MAXIMUM_CALL_MESSAGES - len(numbers))
    return tuple(numbers)


def run_of(first: str, last: str, most: int) -> range:
    """Return the numbers of a run; ``last`` is empty if it has one. Raises :class:`ValueError` for more than ``most``.

    The bytes of a run say nothing about its length, so each reader of runs has a limit.
    """
    numbers = range(int(first), int(last or first) + 1)
    if not first.isdigit() or not 1 <= len(numbers) <= most:
        raise ValueError("a run of numbers is malformed, or too long")
    return numbers


def sent(reply: list[Any]) -> Sent:
    """Read the result of a send."""
    return Sent(bool(reply[0]), reply[1], reply[2])


def published(reply: list[Any]) -> Sent:
    """Read the result of a publish."""
    return Sent(bool(reply[0]), reply[1], reply[2], spelled_out(reply[3]))


def received_deferred(reply: list[Any]) -> Received:
    """Read the result of a receive of deferred messages."""
    more, lock, given, records, extras, missing, left, fence = reply
    found = deliveries(given, records, extras, "g" * len(given))
    return Received(bool(more), lock, found, names(missing), left, fence)


def sessions_listed(reply: list[Any]) -> SessionsListed:
    """Read a page of a list of sessions."""
    onwards = reply[3].decode() if len(reply) > 3 else ""
    return SessionsListed(
        tuple(name.decode() for name in reply[1]),
        tuple(map(int, reply[2])),
        onwards[1:] if onwards else None,
        more=bool(reply[0]),
    )


def watermarks_read(reply: list[Any]) -> WatermarksRead:
    """Read a part of the watermarks of a partition."""
    onwards, listed, values = reply
    found = [_watermark(name, value.decode()) for name, value in zip(listed, values, strict=True)]
    return WatermarksRead(tuple(found), None if onwards == b"0" else onwards.decode())


def _watermark(name: bytes, stored: str) -> Watermark:
    number, _, value = stored.partition(" ")
    return Watermark(name, value, int(number))
