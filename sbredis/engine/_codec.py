"""What a sender gives, as bytes: a message's properties and its body, opaque to the scripts but for its session.

A payload is a version, fields each with a tag, a zero, and the body to the end. A field is a length and so many bytes,
so that a reader skips what it does not know: a later release may add fields, and only a change of the meaning of those
that are there makes another version. Property values keep their type. Nothing in here is code: what is read back is
data.

A session id comes first of all fields, so that the scripts find it (``lua/includes/session_of.lua``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from sbredis._quoting import quoted

__all__ = ["Changes", "CodecError", "Content", "Value", "decode", "decode_changes", "encode", "encode_changes"]

Value: TypeAlias = "bool | int | float | str | bytes | datetime | UUID | list[Value] | dict[str, Value] | None"
"""What an application property may be."""

_VERSION = 1
_DEEPEST = 16
"""How far lists and dictionaries may stand inside one another: no input may exhaust the stack."""


class CodecError(ValueError):
    """Bytes that are no message as this release writes or reads them."""


@dataclass(slots=True)
class Content:
    """A message as its sender gave it. Times are in ms since 1970."""

    body: bytes = b""
    message_id: str | None = None
    session_id: str | None = None
    partition_key: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    subject: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    time_to_live: int | None = None
    scheduled: int | None = None
    """When it was to be enqueued."""
    properties: dict[str, Value] | None = None
    """The application's own."""
    annotations: dict[str, Value] | None = None
    """What belongs to the body and to no property: AMQP's other sections, by name."""
    assigned: str | None = field(default=None, compare=False, repr=False)
    """The id that sbredis has assigned last; it is not sent by itself."""
    id_used: bool = field(default=False, compare=False, repr=False)
    """The message was sent under its id, or is being sent."""


@dataclass(slots=True)
class Changes:
    """What was changed about a message after it was sent, as a whole: the last one to change it has the say."""

    properties: dict[str, Value] | None = None
    """All of the application's properties as they are now; ``None`` as they were sent."""
    reason: str | None = None
    """Why the application made it a dead letter."""
    description: str | None = None
    system: dict[str, Value] | None = None
    """What the action of a rule has changed of the broker's properties, by the names of :class:`Content`."""


_TEXTS = (
    (1, "message_id"),
    (2, "session_id"),
    (3, "partition_key"),
    (4, "correlation_id"),
    (5, "content_type"),
    (6, "subject"),
    (7, "to"),
    (8, "reply_to"),
    (9, "reply_to_session_id"),
)
_TEXT_OF_TAG = dict(_TEXTS)
_TIME_TO_LIVE, _SCHEDULED, _PROPERTIES, _ANNOTATIONS = 10, 11, 12, 13
_CHANGED_PROPERTIES, _REASON, _DESCRIPTION, _CHANGED_SYSTEM = 1, 2, 3, 4

