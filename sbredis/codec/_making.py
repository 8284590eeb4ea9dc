"""Make shapes: one for each type, once.

A shape has two functions that are each other's inverse: ``encode`` turns a value into what ``json`` can write, and
``decode`` turns that back, or says where it does not fit. The text of an error never contains a value from a body,
because it goes into logs and dead letters.
"""

# The types of an application are values here, whose own types are not known.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NewType, Union, cast, get_args, get_origin, get_type_hints

from sbredis._quoting import type_name
from sbredis.codec._libraries import of_msgspec, of_pydantic, of_tagged_structs
from sbredis.codec._reading import Takes, union_takes
from sbredis.codec._shape import Decode, Encode, Mismatch, Shape, UnsupportedTypeError, misfit
from sbredis.codec._simple import SIMPLE, require_spread, whole_number

__all__ = ["check_type", "shape_of"]

_UNFINISHED: tuple[Encode, Decode] = (lambda value: value, lambda value, _: value)


def check_type(as_type: Any) -> None:
    """Raise :class:`UnsupportedTypeError` if bodies cannot be decoded to this type."""
    if as_type not in {bytes, str, Any}:
        shape_of(as_type)


def shape_of(as_type: Any) -> Shape:
    """Return the shape of a type."""
    try:
        return _kept(as_type)
    except TypeError as error:
        if isinstance(error, UnsupportedTypeError):
            raise
        return _Making().of(as_type)  # the type has no hash, for example Literal[[]]


@lru_cache(maxsize=1024)
def _kept(as_type: Any) -> Shape:
    return _Making().of(as_type)


