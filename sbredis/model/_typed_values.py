"""Values that name their AMQP type, ``{"TYPE": "ULONG", "VALUE": 7}``, as programs for Azure's library write them.

sbredis needs no such type. It checks that the value fits the type, and converts it to the value that a receiver of
Azure's library would get.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

__all__ = ["is_typed", "value_of_typed"]

_TYPE, _VALUE = "TYPE", "VALUE"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_typed(given: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is a value that names its AMQP type, and not a map of the application's own."""
    if len(given) != 2 or _TYPE not in given or _VALUE not in given:
        return False
    kind = given[_TYPE]
    return isinstance(kind, str) and kind in _READERS


def value_of_typed(given: Mapping[Any, Any]) -> Any:
    """Return the plain value. Raises :class:`ValueError` or :class:`TypeError` if the value does not fit its type."""
    kind, value = given[_TYPE], given[_VALUE]
    try:
        return _READERS[kind](value)
    except _UnfitError as error:
        raise ValueError(str(error)) from None
    except (ArithmeticError, TypeError, ValueError):
        raise TypeError(f"a value of the AMQP type {kind} cannot be made of {type(value).__name__}") from None


class _UnfitError(ValueError):
    pass


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        if not least <= value <= most:
            raise _UnfitError(f"{value} is outside {least} to {most}, the range of its AMQP type")
        return value

    return read


def _signed(bits: int) -> Callable[[Any], int]:
    return _whole(-(1 << bits - 1), (1 << bits - 1) - 1)


def _unsigned(bits: int) -> Callable[[Any], int]:
    return _whole(0, (1 << bits) - 1)


def _only(*kinds: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError
        return value

    return read


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, (str, bytes)):
        raise TypeError
    return value.decode() if isinstance(value, bytes) else value


def _character(value: Any) -> str:
    character = _text(value)
    if len(character) != 1:
        raise _UnfitError(f"the AMQP type CHAR holds one character, not {len(character)}")
    return character


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError
    return bytes(value)


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    return _EPOCH + timedelta(milliseconds=_signed(64)(value))


def _uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    return UUID(bytes=bytes(value)) if isinstance(value, (bytes, bytearray)) else UUID(cast("str", value))


def _described(value: Any) -> Any:
    """Return a described value without its descriptor, which is not sent."""
    _, described = value
    return described


_READERS: dict[str, Callable[[Any], Any]] = {
    "NULL": _only(type(None)),
    "BOOL": _only(bool),
    "UBYTE": _unsigned(8),
    "BYTE": _signed(8),
    "USHORT": _unsigned(16),
    "SHORT": _signed(16),
    "UINT": _unsigned(32),
    "INT": _signed(32),
    "ULONG": _unsigned(64),
    "LONG": _signed(64),
    "FLOAT": _float,
    "DOUBLE": _float,
    "DECIMAL128": _only(Decimal),
    "CHAR": _character,
    "TIMESTAMP": _time,
    "UUID": _uuid,
    "BINARY": _bytes,
    "STRING": _text,
    "SYMBOL": _text,
    "LIST": _only(list, tuple),
    "ARRAY": _only(list, tuple),
    "MAP": _only(Mapping),
    "DESCRIBED": _described,
}
