"""The values of the language: their kinds, and the rules for comparing them.

The value of a property that is missing or null is *unknown*, which is ``None`` everywhere. A truth value of the
language is ``True``, ``False`` or unknown.
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
"""The types of an application property."""

Constant: TypeAlias = "Value | timedelta"
"""The types of a parameter, of a system property, and of an expression's value."""

Truth: TypeAlias = "bool | None"
"""True, false, or unknown."""

SMALLEST, LARGEST = -(2**63), 2**64 - 1
"""The range of whole numbers: 64 bits, with or without a sign."""
DECIMALS = Context(
    prec=34,
    rounding=ROUND_HALF_EVEN,
    Emin=-6143,
    Emax=6144,
    clamp=1,
    traps=[InvalidOperation, DivisionByZero, Overflow],
)
"""The arithmetic of decimals, with the 128 bits of IEEE 754: the decimals that a message can carry."""


class Kind(Enum):
    """A kind of values that can be compared with one another; the enumeration's value is its name in errors."""

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
    """Return the kind of a value that is not unknown.

    A time without a time zone has the kind ``OTHER``, because it is not a definite time. A decimal that is NaN has this
    kind too.
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
    """Return a text if it can be stored. Raises :class:`ValueError` if it has half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} has half a surrogate pair as character {error.start}, which UTF-8 cannot encode"
        ) from None
    return text


def on_calendar(time: datetime) -> bool:
    """Return whether a time with a time zone is within the years 1 to 9999 in UTC too, so that it can be stored."""
    try:
        time.astimezone(UTC)
    except (OverflowError, ValueError):
        return False
    return True


def storable(value: Decimal) -> bool:
    """Return whether a decimal that is not NaN fits into 128 bits, so that it can be stored."""
    _, digits, exponent = value.as_tuple()
    return len(digits) <= DECIMALS.prec and isinstance(exponent, int) and -6176 <= exponent <= 6111


def as_constant(value: object, what: str) -> Constant:
    """Check and return a value of a rule: a parameter, or a wanted value of a correlation filter.

    Raises :class:`TypeError` for a value of another type, and :class:`ValueError` for a value that is out of range.
    """
    if value is None:
        return value
    if isinstance(value, str):
        return expressible(value, what)
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise ValueError(
            f"{what} is {value}, which has no time zone, so it is not a definite time: add tzinfo=timezone.utc"
        )
    if isinstance(value, datetime) and not on_calendar(value):
        raise ValueError(f"{what} is {value}, which is outside the years 1 to 9999 in UTC")
    if isinstance(value, Decimal):
        if not value.is_finite() or not storable(value):
            raise ValueError(f"{what} is {value}, which is not a finite decimal of 128 bits (up to 34 digits)")
        return value
    if kind_of(value) is Kind.OTHER:
        raise TypeError(
            f"{what} must be str, int, float, Decimal, bool, bytes, datetime, timedelta or UUID, not "
            f"{type(value).__name__}"
        )
    if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{what} is {value}, which does not fit into 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{what} is {value}, which is not a finite number")
    return cast("Constant", value)


# The comparison of two values of different kinds is unknown. All numbers are compared exactly; text is compared by code
# points.


def equal(left: object, right: object) -> Truth:
    """Return whether two values are equal."""
    if left is None or right is None:
        return None
    kind = kind_of(left)
    return left == right if kind is kind_of(right) and kind is not Kind.OTHER else None


def unequal(left: object, right: object) -> Truth:
    """Return whether two values of one kind differ."""
    same = equal(left, right)
    return None if same is None else not same


def _ordered(left: object, right: object) -> bool:
    if left is None or right is None:
        return False
    kind = kind_of(left)
    if kind is not kind_of(right) or kind not in _ORDERED:
        return False
    # If one side is a decimal and one side is NaN, Python would raise an error for the comparison.
    return not (isinstance(left, Decimal) or isinstance(right, Decimal)) or (left == left and right == right)  # noqa: PLR0124


def less(left: object, right: object) -> Truth:
    """Return whether ``left`` comes before ``right``."""
    return cast("float", left) < cast("float", right) if _ordered(left, right) else None


def at_most(left: object, right: object) -> Truth:
    """Return whether ``left`` comes before ``right`` or is equal to it."""
    return cast("float", left) <= cast("float", right) if _ordered(left, right) else None


def greater(left: object, right: object) -> Truth:
    """Return whether ``left`` comes after ``right``."""
    return cast("float", left) > cast("float", right) if _ordered(left, right) else None


def at_least(left: object, right: object) -> Truth:
    """Return whether ``left`` comes after ``right`` or is equal to it."""
    return cast("float", left) >= cast("float", right) if _ordered(left, right) else None
