"""The rows of a bulk writer: which of them are valid messages, and the partition of each. Pure.

Most rows are valid, so whole columns are checked at once. Only a row that looks wrong becomes a message, which is
checked as every message of the client is; its error is the reason of the refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from sbredis.engine import (
    NEVER,
    TEXT_VALUE,
    Outbound,
    Outgoing,
    PropertyColumns,
    decode,
    partition_for_key,
    payloads_of,
)
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage, from_content, moment, outgoing

__all__ = [
    "Backlog",
    "Encoded",
    "Refusal",
    "RowBlock",
    "RowOptions",
    "encoded",
    "encoded_messages",
    "partitions_of",
    "refusals_of",
    "too_large",
]

_SHORT = 128
"""The limit of ids in characters. A text of this number of bytes has no more characters."""
_IDS = ("message_id", "session_id", "partition_key", "reply_to_session_id")
_TOGETHER = 8 * 1024
"""If a property, or all application properties of a row, are larger, the row is checked as a message. Smaller ones
cannot exceed the limit on all properties together.
"""


class Refusal(NamedTuple):
    """A row that is not a valid message."""

    row: int
    """The index of the row among all rows of the task, counted from 0."""
    reason: str


class RowOptions(NamedTuple):
    """What a partition must know of a message besides its payload."""

    time_to_live: int | None = None
    message_id: bytes = b""
    due: int | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """Valid rows in the form for a partition."""

    rows: Outbound
    payloads: list[bytes]

    def options(self, *, detects_duplicates: bool) -> list[RowOptions] | None:
        """Return what the partition must know of each row besides its payload; ``None`` if that is nothing."""
        rows = self.rows
        ids = rows.ids if detects_duplicates else None
        if rows.time_to_live is rows.scheduled is ids is None:
            return None
        count = len(rows)
        return [
            RowOptions(None if life is None else min(life, NEVER), key or b"", due and max(due, 0))
            for life, key, due in zip(
                rows.time_to_live or [None] * count, ids or [b""] * count, rows.scheduled or [None] * count, strict=True
            )
        ]


def encoded(rows: Outbound) -> Encoded:
    """Return rows that were found valid in the form for a partition."""
    return Encoded(rows, payloads_of(rows))


def encoded_messages(messages: Sequence[ServiceBusMessage]) -> Encoded:
    """Return messages in the form for a partition. Raises the error of a message that cannot be sent."""
    made = [outgoing(message, detects_duplicates=True) for message in messages]
    return Encoded(
        Outbound(
            [b""] * len(made),
            message_id=[each.message_id for each in made],
            session_id=[_text(message.session_id) for message in messages],
            partition_key=[_text(message.partition_key) for message in messages],
            time_to_live=[each.time_to_live for each in made],
            scheduled=[each.due for each in made],
        ),
        [each.payload for each in made],
    )


def _text(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def refusals_of(rows: Outbound, first: int, *, needs_session: bool, needs_id: bool = False) -> dict[int, Refusal]:
    """Return the rows that are not valid messages, by their index in ``rows``.

    ``first`` is the index of the first row among all rows of the task.
    """
    found: dict[int, Refusal] = {}
    needed = _Needed(session_id=needs_session, message_id=needs_id)
    for row in sorted(_suspects(rows, needed)):
        reason = _reason(rows, row, needed)
        if reason is not None:
            found[row] = Refusal(first + row, reason)
    return found


def too_large(made: Encoded, largest: int) -> dict[int, str]:
    """Return why rows are larger than the entity takes, by their index in ``made``."""
    sizes = list(map(len, made.payloads))
    if max(sizes, default=0) <= largest:
        return {}
    return {
        row: f"the message has {size} bytes, and the entity takes messages of up to {largest} bytes"
        for row, size in enumerate(sizes)
        if size > largest
    }


class RowBlock(NamedTuple):
    """Rows that follow each other in a partition."""

    payloads: list[bytes]
    options: list[RowOptions] | None

    def first(self, count: int) -> RowBlock:
        """Return the first rows of this part."""
        return RowBlock(self.payloads[:count], None if self.options is None else self.options[:count])

    def outgoing(self) -> list[Outgoing]:
        """Return the messages for the engine."""
        if self.options is None:
            return list(map(Outgoing, self.payloads))
        return [
            Outgoing(payload, life, 0, key, due)
            for payload, (life, key, due) in zip(self.payloads, self.options, strict=True)
        ]


class Backlog:
    """The rows that wait for a partition, in their order."""

    def __init__(self) -> None:
        self.size = 0
        """The bytes of all payloads."""
        self._payloads: list[bytes] = []
        self._options: list[RowOptions] | None = None

    def __len__(self) -> int:
        return len(self._payloads)

    def add(self, payloads: list[bytes], options: list[RowOptions] | None) -> None:
        """Add rows at the end."""
        if self._options is None and options is not None:
            self._options = [_NONE] * len(self._payloads)
        if self._options is not None:
            self._options += [_NONE] * len(payloads) if options is None else options
        self._payloads += payloads
        self.size += sum(map(len, payloads))

    def next(self, rows: int, size: int) -> RowBlock:
        """Return the next rows: no more than these rows and bytes, but at least one row, if there is one."""
        payloads = self._payloads[:rows]
        if self.size > size and sum(map(len, payloads)) > size:
            fitting = sum(end <= size for end in accumulate(map(len, payloads)))
            payloads = payloads[: max(fitting, 1)]
        return RowBlock(payloads, None if self._options is None else self._options[: len(payloads)])

    def drop(self, rows: int) -> None:
        """Remove the next rows."""
        self.size -= sum(map(len, self._payloads[:rows]))
        del self._payloads[:rows]
        if self._options is not None:
            del self._options[:rows]


_NONE = RowOptions()


def partitions_of(rows: Outbound, first: int, partitions: int, *, detects_duplicates: bool) -> list[Sequence[int]]:
    """Return the rows of each partition, in order. Rows without a key take turns.

    The partition of a row depends only on the row and its index, so it is the same in every run.
    """
    ids = rows.ids if detects_duplicates else None
    keys = [column for column in (rows.session_id, rows.partition_key, ids) if column is not None]
    if partitions == 1:
        return [range(len(rows))]
    if not keys:
        return [range((place - first) % partitions, len(rows), partitions) for place in range(partitions)]
    found: list[list[int]] = [[] for _ in range(partitions)]
    known: dict[bytes, list[int]] = {}
    for row, values in enumerate(zip(*keys, strict=True)):
        key = next((value for value in values if value is not None), None)
        if key is None:
            found[(first + row) % partitions].append(row)
            continue
        listed = known.get(key)
        if listed is None:
            listed = known[key] = found[partition_for_key(key, partitions)]
        listed.append(row)
    return list(found)


# -- rows that look wrong ----------------------------------------------------------------------------------------------


class _Needed(NamedTuple):
    """The columns in which each row must have a value, besides the body."""

    session_id: bool
    message_id: bool

    def rows_without(self, rows: Outbound) -> Iterator[int]:
        """Yield the rows without a value in one of these columns."""
        for needed, column in ((self.session_id, rows.session_id), (self.message_id, rows.ids)):
            if needed and (column is None or None in column):
                yield from (row for row in range(len(rows)) if column is None or column[row] is None)

    def missing_in(self, rows: Outbound, row: int) -> str | None:
        """Return why a row is refused, if it has no value in one of these columns."""
        if self.session_id and (rows.session_id is None or rows.session_id[row] is None):
            return "the row has no session_id, and the entity requires sessions"
        ids = rows.ids if self.message_id else ()
        if ids is None or (ids and ids[row] is None):
            return "the row has no message_id, by which it would be recognised if it is sent again"
        return None


def _suspects(rows: Outbound, needed: _Needed) -> set[int]:
    """Return the rows that may be wrong. Rows that are wrong are among them."""
    found: set[int] = set()
    if None in rows.bodies:
        found.update(row for row, body in enumerate(rows.bodies) if body is None)
    for name, column in rows.texts():
        least, most = (1, _SHORT) if name in _IDS else (0, _TOGETHER)
        if not _all_plain([value for value in column if value is not None], least, most):
            found.update(row for row, value in enumerate(column) if value is not None and _odd(value, least, most))
    found.update(needed.rows_without(rows))
    found.update(row for row, reason in enumerate(rows.wrong or ()) if reason is not None)
    found.update(row for row, fields in enumerate(rows.others or ()) if fields)
    if rows.session_id is not None and rows.partition_key is not None:
        pairs = enumerate(zip(rows.session_id, rows.partition_key, strict=True))
        found.update(row for row, pair in pairs if None not in pair and pair[0] != pair[1])
    if rows.time_to_live is not None:
        found.update(row for row, life in enumerate(rows.time_to_live) if life is not None and life < 1)
    if rows.scheduled is not None:
        found.update(row for row, due in enumerate(rows.scheduled) if due is not None and not 0 <= due < NEVER)
    if rows.properties is not None:
        found.update(_with_odd_properties(rows.properties))
    return found


def _all_plain(values: Sequence[bytes], least: int, most: int) -> bool:
    sizes = list(map(len, values))
    return not sizes or (least <= min(sizes) and max(sizes) <= most and b"".join(values).isascii())


def _odd(value: bytes, least: int, most: int) -> bool:
    return not least <= len(value) <= most or not (value.isascii() or _is_utf_8(value))


def _is_utf_8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _with_odd_properties(properties: PropertyColumns) -> Iterator[int]:
    offsets, names, values, kinds = properties
    sizes = [0 if value is None else len(value) for value in values]
    if kinds is None:
        texts = list(values)
    else:  # other values than text were encoded by this client
        texts = [value if kind == TEXT_VALUE else None for value, kind in zip(values, kinds, strict=True)]
    most = max([end - begin for begin, end in pairwise(offsets)], default=0)
    if _all_plain(names, 0, _TOGETHER) and _all_plain([text for text in texts if text is not None], 0, _TOGETHER):
        largest = max(map(len, names), default=0) + max(sizes, default=0)
        if most * largest <= _TOGETHER:
            return
    for row, (begin, end) in enumerate(pairwise(offsets)):
        parts = [part for part in (*names[begin:end], *texts[begin:end]) if part is not None]
        size = sum(map(len, names[begin:end])) + sum(sizes[begin:end])
        if size > _TOGETHER or any(_odd(part, 0, _TOGETHER) for part in parts):
            yield row


def _reason(rows: Outbound, row: int, needed: _Needed) -> str | None:
    """Return why a row is not a valid message."""
    wrong = None if rows.wrong is None else rows.wrong[row]
    if wrong is not None:
        return wrong
    body = rows.bodies[row]
    if body is None:
        return "the row has no body"
    missing = needed.missing_in(rows, row)
    if missing is not None:
        return missing
    try:
        texts: dict[str, Any] = {
            name: value.decode() for name, column in rows.texts() if (value := column[row]) is not None
        }
        message = ServiceBusMessage(body, **texts)
        if rows.properties is not None:
            message.application_properties = rows.properties.of(row)
        if rows.time_to_live is not None and (life := rows.time_to_live[row]) is not None:
            message.time_to_live = timedelta(milliseconds=min(life, NEVER))
        if rows.scheduled is not None and (due := rows.scheduled[row]) is not None:
            message.scheduled_enqueue_time_utc = moment(due)
        if rows.others is not None and rows.others[row]:
            content = decode(payloads_of(rows.rows([row]))[0])
            ServiceBusMessage(b"", message_id=content.message_id, correlation_id=content.correlation_id)  # checks ids
            message = from_content(content)
        outgoing(message, detects_duplicates=True)
    except UnicodeDecodeError:
        return "a text of the row is not in UTF-8"
    except OverflowError:
        return "a time of the row is outside the years 1 to 9999"
    except ServiceBusError as error:
        return error.message
    except (TypeError, ValueError) as error:
        return str(error)
    return None
