"""The values of the language: which kinds there are, and what can be compared with what.

Unknown, which a property has that is missing or null, is ``None`` everywhere. A truth value of the language is
``True``, ``False`` or unknown.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from enum import Enum
from typing import Any, TypeAlias, cast
from uuid import UUID

__all__ = [
    "DECIMALS",
    "LARGEST",
    "SMALLEST",
    "Constant",
    "Kind",
    "Truth",
    "Value",
    "as_constant",
    "at_least",
    "at_most",
    "equal",
    "expressible",
    "greater",
    "kind_of",
    "less",
    "on_calendar",
    "storable",
    "unequal",
]

Value: TypeAlias = (
    "bool | int | float | Decimal | str | bytes | datetime | UUID | list[Value] | dict[Any, Value] | None"
)
"""What an application property may be."""

Constant: TypeAlias = "Value | timedelta"
"""What a parameter or a system property may be, and what an expression gives."""

Truth: TypeAlias = "bool | None"
"""True, false, or unknown."""

SMALLEST, LARGEST = -(2**63), 2**64 - 1
"""The range of whole numbers: those of 64 bits, with a sign or without."""
DECIMALS = Context(
    prec=34,
    rounding=ROUND_HALF_EVEN,
    Emin=-6143,
    Emax=6144,
    clamp=1,
    traps=[InvalidOperation, DivisionByZero, Overflow],
)
"""How decimals are reckoned with: as those of 128 bits of IEEE 754, which is what a message can carry."""


class Kind(Enum):
    """What can be compared with one another; the value is how errors call it."""

    NUMBER = "a number"
    TEXT = "text"
    TRUTH = "a truth value"
    BYTES = "bytes"
    TIME = "a time"
    SPAN = "a duration"
    ID = "a UUID"
    OTHER = "a value of no kind that can be compared"


_KINDS: dict[type, Kind] = {
    str: Kind.TEXT,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    bool: Kind.TRUTH,
    bytes: Kind.BYTES,
    timedelta: Kind.SPAN,
    UUID: Kind.ID,
}
_ORDERED = {Kind.NUMBER, Kind.TEXT, Kind.TIME, Kind.SPAN}


def kind_of(value: object) -> Kind:
    """The kind of a value that is not unknown.

    A time without a zone is of no kind: nobody knows when it is. Neither is a decimal that is not a number.
    """
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, datetime):
        return Kind.OTHER if value.utcoffset() is None else Kind.TIME
    if isinstance(value, Decimal):
        return Kind.OTHER if value.is_nan() else Kind.NUMBER
    return next((kind for cls, kind in _KINDS.items() if isinstance(value, cls)), Kind.OTHER)


def expressible(text: str, what: str) -> str:
    """The text, if it can be stored. Raises :class:`ValueError` where it has half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} has half a surrogate pair as character {error.start}, which UTF-8 cannot express"
        ) from None
    return text


def on_calendar(time: datetime) -> bool:
    """Whether a time with a zone lies within the years 1 to 9999 in UTC as well, so that it can be stored."""
    try:
        time.astimezone(UTC)
    except (OverflowError, ValueError):
        return False
    return True


def storable(value: Decimal) -> bool:
    """Whether a decimal that is a number is one of 128 bits, so that it can be stored."""
    _, digits, exponent = value.as_tuple()
    return len(digits) <= DECIMALS.prec and isinstance(exponent, int) and -6176 <= exponent <= 6111


def as_constant(value: object, what: str) -> Constant:
    """A value that a rule may hold: a parameter, or what a correlation filter asks for.

    Raises :class:`TypeError` for a value of another type, :class:`ValueError` for one that is out of range.
    """
    if value is None:
        return value
    if isinstance(value, str):
        return expressible(value, what)
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise ValueError(
            f"{what} is {value}, which has no time zone, so it is no certain time: add tzinfo=timezone.utc"
        )
    if isinstance(value, datetime) and not on_calendar(value):
        raise ValueError(f"{what} is {value}, which does not lie within the years 1 to 9999 in UTC")
    if isinstance(value, Decimal):
        if not value.is_finite() or not storable(value):
            raise ValueError(f"{what} is {value}, which is no decimal of 34 digits that can be compared")
        return value
    if kind_of(value) is Kind.OTHER:
        raise TypeError(
            f"{what} must be str, int, float, Decimal, bool, bytes, datetime, timedelta or UUID, not "
            f"{type(value).__name__}"
        )
    if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{what} is {value}, which does not fit into 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{what} is {value}, which is not a number that can be compared")
    return cast("Constant", value)


# Two values of different kinds are neither equal nor unequal, nor in any order: that is unknown. Numbers are compared
# exactly, whole or not; text by code points.


def equal(left: object, right: object) -> Truth:
    """Whether two values are equal."""
    if left is None or right is None:
        return None
    kind = kind_of(left)
    return left == right if kind is kind_of(right) and kind is not Kind.OTHER else None


def unequal(left: object, right: object) -> Truth:
    """Whether two values of one kind differ."""
    same = equal(left, right)
    return None if same is None else not same


def _ordered(left: object, right: object) -> bool:
    if left is None or right is None:
        return False
    kind = kind_of(left)
    if kind is not kind_of(right) or kind not in _ORDERED:
        return False
    # A decimal is never in an order with what is not a number, and would say so by an error.
    return not (isinstance(left, Decimal) or isinstance(right, Decimal)) or (left == left and right == right)  # noqa: PLR0124


def less(left: object, right: object) -> Truth:
    """Whether ``left`` comes before ``right``."""
    return cast("float", left) < cast("float", right) if _ordered(left, right) else None


def at_most(left: object, right: object) -> Truth:
    """Whether ``left`` comes before ``right`` or is equal to it."""
    return cast("float", left) <= cast("float", right) if _ordered(left, right) else None


def greater(left: object, right: object) -> Truth:
    """Whether ``left`` comes after ``right``."""
    return cast("float", left) > cast("float", right) if _ordered(left, right) else None


def at_least(left: object, right: object) -> Truth:
    """Whether ``left`` comes after ``right`` or is equal to it."""
    return cast("float", left) >= cast("float", right) if _ordered(left, right) else None
