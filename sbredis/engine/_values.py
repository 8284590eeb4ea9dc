"""Values of application properties and AMQP bodies as bytes. Each value keeps its type.

A value is stored as a letter for its type, a length, and that number of bytes. The bytes of a list are its values, one
after the other. The bytes of a map are its names and values, or its keys and values if a key is not text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias
from uuid import UUID

from sbredis._quoting import quoted
from sbredis._unreadable import unreadable

__all__ = [
    "MESSAGE",
    "SHORT",
    "NamedValues",
    "Value",
    "length_bytes",
    "map_bytes",
    "read_map",
    "read_number",
    "read_text",
    "read_value",
    "taken",
    "value_bytes",
]

Value: TypeAlias = (
    "bool | int | float | Decimal | str | bytes | datetime | UUID | list[Value] | dict[Any, Value] | None"
)
"""The types of an application property. A key of a map has one of these types, but is neither a list nor a map."""

_DEEPEST = 16
"""The largest depth of nested lists and dictionaries, so that no input can exhaust the stack."""
_DOUBLE = struct.Struct(">d")
SHORT = [bytes((number,)) for number in range(128)]
"""The encodings of lengths below 128."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
"""Whole numbers have 64 bits, with or without a sign, as in AMQP."""
_MOST_DIGITS, _LEAST_EXPONENT, _MOST_EXPONENT = 34, -6176, 6111
"""Decimals have the 128 bits of IEEE 754, as in AMQP."""
_LONGEST_DECIMAL = 64
_LONGEST_NUMBER = 20
MESSAGE = "A message"
"""The name of what this module reads, in errors."""
_MOST_COLLISIONS = 1000
"""The largest number of keys of one map whose hash another key of the map has. More would take a time that grows with
the square of their number. Only numbers that a sender has chosen for it collide.
"""


# -- parts -------------------------------------------------------------------------------------------------------------


def length_bytes(number: int) -> bytes:
    """Encode a length with seven bits in each byte, the lowest bits first."""
    if number < 128:
        return SHORT[number]
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 35:
            raise unreadable(MESSAGE, "a length is cut off or too long")
        digit = data[at]
        at += 1
        number |= (digit & 127) << shift
        if digit < 128:
            return number, at
        shift += 7


