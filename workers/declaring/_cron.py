"""Cron lines: read them, and find the times that they name. Pure.

Theory
------

A line has five fields: minute, hour, day of the month, month, day of the week. If both the day of the month and the day
of the week are restricted, a day needs to match only one of them, as in every other cron.

The fields name local times. When clocks change, a local time may exist twice, or not at all:

- A line that *repeats within the day*, because its hour field begins with ``*``, follows the time that really passes: a
  time that exists twice is named twice, and a time that does not exist is left out.
- Every other line names *points of the day*, and each of them happens once: a time that exists twice is named once, the
  first time. A time that does not exist is replaced by the moment at which the clocks were put forward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from sbredis._quoting import quoted

__all__ = ["Cron", "parse_cron"]


class _CronField(NamedTuple):
    name: str
    least: int
    most: int
    names: Sequence[str] = ()
    """Names of the values, from ``least`` on."""


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _CronField("day of the month", 1, 31),
    _CronField("month", 1, 12, _MONTHS),
    _CronField("day of the week", 0, 7, _DAYS),
)
_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART: Final = re.compile(r"(?:(?P<all>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d{1,4}))?", re.ASCII)
_MOST_DAYS: Final = 4
"""The number of days whose times are kept."""
_HORIZON: Final = 8 * 366 + 7
"""The days within which every line that can happen does happen: a 29 February comes within eight years."""


class Cron:
    """A cron line in a time zone."""

    __slots__ = (
        *("_days", "_either", "_found", "_hours", "_line", "_minutes", "_months", "_repeats", "_weekdays", "_zone"),
    )

    def __init__(self, line: str, fields: Sequence[frozenset[int]], zone: tzinfo, texts: Sequence[str]) -> None:
        self._line = line
        self._zone = zone
        minutes, hours, self._days, self._months, weekdays = fields
        self._minutes, self._hours = sorted(minutes), sorted(hours)
        self._weekdays = {day % 7 for day in weekdays}
        self._either = not texts[2].startswith("*") and not texts[4].startswith("*")
        self._repeats = texts[1].startswith("*")
        self._found: dict[date, list[datetime]] = {}
        """The times of the days that were asked for last."""

    def __str__(self) -> str:
        return self._line

    def after(self, moment: datetime) -> datetime:
        """Return the first time in UTC after this one that the line names."""
        return next(self.times(moment))

    def times(self, moment: datetime) -> Iterator[datetime]:
        """Return all times in UTC after this one that the line names, in their order."""
        moment = moment.astimezone(UTC)
        day = moment.astimezone(self._zone).date() - timedelta(days=1)
        last: datetime | None = None
        for _ in range(_HORIZON * 10):
            if self._matches(day):
                for found in self._on(day):
                    if found > moment and (last is None or found > last):
                        last = found
                        yield found
            day += timedelta(days=1)

    def happens(self) -> bool:
        """Return whether the line names any time at all."""
        day = date(2024, 1, 1)
        return any(self._matches(day + timedelta(days=number)) for number in range(_HORIZON))

    def _matches(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        of_month, of_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return of_month or of_week if self._either else of_month and of_week

    def _on(self, day: date) -> list[datetime]:
        """Return the times of a local day in UTC."""
        times = self._found.get(day)
        if times is None:
            if len(self._found) >= _MOST_DAYS:
                self._found.clear()
            times = self._found[day] = self._times_on(day)
        return times

    def _times_on(self, day: date) -> list[datetime]:
        found: set[datetime] = set()
        for hour in self._hours:
            for minute in self._minutes:
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self._zone)
                first, second = local.astimezone(UTC), local.replace(fold=1).astimezone(UTC)
                if first.astimezone(self._zone).replace(tzinfo=None) != local.replace(tzinfo=None):
                    if not self._repeats:
                        found.add(self._change_between(second, first))
                    continue
                found.add(first)
                if self._repeats:
                    found.add(second)
        return sorted(found)

    def _change_between(self, early: datetime, late: datetime) -> datetime:
        """Return the moment between these two at which the clocks were changed."""
        before = early.astimezone(self._zone).utcoffset()
        while late - early > timedelta(seconds=1):
            middle = early + (late - early) / 2
            middle = middle.replace(microsecond=0)
            if middle.astimezone(self._zone).utcoffset() == before:
                early = middle
            else:
                late = middle
        return late


def parse_cron(line: str, zone: tzinfo = UTC) -> Cron:
    """Read a cron line: five fields, or a name such as ``@daily``.

    Raises :class:`ValueError` and names the field that is wrong.
    """
    if not isinstance(line, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"a cron line must be a str, not {type(line).__name__}")
    texts = _NICKNAMES.get(line.strip().lower(), line).split()
    if len(texts) != len(_FIELDS):
        raise ValueError(
            f"The cron line {quoted(line)} has {len(texts)} of the five fields that it needs: minute, hour, day of the "
            "month, month, day of the week."
        )
    fields = [_values(line, field, text) for field, text in zip(_FIELDS, texts, strict=True)]
    cron = Cron(line, fields, zone, texts)
    if not cron.happens():
        raise ValueError(f"The cron line {quoted(line)} never happens: no month that it names has the day.")
    return cron


def _values(line: str, field: _CronField, text: str) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise _wrong(line, field, part, "it is not a number, a range such as 1-5, or a step such as */15")
        step = int(found["step"] or 1)
        if step < 1:
            raise _wrong(line, field, part, "a step must be 1 or more")
        if found["all"]:
            first, last = field.least, field.most
        else:
            first = _number(line, field, part, found["first"])
            alone = field.most if found["step"] else first
            last = alone if found["last"] is None else _number(line, field, part, found["last"])
            if last < first:
                raise _wrong(line, field, part, "the range ends before it begins")
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _number(line: str, field: _CronField, part: str, text: str) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.least
    if not text.isdecimal():
        raise _wrong(line, field, part, f"{quoted(text)} is not a number" + (" or a name" if field.names else ""))
    value = int(text)
    if not field.least <= value <= field.most:
        raise _wrong(line, field, part, f"it must be from {field.least} to {field.most}")
    return value


def _wrong(line: str, field: _CronField, part: str, why: str) -> ValueError:
    return ValueError(f"The {field.name} of the cron line {quoted(line)} is wrong: {quoted(part)}: {why}.")
