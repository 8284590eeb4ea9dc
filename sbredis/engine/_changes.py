"""The fields of the table of changes, which the scripts of a partition call ``p``: declared once, for checks. Pure.

``begin`` opens a call and returns this table. It holds the keys, the settings and the clocks of the partition, and it
collects what the call will write. ``open_targets`` makes a smaller table for each subscription that a publish stores
copies in; the scripts call it ``target``.

Lua has no declarations of its own: a misspelt field reads as nil. So the loader (:mod:`sbredis.engine._scripts`)
refuses a file that names a field which is not in :data:`FIELDS`. :func:`unsound_fields` finds a field that is read and
never set, or set and never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from sbredis.engine._expansion import bare_code
from sbredis.engine._settings import SETTINGS
from sbredis.engine._state import UnknownFieldError

__all__ = ["FIELDS", "OPENED", "check_fields", "unsound_fields"]


_SETTINGS: Final = {
    setting.stored: f"the setting {name}" for name, setting in SETTINGS.items() if not setting.with_records
}

OPENED: Final[Mapping[str, str]] = MappingProxyType(
    {
        # the keys of the partition
        "state": "key of the settings, the clocks and the lower bounds",
        "order": "key of the messages by state and number",
        "entries": "key of the entries of messages",
        "leases": "key of the leases by token",
        "locks": "key of the tokens by the end of their lease",
        "due": "key of the events by time",
        "dedup": "key of the known message ids",
        "ops": "key of the last call of each lane",
        "words": "key of the words of receivers that grant credit",
        "grants": "key of the open grants by rank",
        "kept": "key of the words by the time when they may be forgotten",
        "store": "key of the last number, the bytes and the limits",
        "refs": "key of the records that several messages use",
        "index": "key of the messages by session; nil without sessions",
        "turns": "key of the sessions by what they do",
        "states": "key of the locks and states of sessions",
        "lasting": "key of what the partition remembers for good",
        "once": "key of what the partition remembers for a time",
        "keys": "all keys of the partition, in order",
        # the call
        "name": "the operation",
        "upkeep": "whether the call is maintenance, not a use of the entity",
        "lane": "the lane of the call; empty without one",
        "number": "the number of the call in its lane, as text",
        "new_lane": "whether this is the first call of its lane",
        "repeated": "the result of this call, if it has run before",
        # the clocks
        "now": "the plain clock",
        "now_text": "the plain clock as text",
        "logical": "the clock of locks",
        "offset": "how far the clock of locks is ahead of the plain clock",
        "old_offset": "the stored offset",
        "epoch": "whether this is the first call of an epoch",
        "run_id": "the run id of the server process",
        "run": "the run id that the caller has named; ? if it is unknown",
        "old_run_id": "the stored run id",
        # the numbers of the field `marks`; a change of one sets `marked` as well
        "dead_seq": "the last number of the dead-letter queues",
        "biggest": "the size of the largest message so far",
        "head": "a lower bound of the next expiry that is not indexed",
        "horizon": "the latest expiry that is not indexed",
        "next_lock": "a lower bound of the end of the next lease",
        "next_due": "a lower bound of the next event in `due`",
        "announced": "the due time that was last announced",
        # what other fields of the key `state` say; a change of one goes into `changed` as well
        "granted": "the last fence of a lock",
        "used": "the time of the last use",
        "calling": "whether the partition has called the mover",
        "credit": "what the partition keeps of credit, as text; empty as long as no receiver has granted any",
        # what the call will write
        "changed": "the fields of `state` to write",
        "placed": "scores and members to add to `order`",
        "taken": "members to remove from `order`",
        "entered": "names and entries to write",
        "forgotten": "names whose entries to delete",
        "awaited": "times and events to add to `due`",
        "unawaited": "events to remove from `due`",
        "index_added": "members to add to the index of sessions",
        "index_removed": "members to remove from the index of sessions",
        "touched": "sessions whose turn may have changed",
        "bytes": "the change of the stored bytes",
        "noted": "what happened to messages; nil unless the entity is audited",
        # the result
        "more": "1 if due work is left, else 0",
    }
)
"""The fields that ``begin`` sets, and what they hold."""

_LATER: Final[Mapping[str, str]] = MappingProxyType(
    {
        # what the call will write
        "marked": "whether a number of the field `marks` has changed",
        "gone": "messages to delete for good",
        "dropped": "numbers of records that lose one user",
        "dropped_sizes": "the bytes that each of `dropped` frees",
        "released": "leases that lose messages, by token",
        "suspected": "whether a message has become ready as a suspect",
        "stored": "records to write, by key",
        "sent": "the record of the only message that the call has sent, by its name",
        "given": "the gifts of the call, for the stream of settlements",
        # the way the call runs
        "credits": "what the call knows of credit, once it needs it",
        "granting": "the grants of the call and their answers",
        "moved": "whether messages or sessions may have become ready in this call",
        "roused": "held sessions in which something has changed",
        "awaits_mover": "whether the call has left messages for the mover",
        "room": "the largest number of bytes of records that due work reads",
        # a transaction
        "refused": "the refusal of a participant that could not be opened; then it has no other field",
        "advanced": "whether the due work of the participants is done",
        "beside": "all participants of the transaction",
        "pending": "the bytes that earlier operations of the transaction will store",
        "unwritten": "the bytes that earlier transactions of the call have not written",
        "seen": "messages that earlier operations of the transaction name",
        "settled": "messages that earlier transactions of the call have settled",
        "stated": "the sizes of the states that earlier operations will set, by session",
        "once_keys": "the keys of earlier operations `once`",
        "withdrawn": "messages that earlier operations will withdraw",
        "watermarks": "watermarks that earlier operations will advance",
        "last_sent": "the number of the last message that the transaction has sent here",
        # a subscription that a publish stores copies in
        "leaps": "whether its next number of a dead letter leaps, because an epoch has begun",
    }
)

FIELDS: Final[Mapping[str, str]] = MappingProxyType({**OPENED, **_SETTINGS, **_LATER})
"""Every field of a table of changes, and what it holds. A setting comes from the table of settings. Any other field
that ``begin`` does not set is nil until a script sets it, and means nothing until then.
"""

_USED = re.compile(r"(?<![\w.])(?:p|target)\.([A-Za-z_]\w*)")
_SET = re.compile(r"^[ \t]*(?P<to>[\w.\[\]#+ ]+(?:, [\w.\[\]#+ ]+)*) = (?P<values>.*)$", re.MULTILINE)
_MADE = re.compile(r"^[ \t]*(?:local )?(?:p|target) = [^{\n]*(?=\{)", re.MULTILINE)
_FIELD_MADE = re.compile(r"(?:^|[{,])\s*([A-Za-z_]\w*) = ")
_GROUP = re.compile(r"[({\[][^(){}\[\]]*[)}\]]")


def check_fields(text: str) -> None:
    """Raise :class:`UnknownFieldError` if a Lua file names a field that a table of changes does not have."""
    if all(name in FIELDS for name in _USED.findall(text)) and not _MADE.search(text):
        return  # it is so for nearly every file, and comments can only name more
    code = bare_code(text)
    unknown = dict.fromkeys(name for name in (*_USED.findall(code), *_made(code)) if name not in FIELDS)
    if unknown:
        names = ", ".join(f"p.{name}" for name in unknown)
        raise UnknownFieldError(f"{names}: a table of changes has no such field (engine/_changes.py)")


def unsound_fields(files: Mapping[str, str]) -> Iterator[str]:
    """Yield each field that the Lua files together read but never set, or set but never read, and say so.

    The scripts need not read each setting.
    """
    used: dict[str, str] = {}
    assigned: set[str] = set()
    read: set[str] = set()
    for name, text in files.items():
        code = bare_code(text)
        here = _USED.findall(code)
        used |= dict.fromkeys(here, name)
        sets = list(_assigned(code))
        assigned.update(sets, _made(code))
        read.update(field for field in here if here.count(field) > sets.count(field))
    for field in FIELDS:
        if field not in assigned and field not in _SETTINGS:
            place = f"; {used[field]} reads it" if field in used else ""
            yield f"p.{field}: nothing sets this field{place}"
        elif field not in read and field not in _SETTINGS:
            yield f"p.{field}: nothing reads this field"


def _assigned(code: str) -> Iterator[str]:
    """Yield each field that a statement assigns to, if it does not assign nil."""
    for statement in _SET.finditer(code):
        places, values = statement["to"].strip().split(", "), statement["values"].split(", ")
        for at, place in enumerate(places):
            if (used := _USED.fullmatch(place)) and (len(values) != len(places) or values[at] != "nil"):
                yield used[1]


def _made(code: str) -> Iterator[str]:
    """Yield the fields of each table that code makes as a table of changes."""
    for made in _MADE.finditer(code):
        yield from _FIELD_MADE.findall(_flat(code[made.end() :]))


def _flat(text: str) -> str:
    """Return the table at the beginning of a text, without the tables, the calls and the indices in it."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in "{([") - (sign in "})]")
        if depth == 0:
            text = text[1:at]
            break
    before = ""
    while text != before:
        before, text = text, _GROUP.sub("", text)
    return text