def taken(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a length and that number of bytes; return the bytes and their end."""
    if at < len(data) and data[at] < 128:
        start = at + 1
        end = start + data[at]
    else:
        length, start = _read_length(data, at)
        end = start + length
    if end > len(data):
        raise unreadable(MESSAGE, "a value is cut off")
    return data[start:end], end


def read_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise unreadable(MESSAGE, f"a text is not in UTF-8: {error.reason}") from None


def read_number(value: bytes, least: int = _LEAST, most: int = _MOST) -> int:
    """Read a whole number from ``least`` to ``most``."""
    digits = value[1:] if value[:1] == b"-" else value
    if not digits.isdigit() or len(digits) > _LONGEST_NUMBER:
        raise unreadable(MESSAGE, "a number is malformed")
    number = int(value)
    if not least <= number <= most:
        raise unreadable(MESSAGE, "a number is too small or too large")
    return number


# -- writing and reading -----------------------------------------------------------------------------------------------


def map_bytes(values: Mapping[Any, Any], depth: int) -> bytes:
    """Encode a mapping from names to values."""
    _require_depth(depth)
    parts: list[bytes] = []
    for key, value in values.items():
        if not isinstance(key, str):
            raise TypeError(f"the name of a property must be text, not {type(key).__name__}")
        name = key.encode()
        kind, data = value_bytes(value, key, depth)
        parts += (length_bytes(len(name)), name, kind, length_bytes(len(data)), data)
    return b"".join(parts)


def _keyed(values: Mapping[Any, Any], name: str, depth: int) -> tuple[bytes, bytes]:
    """Encode a map inside a property: return the letter of its form and its bytes."""
    if all(isinstance(key, str) for key in values):
        return b"m", map_bytes(values, depth)
    _require_depth(depth)
    parts: list[bytes] = []
    for key, value in values.items():
        if not isinstance(key, _SIMPLE):
            raise TypeError(
                f"property {quoted(name)} has a key of the type {type(key).__name__}; a key must be text, bytes, a "
                "number, a truth value, a time, a UUID or None"
            )
        for item in (key, value):
            kind, data = value_bytes(item, name, depth)
            parts += (kind, length_bytes(len(data)), data)
    return b"k", b"".join(parts)


def _list(values: list[Any] | tuple[Any, ...], name: str, depth: int) -> bytes:
    _require_depth(depth)
    parts: list[bytes] = []
    for value in values:
        kind, data = value_bytes(value, name, depth)
        parts += (kind, length_bytes(len(data)), data)
    return b"".join(parts)


def _require_depth(depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"properties are nested more than {_DEEPEST} deep")


def _time(value: datetime, name: str) -> bytes:
    if value.tzinfo is None:
        raise ValueError(f"property {quoted(name)} is a time without a time zone: give it one, such as datetime.UTC")
    microseconds = (value - _EPOCH) // _MICROSECOND
    if not _FIRST <= microseconds <= _LAST:
        raise ValueError(f"property {quoted(name)} is {value}, which is outside the years 1 to 9999 in UTC")
    return b"%d" % microseconds


def _integer(value: int, name: str) -> bytes:
    if not _LEAST <= value <= _MOST:
        raise ValueError(
            f"property {quoted(name)} is a whole number that does not fit into 64 bits: it may be from "
            "-2**63 to 2**64 - 1"
        )
    return b"%d" % value


def _decimal(value: Decimal, name: str) -> bytes:
    if not _fits(value):
        raise ValueError(
            f"property {quoted(name)} is a decimal that does not fit into 128 bits: it may have {_MOST_DIGITS} digits "
            f"and an exponent from {_LEAST_EXPONENT} to {_MOST_EXPONENT}, or be infinite or a quiet NaN"
        )
    return str(value).encode()


def _fits(value: Decimal) -> bool:
    _, digits, exponent = value.as_tuple()
    if isinstance(exponent, int):
        return len(digits) <= _MOST_DIGITS and _LEAST_EXPONENT <= exponent <= _MOST_EXPONENT
    return exponent == "F" or (exponent == "n" and not digits)


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
    Decimal: lambda value, name, _: (b"c", _decimal(value, name)),
    list: lambda value, name, depth: (b"l", _list(value, name, depth + 1)),
    tuple: lambda value, name, depth: (b"l", _list(value, name, depth + 1)),
    dict: lambda value, name, depth: _keyed(value, name, depth + 1),
}
"""A mapping from a type to the function that encodes a value. A subclass is stored as its base class."""
_SIMPLE = (str, int, float, bytes, datetime, UUID, Decimal, type(None))
"""The types that have no parts and can be keys."""


def value_bytes(value: Any, name: str, depth: int) -> tuple[bytes, bytes]:
    for kind in type(value).__mro__:
        if kind in _WRITERS:
            return _WRITERS[kind](value, name, depth)
    raise TypeError(
        f"property {quoted(name)} is of the type {type(value).__name__}; a property must be text, bytes, a number, "
        "a truth value, a time, a UUID or None. A body or an annotation may also be a list or dictionary of these"
    )


def read_map(data: bytes) -> dict[str, Value]:
    """Read the properties or the annotations of a message."""
    values: dict[str, Value] = NamedValues()
    _read_names(data, 1, values)
    return values


def _read_names(data: bytes, depth: int, values: dict[Any, Value]) -> dict[Any, Value]:
    _require_shallow(depth)
    at, size = 0, len(data)
    while at < size:
        name, at = taken(data, at)
        kind = data[at : at + 1]
        value, at = taken(data, at + 1)
        values[read_text(name)] = read_value(kind, value, depth)
    return values


def _read_keyed(data: bytes, depth: int) -> dict[Any, Value]:
    items = _read_list(data, depth)
    if len(items) % 2 or any(isinstance(key, (list, dict)) for key in items[::2]):
        raise unreadable(MESSAGE, "a map is malformed")
    if len(items) > _MOST_COLLISIONS and len(items) // 2 - len(set(map(hash, items[::2]))) > _MOST_COLLISIONS:
        raise unreadable(MESSAGE, "a map has too many keys that collide")
    return dict(zip(items[::2], items[1::2], strict=True))


def _read_list(data: bytes, depth: int) -> list[Value]:
    _require_shallow(depth)
    values: list[Value] = []
    at, size = 0, len(data)
    while at < size:
        kind = data[at : at + 1]
        value, at = taken(data, at + 1)
        values.append(read_value(kind, value, depth))
    return values


def _require_shallow(depth: int) -> None:
    if depth > _DEEPEST:
        raise unreadable(MESSAGE, f"properties are nested more than {_DEEPEST} deep")


def _read_double(value: bytes, _: int) -> float:
    if len(value) != _DOUBLE.size:
        raise unreadable(MESSAGE, "a floating-point number is malformed")
    double: float = _DOUBLE.unpack(value)[0]
    return double


def _read_time(value: bytes, _: int) -> datetime:
    try:
        return _EPOCH + read_number(value) * _MICROSECOND
    except OverflowError:
        raise unreadable(MESSAGE, "a time is outside the years 1 to 9999") from None


def _read_uuid(value: bytes, _: int) -> UUID:
    if len(value) != 16:
        raise unreadable(MESSAGE, "a UUID is malformed")
    return UUID(bytes=value)


def _read_decimal(value: bytes, _: int) -> Decimal:
    try:
        if len(value) <= _LONGEST_DECIMAL and _fits(found := Decimal(value.decode("ascii"))):
            return found
    except (InvalidOperation, UnicodeDecodeError):
        pass
    raise unreadable(MESSAGE, "a decimal is malformed")


_READERS: dict[bytes, Callable[[bytes, int], Value]] = {
    b"s": lambda value, _: read_text(value),
    b"n": lambda _, __: None,
    b"t": lambda _, __: True,
    b"f": lambda _, __: False,
    b"i": lambda value, _: read_number(value),
    b"d": _read_double,
    b"b": lambda value, _: value,
    b"z": _read_time,
    b"u": _read_uuid,
    b"c": _read_decimal,
    b"l": lambda value, depth: _read_list(value, depth + 1),
    b"m": lambda value, depth: _read_names(value, depth + 1, {}),
    b"k": lambda value, depth: _read_keyed(value, depth + 1),
}


def read_value(kind: bytes, value: bytes, depth: int) -> Value:
    reader = _READERS.get(kind)
    if reader is None:
        raise unreadable(MESSAGE, "a value has a type that this release does not know")
    return reader(value, depth)


# -- the mapping of the properties -----------------------------------------------------------------------------------


class NamedValues(dict[str, Any]):
    """A mapping from names to values, for a message's application properties and annotations. The names are text.

    A name may also be looked up as bytes, as programs for Azure Service Bus do. The lookup then decodes the bytes as
    UTF-8, unless the mapping has a value under the bytes themselves.
    """

    __slots__ = ()

    def __missing__(self, name: object) -> Any:
        found = _text_of(name)
        if found is None or not super().__contains__(found):
            raise KeyError(name)
        return super().__getitem__(found)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or super().__contains__(_text_of(name))

    def get(self, name: Any, default: Any = None) -> Any:
        """Return the value of a name; ``default`` if there is none."""
        try:
            return self[name]
        except KeyError:
            return default

    def copy(self) -> NamedValues:
        """Return a copy of this mapping, of the same class."""
        return NamedValues(self)


def _text_of(name: object) -> str | None:
    """Return a name in bytes as text; ``None`` if it is not bytes or not UTF-8."""
    if not isinstance(name, bytes):
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None
