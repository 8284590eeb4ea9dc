"""Models of pydantic, which is not imported here: only a program that has imported it can have a model."""

# The schemas of pydantic are values here, whose types are not known.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from sbredis.codec._misfits import Mismatch

__all__ = ["decode_other", "encode_other", "is_model"]


def is_model(kind: Any) -> bool:
    """Return whether a type is a model of pydantic."""
    pydantic: Any = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def encode_other(value: Any) -> Any:
    """Encode a value whose type msgspec does not know."""
    if not is_model(type(value)):
        raise TypeError(f"A value of the type {type(value).__name__} cannot be sent.")
    text: str = value.model_dump_json(by_alias=True, round_trip=True)
    return msgspec.Raw(text.encode())


def decode_other(kind: Any, value: Any) -> Any:
    """Decode JSON to a type that msgspec does not know."""
    if not is_model(kind):
        return value
    pydantic: Any = sys.modules["pydantic"]
    try:
        # from JSON, because a strict model takes a text for a date only there
        return kind.model_validate_json(msgspec.json.encode(value))
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[:3]
        raise Mismatch("; ".join(f"{_place(kind, one['loc'])}: {one['type']}" for one in found) + ".") from None


def _place(kind: Any, parts: tuple[int | str, ...]) -> str:
    """Return a place in a model. A key of a mapping is not named, because it comes from the body."""
    names = _names_in(kind)
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" if part in names else ".*" for part in parts
    )


@lru_cache(maxsize=256)
def _names_in(kind: Any) -> frozenset[str]:
    """Return the names that the fields of a model and of the models inside it have in JSON."""
    return frozenset(_names(kind.__pydantic_core_schema__))


def _names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        fields: Any = schema.get("fields")
        yield from fields if isinstance(fields, dict) else ()
        if isinstance(alias := schema.get("validation_alias"), str):
            yield alias
        for part in schema.values():
            yield from _names(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _names(part)
