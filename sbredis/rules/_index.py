"""Finding the rules that a message may match without asking each of them.

A filter that demands that properties be equal to constants has a *shape*, the properties, and a *key*, the constants.
Filters of one shape stand in one table by their keys, so one look finds all of them that a message can match. A message
is asked for the shapes of its own properties only: each shape waits at that one of its properties which the fewest
shapes have.

The index must not change what a filter says. It takes what the topmost ANDs join, and of these only equalities before
which nothing can fail: a filter that is not found would have come out as not true, and without an error.
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
    Node,
    Not,
    Predicate,
    Property,
    Sign,
    Within,
)
from sbredis.rules._values import Constant, Kind, kind_of

__all__ = ["Index", "Wanted", "can_fail", "conjuncts", "split"]

T = TypeVar("T")

Place: TypeAlias = tuple[bool, str]
"""A property: whether it is of the system, and its name in lower case."""
Wanted: TypeAlias = Mapping[Place, Constant]
"""Properties that must be equal to constants."""

# In Python, True is equal to 1, and in the language it is not.
_TRUE, _FALSE, _NOWHERE = object(), object(), object()


def _key(value: Constant) -> object:
    """What stands for a value in a table: equal for two values if, and only if, the language calls them equal."""
    kind = type(value)
    if kind is str or kind is int or kind is float:
        return value
    if kind is bool:
        return _TRUE if value else _FALSE
    return _NOWHERE if kind_of(value) is Kind.OTHER else value


class Index(Generic[T]):
    """Things by the properties that they want."""

    def __init__(self, things: Iterable[tuple[Wanted, T]]) -> None:
        shapes: dict[tuple[Place, ...], _Shape[T]] = {}
        for wanted, thing in things:
            places = tuple(sorted(wanted))
            if places not in shapes:
                shapes[places] = _Shape(places)
            shapes[places].add(wanted, thing)
        users = Counter(place for places in shapes for place in places)
        self._system: dict[str, list[_Shape[T]]] = {}
        self._user: dict[str, list[_Shape[T]]] = {}
        for shape in shapes.values():
            system, name = shape.settle(users)
            (self._system if system else self._user).setdefault(name, []).append(shape)

    def find(self, facts: MessageView, found: list[T]) -> None:
        """Add to ``found`` whatever wants nothing that the message does not have. In no particular order."""
        system, names = facts.system, facts.names
        if self._system:
            for name, shapes in self._system.items():
                value = system.get(name)
                if value is not None:
                    for shape in shapes:
                        shape.find(value, system, names, found)
        waiting = self._user
        if len(waiting) <= len(names):
            for name, shapes in waiting.items():
                value = names.get(name)
                if value is not None:
                    for shape in shapes:
                        shape.find(value, system, names, found)
            return
        for name, value in names.items():
            if value is not None and name in waiting:
                for shape in waiting[name]:
                    shape.find(value, system, names, found)


class _Shape(Generic[T]):
    """Things that want the same properties, by the values that they want."""

    def __init__(self, places: tuple[Place, ...]) -> None:
        self._places = places
        self._first = places[0]
        self._others: tuple[Place, ...] = places[1:]
        self._given: list[tuple[Wanted, T]] = []
        self._table: dict[Any, list[T]] = {}

    def add(self, wanted: Wanted, thing: T) -> None:
        self._given.append((wanted, thing))

    def settle(self, users: Mapping[Place, int]) -> Place:
        """Make the table, and say at which property the shape waits."""
        self._first = min(self._places, key=lambda place: users[place])
        self._others = tuple(place for place in self._places if place != self._first)
        for wanted, thing in self._given:
            keys = [_key(wanted[place]) for place in (self._first, *self._others)]
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


# -- what of a filter the index can do ---------------------------------------------------------------------------------


def conjuncts(predicate: Predicate) -> list[Predicate]:
    """What the topmost ANDs of a filter join, in order."""
    if isinstance(predicate, AllOf):
        return [part for joined in predicate.parts for part in conjuncts(joined)]
    return [predicate]


def split(predicate: Predicate, compiler: Compiler) -> tuple[dict[Place, Constant], list[Predicate]]:
    """The equalities of a filter that the index can hold it to, and what is left to be asked of those it finds."""
    wanted: dict[Place, Constant] = {}
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


def _equality(part: Predicate, compiler: Compiler) -> tuple[Place, Constant] | None:
    """The property and the constant of ``property = constant``, either way round."""
    if not isinstance(part, Compare) or part.comparison != "=":
        return None
    for one, other in ((part.left, part.right), (part.right, part.left)):
        constant = compiler.constant(other)
        if isinstance(one, Property) and constant is not None and constant.value is not None:
            name = canonical(one.name) if one.system else one.name.lower()
            return ((one.system, name), constant.value) if name is not None else None
    return None


def can_fail(node: Node) -> bool:
    """Whether there may be a message on which this cannot be evaluated."""
    match node:
        case Property(system, name, _):
            return system and canonical(name) is None
        case Lookup() | Sign() | Arithmetic():
            return True
        case Like(operand, pattern, escape, _):
            fixed = escape is None or (isinstance(escape, Literally) and isinstance(pattern, Literally))
            return not fixed or can_fail(operand) or can_fail(pattern)
        case _:
            return any(can_fail(part) for part in _parts(node))


def _parts(node: Node) -> Iterable[Predicate | Expression]:
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
