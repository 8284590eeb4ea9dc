"""Durations as people write them: ``90s``, ``5m``, ``1h30m``, ``500ms``, a number of seconds, or ISO 8601. Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

__all__ = ["NO_LIMIT", "duration_of", "duration_text"]

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
