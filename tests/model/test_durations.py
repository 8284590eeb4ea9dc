"""Tests of durations: which forms are accepted or refused, and their values in ms."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbredis.engine import NEVER
from sbredis.model import parse_duration
from sbredis.model._durations import UNLIMITED, duration, from_milliseconds, to_milliseconds

DURATIONS = st.timedeltas(min_value=timedelta(0), max_value=timedelta.max)


def written(value: timedelta) -> str:
    """Return the shortest ISO 8601 text of a duration."""
    hours, rest = divmod(value.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [f"{value.days}D"] if value.days else []
    time = [f"{hours}H"] if hours else []
    time += [f"{minutes}M"] if minutes else []
    if value.microseconds:
        time.append(f"{seconds}.{value.microseconds:06d}S")
    elif seconds or not (parts or time):
        time.append(f"{seconds}S")
    return "P" + "".join(parts) + ("T" + "".join(time) if time else "")


@given(DURATIONS)
@example(timedelta.max)
@example(timedelta(0))
def test_a_duration_written_as_text_is_read_back(value: timedelta) -> None:
    assert parse_duration(written(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("PT30S", timedelta(seconds=30)),
        ("PT1M", timedelta(minutes=1)),
        ("PT90M", timedelta(minutes=90)),
        ("P1DT12H", timedelta(days=1, hours=12)),
        ("P2W", timedelta(weeks=2)),
        ("P0.5D", timedelta(hours=12)),
        ("PT0,25H", timedelta(minutes=15)),
        ("PT1H0.5M", timedelta(hours=1, seconds=30)),
        ("P007D", timedelta(days=7)),
        ("PT0.0000001S", timedelta(microseconds=1)),
        ("P10675199DT2H48M5.4775807S", timedelta(10675199, 10085, 477581)),
    ],
)
def test_a_duration_in_iso_8601_is_read(text: str, value: timedelta) -> None:
    assert parse_duration(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "P1DT", "T30S", "30S", "30", "PT30", "P30", "pt30s", "PT30s", "PT-30S", "-PT30S", "+PT30S"),
        *(" PT30S", "PT30S ", "PT30S\n", "P1Y", "P1M", "P1Y2M", "P1W1D", "PT1S1M", "PT1M1H", "P1H", "PT1D", "PTT1S"),
        *(
            "PT1.5H30M",
            "P0.5DT1H",
            "PT.5S",
            "PT5.S",
            "PT1.2.3S",
            "PT1e3S",
            "PT\u0663\u0660S",
            "PT1_0S",
            "00:00:30",
            "PT" + "9" * 19,
        ),
    ],
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text[:60]))):
        parse_duration(text)


def test_a_duration_that_cannot_be_expressed_is_refused() -> None:
    with pytest.raises(ValueError, match="longer duration than a timedelta can hold"):
        parse_duration("P1000000000D")


@given(st.text("PTWDHMS0123456789.,- ", max_size=12))
def test_any_text_is_read_as_a_duration_or_raises_value_error(text: str) -> None:
    try:
        duration = parse_duration(text)
    except ValueError:
        return
    assert duration >= timedelta(0)


@given(st.timedeltas())
@example(timedelta.max)
@example(timedelta.min)
def test_a_duration_is_rounded_up_to_whole_milliseconds(value: timedelta) -> None:
    kept = to_milliseconds(value)
    assert kept <= NEVER
    if kept < NEVER:
        assert timedelta(0) <= kept * timedelta(milliseconds=1) - value < timedelta(milliseconds=1)
        assert from_milliseconds(kept) == kept * timedelta(milliseconds=1)
    else:
        assert from_milliseconds(kept) == UNLIMITED == timedelta.max
    assert to_milliseconds(duration(value, "x")) == kept
    assert duration(duration(value, "x"), "x") == duration(value, "x")


@pytest.mark.parametrize("given_", [30, 30.0, None, b"PT30S", True])
def test_another_type_than_text_or_timedelta_is_refused(given_: Any) -> None:
    with pytest.raises(TypeError, match=r"lock_duration must be a datetime\.timedelta or a str such as 'PT30S'"):
        duration(given_, "lock_duration")
