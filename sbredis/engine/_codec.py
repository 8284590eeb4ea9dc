"""A message's properties and body as bytes. The scripts read only the session id from these bytes.

A payload consists of a version, fields, a zero, and the body. A field is a tag, a length and that number of bytes, so a
reader can skip a field that it does not know. A later release may add fields; a new version is needed only if the
meaning of existing fields changes. Property values keep their type. Decoding never runs code; it yields only data.

The session id is the first field, so that the scripts can find it (``lua/includes/sessions/session_at.lua``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

from sbredis._unreadable import unreadable
from sbredis.engine._values import (
    MESSAGE,
    SHORT,
    Value,
    length_bytes,
    map_bytes,
    read_map,
    read_number,
    read_text,
    read_value,
    taken,
    value_bytes,
)

__all__ = [
    "CHANGED_PROPERTIES",
    "CHANGED_SYSTEM",
    "DEAD_LETTER_SOURCE",
    "DESCRIPTION",
    "ID_OF_TAG",
    "NUMBER_OF_TAG",
    "OTHER_TAGS",
    "PROPERTIES",
    "REASON",
    "SCHEDULED",
    "TEXT_OF_TAG",
    "TIME_TO_LIVE",
    "Changes",
    "Content",
    "MessageId",
    "Value",
    "decode",
    "decode_changes",
    "encode",
    "encode_changes",
    "encode_plain",
    "read_id",
    "set_system",
]

MessageId: TypeAlias = "str | int | UUID | bytes"
"""The types of a message id and of a correlation id."""

_VERSION = 1


@dataclass
class Content:
    """A message as its sender gave it. Times are in ms since 1970.

    The class has no slots on purpose: the defaults are attributes of the class, so reading a message costs nothing for
    the fields that it does not have.
    """

    body: bytes = b""
    message_id: MessageId | None = None
    session_id: str | None = None
    partition_key: str | None = None
    correlation_id: MessageId | None = None
    content_type: str | None = None
    subject: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    time_to_live: int | None = None
    scheduled: int | None = None
    """The time for which it was scheduled."""
    properties: dict[str, Value] | None = None
    """The application's own properties."""
    annotations: dict[str, Value] | None = None
    """The other sections of an AMQP message, by name: neither properties nor the body."""
    raw_amqp: bytes | None = None
    """The sender's own encoding of the message. sbredis does not read it."""
    modified: int | None = None
    """1 if fields have changed since the sender gave the message; otherwise ``None``."""
    hops: int | None = None
    """How often the message was forwarded; ``None`` if it never was."""
    enqueued_number: int | None = None
    """The sequence number in the entity to which the message was sent, if it was moved from there."""
    dead_letter_source: str | None = None
    """The entity in which the message became a dead letter, if it was moved from there."""
    dead_letter_number: int | None = None
    """The sequence number that it had in that entity before it became a dead letter."""
    assigned: str | None = field(default=None, compare=False, repr=False)
    """The last id that sbredis has assigned to the message. This field itself is not sent."""
    id_used: bool = field(default=False, compare=False, repr=False)
    """Whether the message was sent under its id, or is being sent."""


