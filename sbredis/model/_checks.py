"""Check the fields of a message: each function takes a given value, and returns the value to keep or refuses it.

A refusal is a :class:`TypeError` or a :class:`ValueError` that names the field and says what is permitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from sbredis._quoting import quoted
from sbredis.engine import NEVER, Content, NamedValues, encode, identifier
from sbredis.exceptions import MessageSizeExceededError
from sbredis.model._typed_values import is_typed, value_of_typed

__all__ = [
    "LONGEST_ID",
    "MAXIMUM_PROPERTIES_BYTES",
    "MAXIMUM_PROPERTY_BYTES",
    "body_bytes",
    "due_time",
    "encoded_bytes",
    "id_text",
    "lifetime",
    "moment",
    "named_values",
    "property_values",
    "require_one_key",
    "require_single",
    "require_small_header",
    "text",
    "text_keys",
]

MAXIMUM_PROPERTY_BYTES = 32 * 1024
"""The largest size of one property of a message. For an application property the size of its name counts too."""
MAXIMUM_PROPERTIES_BYTES = 64 * 1024
"""The largest total size of all properties: everything except the body and the message's own encoding in AMQP."""
LONGEST_ID = 128
"""The largest length of an id, in characters or bytes."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LONGEST_LIFE = timedelta(milliseconds=NEVER - 1)
_PLAIN = frozenset({str, bytes, bool, int, float, UUID, type(None)})
"""Types of values without parts, which need no further check."""
_WITH_PARTS = (list, tuple, Mapping)
"""Types that a body and an annotation may have, and an application property may not."""
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
"""The range of whole numbers that the codec keeps: 64 bits, signed or unsigned."""
_DEEPEST = 16
"""The depth of nesting beyond which the codec refuses a value."""


def body_bytes(body: object) -> bytes:
    """Return the body of a message as it is sent: text in UTF-8, ``None`` as empty bytes."""
    if type(body) is bytes:
        return body
    if body is None:
        return b""
    if isinstance(body, str):
        return _utf8(body, "body")
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)  # pyright: ignore[reportUnknownArgumentType]  # a buffer of any format
    raise TypeError(
        f"body must be str, bytes or None, not {type(body).__name__}: convert it to one of these types first, for "
        "example "
        "with json.dumps(body)"
    )


def encoded_bytes(value: object, what: str) -> bytes:
    """Return a copy of the given bytes, which are kept unchanged. Refuse values of other types."""
    if type(value) is bytes:
        return value
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{what} must be bytes or None, not {type(value).__name__}")
    return bytes(value)  # pyright: ignore[reportUnknownArgumentType]  # a buffer of any format


def text(value: object, what: str) -> str:
    """Check text: it must be valid in UTF-8, and at most 32 KB long."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str or None, not {type(value).__name__}")
    size = len(value) if value.isascii() else len(_utf8(value, what))
    if size > MAXIMUM_PROPERTY_BYTES:
        raise ValueError(
            f"{what} has {size} bytes; a property may have {MAXIMUM_PROPERTY_BYTES} bytes: put large data into the body"
        )
    return value


def id_text(value: object, what: str, *, may_be_empty: bool = False) -> str:
    """Check the text of an id: up to 128 characters."""
    if type(value) is str and 0 < len(value) <= LONGEST_ID and value.isascii():
        return value
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str or None, not {type(value).__name__}")
    identifier(value, what, may_be_empty=may_be_empty)
    return value


def require_one_key(partition_key: str | None, session_id: str | None) -> None:
    """Refuse a partition key that differs from the session id, because both choose the partition."""
    if partition_key is not None and session_id is not None and partition_key != session_id:
        raise ValueError(
            f"partition_key {quoted(partition_key)} is not the session_id {quoted(session_id)}; "
            "if both are set, they must be equal"
        )


