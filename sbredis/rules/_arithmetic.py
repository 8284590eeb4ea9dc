"""Arithmetic on whole numbers of 64 bits, decimals, floating-point numbers, times and durations; text is joined.

The result of a decimal and a whole number is a decimal. If one of two numbers is a floating-point number, the result is
a floating-point number.

If an operand is unknown, the result is unknown.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal, DecimalException
from typing import Any, cast

from sbredis.rules._syntax import Operator
from sbredis.rules._values import DECIMALS, LARGEST, SMALLEST, Constant, Kind, kind_of

__all__ = ["LONGEST_TEXT", "EvaluationError", "calculate", "negate"]

LONGEST_TEXT = 32 * 1024
"""The largest length of joined text. Without a limit, an action could fill the memory."""


class EvaluationError(Exception):
    """A filter or an action cannot be evaluated on a message."""


def _over(left: float, right: float) -> float:
    if right == 0:
        raise EvaluationError("division by zero")
    if not (isinstance(left, int) and isinstance(right, int)):
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _rest(left: float, right: float) -> float:
    if right == 0:
        raise EvaluationError("division by zero")
    if not (isinstance(left, int) and isinstance(right, int)):
        return math.fmod(left, right)
    rest = abs(left) % abs(right)
    return rest if left >= 0 else -rest


def _rest_of_decimals(left: Decimal, right: Decimal) -> Decimal:
    """Return the exact remainder, with the sign of ``left``, even if ``left`` is very much larger than ``right``.

    The method of a decimal context would refuse a quotient with more digits than a decimal has.
    """
    left, right = Decimal(left), Decimal(right)
    if abs(left) < abs(right):
        return left
    sign, over, upper = _parts(left)
    _, under, lower = _parts(right)
    rest = over * pow(10, upper - lower, under) if upper >= lower else over
    rest %= under * 10 ** max(0, lower - upper)
    return DECIMALS.scaleb(Decimal(-rest if sign else rest), min(upper, lower))


def _parts(number: Decimal) -> tuple[int, int, int]:
    """Return sign, digits and exponent of a finite decimal."""
    sign, digits, exponent = number.as_tuple()
    return sign, int("".join(map(str, digits))), cast("int", exponent)


_ON_NUMBERS: dict[str, Callable[[Any, Any], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _over,
    "%": _rest,
}
_ON_DECIMALS: dict[str, Callable[[Any, Any], Decimal]] = {
    "+": DECIMALS.add,
    "-": DECIMALS.subtract,
    "*": DECIMALS.multiply,
    "/": DECIMALS.divide,
    "%": _rest_of_decimals,
}
_VERBS = {"+": "add {right} to {left}", "-": "subtract {right} from {left}", "*": "multiply {left} by {right}"}
_DIVIDE = "divide {left} by {right}"


def calculate(sign: Operator, left: Constant, right: Constant) -> Constant:
    """Return the result of an operator.

    Raises :class:`EvaluationError` if the operator has no result for these operands.
    """
    if left is None or right is None:
        return None
    kinds = kind_of(left), kind_of(right)
    try:
        if kinds == (Kind.NUMBER, Kind.NUMBER):
            if isinstance(left, Decimal) or isinstance(right, Decimal):
                return _fitting(_on_decimals(sign, cast("Decimal", left), cast("Decimal", right)))
            return _fitting(_ON_NUMBERS[sign](left, right))
        if sign == "+" and kinds == (Kind.TEXT, Kind.TEXT):
            return _joined(cast("str", left), cast("str", right))
        if Kind.SPAN in kinds or kinds == (Kind.TIME, Kind.TIME):
            moved = _moved(sign, left, right)
            if moved is not None:
                return moved
    # caused by times, or by numbers that are too large or infinite
    except (OverflowError, ValueError, DecimalException):
        raise EvaluationError("the result is too large") from None
    verb = _VERBS.get(sign, _DIVIDE)
    raise EvaluationError(f"cannot {verb.format(left=kinds[0].value, right=kinds[1].value)}")


def _on_decimals(sign: Operator, left: Decimal | float, right: Decimal | float) -> Decimal | float:
    """Return the result of an operator on two numbers; at least one must be a decimal."""
    if isinstance(left, float) or isinstance(right, float):
        return _ON_NUMBERS[sign](float(left), float(right))
    if sign in {"/", "%"} and right == 0:
        raise EvaluationError("division by zero")
    return _ON_DECIMALS[sign](left, right)


def negate(sign: str, value: Constant) -> Constant:
    """Return a number or a duration with a sign applied to it."""
    if value is None:
        return None
    kind = kind_of(value)
    if kind not in {Kind.NUMBER, Kind.SPAN}:
        raise EvaluationError(f"cannot put {sign} before {kind.value}")
    if isinstance(value, timedelta):
        try:
            return -value if sign == "-" else value
        except OverflowError:
            raise EvaluationError("the result is too large") from None
    if isinstance(value, Decimal):
        return _fitting(value.copy_negate() if sign == "-" else value)
    number = cast("float", value)
    return _fitting(-number if sign == "-" else number)


def _fitting(number: Decimal | float) -> Decimal | float:
    if isinstance(number, int):
        if not SMALLEST <= number <= LARGEST:
            raise EvaluationError("the result does not fit into 64 bits")
    elif not (number.is_finite() if isinstance(number, Decimal) else math.isfinite(number)):
        raise EvaluationError("the result is not a finite number")
    return number


def _joined(left: str, right: str) -> str:
    if len(left) + len(right) > LONGEST_TEXT:
        raise EvaluationError(f"the text would be longer than {LONGEST_TEXT:,} characters")
    return left + right


def _moved(sign: Operator, left: Constant, right: Constant) -> datetime | timedelta | None:
    """Return a sum or a difference of times and durations; ``None`` if these cannot be added or subtracted."""
    if sign == "+" and isinstance(right, timedelta) and isinstance(left, datetime | timedelta):
        return left + right
    if sign == "+" and isinstance(left, timedelta) and isinstance(right, datetime):
        return right + left
    if sign == "-" and isinstance(left, datetime) and isinstance(right, datetime | timedelta):
        return left - right
    if sign == "-" and isinstance(left, timedelta) and isinstance(right, timedelta):
        return left - right
    return None
