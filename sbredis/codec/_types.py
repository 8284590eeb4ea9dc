"""The types that bodies can have: what msgspec decodes, and the rule of unions."""

# The types of an application are values here, whose own types are not known.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import dataclasses
import enum
import re
import types
import typing
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NewType, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from sbredis._quoting import type_name
from sbredis.codec._guards import guard_of, parts_of
from sbredis.codec._misfits import Mismatch, mismatch_of
from sbredis.codec._models import decode_other, is_model
from sbredis.codec._reading import Takes, takes_of

__all__ = ["BodyType", "UnsupportedTypeError", "body_type", "check_type"]


_OBJECTS: Final[frozenset[type]] = frozenset(
    {inspect.DictType, inspect.TypedDictType, inspect.DataclassType, inspect.StructType, inspect.AnyType}
)
_STRUCTURED: Final[frozenset[type]] = frozenset(
    {inspect.TypedDictType, inspect.DataclassType, inspect.StructType, inspect.NamedTupleType}
)
_OTHER_BYTES: Final = (inspect.ByteArrayType, inspect.MemoryViewType, inspect.RawType, inspect.ExtType)
"""Types that look like bytes, and that msgspec would send as JSON."""
_NO_KEYS: Final = (
    inspect.BoolType,
    inspect.NoneType,
    inspect.CollectionType,
    inspect.TupleType,
    inspect.NamedTupleType,
    inspect.DataclassType,
    inspect.StructType,
    inspect.CustomType,
)


