"""Compiles trees of the language to functions of a message. It generates no source text: functions call functions.

AND and OR evaluate their parts from left to right. OR stops at the first part that is true, AND at the first that is
false. The topmost ANDs of a filter stop at the first part that is not true, because the filter cannot become true any
more. A part that is not evaluated cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar
from uuid import uuid4

from sbredis._quoting import shortened
from sbredis.rules._arithmetic import EvaluationError, calculate, negate
from sbredis.rules._like import LONGEST_PATTERN, PatternError, matcher
from sbredis.rules._message_view import PropertyView, canonical
from sbredis.rules._syntax import (
    AllOf,
    AnyOf,
    Arithmetic,
    Compare,
    Exists,
    Expression,
    IsNull,
    Like,
    Literally,
    Lookup,
    NewId,
    Not,
    Operator,
    Parameter,
    Predicate,
    PropertyReference,
    Sign,
    Within,
    reference,
)
from sbredis.rules._tokens import place
from sbredis.rules._values import (
    Constant,
    Kind,
    Truth,
    at_least,
    at_most,
    equal,
    greater,
    kind_of,
    less,
    unequal,
)

if TYPE_CHECKING:
    from sbredis.rules._sharing import Sharing

__all__ = ["CompiledCondition", "Compiler", "Getter"]

T = TypeVar("T")

Getter: TypeAlias = Callable[[PropertyView], Constant]
CompiledCondition: TypeAlias = Callable[[PropertyView], Truth]
_Step: TypeAlias = tuple[Operator, Getter, str]

_COMPARISONS: dict[str, Callable[[object, object], Truth]] = {
    "=": equal,
    "<>": unequal,
    "<": less,
    "<=": at_most,
    ">": greater,
    ">=": at_least,
}
_LONGEST_NAME = 64
"""The number of characters of a name that an error shows: the name may come from the message and have any length."""
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Compiler:
    """Compiles the trees of one text to functions; ``parameters`` are values under names in lower case.

    ``sharing`` may replace the function that was made for a node by one that several filters share.
    """

    def __init__(self, text: str, parameters: Mapping[str, Constant], sharing: Sharing | None = None) -> None:
        self._text = text
        self._parameters = parameters
        self._sharing = sharing

    def _once(self, node: object, own: Callable[[PropertyView], T]) -> Callable[[PropertyView], T]:
        return own if self._sharing is None else self._sharing.once(node, own)

    def _where(self, at: int) -> str:
        line, column = place(self._text, at)
        return f"(line {line}, column {column})"

    # -- values --------------------------------------------------------------------------------------------------------

    def constant(self, expression: Expression) -> Literally | None:
        """Return an expression as a constant, with parameters replaced; ``None`` if it is not a constant."""
        if isinstance(expression, Parameter):
            return Literally(self._parameters[expression.name])
        return expression if isinstance(expression, Literally) else None

    def value(self, expression: Expression) -> Getter:
        """Return a function for the value of an expression."""
        constant = self.constant(expression)
        if constant is not None:
            value = constant.value
            return lambda seen: value  # noqa: ARG005 -- as all getters
        if isinstance(expression, PropertyReference):
            return self._property(expression)
        return self._once(expression, self._value(expression))

    def _value(self, expression: Expression) -> Getter:
        match expression:
            case NewId():
                return lambda seen: uuid4()  # noqa: ARG005 -- as all getters
            case Lookup(name, at):
                return self._lookup(self.value(name), at)
            case Sign(sign, operand, at):
                return self._sign(sign, self.value(operand), at)
            case Arithmetic(first, rest):
                steps: list[_Step] = [
                    (operator, self.value(operand), self._where(at)) for operator, operand, at in rest
                ]
                return _calculated(self.value(first), steps)
            case _:
                raise AssertionError(expression)

    def _property(self, named: PropertyReference) -> Getter:
        if not named.system:
            key = named.name.lower()
            return lambda seen: seen.names.get(key)
        system = canonical(named.name)
        if system is not None:
            return lambda seen: seen.system.get(system)
        problem = f"there is no system property {shortened(named.name, _LONGEST_NAME)} {self._where(named.at)}"

        def fail(seen: PropertyView) -> NoReturn:  # noqa: ARG001 -- as all getters
            raise EvaluationError(problem)

        return fail

    def _lookup(self, name: Getter, at: int) -> Getter:
        problem = f"the name of a property must be text {self._where(at)}"

        def get(seen: PropertyView) -> Constant:
            named = name(seen)
            if named is None:
                return None
            if not isinstance(named, str):
                raise EvaluationError(problem)
            return self._property(reference(named, at))(seen)

        return get

    def _sign(self, sign: str, operand: Getter, at: int) -> Getter:
        where = self._where(at)

        def get(seen: PropertyView) -> Constant:
            value = operand(seen)
            try:
                return negate(sign, value)
            except EvaluationError as error:
                raise EvaluationError(f"{error} {where}") from None

        return get

    # -- conditions ----------------------------------------------------------------------------------------------------

    def condition(self, predicate: Predicate) -> CompiledCondition:
        """Return a function that returns whether a predicate is true."""
        return self._once(predicate, self._condition(predicate))

    def _condition(self, predicate: Predicate) -> CompiledCondition:
        match predicate:
            case Compare(comparison, left, right):
                return self._compare(comparison, left, right)
            case Within(operand, options):
                return self._within(operand, options)
            case Like():
                return self._like(predicate)
            case Exists(named):
                return self._exists(named)
            case IsNull(operand):
                getter = self.value(operand)
                return lambda seen: getter(seen) is None
            case Not(operand):
                return _negated(self.condition(operand))
            case AllOf(parts):
                return _all_of([self.condition(part) for part in parts])
            case AnyOf(parts):
                return _any_of([self.condition(part) for part in parts])
            case _:
                raise AssertionError(predicate)

    def topmost(self, parts: list[Predicate]) -> CompiledCondition | None:
        """Return a function that returns whether all topmost conditions are true; ``None`` without conditions."""
        conditions = [self.condition(part) for part in parts]
        if len(conditions) < 2:
            return conditions[0] if conditions else None

        def holds(seen: PropertyView) -> bool:
            for condition in conditions:  # noqa: SIM110 -- a generator costs more than the conditions
                if condition(seen) is not True:
                    return False
            return True

        return self._once(parts, holds)

    def _compare(self, comparison: str, left: Expression, right: Expression) -> CompiledCondition:
        if self.constant(left) is not None:
            left, right, comparison = right, left, _MIRRORED[comparison]
        compare = _COMPARISONS[comparison]
        getter, constant = self.value(left), self.constant(right)
        if constant is None:
            other = self.value(right)

            def varies(seen: PropertyView) -> Truth:
                first = getter(seen)
                return compare(first, other(seen))

            return varies
        # The usual comparison compares a text with a constant text, or a number with a constant number.
        value = constant.value
        first, second = (str, str) if isinstance(value, str) else (int, float)
        if kind_of(value) not in {Kind.TEXT, Kind.NUMBER} or isinstance(value, Decimal):
            return lambda seen: compare(getter(seen), value)
        quick = _QUICK[comparison](value)

        def usually(seen: PropertyView) -> Truth:
            found = getter(seen)
            kind = type(found)
            if kind is first or kind is second:
                return quick(found)
            return compare(found, value)

        return usually

    def _within(self, operand: Expression, options: tuple[Expression, ...]) -> CompiledCondition:
        getter, others = self.value(operand), [self.value(option) for option in options]

        def within(seen: PropertyView) -> Truth:
            found = getter(seen)
            if found is None:
                return None
            result: Truth = False
            for other in others:
                same = equal(found, other(seen))
                if same:
                    return True
                if same is None:
                    result = None
            return result

        return within

    def _like(self, like: Like) -> CompiledCondition:
        getter = self.value(like.operand)
        pattern, escape = self.value(like.pattern), self.value(like.escape) if like.escape is not None else None
        where = self._where(like.at)
        fixed = self.constant(like.pattern)
        if fixed is not None and escape is None and isinstance(fixed.value, str):
            if len(fixed.value) > LONGEST_PATTERN:
                return lambda seen: None  # noqa: ARG005 -- as all conditions
            ready = matcher(fixed.value)

            def simple(seen: PropertyView) -> Truth:
                found = getter(seen)
                return ready(found) if isinstance(found, str) else None

            return simple

        def varies(seen: PropertyView) -> Truth:
            found, wanted = getter(seen), pattern(seen)
            mark = escape(seen) if escape is not None else None
            if found is None or wanted is None or (escape is not None and mark is None):
                return None
            if mark is not None and not (isinstance(mark, str) and len(mark) == 1):
                raise EvaluationError(f"ESCAPE needs text of one character {where}")
            if not isinstance(found, str) or not isinstance(wanted, str) or len(wanted) > LONGEST_PATTERN:
                return None
            try:
                return matcher(wanted, mark)(found)
            except PatternError as error:
                raise EvaluationError(f"{error} {where}") from None

        return varies

    def _exists(self, named: PropertyReference) -> CompiledCondition:
        if named.system:
            getter = self._property(named)
            return lambda seen: getter(seen) is not None
        key = named.name.lower()
        return lambda seen: key in seen.names


_QUICK: dict[str, Callable[[Any], Callable[[Any], bool]]] = {
    "=": lambda constant: lambda value: value == constant,
    "<>": lambda constant: lambda value: value != constant,
    "<": lambda constant: lambda value: value < constant,
    "<=": lambda constant: lambda value: value <= constant,
    ">": lambda constant: lambda value: value > constant,
    ">=": lambda constant: lambda value: value >= constant,
}


def _calculated(first: Getter, steps: list[_Step]) -> Getter:
    def calculated(seen: PropertyView) -> Constant:
        result = first(seen)
        for operator, operand, where in steps:
            value = operand(seen)
            try:
                result = calculate(operator, result, value)
            except EvaluationError as error:
                raise EvaluationError(f"{error} {where}") from None
        return result

    return calculated


def _negated(condition: CompiledCondition) -> CompiledCondition:
    def negated(seen: PropertyView) -> Truth:
        truth = condition(seen)
        return None if truth is None else not truth

    return negated


def _all_of(conditions: list[CompiledCondition]) -> CompiledCondition:
    def all_of(seen: PropertyView) -> Truth:
        result: Truth = True
        for condition in conditions:
            truth = condition(seen)
            if truth is False:
                return False
            if truth is None:
                result = None
        return result

    return all_of


def _any_of(conditions: list[CompiledCondition]) -> CompiledCondition:
    def any_of(seen: PropertyView) -> Truth:
        result: Truth = False
        for condition in conditions:
            truth = condition(seen)
            if truth is True:
                return True
            if truth is None:
                result = None
        return result

    return any_of
