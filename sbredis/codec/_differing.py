"""Find the place where a value is not equal to the value that its body decodes to. Pure."""

# Values of applications, whose types are not known.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any, NamedTuple

from sbredis.codec._models import is_model

__all__ = ["Difference", "difference"]


class Difference(NamedTuple):
    """A value that would not be the same after it was sent."""

    place: str
    kind: type
    reason: str = ""
    """Why it would not be the same, and what to do, if this is known: a part of a sentence."""


def difference(sent: Any, back: Any, at: str) -> Difference | None:
    """Return the first difference. Values of a class without ``==`` are compared by their fields."""
    if sent == back or (type(sent) is type(back) and is_model(type(sent))) or _same_moment(sent, back):
        return None
    if type(sent) is not type(back) or (parts := _parts(sent, back)) is None:
        return Difference(at, type(sent), _reason(sent))
    return next((found for name, one, two in parts if (found := difference(one, two, at + name))), None)


def _reason(sent: Any) -> str:
    offset = sent.utcoffset() if isinstance(sent, datetime | time) else None
    if offset is None or offset % timedelta(minutes=1) == timedelta():
        return ""
    return ": its offset from UTC has seconds, and an offset in RFC 3339 has only hours and minutes. Convert it to UTC"


def _same_moment(sent: Any, back: Any) -> bool:
    """Return whether both are the same time.

    In the hour that a change of daylight saving repeats, a time is never equal to one of another zone.
    """
    return (
        isinstance(sent, datetime)
        and isinstance(back, datetime)
        and sent.tzinfo is not None
        and back.tzinfo is not None
        and sent.astimezone(UTC) == back.astimezone(UTC)
    )


def _parts(sent: Any, back: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """Return the parts of two values of one type, by place; ``None`` if they have other parts, or none."""
    names = getattr(sent, "__struct_fields__", None)
    if dataclasses.is_dataclass(sent):
        names = [field.name for field in dataclasses.fields(sent)]
    if names is not None:
        return ((f".{name}", getattr(sent, name), getattr(back, name)) for name in names)
    if isinstance(sent, list | tuple) and len(sent) == len(back):
        return ((f"[{place}]", *both) for place, both in enumerate(zip(sent, back, strict=True)))
    if isinstance(sent, dict) and sent.keys() == back.keys():
        return ((".*", sent[key], back[key]) for key in sent)
    return None