class UnsupportedTypeError(TypeError):
    """The codec cannot encode or decode values of this type; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class BodyType:
    """A type that bodies have."""

    name: str
    takes: Takes
    from_json: Callable[[bytes], Any]
    """Decodes JSON. Raises :class:`~sbredis.codec._misfits.Mismatch`, or what msgspec raises for what is not JSON."""
    from_text: Callable[[str], Any]
    """Decodes a text that is not JSON, as if it were a text in JSON."""
    sends_text: bool
    """Whether a value is sent as text, because its values are equal to texts."""
    is_structured: bool
    """Whether each value is an object or a list in JSON."""


def check_type(as_type: Any) -> None:
    """Raise :class:`UnsupportedTypeError` if bodies cannot be decoded to this type."""
    body_type(as_type)


def body_type(as_type: Any) -> BodyType:
    """Return what the codec knows of a type."""
    try:
        return _kept(as_type)
    except TypeError as error:
        if isinstance(error, UnsupportedTypeError):
            raise
        return _made(as_type)  # the type has no hash, for example Annotated[int, []]


@lru_cache(maxsize=1024)
def _kept(as_type: Any) -> BodyType:
    return _made(as_type)


def _made(as_type: Any) -> BodyType:
    members = list(_members(as_type))
    models = [bare for each in members if is_model(bare := _bare(each))]
    others = [each for each in members if not is_model(_bare(each))]
    # A union of one type is this type, but typing refuses to make it if the type has no hash.
    rest: Any = (others or models)[0] if len(others) < 2 else Union[tuple(others)]  # noqa: UP007 -- known only now
    decode_rest, node = _decoder(rest, as_type)
    nodes = list(node.types if isinstance(node, inspect.UnionType) else (node,))
    if isinstance(node, _OTHER_BYTES):
        raise _unsupported(as_type)
    if len(models) > 1 or (models and others and not _OBJECTS.isdisjoint(map(type, nodes))):
        raise _look_alike(as_type)
    decode_model = decode_rest
    if models and others:
        decode_model, model = _decoder(models[0], as_type)
        nodes.append(model)

    def from_json(body: bytes) -> Any:
        is_object = body.lstrip(b" \t\r\n").startswith(b"{")
        return (decode_model if is_object else decode_rest)(body)

    return BodyType(
        name=type_name(as_type),
        takes=takes_of(nodes, alone=len(members) == 1),
        from_json=from_json if decode_model is not decode_rest else decode_rest,
        from_text=lambda text: _fitting(msgspec.convert, text, rest),
        sends_text=_is_enumeration_of_texts(as_type),
        is_structured=_STRUCTURED.issuperset(map(type, nodes)) or not others,
    )


def _decoder(as_type: Any, whole: Any) -> tuple[Callable[[bytes], Any], inspect.Type]:
    """Return the function that decodes JSON to a type, and how msgspec describes the type."""
    try:
        decode = msgspec.json.Decoder(as_type, dec_hook=decode_other).decode
        node = inspect.type_info(as_type)
    except NameError as error:
        raise UnsupportedTypeError(
            f"The annotations of {type_name(whole)} cannot be resolved: {error.name!r} is not defined in their module."
        ) from error
    except (TypeError, NotImplementedError) as error:
        raise _refusal(str(error), whole) from error
    for part in parts_of(node):
        if isinstance(part, inspect.DataclassType) and _has_own_init(part.cls):
            raise UnsupportedTypeError(
                f"{type_name(part.cls)} cannot be decoded: it has an __init__ of its own, which would not be called. "
                "Use __post_init__, or a model of pydantic that is no dataclass."
            )
        if isinstance(part, inspect.CustomType) and part.cls is not object and not is_model(part.cls):
            raise _unsupported(part.cls)
        if isinstance(part, inspect.DictType) and isinstance(part.key_type, _NO_KEYS):
            raise UnsupportedTypeError(f"{type_name(whole)} cannot be sent as JSON: its keys must be text or numbers.")
    guard = guard_of(node)

    def guarded(body: bytes) -> Any:
        if guard is not None:
            guard(msgspec.json.decode(body))
        return decode(body)

    return (lambda body: _fitting(guarded if guard else decode, body)), node


def _fitting(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except msgspec.ValidationError as error:
        raise mismatch_of(error) from None
    except TypeError:
        raise Mismatch("it has a set with a member that cannot be in a set.") from None


def _members(as_type: Any) -> Iterator[Any]:
    """Yield the members of a union, and of the unions inside it; another type alone."""
    bare = _bare(as_type)
    if get_origin(bare) in {Union, types.UnionType}:
        for each in get_args(bare):
            yield from _members(each)
    else:
        yield as_type


def _bare(as_type: Any) -> Any:
    """Return a type without annotations and aliases."""
    while True:
        if get_origin(as_type) is typing.Annotated:
            as_type = get_args(as_type)[0]
        elif isinstance(as_type, NewType):
            as_type = as_type.__supertype__
        elif type(as_type).__name__ == "TypeAliasType":
            as_type = as_type.__value__
        else:
            return as_type


def _is_enumeration_of_texts(kind: Any) -> bool:
    """Return whether the members of an enumeration are equal to the texts that are their values."""
    return (
        isinstance(kind, type)
        and issubclass(kind, str)
        and issubclass(kind, enum.Enum)
        and all(type(member.value) is str and member == member.value for member in kind)
    )


def _has_own_init(kind: type) -> bool:
    """Return whether a dataclass has another ``__init__`` than the one that :mod:`dataclasses` generates."""
    code = getattr(getattr(kind, "__init__"), "__code__", None)  # noqa: B009 -- mypy warns of __init__ as an attribute
    return code is None or code.co_filename != "<string>"


def _refusal(said: str, whole: Any) -> UnsupportedTypeError:
    """Return the error for a type that msgspec refuses with this text."""
    name = type_name(whole)
    union = re.search(r"type `(.*)` is not supported$", said)
    if "custom type" in said and union:
        return UnsupportedTypeError(
            f"{union[1]} cannot be decoded inside another type: there, a union may have a model of pydantic and None "
            "only. Make the type around it a model of pydantic."
        )
    if "union" in said:
        return _look_alike(union[1] if union else whole)
    if "InitVar" in said:
        return UnsupportedTypeError(f"{name} cannot be decoded: a dataclass with an InitVar is not supported.")
    if said.startswith("Enums must"):
        return UnsupportedTypeError(
            f"{name} cannot be decoded: the values of an enumeration must be all text or all int."
        )
    if "Integer values" in said:
        return UnsupportedTypeError(
            f"{name} cannot be decoded: a number of a Literal or an enumeration may have 64 bits."
        )
    return _unsupported(whole)


def _look_alike(as_type: Any) -> UnsupportedTypeError:
    name = as_type if isinstance(as_type, str) else type_name(as_type)
    return UnsupportedTypeError(
        f"{name} cannot be decoded: two of its types look alike in JSON. "
        "Use one type, structs of msgspec with tags, or a model of pydantic that says how they differ."
    )


def _unsupported(as_type: Any) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"{type_name(as_type)} is not a type that bodies can have. Use bytes, str, dict, list, a dataclass, a "
        "TypedDict, a NamedTuple, a struct of msgspec or a model of pydantic."
    )