@dataclass(slots=True)
class Changes:
    """All changes to a message after it was sent. New changes replace all earlier changes."""

    properties: dict[str, Value] | None = None
    """All application properties after the change; ``None`` if they have not changed."""
    reason: str | None = None
    """Why the application made it a dead letter."""
    description: str | None = None
    system: dict[str, Value] | None = None
    """The broker properties that the action of a rule has changed, by the names of :class:`Content`."""
    destination: str | None = None
    """Of a transfer, also as a dead letter: where it is to be moved, as :class:`Recipient` writes it."""


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
TEXT_OF_TAG = dict(_TEXTS)
"""The fields that are text, by their tags."""
TIME_TO_LIVE, SCHEDULED, PROPERTIES, _ANNOTATIONS, _RAW_AMQP = 10, 11, 12, 13, 16
_HOPS, _ENQUEUED_NUMBER, DEAD_LETTER_SOURCE, _DEAD_LETTER_NUMBER, _MODIFIED = 17, 18, 19, 20, 21
_RAW_AMQP_AROUND = 22
"""The sender's own encoding without the body, which it contains: where the body was, a blank, and the rest."""
_SHORTEST_BODY = 16
"""The fewest bytes of a body that is left out of the sender's own encoding."""
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last time that a calendar has, in ms since 1970."""
NUMBER_OF_TAG = {
    TIME_TO_LIVE: ("time_to_live", 0, _LAST),
    SCHEDULED: ("scheduled", _FIRST, _LAST),
    _HOPS: ("hops", 0, 999),
    _ENQUEUED_NUMBER: ("enqueued_number", 0, (1 << 63) - 1),
    _DEAD_LETTER_NUMBER: ("dead_letter_number", 0, (1 << 63) - 1),
    _MODIFIED: ("modified", 1, 1),
}
"""The fields that are numbers, by their tags: their names and their limits."""
_TYPED = {1: 14, 4: 15}
"""An id has one tag if it is text, and a second tag if it has another type. This maps the first tag to the second."""
ID_OF_TAG = {tag: TEXT_OF_TAG[of_text] for of_text, tag in _TYPED.items()}
"""The ids, by their tags for other types than text."""
OTHER_TAGS = (_ANNOTATIONS, *ID_OF_TAG, _RAW_AMQP, _RAW_AMQP_AROUND, _MODIFIED)
"""The fields of a sender that are neither text, a number nor properties."""
CHANGED_PROPERTIES, REASON, DESCRIPTION, CHANGED_SYSTEM, _DESTINATION = 1, 2, 3, 4, 5
"""The tags of the fields of changes."""

_SYSTEM_IDS = frozenset(ID_OF_TAG.values())
_SYSTEM_TEXTS = frozenset(TEXT_OF_TAG.values())
_SYSTEM_NUMBERS = {name: limits for name, *limits in NUMBER_OF_TAG.values()}

_new = object.__new__


def encode(content: Content) -> bytes:
    """Return the payload of a message. Raises :class:`TypeError` for a property whose type cannot be stored."""
    # This and `decode` run for every message. Both are fast for the usual message, which has an id and no other
    # property.
    message_id = content.message_id
    parts: list[bytes]
    if content.session_id is not None:
        parts = [b"\x01"]
        _texts(parts, content, _TEXTS[1:2])  # the session id is the first field, because scripts look for it there
        if message_id is not None:
            _texts(parts, content, _TEXTS[:1])
    elif message_id is None:
        parts = [b"\x01"]
    elif not isinstance(message_id, str):
        parts = [b"\x01"]
        _texts(parts, content, _TEXTS[:1])
    else:
        value = message_id.encode()
        size = len(value)
        parts = [b"\x01\x01", SHORT[size] if size < 128 else length_bytes(size), value]
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
        _field(parts, TIME_TO_LIVE, b"%d" % content.time_to_live)
    if content.scheduled is not None:
        _field(parts, SCHEDULED, b"%d" % content.scheduled)
    if content.properties:
        _field(parts, PROPERTIES, map_bytes(content.properties, 1))
    if content.annotations:
        _field(parts, _ANNOTATIONS, map_bytes(content.annotations, 1))
    if (
        content.raw_amqp is not None
        or content.modified is not None
        or content.enqueued_number is not None
        or content.hops is not None
        or content.dead_letter_source is not None
        or content.dead_letter_number is not None
    ):
        parts += _rare(content)
    parts += (b"\x00", content.body)
    return b"".join(parts)


def encode_plain(message_id: str, body: bytes) -> bytes:
    """Return the payload of a message that has only an id of less than 128 bytes, and a body."""
    value = message_id.encode()
    return b"".join((b"\x01\x01", SHORT[len(value)], value, b"\x00", body))


def _rare(content: Content) -> list[bytes]:
    """Return the fields that most messages do not have: the sender's own encoding, and those of a moved message."""
    parts: list[bytes] = []
    if content.raw_amqp is not None:
        raw, size = content.raw_amqp, len(content.body)
        at = raw.find(content.body) if size >= _SHORTEST_BODY else -1
        if at < 0:
            _field(parts, _RAW_AMQP, raw)
        else:
            _field(parts, _RAW_AMQP_AROUND, b"%d " % at + raw[:at] + raw[at + size :])
    if content.modified is not None:
        _field(parts, _MODIFIED, b"%d" % content.modified)
    if content.enqueued_number is not None:
        _field(parts, _ENQUEUED_NUMBER, b"%d" % content.enqueued_number)
    if content.hops is not None:
        _field(parts, _HOPS, b"%d" % content.hops)
    if content.dead_letter_source is not None:
        _field(parts, DEAD_LETTER_SOURCE, content.dead_letter_source.encode())
    if content.dead_letter_number is not None:
        _field(parts, _DEAD_LETTER_NUMBER, b"%d" % content.dead_letter_number)
    return parts


def _texts(parts: list[bytes], content: Content, texts: tuple[tuple[int, str], ...]) -> None:
    for tag, name in texts:
        text: MessageId | None = getattr(content, name)
        if isinstance(text, str):
            _field(parts, tag, text.encode())
        elif text is not None:
            _field(parts, _TYPED[tag], b"".join(value_bytes(text, name, 1)))


