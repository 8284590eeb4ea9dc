"""Values as people and programs write them: durations, and in JSON what JSON does not have. Pure.

A duration is ``90s``, ``5m``, ``1h30m``, ``500ms``, a number of seconds, or ISO 8601.
A value that JSON has is itself. Every other value is an object with one key, which names its type: ``{"$uuid": "…"}``.
Only a rule can have a duration.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

__all__ = [
    "NO_LIMIT",
    "duration_of",
    "duration_text",
    "from_json",
    "rule_value_from_json",
    "rule_value_to_json",
    "to_json",
]

# -- durations ---------------------------------------------------------------------------------------------------------

NO_LIMIT = "none"
"""How a property without a limit is written."""

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PART = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(ms|[dhms])", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,18})?", re.ASCII)


def duration_of(text: str) -> timedelta:
    """Read a duration. Raises :class:`ValueError` for any other text."""
    if text[:1] == "P":
        from sbredis.model import parse_duration

        return parse_duration(text)
    parts = _PART.findall(text) if not _NUMBER.fullmatch(text) else [(text, "s")]
    if not parts or "".join(number + unit for number, unit in parts) not in {text, f"{text}s"}:
        raise ValueError(f"{text[:60]!r} is not a duration: write it as 90s, 5m, 1h30m or PT5M")
    microseconds = sum(Decimal(number) * _UNITS[unit] for number, unit in parts) * 1000
    try:
        return timedelta(microseconds=int(microseconds))
    except OverflowError:
        raise ValueError(f"{text[:60]!r} is too long for a duration") from None


def duration_text(value: timedelta) -> str:
    """Return the text of a duration, in whole ms, from which :func:`duration_of` reads it again.

    No limit, which is ``timedelta.max``, is :data:`NO_LIMIT`.
    """
    if value == timedelta.max:
        return NO_LIMIT
    left, parts = value // timedelta(milliseconds=1), list[str]()
    for unit, size in _UNITS.items():
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


# -- JSON --------------------------------------------------------------------------------------------------------------

_DURATION = "$duration"


def to_json(value: object) -> Any:
    """Return a value of a message as JSON has it."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in cast("list[object]", value)]
    if isinstance(value, Mapping):
        given = cast("Mapping[object, object]", value)
        if all(isinstance(name, str) and not name.startswith("$") for name in given):
            return {cast("str", name): to_json(each) for name, each in given.items()}
        return {"$map": [[to_json(name), to_json(each)] for name, each in given.items()]}
    for name, (kind, write, _) in _TYPES.items():
        if isinstance(value, kind):
            return {name: write(value)}
    raise TypeError(f"a value of the type {type(value).__name__} cannot be in a message")


def from_json(value: Any) -> Any:
    """Return the value of a message that :func:`to_json` has written. Raises :class:`ValueError` for any other."""
    if isinstance(value, list):
        return [from_json(each) for each in value]  # pyright: ignore[reportUnknownVariableType]  # any JSON
    if not isinstance(value, dict):
        return value
    given = cast("dict[str, Any]", value)
    names = [name for name in given if name.startswith("$")]
    if not names:
        return {name: from_json(each) for name, each in given.items()}
    name = names[0]
    if len(given) > 1 or name not in _TYPES:
        raise ValueError(f"{name!r} is no type of values; the types are {', '.join(_TYPES)}, each alone in its object")
    try:
        return _TYPES[name][2](given[name])
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        raise ValueError(f"{given[name]!r} is no value of the type {name!r}") from None


def rule_value_to_json(value: object) -> Any:
    """Return a value that a rule compares or sets as JSON has it."""
    if not isinstance(value, timedelta):
        return to_json(value)
    seconds, microseconds = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    fraction = f".{microseconds:06}".rstrip("0").rstrip(".")
    return {_DURATION: f"{'-' if value < timedelta() else ''}{seconds}{fraction}s"}


def rule_value_from_json(value: Any) -> Any:
    """Return the value that :func:`rule_value_to_json` has written. Raises :class:`ValueError` for any other."""
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if list(given) != [_DURATION]:
        return from_json(value)
    text: object = given[_DURATION]
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no value of the type {_DURATION!r}")  # noqa: TRY004 -- the text of a file is wrong
    return -duration_of(text[1:]) if text.startswith("-") else duration_of(text)


def _map(pairs: Any) -> dict[Any, Any]:
    return {from_json(name): from_json(value) for name, value in pairs}


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError
    return found


_TYPES: dict[str, tuple[type[Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "$bytes": (
        bytes,
        lambda value: base64.b64encode(value).decode(),
        lambda text: base64.b64decode(text, validate=True),
    ),
    "$datetime": (datetime, lambda value: value.isoformat(), _time),
    "$decimal": (Decimal, str, Decimal),
    "$float": (float, repr, float),
    "$map": (dict, lambda value: value, _map),
    "$uuid": (UUID, str, UUID),
}
"""For each name, the type, and the functions that write and read a value. ``to_json`` writes maps and floats itself."""