class _Making:
    """The making of one shape. A type that contains itself meets its own unfinished shape, which is filled in later."""

    def __init__(self) -> None:
        self._begun: dict[Any, Shape] = {}

    def of(self, as_type: Any) -> Shape:
        as_type = _bare(as_type)
        simple = SIMPLE.get(as_type) if isinstance(as_type, type) or as_type is Any else None
        if simple is not None:
            return simple
        origin = get_origin(as_type)
        if origin is not None:
            return self._generic(as_type, origin, get_args(as_type))
        if isinstance(as_type, type):
            kind: Any = as_type
            return self._class(kind)
        raise UnsupportedTypeError(f"{type_name(as_type)} is not a type that bodies can have.")

    # -- generic types

    def _generic(self, as_type: Any, origin: Any, arguments: tuple[Any, ...]) -> Shape:
        if origin in {Union, types.UnionType}:
            return self._union(as_type, arguments)
        if origin is Literal:
            return self._literal(as_type, arguments)
        if origin is list or origin in {Sequence, typing.Sequence}:
            return self._items(as_type, list, arguments[0])
        if origin in {set, frozenset}:
            return self._items(as_type, origin, arguments[0])
        if origin is tuple:
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                return self._items(as_type, tuple, arguments[0])
            return self._structure(type_name(as_type), tuple, [self.of(each) for each in arguments])
        if origin in {dict, Mapping}:
            return self._mapping(as_type, *arguments)
        if dataclasses.is_dataclass(origin):
            raise UnsupportedTypeError(
                f"{type_name(as_type)} is a generic dataclass: make a subclass with the types set."
            )
        raise UnsupportedTypeError(f"{type_name(as_type)} is not a type that bodies can have.")

    def _union(self, as_type: Any, members: tuple[Any, ...]) -> Shape:
        shapes = {member: self.of(member) for member in members}
        by_kind: dict[str, Shape] = {}
        number = {int, float} <= set(members)
        tagged = of_tagged_structs([_bare(member) for member in members])
        for member, own in shapes.items():
            shape = tagged.get(_bare(member), own)
            for kind in shape.kinds - ({"int"} if number and member is float else set[str]()):
                other = by_kind.setdefault(kind, shape)
                if other is not shape:
                    raise UnsupportedTypeError(
                        f"{type_name(as_type)} cannot be decoded: {other.name} and {shape.name} look alike in JSON. "
                        "Use one type, structs of msgspec with tags, or a model of pydantic that says how they differ."
                    )
        kinds_of = {
            str: "text",
            int: "int",
            bool: "bool",
            float: "float",
            list: "list",
            dict: "map",
            type(None): "null",
        }
        wanted = " or ".join(shape.name for shape in shapes.values())

        def encode(value: Any) -> Any:
            for member, shape in shapes.items():
                if _is_of(value, member):
                    return shape.encode(value)
            if type(value) is int and "float" in by_kind:  # as for a float alone
                return by_kind["float"].encode(value)
            raise TypeError(f"{wanted} was expected, not a value of the type {type(value).__name__}")

        def decode(value: Any, at: str) -> Any:
            shape = by_kind.get(kinds_of[type(value)])
            if shape is None:
                raise misfit(at, wanted, value)
            return shape.decode(value, at)

        kinds = frozenset(by_kind)
        takes = union_takes((shape.takes for shape in shapes.values()), kinds)
        return Shape(type_name(as_type), kinds, encode, decode, takes=takes)

    def _literal(self, as_type: Any, values: tuple[Any, ...]) -> Shape:
        if any(type(value) not in {str, int, bool, type(None)} for value in values):
            raise UnsupportedTypeError(
                f"{type_name(as_type)} cannot be decoded: use literals of text, int, bool and None."
            )
        kinds = {str: "text", int: "int", bool: "bool", type(None): "null"}
        known = {(type(value), value) for value in values}

        def encode(value: Any) -> Any:
            if (type(value), value) not in known:
                raise TypeError(f"the value is none of {type_name(as_type)}")
            return value

        def decode(value: Any, at: str) -> Any:
            if type(value) not in kinds or (type(value), value) not in known:
                raise Mismatch(f"{at} is none of the values of {type_name(as_type)}.")
            return value

        found = frozenset(kinds[type(value)] for value in values)
        takes = union_takes([Takes.KNOWN_TEXTS] if "text" in found else [], found)
        return Shape(type_name(as_type), found, encode, decode, takes=takes)

    def _items(self, as_type: Any, container: Callable[[list[Any]], Any], item_type: Any) -> Shape:
        item = self.of(item_type)
        origin = get_origin(as_type)
        kind = origin if isinstance(origin, type) and origin in {set, frozenset, tuple} else list

        def encode(value: Any) -> Any:
            if type(value) is not kind:
                raise TypeError(f"a {kind.__name__} was expected, not a value of the type {type(value).__name__}")
            return [item.encode(each) for each in value]

        def decode(value: Any, at: str) -> Any:
            if type(value) is not list:
                raise misfit(at, "a list", value)
            items = [item.decode(each, f"{at}[{place}]") for place, each in enumerate(value)]
            if kind in {set, frozenset}:
                require_spread(items, at)
            return container(items)

        return Shape(type_name(as_type), frozenset({"list"}), encode, decode)

    @staticmethod
    def _structure(
        name: str, kind: type[tuple[Any, ...]], items: Sequence[Shape], make: Callable[[list[Any]], Any] = tuple
    ) -> Shape:
        def encode(value: Any) -> Any:
            if type(value) is not kind or len(value) != len(items):
                raise TypeError(f"a {name} was expected, not a value of the type {type(value).__name__}")
            return [item.encode(each) for item, each in zip(items, value, strict=True)]

        def decode(value: Any, at: str) -> Any:
            if type(value) is not list:
                raise misfit(at, "a list", value)
            if len(value) != len(items):
                raise Mismatch(f"{at} has {len(value)} items, but must have {len(items)}.")
            return make(
                [item.decode(each, f"{at}[{n}]") for n, (item, each) in enumerate(zip(items, value, strict=True))]
            )

        return Shape(name, frozenset({"list"}), encode, decode)

    def _mapping(self, as_type: Any, key_type: Any, value_type: Any) -> Shape:
        key = self._key(as_type, _bare(key_type))
        item = self.of(value_type)

        def encode(value: Any) -> Any:
            if type(value) is not dict:
                raise TypeError(f"a dict was expected, not a value of the type {type(value).__name__}")
            return {key.encode(name): item.encode(each) for name, each in value.items()}

        def decode(value: Any, at: str) -> Any:
            if type(value) is not dict:
                raise misfit(at, "an object", value)
            keys = [key.decode(name, f"a key of {at}") for name in value]
            require_spread(keys, at)
            return dict(zip(keys, [item.decode(each, f"{at}.*") for each in value.values()], strict=True))

        return Shape(type_name(as_type), frozenset({"map"}), encode, decode)

    def _key(self, as_type: Any, key_type: Any) -> Shape:
        """Return the shape of the keys of a mapping, which are text in JSON."""
        if key_type is int:
            return Shape("int", frozenset({"text"}), lambda value: str(SIMPLE[int].encode(value)), whole_number)
        shape = self.of(key_type)
        if shape.kinds != frozenset({"text"}):
            raise UnsupportedTypeError(f"{type_name(as_type)} cannot be sent as JSON: its keys must be text or int.")
        return shape

    # -- classes

    def _class(self, kind: type) -> Shape:
        if issubclass(kind, enum.Enum):
            return self._enumeration(kind)
        for library in (of_msgspec, of_pydantic):
            made = library(kind)
            if made is not None:
                return made
        if dataclasses.is_dataclass(kind):
            fields = [field for field in dataclasses.fields(kind) if field.init]
            if len(fields) < len(dataclasses.fields(kind)):
                raise UnsupportedTypeError(f"{kind.__name__} cannot be decoded: it has fields with init=False.")
            optional = {
                field.name
                for field in fields
                if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            }
            return self._fields(kind, {field.name for field in fields}, optional, dictionaries=False)
        if typing.is_typeddict(kind):
            hints = _hints(kind)
            left_out = getattr(kind, "__optional_keys__", frozenset[str]())  # wrong if annotations are postponed
            optional = {
                name
                for name, hint in hints.items()
                if get_origin(hint) is typing.NotRequired
                or (name in left_out and get_origin(hint) is not typing.Required)
            }
            return self._fields(kind, set(hints), optional, dictionaries=True)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            hints = _hints(kind)
            shapes = [self.of(hints.get(name, Any)) for name in cast("Any", kind)._fields]
            return self._structure(kind.__name__, kind, shapes, lambda found: kind(*found))
        raise UnsupportedTypeError(
            f"{type_name(kind)} is not a type that bodies can have. Use bytes, str, dict, list, a dataclass, a "
            "TypedDict, a NamedTuple, a struct of msgspec or a model of pydantic."
        )

    def _enumeration(self, kind: type[enum.Enum]) -> Shape:
        values = [member.value for member in kind]
        literal = self._literal(kind, tuple(values))

        def encode(value: Any) -> Any:
            if type(value) is not kind:
                raise TypeError(f"a {kind.__name__} was expected, not a value of the type {type(value).__name__}")
            return literal.encode(value.value)

        def decode(value: Any, at: str) -> Any:
            return kind(literal.decode(value, at))

        sends_text = issubclass(kind, str) and all(type(value) is str and kind(value) == value for value in values)
        return Shape(kind.__name__, literal.kinds, encode, decode, takes=literal.takes, sends_text=sends_text)

    def _fields(
        self,
        kind: type,
        names: set[str],
        optional: set[str],
        *,
        dictionaries: bool,
    ) -> Shape:
        """Return the shape of a type with named fields. Its values may be ``dictionaries``."""
        if kind in self._begun:
            return self._begun[kind]
        shape = self._begun[kind] = Shape(kind.__name__, frozenset({"map"}), *_UNFINISHED)
        hints = _hints(kind)
        fields = {name: self.of(hints[name]) for name in hints if name in names}

        def encode_object(value: Any) -> Any:
            if type(value) is not kind:
                raise TypeError(f"a {kind.__name__} was expected, not a value of the type {type(value).__name__}")
            return {name: field.encode(getattr(value, name)) for name, field in fields.items()}

        def encode_dict(value: Any) -> Any:
            if type(value) is not dict:
                raise TypeError(f"a dict was expected, not a value of the type {type(value).__name__}")
            if unknown := value.keys() - fields.keys():
                raise TypeError(f"a {kind.__name__} has no key {min(unknown)!r}")
            return {name: fields[name].encode(each) for name, each in value.items()}

        def decode_dict(value: Any, at: str) -> Any:
            return _decoded_fields(fields, optional, value, at)

        def decode_object(value: Any, at: str) -> Any:
            found = _decoded_fields(fields, optional, value, at)
            try:
                return kind(**found)
            except (TypeError, ValueError) as error:  # from the __post_init__ of the application
                raise Mismatch(f"{at} was refused by {kind.__name__} ({type(error).__name__}).") from None

        if dictionaries:
            shape.encode, shape.decode = encode_dict, decode_dict
        else:
            shape.encode, shape.decode = encode_object, decode_object
        return shape


