"""Decide how a body is read: by what its content type says, and by what its type takes. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from msgspec import inspect

__all__ = ["BodyReading", "DeclaredForm", "Takes", "declared_form", "reading_of", "takes_of"]


class Takes(enum.Enum):
    """Which bodies a type takes that are not JSON."""

    ANYTHING = "every body"
    BYTES = "bytes alone"
    BYTES_OR_MORE = "bytes, or values of other types"
    TEXT = "str alone"
    TEXT_OR_NONE = "str or None"
    TEXT_OR_MORE = "str, or values of other types"
    KNOWN_TEXTS = "the texts of a Literal or an enumeration, or None"
    KNOWN_TEXTS_OR_MORE = "these texts, or other values"
    NOTHING = "JSON alone"


class DeclaredForm(enum.Enum):
    """The form of a body, according to its content type."""

    JSON = "JSON"
    TEXT = "text"
    NOTHING = "nothing that the codec knows"


class BodyReading(enum.Enum):
    """How a body is read."""

    BYTES = "as it is"
    TEXT = "as text"
    KNOWN_TEXT = "as text if it is one of the texts of the type, otherwise as JSON"
    JSON = "as JSON"


_B: Final = BodyReading.BYTES
_T: Final = BodyReading.TEXT
_K: Final = BodyReading.KNOWN_TEXT
_J: Final = BodyReading.JSON

# The codec sends str as text, bytes without a content type, and every other value as JSON. So each row gives back what
# was sent. A body of another sender without a content type is JSON for a type that has values of JSON beside str: the
# body 5 must not be a number for str | int while the body 5a is a text.
_READINGS: Final[dict[Takes, dict[DeclaredForm, BodyReading]]] = {
    takes: dict(zip((DeclaredForm.JSON, DeclaredForm.TEXT, DeclaredForm.NOTHING), readings, strict=True))
    for takes, readings in {
        Takes.ANYTHING: (_J, _T, _B),
        Takes.BYTES: (_B, _B, _B),
        Takes.BYTES_OR_MORE: (_J, _B, _B),
        Takes.TEXT: (_T, _T, _T),
        Takes.TEXT_OR_NONE: (_J, _T, _T),
        Takes.TEXT_OR_MORE: (_J, _T, _J),
        Takes.KNOWN_TEXTS: (_J, _K, _K),
        Takes.KNOWN_TEXTS_OR_MORE: (_J, _K, _J),
        Takes.NOTHING: (_J, _J, _J),
    }.items()
}


def reading_of(takes: Takes, form: DeclaredForm) -> BodyReading:
    """Return how a body is read for a type that takes this, if its content type says that."""
    return _READINGS[takes][form]


@lru_cache(maxsize=64)
def declared_form(content_type: str | None) -> DeclaredForm:
    """Return what a content type says."""
    essence = (content_type or "").partition(";")[0].strip().lower()
    if essence == "application/json" or essence.endswith("+json"):
        return DeclaredForm.JSON
    return DeclaredForm.TEXT if essence.startswith("text/") else DeclaredForm.NOTHING


def takes_of(members: Sequence[inspect.Type], *, alone: bool) -> Takes:
    """Return what a type takes, from what msgspec says of the members of its union.

    At most one of them is text in JSON, because two would look alike. ``alone`` says that the type is no union.
    """
    kinds = {type(member) for member in members}
    or_none = kinds - {inspect.NoneType}
    if inspect.AnyType in kinds or any(getattr(member, "cls", None) is object for member in members):
        return Takes.ANYTHING
    if inspect.BytesType in kinds:
        return Takes.BYTES if alone else Takes.BYTES_OR_MORE
    if inspect.StrType in kinds:
        return Takes.TEXT if alone else Takes.TEXT_OR_NONE if len(or_none) == 1 else Takes.TEXT_OR_MORE
    known = {value for member in members for value in _values_of(member)}
    if not any(isinstance(value, str) for value in known):
        return Takes.NOTHING
    if or_none <= {inspect.LiteralType, inspect.EnumType} and all(
        each is None or isinstance(each, str) for each in known
    ):
        return Takes.KNOWN_TEXTS
    return Takes.KNOWN_TEXTS_OR_MORE


def _values_of(member: inspect.Type) -> Iterable[object]:
    if isinstance(member, inspect.EnumType):
        return [each.value for each in member.cls]
    return member.values if isinstance(member, inspect.LiteralType) else ()
