"""The shapes of structs of msgspec and of models of pydantic. Neither library is imported here."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from sbredis.codec._shape import Mismatch, Shape

__all__ = ["of_msgspec", "of_pydantic", "of_tagged_structs"]


def of_msgspec(kind: type) -> Shape | None:
    """Return the shape of a struct of msgspec; ``None`` for another class."""
    return _structs(kind, kind.__name__) if _is_struct(kind) else None


def of_tagged_structs(members: Sequence[Any]) -> dict[Any, Shape]:
    """Return the shape that the structs of msgspec in a union share, by struct, if their tags tell them apart."""
    kinds = [kind for kind in members if _is_struct(kind)]
    if len(kinds) < 2:
        return {}
    union: Any = kinds[0]
    for kind in kinds[1:]:
        union |= kind
    msgspec: Any = sys.modules["msgspec"]
    try:
        msgspec.json.Decoder(union)
    except TypeError:  # some have no tags, or the same one
        return {}
    return dict.fromkeys(kinds, _structs(union, " or ".join(kind.__name__ for kind in kinds)))


def _is_struct(kind: Any) -> bool:
    """Return whether a type is a struct of msgspec.

    Only a program that has imported msgspec can have a struct, so nothing is imported here.
    """
    msgspec: Any = sys.modules.get("msgspec")
    return msgspec is not None and isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _structs(kind: Any, name: str) -> Shape:
    """Return the shape of a struct, or of a union of structs."""
    msgspec: Any = sys.modules["msgspec"]

    def encode(value: Any) -> Any:
        return msgspec.to_builtins(value, str_keys=True)

    def decode(value: Any, at: str) -> Any:
        try:
            return msgspec.convert(value, kind, str_keys=True)
        except msgspec.ValidationError as error:
            raise Mismatch(_place_of(error, at)) from None

    def from_bytes(body: bytes) -> Any:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError as error:
            raise Mismatch(_place_of(error, "$")) from None
        except msgspec.DecodeError:
            raise Mismatch("it is not JSON.") from None

    return Shape(name, frozenset({"map", "list"}), encode, decode, msgspec.json.encode, from_bytes)


def _place_of(error: Exception, at: str) -> str:
    """Return where msgspec found an error. Its own text may contain a value."""
    found = re.search(r"at `\$([^`]*)`$", str(error))
    return f"{at}{found[1] if found else ''} does not fit its type."


def of_pydantic(kind: type) -> Shape | None:
    """Return the shape of a model of pydantic; ``None`` for another class."""
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is None or not issubclass(kind, pydantic.BaseModel):
        return None
    model: Any = kind

    def explained(error: Any, at: str) -> Mismatch:
        texts: list[str] = []
        for one in error.errors(include_url=False, include_input=False, include_context=False)[:3]:
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in one["loc"])
            texts.append(f"{at}{place}: {one['type']}")
        return Mismatch("; ".join(texts) + ".")

    def decode(value: Any, at: str) -> Any:
        try:
            # from JSON, because a strict model takes a text for a date only there
            return model.model_validate_json(json.dumps(value))
        except pydantic.ValidationError as error:
            raise explained(error, at) from None

    def from_bytes(body: bytes) -> Any:
        try:
            return model.model_validate_json(body)
        except pydantic.ValidationError as error:
            raise explained(error, "$") from None

    def encode(value: Any) -> Any:
        return value.model_dump(mode="json", by_alias=True, round_trip=True)

    def to_bytes(value: Any) -> bytes:
        text: str = value.model_dump_json(by_alias=True, round_trip=True)
        return text.encode()

    return Shape(kind.__name__, frozenset({"map"}), encode, decode, to_bytes, from_bytes)
