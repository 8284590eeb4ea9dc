"""Evaluates the common parts of a book's filters once for each message, and not once for each filter.

The filters of many subscriptions mostly consist of the same conditions. When a book is compiled, equal parts of its
filters are found. A part that several filters have gets one function for all of them. A message is then judged with a
:class:`Memory` of the answers.

A part stays lazy: it is evaluated when the first filter needs it. A failure is remembered as well. Each filter then
fails in its own function, which knows the text of the filter and the place in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from operator import itemgetter
from types import NoneType
from typing import Any, TypeAlias, TypeVar, cast
from uuid import UUID

from sbredis.rules._arithmetic import EvaluationError
from sbredis.rules._index import Wanted, can_fail
from sbredis.rules._message_view import MessageView, PropertyView, canonical
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
    Predicate,
    PropertyReference,
    Sign,
    SyntaxNode,
    Within,
)
from sbredis.rules._values import Constant

__all__ = ["Memory", "Sharing"]

T = TypeVar("T")

_Resolve: TypeAlias = Callable[[Expression], Literally | None]
_FAILED: Any = object()


class Memory(dict[Callable[[Any], object], object]):
    """A message as filters see it while it is judged. It remembers the answers of the shared parts."""

    __slots__ = ("names", "system")

    def __init__(self, facts: MessageView) -> None:
        self.names = facts.names
        self.system = facts.system

    def __missing__(self, asked: Callable[[Any], object]) -> object:
        try:
            answer = asked(self)
        except EvaluationError:
            answer = _FAILED
        self[asked] = answer
        return answer


class _FilterPart:
    """A condition or an expression that occurs in one or several filters."""

    __slots__ = ("answer", "can_fail", "keys", "last", "parts", "shared")

    def __init__(self, parts: Sequence[_FilterPart], *, can_fail: bool) -> None:
        self.parts = parts
        self.can_fail = can_fail
        self.shared = False
        self.answer: Callable[[Any], object] | None = None
        self.last: Wanted | None = None
        self.keys: set[object] | None = None

    def used(self, by: Wanted) -> None:
        """Record that a filter uses this part; ``by`` are the equalities that the index demands for the filter.

        A part is not shared if no message can need it for two filters, because the filters want different values of the
        same properties. It is also not shared if it occurs only inside shared parts.
        """
        if self.shared:
            return
        last, self.last = self.last, by
        if last is not None and last is not by:
            if self.keys is None:
                self.keys = {frozenset(last.items())}
            key = frozenset(by.items())
            self.shared = key in self.keys or last.keys() != by.keys()
            self.keys.add(key)
        if not self.shared:
            for part in self.parts:
                part.used(by)

    def once(self, own: Callable[[PropertyView], T]) -> Callable[[PropertyView], T]:
        """Return a function that evaluates this part for a filter; ``own`` is the filter's own function for it."""
        if self.answer is None:
            self.answer = own
        remembered = cast(
            "Callable[[PropertyView], T]", itemgetter(self.answer)
        )  # if a book has shared parts, `seen` is always a `Memory`
        if not self.can_fail:
            return remembered

        def ask(seen: PropertyView) -> T:
            known = remembered(seen)
            return own(seen) if known is _FAILED else known

        return ask


class Sharing:
    """The parts of all filters of a book. First all filters are read, then each is compiled with :meth:`once`."""

    def __init__(self) -> None:
        self._parts: dict[object, _FilterPart] = {}
        self._of: dict[int, _FilterPart] = {}
        self.any = False
        """Whether anything is shared, so that a memory is needed to judge a message."""

    def read(self, topmost: list[Predicate], constant: _Resolve, wanted: Wanted) -> None:
        """Record a filter: the conditions that its topmost ANDs join, and the equalities that the index demands for it.

        The list and its predicates must live until the filter has been compiled.
        """
        read = [self._read(predicate, constant) for predicate in topmost]
        parts = [part for part in read if isinstance(part, _FilterPart)]
        if len(parts) > 1:
            parts = [self._part((list, *parts), parts, can_fail=any(part.can_fail for part in parts))]
            self._of[id(topmost)] = parts[0]
        for part in parts:
            part.used(wanted)

    def once(self, node: object, own: Callable[[PropertyView], T]) -> Callable[[PropertyView], T]:
        """Return the function to evaluate a node of a filter, or the list of its topmost conditions.

        The function is ``own`` if the node is not shared; otherwise the function uses the shared answer.
        """
        part = self._of.get(id(node))
        if part is None or not part.shared:
            return own
        self.any = True
        return part.once(own)

    def _read(self, node: SyntaxNode, constant: _Resolve) -> object:
        """Return a key that is equal for two nodes only if their results are always the same.

        The key is a part, or the key of a property or of a value.
        """
        fixed = constant(node) if isinstance(node, Expression) else None
        if fixed is not None:
            return _constant(fixed.value)
        if isinstance(node, PropertyReference):
            known = canonical(node.name) if node.system else None
            return PropertyReference, node.system, known or node.name.lower()
        if isinstance(node, NewId):
            return object()
        label, children = _taken_apart(node)
        key = (label, *[self._read(child, constant) for child in children])
        part = self._parts.get(key)
        if part is None:
            part = self._part(key, [child for child in key if isinstance(child, _FilterPart)], can_fail=can_fail(node))
        self._of[id(node)] = part
        return part

    def _part(self, key: tuple[object, ...], parts: Sequence[_FilterPart], *, can_fail: bool) -> _FilterPart:
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = _FilterPart(parts, can_fail=can_fail)
        return part


_PLAIN = {NoneType, bool, bytes, Decimal, float, int, str, timedelta, UUID}


def _constant(value: Constant) -> object:
    """Return a key that is equal only for identical constants: 1, 1.0 and TRUE are equal in Python but differ here."""
    kind = type(value)
    if kind in _PLAIN or (kind is datetime and isinstance(value, datetime) and type(value.tzinfo) is timezone):
        return Literally, kind, repr(value)
    return object()


def _taken_apart(node: SyntaxNode) -> tuple[object, Sequence[SyntaxNode]]:
    """Return the operation of a node, and its operands."""
    match node:
        case Compare(comparison, left, right):
            return comparison, (left, right)
        case AllOf(parts) | AnyOf(parts):
            return type(node), parts
        case Not(operand) | Exists(operand) | IsNull(operand):
            return type(node), (operand,)
        case Like(operand, pattern, escape, _):
            return Like, (operand, pattern) if escape is None else (operand, pattern, escape)
        case Within(operand, options):
            return Within, (operand, *options)
        case Arithmetic(first, rest):
            return "".join([sign for sign, _, _ in rest]), (first, *[operand for _, operand, _ in rest])
        case Lookup(name, _):
            return Lookup, (name,)
        case Sign(sign, operand, _):
            return (Sign, sign), (operand,)
        case _:
            raise AssertionError(node)
