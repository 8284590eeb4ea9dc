"""The shapes of JSON's own types, and of types whose values are text in JSON."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn
from uuid import UUID

from sbredis.codec._reading import Takes
from sbredis.codec._shape import Encode, Mismatch, Shape, misfit, words

__all__ = ["SIMPLE", "plain", "refuse_inside", "require_spread", "whole_number"]

_OWN_TYPES: Final = frozenset({str, int, float, bool, type(None)})
_EVERY_KIND: Final = frozenset({"null", "bool", "int", "float", "text", "list", "map"})


def plain(value: Any, encode_other: Encode) -> Any:
    """Return a value with the values inside it that JSON does not have encoded by ``encode_other``."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _OWN_TYPES:
        return value
    if kind is list:
        return [item if type(item) in _OWN_TYPES else plain(item, encode_other) for item in value]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise TypeError(
                    f"A dict with a key of the type {type(key).__name__} cannot be sent: JSON has only text as keys. "
                    "Give the field a type, such as dict[int, str] in a dataclass."
                )
        return {key: item if type(item) in _OWN_TYPES else plain(item, encode_other) for key, item in value.items()}
    return encode_other(value)


def refuse_inside(value: Any) -> NoReturn:
    """Raise for a value that JSON does not have, inside a plain ``dict`` or ``list``."""
    raise TypeError(
        f"A value of the type {type(value).__name__} inside a plain dict or list cannot be sent, because it would not "
        "decode to an equal value. Use a dataclass whose field has this type."
    )


def _plain(value: Any) -> Any:
    """Return a value inside which only JSON's own types are, or raise for another type."""
    return plain(value, refuse_inside)


def _of_type(kind: type, kinds: str, takes: Takes = Takes.NOTHING) -> Shape:
    def encode(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{words[kind]} was expected, not a value of the type {type(value).__name__}")
        return value

    def decode(value: Any, at: str) -> Any:
        if type(value) is not kind:
            raise misfit(at, words[kind], value)
        return value

    return Shape(kind.__name__, frozenset({kinds}), encode, decode, takes=takes)


def _decode_float(value: Any, at: str) -> Any:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise Mismatch(f"{at} is larger than any float.") from None
    raise misfit(at, "a number", value)


def _encode_float(value: Any) -> Any:
    if type(value) not in {float, int}:
        raise TypeError(f"a number was expected, not a value of the type {type(value).__name__}")
    return float(value)


def _plain_container(kind: type, kinds: str) -> Shape:
    checked = _of_type(kind, kinds)
    return Shape(kind.__name__, checked.kinds, _plain, checked.decode)


# -- values that are text in JSON --------------------------------------------------------------------------------------

_MOST_EXPONENT: Final = 10_000
_MOST_COLLISIONS: Final = 1000
"""The largest number of members of one set, or keys of one mapping, whose hash another one has."""
_DURATION: Final = re.compile(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?", re.ASCII)


def _duration_text(value: timedelta) -> str:
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    fraction = f".{value.microseconds:06}" if value.microseconds else ""
    return f"{sign}P{value.days}DT{value.seconds}{fraction}S"


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None or text[-1] in "PT":
        raise ValueError
    sign, days, hours, minutes, seconds, fraction = found.groups()
    value = timedelta(
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(seconds or 0),
        microseconds=int((fraction or "").ljust(6, "0") or 0),
    )
    return -value if sign else value


def _bytes_of(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite() or not _has_sensible_size(value):
        raise ValueError
    return value


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("The value cannot be sent: JSON has no infinite number and no NaN.")
    if not _has_sensible_size(value):
        raise ValueError(
            "The value cannot be sent: the exponent of a decimal number may be from "
            f"-{_MOST_EXPONENT} to {_MOST_EXPONENT}."
        )
    return str(value)


def _has_sensible_size(value: Decimal) -> bool:
    """Return whether an application can turn the number into a whole number or a text without an exponent.

    ``1e999999999`` has 11 characters as text, and a billion digits without the exponent.
    """
    return not value or abs(value.adjusted()) <= _MOST_EXPONENT


_TEXTS: Final[dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]]] = {
    datetime: ("a date and a time in ISO 8601", datetime.isoformat, datetime.fromisoformat),
    date: ("a date in ISO 8601", date.isoformat, date.fromisoformat),
    time: ("a time in ISO 8601", time.isoformat, time.fromisoformat),
    timedelta: ("a duration in ISO 8601", _duration_text, _duration),
    UUID: ("a UUID", str, UUID),
    Decimal: ("a decimal number as text", _decimal_text, _decimal),
    bytes: ("base64 text", lambda value: base64.b64encode(value).decode(), _bytes_of),
}


def _as_text(kind: type) -> Shape:
    wanted, write, read = _TEXTS[kind]

    def encode(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"a {kind.__name__} was expected, not a value of the type {type(value).__name__}")
        return write(value)

    def decode(value: Any, at: str) -> Any:
        if type(value) is not str:
            raise misfit(at, wanted, value)
        try:
            return read(value)
        except (ValueError, InvalidOperation, OverflowError):
            raise Mismatch(f"{at} is not {wanted}.") from None

    takes = Takes.BYTES if kind is bytes else Takes.NOTHING
    return Shape(kind.__name__, frozenset({"text"}), encode, decode, takes=takes)


SIMPLE: Final[dict[Any, Shape]] = {
    str: _of_type(str, "text", Takes.TEXT),
    int: _of_type(int, "int"),
    bool: _of_type(bool, "bool"),
    float: Shape("float", frozenset({"float", "int"}), _encode_float, _decode_float),
    type(None): Shape(
        "None", frozenset({"null"}), _of_type(type(None), "null").encode, _of_type(type(None), "").decode
    ),
    dict: _plain_container(dict, "map"),
    list: _plain_container(list, "list"),
    Any: Shape("Any", _EVERY_KIND, _plain, lambda value, _: value, takes=Takes.ANYTHING),
    object: Shape("object", _EVERY_KIND, _plain, lambda value, _: value, takes=Takes.ANYTHING),
    **{kind: _as_text(kind) for kind in _TEXTS},
}


def require_spread(values: Sequence[Any], at: str) -> None:
    """Refuse members of a set, or keys of a mapping, whose hashes collide.

    The hash of a number follows from the number, so a sender can choose numbers with the same hash. A set of a hundred
    thousand of them takes minutes to make.
    """
    try:
        hashes = set(map(hash, values))
    except TypeError:
        raise Mismatch(f"{at} has a member that cannot be in a set.") from None
    if len(values) - len(hashes) > _MOST_COLLISIONS:
        raise Mismatch(f"{at} has too many members or keys that are equal, or have the same hash.")


def whole_number(value: Any, at: str) -> int:
    """Decode a key of a mapping to a whole number."""
    if not re.fullmatch(r"-?\d{1,300}", value, re.ASCII):
        raise Mismatch(f"{at} is not a whole number.")
    return int(value)
