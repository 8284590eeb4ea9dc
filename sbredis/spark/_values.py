"""The values of options: Spark gives each of them as text. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, cast

from sbredis._quoting import quoted

__all__ = ["At", "boolean", "count", "duration", "moment", "offsets", "one_of", "text"]

At: TypeAlias = "Literal['earliest', 'latest'] | Mapping[int, int]"
"""Where to begin or to end: at one end of every partition, or after a number of each partition."""

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
_LARGEST_NUMBER = (1 << 48) - 1
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
    """Return ``earliest``, ``latest``, or the last number before the first one to read, by partition."""
    word = value.strip().lower()
    if word in _ENDS:
        return _ENDS[word]
    wrong = f'it must be earliest, latest, or JSON such as {{"0": 17, "1": 0}}, not {quoted(value)}'
    try:
        found: Any = json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(wrong) from None
    if not isinstance(found, dict):
        raise ValueError(wrong)  # noqa: TRY004 -- the text is wrong, whatever its type is
    by_partition: dict[int, int] = {}
    for partition, number in cast("dict[str, Any]", found).items():
        if not partition.isdecimal() or type(number) is not int or not 0 <= number <= _LARGEST_NUMBER:
            raise ValueError(wrong)
        by_partition[int(partition)] = number
    return by_partition