def _decoded_fields(fields: Mapping[str, Shape], optional: set[str], value: Any, at: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise misfit(at, "an object", value)
    found: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            found[name] = field.decode(value[name], f"{at}.{name}")
        elif name not in optional:
            raise Mismatch(f"{at}.{name} is missing.")
    return found


def _is_of(value: object, member: Any) -> bool:
    """Return whether a value belongs to this member of a union."""
    member = _bare(member)
    origin = get_origin(member)
    if origin in {Union, types.UnionType}:
        return any(_is_of(value, each) for each in get_args(member))
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(member))
    kind = list if origin in {Sequence, typing.Sequence} else dict if origin is Mapping else origin or member
    if kind is type(None) or member is None:
        return value is None
    if typing.is_typeddict(kind):
        return type(value) is dict
    return type(value) is kind


def _bare(as_type: Any) -> Any:
    """Return a type without annotations and aliases."""
    while True:
        if get_origin(as_type) in {typing.Annotated, typing.Required, typing.NotRequired}:
            as_type = get_args(as_type)[0]
        elif isinstance(as_type, NewType):
            as_type = as_type.__supertype__
        elif type(as_type).__name__ == "TypeAliasType":
            as_type = as_type.__value__
        elif as_type is None:
            return type(None)
        else:
            return as_type


def _hints(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise UnsupportedTypeError(
            f"The annotations of {kind.__name__} cannot be resolved: {error.name!r} is not defined in its module."
        ) from error
