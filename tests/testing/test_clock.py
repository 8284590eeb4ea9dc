"""Tests of the clock of a bus."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from sbredis.testing import TestClock

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
SOON = timedelta(seconds=30)


def test_the_clock_starts_at_the_current_time_and_runs() -> None:
    clock = TestClock()
    first = clock.now
    assert abs(first - datetime.now(UTC)) < SOON
    assert first.tzinfo is UTC
    while clock.now == first:
        pass
    assert first < clock.now < first + SOON


def test_the_clock_can_start_at_another_time() -> None:
    assert timedelta() <= TestClock(BEGIN).now - BEGIN < SOON


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (timedelta(minutes=5), {}),
        (None, {"minutes": 5}),
        (None, {"seconds": 300}),
        (None, {"milliseconds": 300_000}),
        (None, {"minutes": 4.5, "seconds": 30}),
        (timedelta(minutes=4), {"minutes": 1}),
    ],
)
def test_the_clock_can_be_advanced(step: timedelta | None, named: dict[str, float]) -> None:
    clock = TestClock(BEGIN)
    before = clock.now
    after = clock.advance(step, **named)
    assert timedelta() <= after - before - timedelta(minutes=5) < SOON
    assert clock.now >= after


def test_long_times_can_be_given_in_days_and_hours() -> None:
    clock = TestClock(BEGIN)
    assert clock.advance(days=1, hours=2) - BEGIN >= timedelta(hours=26)


def test_the_clock_can_be_moved_to_a_time_in_any_time_zone() -> None:
    clock = TestClock(BEGIN)
    when = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert timedelta() <= clock.move_to(when) - when < SOON
    assert clock.now >= when


@pytest.mark.parametrize(
    ("move", "error", "said"),
    [
        (lambda clock: clock.advance(seconds=-1), ValueError, "cannot go back by 0:00:01 from 2030"),
        (lambda clock: clock.advance(timedelta(seconds=1), seconds=-2), ValueError, "cannot go back"),
        (lambda clock: clock.advance(5), TypeError, "name the unit"),
        (lambda clock: clock.advance(days=366 * 300), ValueError, "ends with the year 2285"),
        (lambda clock: clock.move_to(BEGIN - SOON), ValueError, "cannot go back"),
        (lambda clock: clock.move_to(datetime(2031, 1, 1)), ValueError, "time zone"),  # noqa: DTZ001
        (lambda clock: clock.move_to("tomorrow"), TypeError, "must be a datetime, not str"),
        (lambda clock: clock.move_to(datetime(2300, 1, 1, tzinfo=UTC)), ValueError, "2285"),
        (lambda _: TestClock(datetime(2031, 1, 1)), ValueError, "begins has no time zone"),  # noqa: DTZ001
        (lambda _: TestClock(datetime(1969, 1, 1, tzinfo=UTC)), ValueError, "begins must be from 1970"),
    ],
)
def test_an_impossible_move_is_refused_and_changes_nothing(move: Any, error: type[Exception], said: str) -> None:
    clock = TestClock(BEGIN)
    with pytest.raises(error, match=said):
        move(clock)
    assert clock.now < BEGIN + SOON


def test_the_clock_returns_whole_milliseconds_after_a_move() -> None:
    """If the clock counted in fractions, the result would be one millisecond less."""
    clock = TestClock(BEGIN)
    for minutes in range(1, 500):
        when = BEGIN + timedelta(minutes=minutes, milliseconds=minutes)
        clock.move_to(when)
        assert clock._clock.told() >= round(when.timestamp() * 1000)


async def test_a_clock_watcher_is_called_in_its_own_event_loop() -> None:
    clock = TestClock()
    called: list[int] = []
    here = asyncio.Event()

    def moved() -> None:
        called.append(threading.get_ident())
        here.set()

    unwatch = clock._clock.when_moved(moved)
    clock.advance(seconds=1)
    assert called == [threading.get_ident()], "at once, when it is moved in the same loop"
    here.clear()
    await asyncio.to_thread(clock.advance, seconds=1)
    await here.wait()
    assert called == [threading.get_ident()] * 2
    unwatch()
    unwatch()
    clock.advance(seconds=1)
    assert len(called) == 2


def test_a_clock_watcher_is_forgotten_when_its_event_loop_ends() -> None:
    clock = TestClock()

    async def watch() -> None:
        clock._clock.when_moved(lambda: pytest.fail("called"))

    asyncio.run(watch())
    clock.advance(seconds=1)
    assert clock._clock._watchers == {}


def test_the_repr_of_the_clock_shows_its_time() -> None:
    assert repr(TestClock(BEGIN)).startswith("<TestClock 2030-01-01T00:00:")