def decode(payload: bytes, at: int = 0) -> Content:
    """Return the message of a payload, which begins at ``at``."""
    size = len(payload)
    if at >= size:
        raise unreadable(MESSAGE, "the message is empty")
    if payload[at] != _VERSION:
        raise unreadable(MESSAGE, f"the message has version {payload[at]}, which this release cannot read")
    at += 1
    content, around = _new(Content), b""
    while True:
        if at >= size:
            raise unreadable(MESSAGE, "the fields are cut off")
        tag = payload[at]
        at += 1
        if tag == 0:
            content.body = payload[at:]
            if around:
                content.raw_amqp = _with_body(around, content.body)
            return content
        if at < size and payload[at] < 128:
            end = at + 1 + payload[at]
            value = payload[at + 1 : end]
            if end > size:
                raise unreadable(MESSAGE, "a value is cut off")
            at = end
        else:
            value, at = taken(payload, at)
        if tag == 1:
            content.message_id = read_text(value)
        elif tag == _RAW_AMQP_AROUND:
            around = value
        else:
            _read_field(content, tag, value)


def _with_body(around: bytes, body: bytes) -> bytes:
    """Return the sender's own encoding with its body."""
    place, _, rest = around.partition(b" ")
    at = read_number(place, 0, len(rest))
    return rest[:at] + body + rest[at:]


def _read_field(content: Content, tag: int, value: bytes) -> None:
    name = TEXT_OF_TAG.get(tag)
    if name is not None:
        setattr(content, name, read_text(value))
    elif tag in NUMBER_OF_TAG:
        name, least, most = NUMBER_OF_TAG[tag]
        setattr(content, name, read_number(value, least, most))
    elif tag == PROPERTIES:
        content.properties = read_map(value)
    elif tag == _ANNOTATIONS:
        content.annotations = read_map(value)
    elif tag == _RAW_AMQP:
        content.raw_amqp = value
    elif tag == DEAD_LETTER_SOURCE:
        content.dead_letter_source = read_text(value)
    elif tag in ID_OF_TAG:
        setattr(content, ID_OF_TAG[tag], read_id(value))


def read_id(value: bytes) -> MessageId:
    """Read an id that is not text."""
    kind = value[:1]
    if kind not in {b"i", b"u", b"b"}:
        raise unreadable(MESSAGE, "an id has a type that this release does not know")
    found: Any = read_value(kind, value[1:], 1)
    return found  # type: ignore[no-any-return]  # a value of one of the three kinds


def set_system(content: Content, changed: dict[str, Value]) -> None:
    """Give a message the broker properties that the action of a rule has changed."""
    for name, value in changed.items():
        if name in _SYSTEM_IDS:
            fits = value is None or type(value) in {str, int, UUID, bytes}
        elif name in _SYSTEM_NUMBERS:
            least, most = _SYSTEM_NUMBERS[name]
            fits = value is None or (type(value) is int and least <= value <= most)
        else:
            fits = name in _SYSTEM_TEXTS and (value is None or type(value) is str)
        if not fits:
            raise unreadable(MESSAGE, "a property that was changed is malformed")
        setattr(content, name, value)


def encode_changes(changes: Changes) -> bytes:
    """Return changes in the form in which they are stored beside a message; empty if there are none."""
    parts: list[bytes] = []
    if changes.properties is not None:
        _field(parts, CHANGED_PROPERTIES, map_bytes(changes.properties, 1))
    if changes.reason is not None:
        _field(parts, REASON, changes.reason.encode())
    if changes.description is not None:
        _field(parts, DESCRIPTION, changes.description.encode())
    if changes.system is not None:
        _field(parts, CHANGED_SYSTEM, map_bytes(changes.system, 1))
    if changes.destination is not None:
        _field(parts, _DESTINATION, changes.destination.encode())
    return b"".join((b"\x01", *parts, b"\x00")) if parts else b""


def decode_changes(data: bytes) -> Changes:
    """Read changes that :func:`encode_changes` wrote."""
    changes = Changes()
    if not data:
        return changes
    for tag, value in _fields(data)[0]:
        if tag == CHANGED_PROPERTIES:
            changes.properties = read_map(value)
        elif tag == REASON:
            changes.reason = read_text(value)
        elif tag == DESCRIPTION:
            changes.description = read_text(value)
        elif tag == CHANGED_SYSTEM:
            changes.system = read_map(value)
        elif tag == _DESTINATION:
            changes.destination = read_text(value)
    return changes


# -- fields ------------------------------------------------------------------------------------------------------------


def _field(parts: list[bytes], tag: int, value: bytes) -> None:
    parts += (SHORT[tag], length_bytes(len(value)), value)


def _fields(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """Return the fields with their tags, and the position of their end."""
    if not data:
        raise unreadable(MESSAGE, "the message is empty")
    if data[0] != _VERSION:
        raise unreadable(MESSAGE, f"the message has version {data[0]}, which this release cannot read")
    fields: list[tuple[int, bytes]] = []
    at = 1
    while True:
        if at >= len(data):
            raise unreadable(MESSAGE, "the fields are cut off")
        tag = data[at]
        if tag == 0:
            return fields, at + 1
        value, at = taken(data, at + 1)
        fields.append((tag, value))
