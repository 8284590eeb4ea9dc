"""Schedules as they were declared: when their ticks come, and what happens with ticks that come late. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Literal, Protocol, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sbredis._quoting import quoted
from sbredis.workers.declaring._cron import parse_cron

__all__ = ["TICK", "Missed", "Overlap", "Schedule", "make_schedule"]

Missed = Literal["latest", "all", "none"]
Overlap = Literal["skip", "queue"]

TICK: Final = "sbredis-tick"
"""The application property that has the time of a tick, in UTC in ISO 8601."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LONGEST: Final = timedelta(days=366)
_LONGEST_NAME: Final = 90


class Times(Protocol):
    """A sequence of times without an end."""

    def times(self, moment: datetime) -> Iterator[datetime]:
        """Return the times in UTC after this one, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """The multiples of a period since 1970, in UTC."""

    period: timedelta

    def __str__(self) -> str:
        return f"every {self.period.total_seconds():g} s"

    def times(self, moment: datetime) -> Iterator[datetime]:
        """Return the times in UTC after this one, in their order."""
        number = (moment - _EPOCH) // self.period
        while True:
            number += 1
            yield _EPOCH + number * self.period


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Ticks at times of a calendar, each of which becomes a message."""

    name: str
    ticks: Times
    zone: tzinfo
    missed: Missed
    overlap: Overlap

    def after(self, moment: datetime) -> datetime:
        """Return the first tick in UTC after this time."""
        return next(self.ticks.times(moment))

    def __str__(self) -> str:
        return str(self.ticks)


def make_schedule(
    name: str,
    line: str | None,
    every: timedelta | None,
    *,
    tz: str | tzinfo = "UTC",
    missed: Missed = "latest",
    overlap: Overlap = "skip",
) -> Schedule:
    """Check what a decorator says about a schedule. Raises :class:`ValueError` or :class:`TypeError`."""
    _check_name(name)
    zone = _zone(tz)
    if line is not None and every is not None:
        raise ValueError("Give a cron line or every=, not both.")
    if line is None and every is None:
        raise ValueError('It has no times: give a cron line, such as "0 * * * *", or every=timedelta(…).')
    ticks: Times = _every(every) if line is None else parse_cron(line, zone)
    for argument, value, known in (("missed", missed, get_args(Missed)), ("overlap", overlap, get_args(Overlap))):
        if value not in known:
            raise ValueError(f"{argument} must be {' or '.join(map(repr, known))}, not {quoted(value)}.")
    return Schedule(name=name, ticks=ticks, zone=zone, missed=missed, overlap=overlap)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}.")
    if not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(f"name must have 1 to {_LONGEST_NAME} printable characters, unlike {quoted(name)}.")


def _every(every: object) -> Every:
    if not isinstance(every, timedelta):
        raise TypeError(f"every must be a timedelta, not {type(every).__name__}.")
    if not timedelta(seconds=1) <= every <= _LONGEST:
        raise ValueError(f"every must be from 1 second to 366 days, not {every}.")
    if every % _MILLISECOND:
        raise ValueError(f"every must be a whole number of milliseconds, not {every}.")
    return Every(every)


def _zone(tz: object) -> tzinfo:
    if isinstance(tz, tzinfo):
        return tz
    if not isinstance(tz, str):
        raise TypeError(f"tz must be the name of a time zone or a tzinfo, not {type(tz).__name__}.")
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"There is no time zone {quoted(tz)}: use a name such as Europe/Berlin. If the system has no time zones, "
            "install the package tzdata."
        ) from None
