"""Messages in columns, for readers of many messages at once: the replies of scripts become Arrow's buffers. Pure.

A reader of a million messages cannot afford an object for each of them. So this module builds columns from the stored
bytes: a text is copied, but never decoded, and a field that no message has costs nothing. The columns say the same
about each message as :func:`~sbredis.engine._codec.decode`; a test compares the two.

The buffers have the layout of Apache Arrow, which is not imported here: ``offsets`` are the ends of the values, with a
zero in front, and ``valid`` has a bit for each row, the lowest bit first.
"""

from __future__ import annotations

import json
from array import array
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, chain, repeat
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from sbredis._unreadable import decodes, unreadable
from sbredis.engine._codec import (
    CHANGED_PROPERTIES,
    CHANGED_SYSTEM,
    DEAD_LETTER_SOURCE,
    DESCRIPTION,
    ID_OF_TAG,
    NUMBER_OF_TAG,
    OTHER_TAGS,
    PROPERTIES,
    REASON,
    TEXT_OF_TAG,
    Changes,
    decode,
    decode_changes,
    encode,
    read_id,
    set_system,
)
from sbredis.engine._lifecycle import NEVER, Reason
from sbredis.engine._results import FACTS, LOST_RECORD, Delivery, deliveries, payload_offset
from sbredis.engine._values import (
    MESSAGE,
    SHORT,
    Value,
    length_bytes,
    read_number,
    read_text,
    read_value,
    taken,
)

__all__ = [
    "Columns",
    "Maps",
    "Numbers",
    "PlainLayout",
    "Rows",
    "RowsRead",
    "Texts",
    "columns_of",
    "plain_layout",
    "text_of",
]

_ACTIVE, _EXPIRING, _SCHEDULED = b"axs"
_START = {_ACTIVE: 15, _EXPIRING: 28, _SCHEDULED: 15}
"""The place of the payload in a record, by the record's form."""
_NUMBERS = {
    tag: limits for tag, limits in NUMBER_OF_TAG.items() if limits[0] not in {"hops", "dead_letter_number", "modified"}
}
_TEXTS = {**TEXT_OF_TAG, DEAD_LETTER_SOURCE: "dead_letter_source"}
_TAG_OF_TEXT = {name: tag for tag, name in TEXT_OF_TAG.items()}
_TEXT = ord("s")
"""The letter of the values of properties that are text."""
_BARE = b"\x01\x00"
"""The beginning of a payload without fields."""
_NAMED = b"\x01\x01"
"""The beginning of a payload whose first field is the message id."""


class Rows(NamedTuple):
    """Messages as they are in the reply of a script."""

    names: list[bytes]
    records: list[bytes]
    extras: Sequence[Any] = ()
    """For some messages: the index from 1, a part of the entry, and the changes (see
    :func:`~sbredis.engine._results.deliveries`).
    """
    states: str = ""
    """The state of each message, as :class:`~sbredis.engine._results.Delivery` has it; empty if all are the same."""

    def first(self, count: int) -> Rows:
        """Return the first messages."""
        size = len(self.extras)
        end = next((at for at in range(0, size, FACTS) if self.extras[at] > count), size)
        return Rows(self.names[:count], self.records[:count], self.extras[:end], self.states[:count])

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """The messages one by one."""
        return deliveries(self.names, self.records, list(self.extras), self.states)


class RowsRead(NamedTuple):
    """The rows of one reply."""

    rows: Rows
    more: bool
    """Whether more work was due than the call could consider."""


class PlainLayout(NamedTuple):
    """Where the parts of a stored message are that has a body, perhaps an id, and no other field: the usual ones.

    Messages whose records have the same ``form`` and the same ``head`` have the same layout. A reader can then cut many
    messages at once. The numbers are places in the record.
    """

    form: bytes
    """The first byte of the record."""
    enqueued: tuple[int, int]
    expires: tuple[int, int] | None
    payload: int
    head: bytes
    """The first bytes of the payload. If it has an id, the size of the id follows, and then the id and a zero."""
    has_id: bool


