"""The syntax tree of the language. A chain of one operator is one node, so the tree is never deep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sbredis.rules._values import Constant

__all__ = [
    "AllOf",
    "AnyOf",
    "Arithmetic",
    "Compare",
    "Comparison",
    "Exists",
    "Expression",
    "IsNull",
    "Like",
    "Literally",
    "Lookup",
    "NewId",
    "Not",
    "Operator",
    "Parameter",
    "Predicate",
    "PropertyReference",
    "Remove",
    "SetTo",
    "Sign",
    "Statement",
    "SyntaxNode",
    "Within",
    "reference",
]

Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]
Operator: TypeAlias = Literal["+", "-", "*", "/", "%"]


class Expression:
    """A node that yields a value."""

    __slots__ = ()


class Predicate:
    """A node that is true, false or unknown."""

    __slots__ = ()


SyntaxNode: TypeAlias = Expression | Predicate


@dataclass(frozen=True, slots=True)
class Literally(Expression):
    """A constant."""

    value: Constant


@dataclass(frozen=True, slots=True)
class PropertyReference(Expression):
    """A property, with its name as the text has it."""

    system: bool
    name: str
    at: int
    """Its position in the text."""


def reference(name: str, at: int) -> PropertyReference:
    """Return the property that the function ``property`` finds by a name."""
    scope, point, rest = name.partition(".")
    if point and scope.lower() in {"sys", "user"}:
        return PropertyReference(scope.lower() == "sys", rest, at)
    return PropertyReference(False, name, at)


@dataclass(frozen=True, slots=True)
class Parameter(Expression):
    """A value that is given separately from the text."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class NewId(Expression):
    """A new UUID."""


@dataclass(frozen=True, slots=True)
class Lookup(Expression):
    """The property whose name an expression gives."""

    name: Expression
    at: int


@dataclass(frozen=True, slots=True)
class Sign(Expression):
    """A number with a sign before it."""

    sign: Literal["+", "-"]
    operand: Expression
    at: int


@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    """Operators of one precedence, from left to right: each with its operand and its position in the text."""

    first: Expression
    rest: tuple[tuple[Operator, Expression, int], ...]


@dataclass(frozen=True, slots=True)
class Compare(Predicate):
    """A comparison of two values."""

    comparison: Comparison
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Within(Predicate):
    """A test whether a value is one of several."""

    operand: Expression
    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like(Predicate):
    """A test whether text matches a pattern."""

    operand: Expression
    pattern: Expression
    escape: Expression | None
    at: int


@dataclass(frozen=True, slots=True)
class Exists(Predicate):
    """A test whether the message has a property."""

    property: PropertyReference


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """A test whether a property is missing or null, or the value of a function is null."""

    operand: PropertyReference | Lookup | NewId


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    """The negation of a predicate."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class AllOf(Predicate):
    """The predicates that AND joins."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf(Predicate):
    """The predicates that OR joins."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class SetTo:
    """A statement that gives a property a value."""

    target: PropertyReference
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    """A statement that removes a property."""

    target: PropertyReference


Statement: TypeAlias = SetTo | Remove
