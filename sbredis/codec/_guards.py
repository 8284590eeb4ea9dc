"""Guards against bodies that msgspec decodes and that harm the program all the same. Pure.

The hash of a number follows from the number, so a sender can choose numbers with the same hash. A set of a hundred
thousand of them takes minutes to make. A decimal number of eleven characters, ``1e999999999``, has a billion digits
when an application turns it into a whole number.
"""

# Bodies are values here, whose types are not known.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from itertools import repeat
from types import GenericAlias
from typing import Any, Final, Literal, Union
from uuid import UUID

import msgspec
from msgspec import inspect

from sbredis.codec._misfits import Mismatch

__all__ = ["Guard", "guard_of", "parts_of"]

Guard = Callable[[Any], None]
"""Raises :class:`Mismatch` for a harmful value, which has been decoded from JSON without its type."""

_MOST_EXPONENT: Final = 10_000
_MOST_COLLISIONS: Final = 1000
"""The largest number of members of one set, or keys of one mapping, whose hash another one has."""
_SPREAD: Final = (
    inspect.StrType,
    inspect.BytesType,
    inspect.BoolType,
    inspect.NoneType,
    inspect.FloatType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.EnumType,
    inspect.LiteralType,
)
"""Types of which a sender cannot find many values with the same hash."""
_SIMPLE: Final[dict[type[inspect.Type], Any]] = {
    inspect.AnyType: Any,
    inspect.NoneType: None,
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
    inspect.DateTimeType: datetime,
    inspect.DateType: date,
    inspect.TimeType: time,
    inspect.TimeDeltaType: timedelta,
    inspect.UUIDType: UUID,
    inspect.DecimalType: Decimal,
}
_CONTAINERS: Final[dict[type[inspect.Type], Any]] = {
    inspect.ListType: list,
    inspect.SetType: set,
    inspect.FrozenSetType: frozenset,
    inspect.DictType: dict,
}


def parts_of(node: inspect.Type) -> Iterator[inspect.Type]:
    """Yield a type and all types inside it, once each."""
    met, waiting = {id(node)}, [node]
    while waiting:
        node = waiting.pop()
        yield node
        for part in _inside(node):
            if id(part) not in met:
                met.add(id(part))
                waiting.append(part)


def _inside(node: Any) -> Iterator[inspect.Type]:
    for name in ("type", "item_type", "key_type", "value_type"):
        if hasattr(node, name):
            yield getattr(node, name)
    yield from getattr(node, "item_types", ())
    yield from getattr(node, "types", ())
    yield from (field.type for field in getattr(node, "fields", ()))


def guard_of(node: inspect.Type) -> Guard | None:
    """Return the guard of a type; ``None`` if no body of the type can do harm."""
    guarded = {id(each) for each in parts_of(node) if any(map(_is_harmful, parts_of(each)))}
    return (lambda value: _visit(value, node, "$", guarded)) if guarded else None


def _is_harmful(node: Any) -> bool:
    if isinstance(node, inspect.SetType | inspect.FrozenSetType):
        return not isinstance(node.item_type, _SPREAD)
    if isinstance(node, inspect.DictType):
        return not isinstance(node.key_type, _SPREAD)
    return isinstance(node, inspect.DecimalType)


def _visit(value: Any, node: Any, at: str, guarded: AbstractSet[int]) -> None:
    """Look at a value where its type says that it may do harm. A value of another type is left to msgspec."""
    if id(node) not in guarded:
        return
    if isinstance(node, inspect.DecimalType) and type(value) is str:
        _require_sensible(value, at)
    elif isinstance(node, inspect.UnionType | inspect.Metadata):
        for each in _inside(node):
            _visit(value, each, at, guarded)
    elif type(value) is list:
        _visit_list(value, node, at, guarded)
    elif type(value) is dict and isinstance(node, inspect.DictType):
        _visit_mapping(value, node, at, guarded)
    elif type(value) is dict and _has_tag(value, node):
        for field in getattr(node, "fields", ()):
            if id(field.type) in guarded and field.encode_name in value:
                _visit(value[field.encode_name], field.type, f"{at}.{field.encode_name}", guarded)


def _visit_list(value: list[Any], node: Any, at: str, guarded: AbstractSet[int]) -> None:
    parts = [field.type for field in getattr(node, "fields", ())] or list(getattr(node, "item_types", ()))
    for place, (item, part) in enumerate(zip(value, parts or repeat(_item_of(node)), strict=False)):
        if id(part) in guarded:
            _visit(item, part, f"{at}[{place}]", guarded)
    if isinstance(node, inspect.SetType | inspect.FrozenSetType) and len(value) > _MOST_COLLISIONS:
        members: Any = GenericAlias(list, _type_of(node.item_type))
        _require_spread(lambda: msgspec.convert(value, members), at)


def _visit_mapping(value: dict[str, Any], node: inspect.DictType, at: str, guarded: AbstractSet[int]) -> None:
    for key, item in value.items():
        _visit(key, node.key_type, f"a key of {at}", guarded)
        _visit(item, node.value_type, f"{at}.*", guarded)
    if not isinstance(node.key_type, _SPREAD) and len(value) > _MOST_COLLISIONS:
        one: Any = GenericAlias(dict, (_type_of(node.key_type), Any))
        keys = ({key: None} for key in value)
        _require_spread(lambda: [next(iter(msgspec.convert(key, one, str_keys=True))) for key in keys], at)


def _item_of(node: Any) -> inspect.Type:
    return getattr(node, "item_type", inspect.AnyType())


def _has_tag(value: dict[str, Any], node: Any) -> bool:
    """Return whether a value can be of this type, and not of another struct of the same union."""
    tag_field = getattr(node, "tag_field", None)
    return tag_field is None or value.get(tag_field) == node.tag


def _require_sensible(text: str, at: str) -> None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return
    if not value.is_finite() or (value and abs(value.adjusted()) > _MOST_EXPONENT):
        raise Mismatch(f"{at} is not a decimal number as text.")


def _require_spread(make: Callable[[], Sequence[Any]], at: str) -> None:
    """Refuse members of a set, or keys of a mapping, whose hashes collide."""
    try:
        values = make()
        hashes = set(map(hash, values))
    except (msgspec.ValidationError, TypeError):
        return  # msgspec says it
    if len(values) - len(hashes) > _MOST_COLLISIONS:
        raise Mismatch(f"{at} has too many members or keys that are equal, or have the same hash.")


def _type_of(node: Any) -> Any:
    """Return the type that msgspec has described."""
    if type(node) in _SIMPLE:
        return _SIMPLE[type(node)]
    if hasattr(node, "cls"):
        return node.cls
    if isinstance(node, inspect.Metadata):
        return _type_of(node.type)
    if isinstance(node, inspect.LiteralType):
        return Literal[tuple(node.values)]
    inside: Any = tuple(_type_of(each) for each in _inside(node))
    if isinstance(node, inspect.UnionType):
        return Union[inside]  # noqa: UP007 -- the members are known only now
    if isinstance(node, inspect.VarTupleType):
        inside = (*inside, ...)
    container: Any = _CONTAINERS.get(type(node), tuple)
    return container[inside]