def plain_layout(record: bytes) -> PlainLayout | None:
    """Return the layout of a record; ``None`` if its message has other fields, or is not enqueued, or is damaged."""
    form = record[:1]
    payload = {b"a": _START[_ACTIVE], b"x": _START[_EXPIRING]}.get(form)
    if payload is None:
        return None
    head = record[payload : payload + len(_BARE)]
    if head not in {_BARE, _NAMED}:
        return None
    return PlainLayout(form, (2, 15), (15, 28) if form == b"x" else None, payload, head, head == _NAMED)


class Texts(NamedTuple):
    """Texts in UTF-8, or bytes: value ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    data: bytes
    offsets: array[int]
    valid: bytes | None = None
    """A bit for each row that has a value; ``None`` if all rows have one."""


class Numbers(NamedTuple):
    """Whole numbers of 64 bits. Times are in ms since 1970."""

    values: array[int]
    valid: bytes | None = None
    """A bit for each row that has a value; ``None`` if all rows have one."""


class Maps(NamedTuple):
    """Application properties: the names and values of row ``i`` are those from ``offsets[i]`` to ``offsets[i + 1]``."""

    offsets: array[int]
    names: Texts
    values: Texts
    """The values as text: a time as in ISO 8601, bytes in base64, a list or a map in JSON."""
    valid: bytes | None = None
    """A bit for each row that has properties; ``None`` if all rows have some."""
    typed: Mapping[int, Value] = MappingProxyType({})
    """The values that are not text, by their places among all values."""


@dataclass(slots=True)
class Columns:
    """Messages in columns. A column is ``None`` or missing if no message has a value."""

    rows: int
    numbers: Numbers
    enqueued: Numbers
    bodies: Texts | None = None
    expires: Numbers | None = None
    time_to_live: Numbers | None = None
    scheduled: Numbers | None = None
    enqueued_number: Numbers | None = None
    died_as: Numbers | None = None
    """The numbers that dead letters had before they died."""
    failures: Numbers | None = None
    """The number of failed deliveries; no value means none."""
    texts: dict[str, Texts] = field(default_factory=dict[str, Texts])
    """By the names of :class:`~sbredis.engine._codec.Content`. Ids of all types are text here: bytes are in base64.

    ``reason`` and ``description`` are what an application has said about its dead letter.
    """
    properties: Maps | None = None
    others: Texts | None = None
    """What a message has beside all other columns: sections of AMQP, and ids that are not text. It has the form of a
    payload without a body.
    """
    reasons: str | None = None
    """Why each message is a dead letter, as the letter of a :class:`~sbredis.engine._lifecycle.Reason`."""
    states: str | None = None
    """The state of each message, if the replies tell it."""


@decodes(MESSAGE)
def columns_of(replies: Sequence[Rows], *, body: bool = True, properties: bool = True) -> Columns:
    """Return the messages of several replies in columns, in their order.

    Raises :class:`~sbredis.exceptions.DataLayoutError` for a message that this release cannot read.
    """
    names = list(chain.from_iterable(reply.names for reply in replies))
    records = list(chain.from_iterable(reply.records for reply in replies))
    if len(names) != len(records):
        raise unreadable(MESSAGE, "a name or a record is missing")
    lost = [row for row, record in enumerate(records) if record == LOST_RECORD] if LOST_RECORD in records else []
    extras = _extras(replies)
    changed = _changed(extras)
    for row in {*changed.rows[CHANGED_PROPERTIES], *changed.rows[CHANGED_SYSTEM]}:
        records[row] = _with_changes(records[row], decode_changes(changed.all[row]))
    made = _parsed(names, records, body=body, properties=properties)
    if any(reply.states for reply in replies):
        made.states = "".join(reply.states for reply in replies)
    if extras.rows:
        _add_extras(made, names, extras, changed)
    if lost:
        _tell_lost(made, lost)
    return made


# -- records -----------------------------------------------------------------------------------------------------------


def _parsed(names: list[bytes], records: list[bytes], *, body: bool, properties: bool) -> Columns:
    count = len(records)
    forms = {record[0] for record in records}
    numbers = array("q", map(int, [name[1:] for name in names] if names and names[0][:1] in b"dt" else names))
    if forms <= {_ACTIVE} or forms == {_EXPIRING}:
        start = _START[forms.pop() if forms else _ACTIVE]
        made = Columns(count, Numbers(numbers), Numbers(_stamps(records)))
        if start == _START[_EXPIRING]:
            ends = Numbers(array("q", [int(record[15:28]) for record in records]))
            made.expires = ends if max(ends.values) < NEVER else _ends(_by_row(ends), count)
    else:
        times = {row: int(record[2:15]) for row, record in enumerate(records) if record[0] != _SCHEDULED}
        made = Columns(count, Numbers(numbers), _numbers(times, count))
        made.expires = _ends(
            {row: int(record[15:28]) for row, record in enumerate(records) if record[0] == _EXPIRING}, count
        )
    _fill(made, records, body=body, properties=properties)
    return made


def _stamps(records: list[bytes]) -> array[int]:
    """Return the enqueued times of records. Messages that were sent together have the same, which is read once."""
    texts = [record[2:15] for record in records]
    return array("q", map({text: int(text) for text in set(texts)}.__getitem__, texts))


def _fill(made: Columns, records: list[bytes], *, body: bool, properties: bool) -> None:
    """Fill in all fields."""
    rows, values, bodies = _fields(records, [_START[record[0]] for record in records])
    if body:
        made.bodies = _joined(bodies)
    for tag, name in ID_OF_TAG.items():  # ids that are not text
        text = _TAG_OF_TEXT[name]
        rows[text] += rows[tag]
        values[text] += [text_of(read_id(value)) for value in values[tag]]
    for tag, name in _TEXTS.items():
        if rows[tag]:
            made.texts[name] = _column(rows[tag], values[tag], made.rows)
    for tag, (name, least, most) in _NUMBERS.items():
        if rows[tag]:
            numbers = [read_number(value, least, most) for value in values[tag]]
            found = dict(zip(rows[tag], numbers, strict=True))
            setattr(made, name, _numbers(found, made.rows))
    if properties and rows[PROPERTIES]:
        made.properties = _maps(rows[PROPERTIES], values[PROPERTIES], made.rows)
    if properties and any(rows[tag] for tag in OTHER_TAGS):
        made.others = _others(rows, values, made.rows)


def _others(rows: list[list[int]], values: list[list[bytes]], count: int) -> Texts:
    """Return the other fields of each row as a payload without a body."""
    found: dict[int, bytes] = {}
    for tag in OTHER_TAGS:
        for row, value in zip(rows[tag], values[tag], strict=True):
            found[row] = b"".join((found.get(row, b"\x01"), SHORT[tag], length_bytes(len(value)), value))
    return _joined([found[row] + b"\x00" if row in found else b"" for row in range(count)], _bitmap(found, count))


def _fields(records: Sequence[bytes], starts: Iterable[int]) -> tuple[list[list[int]], list[list[bytes]], list[bytes]]:
    """Return the rows and the values of all fields, each by its tag, and what follows the fields."""
    rows: list[list[int]] = [[] for _ in range(256)]
    values: list[list[bytes]] = [[] for _ in range(256)]
    bodies: list[bytes] = []
    for row, (record, at) in enumerate(zip(records, starts, strict=False)):
        if record[at] != 1:
            decode(record, at)  # raises the error for this version
        at += 1
        while tag := record[at]:
            size = record[at + 1]
            if size < 128:
                begin = at + 2
                at = begin + size
                value = record[begin:at]
            else:
                value, at = taken(record, at + 1)
            rows[tag].append(row)
            values[tag].append(value)
        bodies.append(record[at + 1 :])
    return rows, values, bodies


def _column(rows: list[int], values: list[bytes], count: int) -> Texts:
    """Return a column of texts. If a row has several values, the last one counts."""
    if len(values) == count and rows == list(range(count)):
        return _texts(values)
    found = dict(zip(rows, values, strict=True))
    return _texts([found.get(row, b"") for row in range(count)], _bitmap(found, count))


def _texts(values: list[bytes], valid: bytes | None = None) -> Texts:
    """Return a column of texts. Raises :class:`~sbredis.exceptions.DataLayoutError` if one is not in UTF-8."""
    joined = _joined(values, valid)
    if not joined.data.isascii():
        for value in values:
            read_text(value)
    return joined


def _joined(values: list[bytes], valid: bytes | None = None) -> Texts:
    return Texts(b"".join(values), array("i", accumulate(map(len, values), initial=0)), valid)


def _numbers(found: Mapping[int, int], count: int) -> Numbers:
    if len(found) == count:
        return Numbers(array("q", [found[row] for row in range(count)]))
    return Numbers(array("q", [found.get(row, 0) for row in range(count)]), _bitmap(found, count))


def _bitmap(rows: Iterable[int], count: int) -> bytes:
    """Return a bit for each row, which is set for these rows."""
    bits = bytearray((count + 7) // 8)
    for row in rows:
        bits[row >> 3] |= 1 << (row & 7)
    return bytes(bits)


# -- application properties --------------------------------------------------------------------------------------------


def _maps(rows: list[int], values: list[bytes], count: int) -> Maps:
    found = dict(zip(rows, values, strict=True))
    sizes = array("i", [0]) * count
    names: list[bytes] = []
    texts: list[bytes] = []
    typed: dict[int, Value] = {}
    for row in sorted(found):
        data = found[row]
        at, size, before = 0, len(data), len(names)
        while at < size:
            length = data[at]
            if length < 128:
                begin = at + 1
                at = begin + length
                name = data[begin:at]
            else:
                name, at = taken(data, at)
            names.append(name)
            kind, length = data[at], data[at + 1]
            if length < 128:
                begin = at + 2
                at = begin + length
                value = data[begin:at]
            else:
                value, at = taken(data, at + 1)
            if kind != _TEXT:
                typed[len(texts)] = found_value = read_value(bytes((kind,)), value, 1)
                value = text_of(found_value)
            texts.append(value)
        if at > size:
            raise unreadable(MESSAGE, "a property is cut off")
        sizes[row] = len(names) - before
    missing = {at for at, value in typed.items() if value is None}
    there = None if not missing else _bitmap((at for at in range(len(texts)) if at not in missing), len(texts))
    valid = None if len(found) == count else _bitmap(found, count)
    return Maps(array("i", accumulate(sizes, initial=0)), _texts(names), _texts(texts, there), valid, typed)


def text_of(value: object) -> bytes:
    """Return a value as text in UTF-8: a text as it is, and every other value as JSON has it."""
    plain = _plain(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return text.encode(errors="replace")


def _plain(value: object) -> object:
    """Return a value in the form that JSON has for it."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case list():
            return [_plain(each) for each in cast("list[object]", value)]
        case dict():
            items = cast("dict[object, object]", value).items()
            return {text_of(key).decode(): _plain(each) for key, each in items}
        case float():
            return value if isfinite(value) else str(value)
        case None | str() | bool() | int():
            return value
        case _:
            return str(value)


