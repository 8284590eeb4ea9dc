"""The meaning of the filter language in its simplest and slowest form: the reference for the fast implementation.

The reference walks the tree, and has tables for three-valued logic and no index. It shares only the tree with the code
under test.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any
from uuid import UUID, uuid4

from sbredis.exceptions import RuleSyntaxError
from sbredis.rules import CorrelationFilter, FalseFilter, Rule, SqlFilter, TrueFilter
from sbredis.rules._parser import RuleParser
from sbredis.rules._syntax import (
    AllOf,
    AnyOf,
    Arithmetic,
    Compare,
    Exists,
    IsNull,
    Like,
    Literally,
    Lookup,
    NewId,
    Not,
    Parameter,
    PropertyReference,
    Sign,
    Within,
)

Outcome = tuple[int, str | None, bool]
"""A subscription, the rule (None for the plain copy), and whether the rule failed."""

AND = {
    "TT": "T", "TF": "F", "TU": "U",
    "FT": "F", "FF": "F", "FU": "F",
    "UT": "U", "UF": "F", "UU": "U",
}  # fmt: skip
OR = {
    "TT": "T", "TF": "T", "TU": "T",
    "FT": "T", "FF": "F", "FU": "U",
    "UT": "T", "UF": "U", "UU": "U",
}  # fmt: skip
NOT = {"T": "F", "F": "T", "U": "U"}

SYSTEM = [
    "messageid", "label", "correlationid", "to", "replyto", "replytosessionid", "sessionid", "contenttype",
    "partitionkey", "viapartitionkey", "timetolive", "scheduledenqueuetimeutc", "enqueuedtimeutc", "sequencenumber",
    "enqueuedsequencenumber", "deliverycount", "expiresatutc", "lockeduntilutc", "locktoken", "state", "size",
    "deadlettersource", "deadletterreason", "deadlettererrordescription",
]  # fmt: skip
OTHER_NAMES = {"subject": "label", "scheduledenqueuetime": "scheduledenqueuetimeutc", "enqueuedtime": "enqueuedtimeutc"}


class Failure(Exception):  # noqa: N818 -- it is a result, not an error of the test
    """The evaluation of an expression failed."""


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, Decimal):
        return "nothing" if value.is_nan() else "number"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, datetime):
        return "time" if value.tzinfo else "nothing"
    named = {str: "text", bytes: "bytes", timedelta: "span", UUID: "id"}
    return named.get(type(value), "nothing")


def compared(sign: str, left: Any, right: Any) -> str:
    if left is None or right is None or kind(left) != kind(right) or kind(left) == "nothing":
        return "U"
    ordered = kind(left) in {"number", "text", "time", "span"}
    decimals = isinstance(left, Decimal) or isinstance(right, Decimal)
    if decimals and any(isinstance(one, float) and math.isnan(one) for one in (left, right)):
        ordered = False
    if kind(left) == "number" and finite(left) and finite(right):
        left, right = Fraction(left), Fraction(right)
    elif kind(left) == "text":
        left, right = code_points(left), code_points(right)
    if sign in {"=", "<>"}:
        return "T" if (left == right) == (sign == "=") else "F"
    if not ordered:
        return "U"
    holds = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return "T" if holds[sign] else "F"


def code_points(text: Any) -> list[int]:
    return [ord(one) for one in text]


def finite(number: Any) -> bool:
    return number.is_finite() if isinstance(number, Decimal) else math.isfinite(number)


def computed(sign: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    kinds = (kind(left), kind(right))
    if kinds == ("number", "number"):
        return computed_numbers(sign, left, right)
    if kinds == ("text", "text") and sign == "+":
        if len(left + right) > 32768:
            raise Failure
        return left + right
    adds = {("time", "span"), ("span", "time"), ("span", "span")}
    subtracts = {("time", "span"), ("time", "time"), ("span", "span")}
    try:
        if sign == "+" and kinds in adds:
            return left + right
        if sign == "-" and kinds in subtracts:
            return left - right
    except OverflowError:
        pass
    raise Failure


def computed_numbers(sign: str, left: Any, right: Any) -> Any:
    if sign in {"/", "%"} and right == 0:
        raise Failure
    whole = isinstance(left, int) and isinstance(right, int)
    if not isinstance(left, float) and not isinstance(right, float) and not whole:
        return computed_decimals(sign, left, right)
    return checked(computed_plainly(sign, left, right, whole=whole))


def computed_plainly(sign: str, left: Any, right: Any, *, whole: bool) -> Any:
    try:
        if not whole:
            left, right = float(left), float(right)
        if sign in {"/", "%"} and whole:
            times = int(Fraction(left, right))  # the quotient is rounded towards zero
            result: Any = times if sign == "/" else left - right * times
        elif sign == "%":
            result = math.fmod(left, right)
        else:
            result = {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right}.get(
                sign, lambda: left / right
            )()
    except (OverflowError, ValueError):
        raise Failure from None
    return result


def decimal_of(exact: Fraction) -> Decimal:
    """Return a fraction as a decimal; the fraction must have an exact decimal value."""
    with localcontext(Context(prec=20_000)):
        return Decimal(exact.numerator) / Decimal(exact.denominator)


def computed_decimals(sign: str, left: Any, right: Any) -> Any:
    """Return the result of an operation on decimals, computed with 34 digits. A remainder is exact."""
    with localcontext(Context(prec=34)):
        try:
            left, right = Decimal(left), Decimal(right)
            if sign == "%":
                if not right:
                    raise Failure
                over, under = abs(Fraction(left)), abs(Fraction(right))
                rest = over - over // under * under
                return checked(decimal_of(-rest if left < 0 else rest))
            return checked(
                {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right}.get(
                    sign, lambda: left / right
                )()
            )
        except ArithmeticError:
            raise Failure from None


def checked(number: Any) -> Any:
    if isinstance(number, int) and not -(2**63) <= number < 2**64:
        raise Failure
    if isinstance(number, float | Decimal) and not finite(number):
        raise Failure
    return number


def like(text: str, pattern: Sequence[tuple[str, bool]]) -> bool:
    """Return whether a text matches a pattern of characters and wildcards; every possible match is tried."""
    reached = {0}
    for character, wild in pattern:
        if wild and character == "%":
            reached = {at for at in range(len(text) + 1) if at >= min(reached, default=len(text) + 1)}
        else:
            reached = {at + 1 for at in reached if at < len(text) and (wild or text[at] == character)}
    return len(text) in reached


def pattern_of(pattern: str, escape: str | None) -> list[tuple[str, bool]]:
    made: list[tuple[str, bool]] = []
    rest = list(pattern)
    while rest:
        character = rest.pop(0)
        if character == escape:
            if not rest:
                raise Failure
            made.append((rest.pop(0), False))
        else:
            made.append((character, character in "%_"))
    return made


class Walk:
    """The evaluation of one text for one message."""

    def __init__(self, system: Mapping[str, Any], user: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        self.system, self.user, self.parameters = system, user, parameters

    def property(self, system: bool, name: str) -> tuple[bool, Any]:
        """Return whether a property exists, and its value."""
        lower = name.lower()
        if system:
            lower = OTHER_NAMES.get(lower, lower)
            if lower not in SYSTEM:
                raise Failure
            value = self.system.get(lower)
            return value is not None, value
        found = [value for known, value in self.user.items() if known.lower() == lower]
        return bool(found), found[-1] if found else None

    def value(self, node: Any) -> Any:  # noqa: C901 -- a branch for each kind of node
        if isinstance(node, Literally):
            return node.value
        if isinstance(node, Parameter):
            return self.parameters[node.name]
        if isinstance(node, PropertyReference):
            return self.property(node.system, node.name)[1]
        if isinstance(node, NewId):
            return uuid4()
        if isinstance(node, Lookup):
            name = self.value(node.name)
            if name is None:
                return None
            if not isinstance(name, str):
                raise Failure
            for scope in ("sys.", "user."):
                if name.lower().startswith(scope):
                    return self.property(scope == "sys.", name[len(scope) :])[1]
            return self.property(False, name)[1]
        if isinstance(node, Sign):
            value = self.value(node.operand)
            if value is None:
                return None
            if kind(value) == "span":
                return value if node.sign == "+" else timedelta(0) - value
            if kind(value) != "number":
                raise Failure
            return checked(value if node.sign == "+" else -value)
        assert isinstance(node, Arithmetic)
        value = self.value(node.first)
        for sign, operand, _ in node.rest:
            value = computed(sign, value, self.value(operand))
        return value

    def truth(self, node: Any) -> str:
        if isinstance(node, Compare):
            return compared(node.comparison, self.value(node.left), self.value(node.right))
        if isinstance(node, Within):
            return self.within(node)
        if isinstance(node, Like):
            return self.like(node)
        if isinstance(node, Exists):
            return "T" if self.property(node.property.system, node.property.name)[0] else "F"
        if isinstance(node, IsNull):
            return "T" if self.value(node.operand) is None else "F"
        if isinstance(node, Not):
            return NOT[self.truth(node.operand)]
        assert isinstance(node, AllOf | AnyOf)
        table, end, result = (AND, "F", "T") if isinstance(node, AllOf) else (OR, "T", "F")
        for part in node.parts:
            result = table[result + self.truth(part)]
            if result == end:
                break
        return result

    def within(self, node: Within) -> str:
        value, result = self.value(node.operand), "F"
        if value is None:
            return "U"
        for option in node.options:
            result = OR[result + compared("=", value, self.value(option))]
            if result == "T":
                break
        return result

    def like(self, node: Like) -> str:
        text, pattern = self.value(node.operand), self.value(node.pattern)
        escape = None if node.escape is None else self.value(node.escape)
        if text is None or pattern is None or (node.escape is not None and escape is None):
            return "U"
        if escape is not None and (not isinstance(escape, str) or len(escape) != 1):
            raise Failure
        if not isinstance(text, str) or not isinstance(pattern, str):
            return "U"
        return "T" if like(text, pattern_of(pattern, escape)) else "F"

    def passes(self, node: Any) -> bool:
        """Return whether a node is true for a message. The topmost ANDs stop at the first part that is not true."""
        if isinstance(node, AllOf):
            return all(self.passes(part) for part in node.parts)
        return self.truth(node) == "T"


def passes(given: Any, system: Mapping[str, Any], user: Mapping[str, Any]) -> bool:
    """Return whether a message passes a filter. Raises :class:`Failure`."""
    if isinstance(given, TrueFilter | FalseFilter):
        return isinstance(given, TrueFilter)
    walk = Walk(system, user, {})
    if isinstance(given, SqlFilter):
        walk.parameters = {name.lstrip("@").lower(): value for name, value in given.parameters.items()}
        try:
            read = RuleParser(given.text).filter()
        except RuleSyntaxError:
            raise Failure from None
        return walk.passes(read)
    assert isinstance(given, CorrelationFilter)
    fields = [
        *("correlation_id", "message_id", "to", "reply_to", "subject"),
        *("session_id", "reply_to_session_id", "content_type"),
    ]
    for field in fields:
        wanted = getattr(given, field)
        if wanted is not None and compared("=", walk.property(True, field.replace("_", ""))[1], wanted) != "T":
            return False
    return all(compared("=", walk.property(False, name)[1], wanted) == "T" for name, wanted in given.properties.items())


def readable(action: str) -> None:
    try:
        RuleParser(action).action()
    except RuleSyntaxError:
        raise Failure from None


def set_to(value: Any, before: Any) -> Any:
    """Return the value of an application property after it is set, given its value before."""
    if isinstance(value, str) and type(before) in {bool, int, float, Decimal, datetime, UUID}:
        try:
            value = read_as(type(before), value)
        except ValueError:
            return value
    if type(before) is float and type(value) is int:
        value = float(value)
    if type(before) is Decimal and type(value) is int:
        value = Decimal(value)
    if isinstance(value, datetime) and (offset := value.utcoffset()) is not None:
        since = value.replace(tzinfo=UTC) - datetime.min.replace(tzinfo=UTC) - offset
        if not timedelta(0) <= since < timedelta(days=3_652_059):  # 3,652,059 days are 9999 years
            raise Failure
    return value


def read_as(wanted: type, text: str) -> Any:
    """Return text as a value of a type. Raises :class:`ValueError` if it is not valid."""
    if wanted is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if wanted is datetime:
        read = datetime.fromisoformat(text)
        return read.replace(tzinfo=read.tzinfo or UTC)
    if wanted is UUID:
        return UUID(text)
    written = re.fullmatch(r"(?P<whole>[+-]?\d{1,20})(\.\d{1,3})?([eE][+-]?(?P<exponent>\d+))?", text, re.ASCII)
    if written is None or len(written["exponent"] or "") > 3:
        raise ValueError(text)
    exact = Fraction(text)
    if wanted is int:
        if written["whole"] != text or len(text.lstrip("+-")) > 20 or not -(2**63) <= exact < 2**64:
            raise ValueError(text)
        return int(exact)
    if wanted is Decimal:
        return Decimal(text)
    try:
        return float(exact) * (-1 if exact == 0 and text.startswith("-") else 1)
    except OverflowError:
        raise ValueError(text) from None


def judged(
    subscriptions: Sequence[tuple[Sequence[Rule], bool]], system: Mapping[str, Any], user: Mapping[str, Any]
) -> list[Outcome]:
    """Return the outcomes of a message for rules whose actions either are unreadable or never fail."""
    outcomes: list[Outcome] = []
    for number, (rules, dead_letters) in enumerate(subscriptions):
        for rule in rules:
            try:
                if not passes(rule.filter, system, user):
                    continue
                if rule.action is not None:
                    readable(rule.action.text)
                outcome = (number, rule.name if rule.action else None, False)
                if outcome not in outcomes:
                    outcomes.append(outcome)
            except Failure:
                if dead_letters:
                    outcomes.append((number, rule.name, True))
    return outcomes