def lifetime(value: object) -> int | None:
    """Return a time to live in ms, rounded up; ``None`` if it is too long to be a limit, as ``timedelta.max`` is."""
    if not isinstance(value, timedelta):
        raise TypeError(
            f"time_to_live must be a datetime.timedelta or None, not {type(value).__name__}, "
            "for example timedelta(seconds=30)"
        )
    if value <= timedelta(0):
        raise ValueError(f"time_to_live must be longer than zero, not {value}")
    return -(-value // _MILLISECOND) if value <= _LONGEST_LIFE else None


def due_time(value: object) -> int:
    """Return a time at which a message is to be enqueued, in ms since 1970, rounded down."""
    what = "scheduled_enqueue_time_utc"
    if not isinstance(value, datetime):
        raise TypeError(f"{what} must be a datetime.datetime or None, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise ValueError(
            f"{what} {value} has no time zone, so the time is ambiguous: start from datetime.now(timezone.utc) instead "
            "of datetime.utcnow(), or add .replace(tzinfo=timezone.utc) if it is meant in UTC"
        )
    milliseconds = (value - _EPOCH) // _MILLISECOND
    if milliseconds < _FIRST:
        raise ValueError(f"{what} {value} is before year 1 in UTC")
    if milliseconds >= NEVER:
        raise ValueError(
            f"{what} {value} is later than {moment(NEVER - 1):%Y-%m-%d}, the latest time that can be stored"
        )
    return milliseconds


def moment(milliseconds: int) -> datetime:
    """Return the time in UTC for a number of ms since 1970."""
    return _EPOCH + milliseconds * _MILLISECOND


def property_values(given: object, what: str) -> NamedValues:
    """Return a checked copy of application properties, each of which is a single value."""
    values = named_values(given, what)
    require_single(values)
    return values


def require_single(values: Mapping[Any, object]) -> None:
    """Refuse application properties with parts: AMQP has none, and the rules of subscriptions cannot compare them."""
    for name, value in values.items():
        kind = type(value)
        if kind not in _PLAIN and isinstance(value, _WITH_PARTS):
            raise TypeError(
                f"application property {quoted(name)} is of the type {kind.__name__}; it must be text, bytes, a "
                "number, a truth value, a time, a UUID or None. Put lists and dictionaries into the body, or write "
                "json.dumps(value)."
            )


def named_values(given: object, what: str) -> NamedValues:
    """Return a checked copy of a mapping: its names are text, and its values keep their types through the broker."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a mapping or None, not {type(given).__name__}")
    values = text_keys(cast("Any", given))
    for name, value in values.items():
        kind = type(cast("object", value))
        if kind is str:
            if not value.isascii():
                _utf8(value, f"property {quoted(name)}")
        elif kind not in _PLAIN or (kind is int and not _LEAST <= cast("int", value) <= _MOST):
            encode(Content(properties={name: value}))
        if type(name) is not str or not name.isascii():
            text(name, "the name of a property")
    return values


def text_keys(values: Mapping[Any, Any]) -> NamedValues:
    """Return a new mapping with the same values. Names that are bytes are read as UTF-8."""
    named = NamedValues()
    for name, value in values.items():
        named[_decoded(name) if type(name) is bytes else name] = (
            value if type(value) in _PLAIN else _own(value, name, 0)
        )
    return named


def _own(value: Any, name: object, depth: int) -> Any:
    """Return a copy of a value that shares no list or map with it. A value that names its AMQP type becomes a plain
    value.
    """
    if depth > _DEEPEST:
        return value  # the value is nested too deeply, so the codec will refuse it
    given: Any = value
    if isinstance(value, Mapping):
        if is_typed(given):
            return _own(_untyped(given, name), name, depth + 1)
        return {key: item if type(item) in _PLAIN else _own(item, name, depth + 1) for key, item in given.items()}
    return [_own(item, name, depth + 1) for item in given] if isinstance(value, (list, tuple)) else value


def _untyped(value: Mapping[Any, Any], name: object) -> Any:
    try:
        return value_of_typed(value)
    except TypeError as error:
        raise TypeError(f"property {quoted(name)}: {error}") from None
    except ValueError as error:
        raise ValueError(f"property {quoted(name)}: {error}") from None


def require_small_header(content: Content, body_sections: frozenset[str]) -> None:
    """Refuse application properties over 32 KB, and properties of all kinds over 64 KB together, as they are encoded.

    The body does not count, whichever field holds it. The message's own encoding in AMQP does not count either.
    """
    nothing = len(encode(Content()))
    for name, value in (content.properties or {}).items():
        size = len(encode(Content(properties={name: value}))) - nothing
        if size > MAXIMUM_PROPERTY_BYTES:
            raise MessageSizeExceededError(
                f"application property {quoted(name)} has {size} bytes; a property may have {MAXIMUM_PROPERTY_BYTES} "
                "bytes: put large data into the body"
            )
    sections = {name: value for name, value in (content.annotations or {}).items() if name not in body_sections}
    total = len(encode(replace(content, body=b"", raw_amqp=None, annotations=sections))) - nothing
    if total > MAXIMUM_PROPERTIES_BYTES:
        raise MessageSizeExceededError(
            f"the properties of the message have {total} bytes; together they may have {MAXIMUM_PROPERTIES_BYTES} "
            "bytes: put large data into the body"
        )


def _utf8(value: str, what: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} has half a surrogate pair as character {error.start}, which UTF-8 cannot express"
        ) from None


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the name of a property, {quoted(name)}, is not in UTF-8") from None