_DOUBLE = struct.Struct(">d")
_SHORT = [bytes((number,)) for number in range(128)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_HALF = 1 << 63
"""Whole numbers are those of 64 bits, as everywhere else where messages are read."""


def encode(content: Content) -> bytes:
    """The payload of a message. Raises :class:`TypeError` for a property of a type that cannot be kept."""
    # This and `decode` are on the way of every message: nearly all have an id and nothing else.
    message_id = content.message_id
    parts: list[bytes]
    if content.session_id is not None:
        parts = [b"\x01"]
        _texts(parts, content, _TEXTS[1:2])  # the first of all: scripts look for it there
        if message_id is not None:
            _texts(parts, content, _TEXTS[:1])
    elif message_id is None:
        parts = [b"\x01"]
    else:
        value = message_id.encode()
        size = len(value)
        parts = [b"\x01\x01", _SHORT[size] if size < 128 else _length(size), value]
    if content.partition_key is not None or content.correlation_id is not None:
        _texts(parts, content, _TEXTS[2:4])
    if (
        content.content_type is not None
        or content.subject is not None
        or content.to is not None
        or content.reply_to is not None
        or content.reply_to_session_id is not None
    ):
        _texts(parts, content, _TEXTS[4:])
    if content.time_to_live is not None:
        _field(parts, _TIME_TO_LIVE, b"%d" % content.time_to_live)
    if content.scheduled is not None:
        _field(parts, _SCHEDULED, b"%d" % content.scheduled)
    if content.properties:
        _field(parts, _PROPERTIES, _map(content.properties, 1))
    if content.annotations:
        _field(parts, _ANNOTATIONS, _map(content.annotations, 1))
    parts += (b"\x00", content.body)
    return b"".join(parts)


def _texts(parts: list[bytes], content: Content, texts: tuple[tuple[int, str], ...]) -> None:
    for tag, name in texts:
        text: str | None = getattr(content, name)
        if text is not None:
            _field(parts, tag, text.encode())


def decode(payload: bytes, at: int = 0) -> Content:
    """The message of a payload, which begins at ``at``."""
    size = len(payload)
    if at >= size:
        raise CodecError("nothing is no message")
    if payload[at] != _VERSION:
        raise CodecError(f"a message of version {payload[at]}, which this release cannot read")
    at += 1
    content = Content()
    while True:
        if at >= size:
            raise CodecError("the fields are cut off")
        tag = payload[at]
        at += 1
        if tag == 0:
            content.body = payload[at:]
            return content
        if at < size and payload[at] < 128:
            end = at + 1 + payload[at]
            value = payload[at + 1 : end]
            if end > size:
                raise CodecError("a value is cut off")
            at = end
        else:
            value, at = _taken(payload, at)
        if tag == 1:
            content.message_id = _text(value)
        else:
            _read_field(content, tag, value)


def _read_field(content: Content, tag: int, value: bytes) -> None:
    name = _TEXT_OF_TAG.get(tag)
    if name is not None:
        setattr(content, name, _text(value))
    elif tag == _TIME_TO_LIVE:
        content.time_to_live = _number(value)
    elif tag == _SCHEDULED:
        content.scheduled = _number(value)
    elif tag == _PROPERTIES:
        content.properties = _read_map(value)
    elif tag == _ANNOTATIONS:
        content.annotations = _read_map(value)


def encode_changes(changes: Changes) -> bytes:
    """What was changed, as it is kept beside a message; empty if nothing was."""
    parts: list[bytes] = []
    if changes.properties is not None:
        _field(parts, _CHANGED_PROPERTIES, _map(changes.properties, 1))
    if changes.reason is not None:
        _field(parts, _REASON, changes.reason.encode())
    if changes.description is not None:
        _field(parts, _DESCRIPTION, changes.description.encode())
    if changes.system is not None:
        _field(parts, _CHANGED_SYSTEM, _map(changes.system, 1))
    return b"".join((b"\x01", *parts, b"\x00")) if parts else b""


def decode_changes(data: bytes) -> Changes:
    """The reverse of :func:`encode_changes`."""
    changes = Changes()
    if not data:
        return changes
    for tag, value in _fields(data)[0]:
        if tag == _CHANGED_PROPERTIES:
            changes.properties = _read_map(value)
        elif tag == _REASON:
            changes.reason = _text(value)
        elif tag == _DESCRIPTION:
            changes.description = _text(value)
        elif tag == _CHANGED_SYSTEM:
            changes.system = _read_map(value)
    return changes


# -- fields ------------------------------------------------------------------------------------------------------------


def _length(number: int) -> bytes:
    """A length, seven bits a byte, the lowest first."""
    if number < 128:
        return _SHORT[number]
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _field(parts: list[bytes], tag: int, value: bytes) -> None:
    parts += (_SHORT[tag], _length(len(value)), value)


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 35:
            raise CodecError("a length is cut off or too long")
        digit = data[at]
        at += 1
        number |= (digit & 127) << shift
        if digit < 128:
            return number, at
        shift += 7


def _taken(data: bytes, at: int) -> tuple[bytes, int]:
    """A length and so many bytes."""
    length, at = _read_length(data, at)
    if at + length > len(data):
        raise CodecError("a value is cut off")
    return data[at : at + length], at + length


def _fields(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """The fields with their tags, and where they end."""
    if not data:
        raise CodecError("nothing is no message")
    if data[0] != _VERSION:
        raise CodecError(f"a message of version {data[0]}, which this release cannot read")
    fields: list[tuple[int, bytes]] = []
    at = 1
    while True:
        if at >= len(data):
            raise CodecError("the fields are cut off")
        tag = data[at]
        if tag == 0:
            return fields, at + 1
        value, at = _taken(data, at + 1)
        fields.append((tag, value))


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"a text is not in UTF-8: {error.reason}") from None


def _number(value: bytes) -> int:
    digits = value[1:] if value[:1] == b"-" else value
    if not digits.isdigit() or len(digits) > 4000:
        raise CodecError("a number is malformed")
    return int(value)


# -- values ------------------------------------------------------------------------------------------------------------


def _map(values: Mapping[Any, Any], depth: int) -> bytes:
    if depth > _DEEPEST:
        raise ValueError(f"properties stand more than {_DEEPEST} deep inside one another")
    parts: list[bytes] = []
    for key, value in values.items():
        if not isinstance(key, str):
            raise TypeError(f"the name of a property is text, not {type(key).__name__}")
        name = key.encode()
        kind, data = _value(value, key, depth)
        parts += (_length(len(name)), name, kind, _length(len(data)), data)
    return b"".join(parts)


def _time(value: datetime, name: str) -> bytes:
    if value.tzinfo is None:
        raise ValueError(f"property {quoted(name)} is a time without a zone: say which, datetime.UTC for one")
    microseconds = (value - _EPOCH) // _MICROSECOND
    if not _FIRST <= microseconds <= _LAST:
        raise ValueError(f"property {quoted(name)} is {value}, which is no time of the years 1 to 9999 in UTC")
    return b"%d" % microseconds


def _integer(value: int, name: str) -> bytes:
    if not -_HALF <= value < _HALF:
        raise ValueError(f"property {quoted(name)} is a whole number that does not fit into 64 bits")
    return b"%d" % value


_WRITERS: dict[type, Callable[[Any, str, int], tuple[bytes, bytes]]] = {
    str: lambda value, _, __: (b"s", value.encode()),
    type(None): lambda _, __, ___: (b"n", b""),
    bool: lambda value, _, __: (b"t" if value else b"f", b""),
    int: lambda value, name, _: (b"i", _integer(value, name)),
    float: lambda value, _, __: (b"d", _DOUBLE.pack(value)),
    bytes: lambda value, _, __: (b"b", value),
    bytearray: lambda value, _, __: (b"b", bytes(value)),
    datetime: lambda value, name, _: (b"z", _time(value, name)),
    UUID: lambda value, _, __: (b"u", value.bytes),
    list: lambda value, _, depth: (b"l", _map({str(at): item for at, item in enumerate(value)}, depth + 1)),
    tuple: lambda value, _, depth: (b"l", _map({str(at): item for at, item in enumerate(value)}, depth + 1)),
    dict: lambda value, _, depth: (b"m", _map(value, depth + 1)),
}
"""The letter and the bytes of a value by its type; a subclass is kept as what it extends."""


def _value(value: Any, name: str, depth: int) -> tuple[bytes, bytes]:
    for kind in type(value).__mro__:
        if kind in _WRITERS:
            return _WRITERS[kind](value, name, depth)
    raise TypeError(
        f"property {quoted(name)} is of the type {type(value).__name__}; a property is text, bytes, a number, "
        "a truth value, a time, a UUID, None, or a list or dictionary of these"
    )


def _read_map(data: bytes, depth: int = 1) -> dict[str, Value]:
    if depth > _DEEPEST:
        raise CodecError(f"properties stand more than {_DEEPEST} deep inside one another")
    values: dict[str, Value] = {}
    at = 0
    while at < len(data):
        name, at = _taken(data, at)
        kind = data[at : at + 1]
        value, at = _taken(data, at + 1)
        values[_text(name)] = _read_value(kind, value, depth)
    return values


def _read_value(kind: bytes, value: bytes, depth: int) -> Value:
    if kind == b"s":
        return _text(value)
    if kind == b"i":
        return _number(value)
    if kind == b"b":
        return value
    if kind == b"d" and len(value) == _DOUBLE.size:
        double: float = _DOUBLE.unpack(value)[0]
        return double
    if kind in {b"t", b"f"}:
        return kind == b"t"
    if kind == b"n":
        return None
    if kind == b"z":
        try:
            return _EPOCH + _number(value) * _MICROSECOND
        except OverflowError:
            raise CodecError("a time lies beyond all calendars") from None
    if kind == b"u" and len(value) == 16:
        return UUID(bytes=value)
    if kind == b"l":
        return list(_read_map(value, depth + 1).values())
    if kind == b"m":
        return _read_map(value, depth + 1)
    raise CodecError(f"a value of an unknown kind, {kind!r}")