# -- what the records do not say ---------------------------------------------------------------------------------------


class _Extras(NamedTuple):
    """The extras of several replies. Each list is in the order of ``rows``."""

    rows: list[int]
    entries: list[bytes]
    """Home, reason, failures and expiry."""
    changes: list[bytes]


class _ChangedRows(NamedTuple):
    """The changes to messages, whose fields are not decoded yet."""

    all: Mapping[int, bytes]
    """By row, without those of messages that have none."""
    rows: list[list[int]]
    """The rows of each field, by its tag."""
    values: list[list[bytes]]
    """The values of each field, by its tag."""


def _extras(replies: Sequence[Rows]) -> _Extras:
    found = _Extras([], [], [])
    first = -1
    for reply in replies:
        found.rows.extend([first + place for place in reply.extras[::FACTS]])
        found.entries.extend(reply.extras[1::FACTS])
        found.changes.extend(reply.extras[2::FACTS])
        first += len(reply.records)
    return found


def _changed(extras: _Extras) -> _ChangedRows:
    """Return the fields of the changes, as :func:`~sbredis.engine._codec.decode_changes` finds them.

    Most dead letters have a reason and a description, and an object for the changes of each would take five times as
    long as this.
    """
    found = {row: changes for row, changes in zip(extras.rows, extras.changes, strict=True) if changes}
    places, values, _ = _fields(list(found.values()), repeat(0))
    of = list(found)
    return _ChangedRows(found, [[of[place] for place in each] for each in places], values)


