"""Tests of cron lines: the times that they name, also when clocks change, and the lines that are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.workers.declaring._cron import parse_cron

BERLIN = ZoneInfo("Europe/Berlin")


def first(line: str, count: int, after: datetime, zone: ZoneInfo | timezone = UTC) -> list[str]:
    times = islice(parse_cron(line, zone).times(after), count)
    return [time.strftime("%Y-%m-%d %H:%M") for time in times]


NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "times"),
    [
        ("* * * * *", ["2026-01-01 00:01", "2026-01-01 00:02"]),
        ("0 * * * *", ["2026-01-01 01:00", "2026-01-01 02:00"]),
        ("*/15 9-10 * * *", ["2026-01-01 09:00", "2026-01-01 09:15"]),
        ("5/20 0 * * *", ["2026-01-01 00:05", "2026-01-01 00:25"]),
        ("0 0 1 */6 *", ["2026-07-01 00:00", "2027-01-01 00:00"]),
        ("0 12 * * MON-fri", ["2026-01-01 12:00", "2026-01-02 12:00", "2026-01-05 12:00"]),
        ("0 12 * * 0", ["2026-01-04 12:00", "2026-01-11 12:00"]),
        ("0 12 * * 7", ["2026-01-04 12:00", "2026-01-11 12:00"]),
        ("0 12 * * 5-7", ["2026-01-02 12:00", "2026-01-03 12:00", "2026-01-04 12:00", "2026-01-09 12:00"]),
        ("0 0 13 * 5", ["2026-01-02 00:00", "2026-01-09 00:00", "2026-01-13 00:00"]),
        ("0 0 29 feb *", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 31 * *", ["2026-01-31 00:00", "2026-03-31 00:00"]),
        ("@daily", ["2026-01-02 00:00", "2026-01-03 00:00"]),
        ("@weekly", ["2026-01-04 00:00"]),
    ],
)
def test_the_times_of_a_line(line: str, times: list[str]) -> None:
    assert first(line, len(times), NEW_YEAR) == times


@pytest.mark.parametrize(
    ("line", "times"),
    [
        # On 29 March 2026 at 01:00 UTC the clocks of Berlin go from 02:00 to 03:00.
        ("30 2 * * *", ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"]),
        ("0,30 2 * * *", ["2026-03-28 01:00", "2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:00"]),
        ("0 3 * * *", ["2026-03-28 02:00", "2026-03-29 01:00", "2026-03-30 01:00"]),
        ("0 2,3 * * *", ["2026-03-28 01:00", "2026-03-28 02:00", "2026-03-29 01:00", "2026-03-30 00:00"]),
    ],
)
def test_a_point_of_the_day_that_is_skipped_happens_when_the_clocks_go_forward(line: str, times: list[str]) -> None:
    assert first(line, len(times), datetime(2026, 3, 27, 23, 30, tzinfo=UTC), BERLIN) == times


@pytest.mark.parametrize(
    ("line", "times"),
    [
        # On 25 October 2026 at 01:00 UTC the clocks of Berlin go from 03:00 to 02:00.
        ("30 2 * * *", ["2026-10-24 00:30", "2026-10-25 00:30", "2026-10-26 01:30"]),
        ("0 3 * * *", ["2026-10-24 01:00", "2026-10-25 02:00", "2026-10-26 02:00"]),
    ],
)
def test_a_point_of_the_day_that_comes_twice_happens_once(line: str, times: list[str]) -> None:
    assert first(line, len(times), datetime(2026, 10, 23, 23, 30, tzinfo=UTC), BERLIN) == times


def test_a_line_that_repeats_within_the_day_follows_the_time_that_passes() -> None:
    for day in (datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 10, 24, 22, tzinfo=UTC)):
        times = list(islice(parse_cron("*/20 * * * *", BERLIN).times(day), 30 * 3))
        assert [later - earlier for earlier, later in pairwise(times)] == [timedelta(minutes=20)] * 89


FIELD = st.one_of(
    st.just("*"),
    st.integers(1, 5).map(lambda step: f"*/{step}"),
    st.integers(1, 6).map(str),
    st.lists(st.integers(1, 6), min_size=2, max_size=3).map(lambda each: ",".join(map(str, each))),
    st.tuples(st.integers(1, 3), st.integers(3, 6)).map(lambda both: f"{both[0]}-{both[1]}"),
)


@pytest.mark.slow
@given(st.tuples(FIELD, FIELD, FIELD, FIELD, FIELD), st.integers(1_577_836_800, 1_893_456_000))
def test_the_next_time_is_the_first_minute_that_matches(fields: tuple[str, ...], seconds: int) -> None:
    def allowed(text: str, least: int, most: int) -> set[int]:
        found: set[int] = set()
        for part in text.split(","):
            span, _, step = part.partition("/")
            low, _, high = (f"{least}-{most}" if span == "*" else span).partition("-")
            found.update(range(int(low), int(high or low) + 1, int(step or 1)))
        return found

    limits = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    minutes, hours, days, months, weekdays = (allowed(text, *limit) for text, limit in zip(fields, limits, strict=True))
    either = not fields[2].startswith("*") and not fields[4].startswith("*")

    def matches(time: datetime) -> bool:
        of_month = time.day in days
        of_week = bool({time.isoweekday() % 7, time.isoweekday()} & weekdays)
        day = of_month or of_week if either else of_month and of_week
        return day and time.month in months and time.hour in hours and time.minute in minutes

    moment = datetime.fromtimestamp(seconds, UTC)
    found = parse_cron(" ".join(fields)).after(moment)
    assert matches(found)
    assert found > moment
    minute = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for number in range(min(3000, int((found - minute).total_seconds() // 60))):
        assert not matches(minute + timedelta(minutes=number))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("* * * *", "has 4 of the five fields"),
        ("", "has 0 of the five fields"),
        ("@often", "has 1 of the five fields"),
        ("60 * * * *", "The minute of the cron line '60 * * * *' is wrong: '60': it must be from 0 to 59."),
        ("0 24 * * *", "The hour of"),
        ("0 0 0 * *", "The day of the month of"),
        ("0 0 * 13 *", "The month of"),
        ("0 0 * foo *", "'foo' is not a number or a name"),
        ("0 0 * * 8", "The day of the week of"),
        ("5-1 * * * *", "the range ends before it begins"),
        ("*/0 * * * *", "a step must be 1 or more"),
        ("a * * * *", "'a' is not a number."),
        ("1,,2 * * * *", "it is not a number, a range"),
        ("? * * * *", "it is not a number, a range"),
        ("0 0 31 2,4 *", "never happens"),
    ],
)
def test_a_line_that_cannot_be_read_names_its_field(line: str, said: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the text is compared below
        parse_cron(line)
    assert said in str(raised.value)
