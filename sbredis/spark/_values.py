"""The values of options: Spark gives each of them as text. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, cast

from sbredis._quoting import quoted
from sbredis.engine import name_key

__all__ = [
    "EARLIEST",
    "LATEST",
    "ONLY_ENTITY",
    "At",
    "boolean",
    "count",
    "duration",
    "moment",
    "names",
    "offsets",
    "one_of",
    "pattern",
    "text",
]

At: TypeAlias = "Literal['earliest', 'latest'] | Mapping[str, Mapping[int, int]]"
"""Where to begin or to end: at one end of every partition, or at a number of some partitions of each entity."""
LATEST, EARLIEST = -1, -2
"""Numbers that stand for an end of a partition, as in Kafka's source."""
ONLY_ENTITY = ""
"""The name of the entity of numbers by partition that name no entity."""

_ENDS: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}
_TRUE, _FALSE = {"true", "yes", "1", "on"}, {"false", "no", "0", "off"}
_UNITS = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
}
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)
_LARGEST_NUMBER = (1 << 64) - 1
_DIGITS_OF_DATE = len("20260501")


def text(value: str) -> str:
    """Return a text that is not empty."""
    if not value.strip():
        raise ValueError("it must not be empty")
    return value.strip()


def one_of(*allowed: str) -> Callable[[str], str]:
    """Return a parser of one of these words, in any case."""
    spelled = {word.lower(): word for word in allowed}

    def parse(value: str) -> str:
        if value.strip().lower() not in spelled:
            raise ValueError(f"it must be {' or '.join(allowed)}, not {quoted(value)}")
        return spelled[value.strip().lower()]

    return parse


def boolean(value: str) -> bool:
    """Return a truth value."""
    word = value.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"it must be true or false, not {quoted(value)}")
    return word in _TRUE


def count(least: int = 1, most: int = 1 << 53) -> Callable[[str], int]:
    """Return a parser of a whole number between two limits."""

    def parse(value: str) -> int:
        digits = value.strip().replace("_", "")
        if not re.fullmatch(r"[0-9]{1,19}", digits) or not least <= int(digits) <= most:
            raise ValueError(f"it must be a whole number from {least:,} to {most:,}, not {quoted(value)}")
        return int(digits)

    return parse


def duration(value: str) -> float:
    """Return a time in seconds: ``90``, ``500 ms``, ``5 min``, ``1h``."""
    found = _DURATION.fullmatch(value)
    word = found[2].lower() if found else ""
    unit = word if word in _UNITS else word.removesuffix("s")
    if found is None or unit not in _UNITS:
        raise ValueError(
            f"it must be a time such as 90, 500 ms, 5 min or 1 h (seconds without a unit), not {quoted(value)}"
        )
    seconds = float(found[1]) * _UNITS[unit]
    if not math.isfinite(seconds):
        raise ValueError(f"it is too long: {quoted(value)}")
    return seconds


def moment(value: str) -> int:
    """Return a time in ms since 1970, from ISO 8601 or from ms since 1970. Without a zone, the time is in UTC.

    Eight digits that are a date in ISO 8601 are refused, because they could be either.
    """
    text = value.strip()
    number = int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None
    if number is not None and len(text) != _DIGITS_OF_DATE:
        return number
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        if number is not None:
            return number
        raise ValueError(
            f"it must be a time like 2026-05-01T12:00:00Z, or ms since 1970, not {quoted(value)}"
        ) from None
    if number is not None:
        meant = datetime.fromtimestamp(number / 1000, UTC).isoformat(timespec="milliseconds")
        raise ValueError(f"{quoted(value)} may be a date or ms since 1970: write {at.date()} or {meant}")
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def offsets(value: str) -> At:
    """Return ``earliest``, ``latest``, or numbers by partition; if there are several entities, by entity before.

    The numbers are those of the column ``sequence_number``. -1 is the latest number, and -2 the earliest.
    """
    word = value.strip().lower()
    if word in _ENDS:
        return _ENDS[word]
    try:
        found: Any = json.loads(value, object_pairs_hook=_without_repetition)
    except _TwiceError as error:
        raise ValueError(f"it has {quoted(error.key)} twice: {quoted(value)}") from None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        given = cast("dict[str, Any]", found)
        nested = bool(given) and all(isinstance(each, dict) for each in given.values())
        by_entity = {name: _by_partition(each) for name, each in (given if nested else {ONLY_ENTITY: given}).items()}
        if None not in by_entity.values():
            return cast("dict[str, dict[int, int]]", by_entity)
    raise ValueError(
        'it must be earliest, latest, or JSON with sequence numbers such as {"0": 17, "1": -2} or '
        f'{{"orders": {{"0": 17}}}}, not {quoted(value)}'
    )


class _TwiceError(Exception):
    """A key of a JSON object comes twice."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raise :class:`_TwiceError` if two of its keys are one partition, or one entity."""
    found: dict[str, str] = {}
    for key, value in pairs:
        is_partition = key.isascii() and key.isdecimal() and not isinstance(value, dict)
        meant = str(int(key)) if is_partition else name_key(key)
        if meant in found:
            raise _TwiceError(key)
        found[meant] = key
    return dict(pairs)


def _by_partition(given: dict[str, Any]) -> dict[int, int] | None:
    found: dict[int, int] = {}
    for partition, number in given.items():
        if not (partition.isascii() and partition.isdecimal()) or type(number) is not int:
            return None
        if not EARLIEST <= number <= _LARGEST_NUMBER:
            return None
        found[int(partition)] = number
    return found


def names(value: str) -> tuple[str, ...]:
    """Return names that are separated by commas. None may be empty, or come twice, also in another case of letters."""
    found = tuple(name.strip() for name in value.split(","))
    if "" in found:
        raise ValueError(f"it must be names with commas between them, not {quoted(value)}")
    lower = [name.lower() for name in found]
    twice = next((name for at, name in enumerate(found) if name.lower() in lower[:at]), None)
    if twice is not None:
        raise ValueError(f"it has {quoted(twice)} twice")
    return found


def pattern(value: str) -> str:
    """Return a regular expression, which must be a valid one."""
    try:
        re.compile(text(value))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"it must be a regular expression, not {quoted(value)}: {error}") from None
    return text(value)
