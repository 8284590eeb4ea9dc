"""A shape: how the values of one type look in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from sbredis.codec._reading import Takes

__all__ = ["Decode", "Encode", "Mismatch", "Shape", "UnsupportedTypeError", "misfit", "words"]

Encode = Callable[[Any], Any]
Decode = Callable[[Any, str], Any]


class Mismatch(Exception):  # noqa: N818 -- never leaves this package
    """A decoded body does not fit a shape. The text says where, without a value."""


class UnsupportedTypeError(TypeError):
    """The codec cannot encode or decode values of this type; the text says why."""


@dataclasses.dataclass(slots=True)
class Shape:
    """How the values of one type look in JSON."""

    name: str
    kinds: frozenset[str]
    """The kinds of JSON value that the type can have: ``null``, ``bool``, ``int``, ``float``, ``text``, ``list``,
    ``map``. Two types of a union must have none in common.
    """
    encode: Encode
    decode: Decode
    to_bytes: Callable[[Any], bytes] | None = None
    """Encodes a whole body at once, if a library does it."""
    from_bytes: Callable[[bytes], Any] | None = None
    takes: Takes = Takes.NOTHING
    """Which bodies the type takes that are not JSON. A body that is read as text is decoded as if it were text in JSON.
    """
    sends_text: bool = False
    """Whether a whole body is sent as text, because its values are equal to texts."""


words: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "a truth value",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}
"""The words for decoded JSON values in errors."""


def misfit(at: str, wanted: str, value: object) -> Mismatch:
    """Return the error for a decoded value of a wrong type. It does not contain the value."""
    return Mismatch(f"{at} is {words.get(type(value), type(value).__name__)}, but must be {wanted}.")
