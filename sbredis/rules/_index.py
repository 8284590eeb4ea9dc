"""Finds the rules that a message may match, without evaluating each of them.

If a filter demands that properties are equal to constants, the properties are its *key properties* and the constants
are its *key*. All filters with the same key properties are in one table, under their keys. So one lookup finds all
filters of the table that a message can match. Each table is listed under one of its properties: the property that the
fewest tables have. The index looks into a table only if the message has this property.

The index must not change the result of a filter. So the index uses only equalities among the conditions that the
topmost ANDs join, and only if no condition before them can fail. A filter that the index does not find would not have
been true, and would not have failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from sbredis.rules._compile import Compiler
from sbredis.rules._message_view import MessageView, canonical
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
    Not,
    Predicate,
    PropertyReference,
    Sign,
    SyntaxNode,
    Within,
)
from sbredis.rules._values import Constant, Kind, kind_of

__all__ = ["Index", "Wanted", "can_fail", "conjuncts", "split"]

T = TypeVar("T")

PropertyKey: TypeAlias = tuple[bool, str]
"""A property: whether it is a system property, and its name in lower case."""
Wanted: TypeAlias = Mapping[PropertyKey, Constant]
"""Properties that must be equal to constants."""

# In Python, True is equal to 1; in the language it is not.
_TRUE, _FALSE, _NOWHERE = object(), object(), object()


def _key(value: Constant) -> object:
    """Return the table key of a value. Two keys are equal if and only if the language treats their values as equal."""
    kind = type(value)
    if kind is str or kind is int or kind is float:
        return value
    if kind is bool:
        return _TRUE if value else _FALSE
    return _NOWHERE if kind_of(value) is Kind.OTHER else value


class Index(Generic[T]):
    """A collection of things, each with wanted properties.

    It finds the things whose wanted properties a message has.
    """

    def __init__(self, things: Iterable[tuple[Wanted, T]]) -> None:
        tables: dict[tuple[PropertyKey, ...], _KeyTable[T]] = {}
        for wanted, thing in things:
            properties = tuple(sorted(wanted))
            if properties not in tables:
                tables[properties] = _KeyTable(properties)
            tables[properties].add(wanted, thing)
        users = Counter(key_property for properties in tables for key_property in properties)
        self._system: dict[str, list[_KeyTable[T]]] = {}
        self._user: dict[str, list[_KeyTable[T]]] = {}
        for table in tables.values():
            system, name = table.settle(users)
            (self._system if system else self._user).setdefault(name, []).append(table)

    def find(self, facts: MessageView, found: list[T]) -> None:
        """Add to ``found`` all things whose wanted properties the message has, in no particular order."""
        system, names = facts.system, facts.names
        if self._system:
            for name, tables in self._system.items():
                value = system.get(name)
                if value is not None:
                    for table in tables:
                        table.find(value, system, names, found)
        waiting = self._user
        if len(waiting) <= len(names):
            for name, tables in waiting.items():
                value = names.get(name)
                if value is not None:
                    for table in tables:
                        table.find(value, system, names, found)
            return
        for name, value in names.items():
            if value is not None and name in waiting:
                for table in waiting[name]:
                    table.find(value, system, names, found)


class _KeyTable(Generic[T]):
    """The things with the same key properties: a mapping from their keys to the things that have the key."""

    def __init__(self, properties: tuple[PropertyKey, ...]) -> None:
        self._properties = properties
        self._first = properties[0]
        self._others: tuple[PropertyKey, ...] = properties[1:]
        self._given: list[tuple[Wanted, T]] = []
        self._table: dict[Any, list[T]] = {}

    def add(self, wanted: Wanted, thing: T) -> None:
        self._given.append((wanted, thing))

    def settle(self, users: Mapping[PropertyKey, int]) -> PropertyKey:
        """Make the mapping, and return the property under which the table is listed."""
        self._first = min(self._properties, key=lambda key_property: users[key_property])
        self._others = tuple(key_property for key_property in self._properties if key_property != self._first)
        for wanted, thing in self._given:
            keys = [_key(wanted[key_property]) for key_property in (self._first, *self._others)]
            self._table.setdefault(tuple(keys) if self._others else keys[0], []).append(thing)
        self._given = []
        return self._first

    def find(
        self, value: Constant, system: Mapping[str, Constant], names: Mapping[str, Constant], found: list[T]
    ) -> None:
        key = _key(value)
        if self._others:
            keys = [key]
            for of_system, name in self._others:
                other = system.get(name) if of_system else names.get(name)
                if other is None:
                    return
                keys.append(_key(other))
            key = tuple(keys)
        things = self._table.get(key)
        if things is not None:
            found += things


# -- the part of a filter that the index can check ---------------------------------------------------------------------


def conjuncts(predicate: Predicate) -> list[Predicate]:
    """Return the conditions that the topmost ANDs of a filter join, in order."""
    if isinstance(predicate, AllOf):
        return [part for joined in predicate.parts for part in conjuncts(joined)]
    return [predicate]


def split(predicate: Predicate, compiler: Compiler) -> tuple[dict[PropertyKey, Constant], list[Predicate]]:
    """Split a filter into the equalities that the index can check, and the conditions that are left to evaluate."""
    wanted: dict[PropertyKey, Constant] = {}
    left: list[Predicate] = []
    parts = conjuncts(predicate)
    for number, part in enumerate(parts):
        found = _equality(part, compiler)
        if found is not None and found[0] not in wanted:
            wanted[found[0]] = found[1]
            continue
        left.append(part)
        if can_fail(part):
            return wanted, left + parts[number + 1 :]
    return wanted, left


def _equality(part: Predicate, compiler: Compiler) -> tuple[PropertyKey, Constant] | None:
    """Return the property and the constant of ``property = constant``, in either order; or ``None``."""
    if not isinstance(part, Compare) or part.comparison != "=":
        return None
    for one, other in ((part.left, part.right), (part.right, part.left)):
        constant = compiler.constant(other)
        if isinstance(one, PropertyReference) and constant is not None and constant.value is not None:
            name = canonical(one.name) if one.system else one.name.lower()
            return ((one.system, name), constant.value) if name is not None else None
    return None


def can_fail(node: SyntaxNode) -> bool:
    """Return whether there may be a message on which a node cannot be evaluated."""
    match node:
        case PropertyReference(system, name, _):
            return system and canonical(name) is None
        case Lookup() | Sign() | Arithmetic():
            return True
        case Like(operand, pattern, escape, _):
            fixed = escape is None or (isinstance(escape, Literally) and isinstance(pattern, Literally))
            return not fixed or can_fail(operand) or can_fail(pattern)
        case _:
            return any(can_fail(part) for part in _parts(node))


def _parts(node: SyntaxNode) -> Iterable[Predicate | Expression]:
    match node:
        case Compare(_, left, right):
            return (left, right)
        case Within(operand, options):
            return (operand, *options)
        case Exists(operand) | IsNull(operand) | Not(operand):
            return (operand,)
        case AllOf(parts) | AnyOf(parts):
            return parts
        case _:
            return ()