def _with_changes(record: bytes, changes: Changes) -> bytes:
    """Return a record whose payload has these changes."""
    start = payload_offset(record)
    content = decode(record, start)
    if changes.properties is not None:
        content.properties = changes.properties
    set_system(content, changes.system or {})
    return record[:start] + encode(content)


def _add_extras(made: Columns, names: list[bytes], extras: _Extras, changed: _ChangedRows) -> None:
    count, rows, entries = made.rows, extras.rows, extras.entries
    failures = {row: int(entry[2:7]) for row, entry in zip(rows, entries, strict=True) if entry[2:7] != b"00000"}
    made.failures = _numbers(failures, count) if failures else None
    whole = len(rows) == count  # then the lists are in the order of the messages
    letters = b"".join([entry[1:2] for entry in entries]).decode()
    if not whole:
        of = dict(zip(rows, letters, strict=True))
        letters = "".join([of.get(row, "-") for row in range(count)])
    if letters.count("-") < count:
        made.reasons = letters
        for name, tag in (("reason", REASON), ("description", DESCRIPTION)):
            said, texts = changed.rows[tag], changed.values[tag]
            if "-" in letters:
                dead = [place for place, row in enumerate(said) if letters[row] != "-"]
                said, texts = [said[place] for place in dead], [texts[place] for place in dead]
            if said:
                made.texts[name] = _column(said, texts, count)
    side = names[rows[0]][:1]
    if side == b"d":
        made.died_as = _numbers({row: int(entry[20:36]) for row, entry in zip(rows, entries, strict=True)}, count)
    if side not in b"dt":
        own = {row: int(entry[7:20]) for row, entry in zip(rows, entries, strict=True)}
        made.expires = _ends(own if whole else {**_by_row(made.expires), **own}, count)


def _tell_lost(made: Columns, lost: Collection[int]) -> None:
    """Say of these rows that their records are lost; so it is not known when they were enqueued."""
    times = _by_row(made.enqueued)
    made.enqueued = _numbers({row: time for row, time in times.items() if row not in lost}, made.rows)
    reasons = list(made.reasons or "-" * made.rows)
    for row in lost:
        reasons[row] = Reason.LOST.value
    made.reasons = "".join(reasons)


def _ends(found: Mapping[int, int], count: int) -> Numbers | None:
    """Return the times when messages expire, if any of them does."""
    ends = {row: end for row, end in found.items() if end < NEVER}
    return _numbers(ends, count) if ends else None


def _by_row(column: Numbers | None) -> dict[int, int]:
    if column is None:
        return {}
    values, valid = column
    return {row: end for row, end in enumerate(values) if valid is None or valid[row >> 3] >> (row & 7) & 1}
