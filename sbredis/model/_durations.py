"""Convert durations, given as a :class:`~datetime.timedelta` or in ISO 8601, to ms and back. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

from sbredis._quoting import quoted
from sbredis.engine import NEVER

__all__ = ["UNLIMITED", "duration", "from_milliseconds", "parse_duration", "to_milliseconds"]

UNLIMITED = timedelta.max
"""The value for every duration that is too long to be a limit: about 317 years or more."""

_MILLISECOND = timedelta(milliseconds=1)
_ISO_8601 = (
    r"P(?:(?P<weeks>N)W"
    r"|(?:(?P<days>N)D)?(?:T(?=[0-9])(?:(?P<hours>N)H)?(?:(?P<minutes>N)M)?(?:(?P<seconds>N)S)?)?)".replace(
        "N", r"[0-9]{1,18}(?:[.,][0-9]{1,18})?"
    )
)
"""It is compiled when it is first used, because few programs write durations so, and compiling it takes 1 ms."""
_MICROSECONDS = {
    "weeks": 604_800_000_000,
    "days": 86_400_000_000,
    "hours": 3_600_000_000,
    "minutes": 60_000_000,
    "seconds": 1_000_000,
}


def parse_duration(text: str) -> timedelta:
    """Read a duration in ISO 8601: ``PT30S``, ``P1DT12H``, ``PT0.5S``, ``P2W``. Raises :class:`ValueError` for any
    other text.

    Years and months are refused, because they have no fixed length. Signs are refused too. Only the last number may
    have a fraction. A duration under a microsecond counts as one microsecond. Azure writes .NET's longest time span for
    "no limit": ``P10675199DT2H48M5.4775807S``.
    """
    found = re.fullmatch(_ISO_8601, text, re.ASCII)
    parts = [(unit, number) for unit, number in found.groupdict().items() if number is not None] if found else []
    if not parts or any(not number.isdecimal() for _, number in parts[:-1]):
        raise ValueError(
            f"{text[:60]!r} is not a duration: write a duration as in 'PT30S', 'P1DT12H' or 'PT0.5S' (ISO 8601)"
        )
    microseconds = 0
    for unit, number in parts:
        whole, _, fraction = number.replace(",", ".").partition(".")
        microseconds += int(whole) * _MICROSECONDS[unit]
        if fraction:
            microseconds -= -(int(fraction) * _MICROSECONDS[unit]) // 10 ** len(fraction)
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise ValueError(
            f"{quoted(text)} is a longer duration than a timedelta can hold; use timedelta.max for no limit"
        ) from None


def duration(given: object, what: str) -> timedelta:
    """Return a duration in whole ms, rounded up; :data:`UNLIMITED` if it is too long to be a limit."""
    if isinstance(given, str):
        try:
            given = parse_duration(given)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None
    if not isinstance(given, timedelta):
        raise TypeError(f"{what} must be a datetime.timedelta or a str such as 'PT30S', not {type(given).__name__}")
    return from_milliseconds(to_milliseconds(given))


def to_milliseconds(given: timedelta) -> int:
    """Return a duration in ms, rounded up; at most the value for "no limit"."""
    whole, rest = divmod(given, _MILLISECOND)
    return min(whole + bool(rest), NEVER)


def from_milliseconds(milliseconds: int) -> timedelta:
    """Return the duration for a number of ms; :data:`UNLIMITED` for the value for "no limit"."""
    return UNLIMITED if milliseconds >= NEVER else milliseconds * _MILLISECOND
