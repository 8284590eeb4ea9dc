"""A lock never ends later in the client than in the server, whatever pauses and however fast the clocks run."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.client import Clock, ServerClock, ServerClocks
from tests.aio.queues import HandClock

seconds = st.floats(0, 100)


def test_without_a_reply_a_lock_is_undatable() -> None:
    assert ServerClock().ends(5_000, 1_000, 0.0) is None


@given(
    speed=st.floats(0.9991, 1.0009),
    replies=st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=6),
    until=seconds,
    wait=seconds,
)
def test_a_lock_ends_first_in_the_client(
    speed: float, replies: list[tuple[float, float, float]], until: float, wait: float
) -> None:
    """Each reply comes after pauses: before its call, until the call runs, and until the reply is read."""
    clock, now = ServerClock(), 0.0
    for before, sent, back in replies:
        written = now + before
        ran = written + sent
        now = ran + back
        clock.replied(int(1_000 * ran * speed), written, now)
    given_at = now + wait
    shown = int(1_000 * given_at * speed)
    ends = clock.ends(shown + 1_000 * until, shown, given_at)
    assert ends is not None
    assert 1_000 * ends * speed <= shown + 1_000 * until + 1


def test_the_least_bound_of_the_last_minute_counts() -> None:
    clock = ServerClock()
    clock.replied(0, 0.0, 0.1)  # a bound without slack
    clock.replied(10_000, 9.0, 10.0)  # and one with a second
    assert clock.ends(20_000, 10_000, 10.0) == pytest.approx((20_000 - 1) / 1001)
    clock.replied(70_000, 69.0, 70.0)
    assert clock.ends(80_000, 70_000, 70.0) == pytest.approx(69.0 + (80_000 - 70_001) / 1001)


def test_an_old_bound_counts_until_there_is_another_one() -> None:
    """An idle receiver renews its credit every two minutes, and must date what comes before that."""
    clock = ServerClock()
    clock.replied(0, 0.0, 0.1)
    assert clock.ends(105_000, 100_000, 100.0) is not None


def test_a_leap_that_a_push_proves_voids_all_bounds() -> None:
    clock = ServerClock()
    clock.replied(0, 0.0, 0.1)
    assert clock.ends(65_000, 60_000, 10.0) is None
    assert clock.ends(15_000, 10_000, 10.0) is None
    clock.replied(60_000, 10.0, 10.1)
    assert clock.ends(65_000, 60_000, 10.2) == pytest.approx(10.0 + (65_000 - 60_001) / 1001)


def test_a_leap_that_a_reply_proves_voids_earlier_bounds_only() -> None:
    clock = ServerClock()
    clock.replied(0, 0.0, 0.1)
    clock.replied(60_000, 10.0, 10.1)
    assert clock.ends(65_000, 60_000, 10.2) == pytest.approx(10.0 + (65_000 - 60_001) / 1001)


def test_a_reply_to_an_older_call_changes_nothing() -> None:
    clock = ServerClock()
    clock.replied(10_000, 10.0, 10.1)
    clock.replied(1_000, 1.0, 10.2)
    assert clock.ends(15_000, 10_000, 10.3) == pytest.approx(10.0 + (15_000 - 10_001) / 1001)


def test_each_server_process_has_a_clock_of_its_own() -> None:
    clocks = ServerClocks(Clock())
    clocks["a"].replied(1_000_000, 0.0, 0.1)
    assert clocks["a"].ends(1_065_000, 1_060_000, 60.0) is not None
    assert clocks["b"].ends(1_065_000, 1_060_000, 60.0) is None


def test_a_client_forgets_the_clocks_that_it_met_first() -> None:
    clocks = ServerClocks(Clock())
    for number in range(100):
        clocks[str(number)].replied(0, 0.0, 0.1)
    assert clocks["0"].ends(5_000, 0, 0.2) is None
    assert clocks["99"].ends(5_000, 0, 0.2) is not None


def test_the_time_of_a_test_needs_no_bounds() -> None:
    """The servers count the time that the calls of the client tell them, however far it was moved."""
    clock = HandClock()
    server = ServerClocks(clock)["a"]
    assert server.ends(clock.told() + 5_000, clock.told(), clock.now()) == pytest.approx(clock.now() + 5, abs=0.01)
    server.replied(clock.told(), clock.now(), clock.now())
    clock.move(90_000)
    assert server.ends(clock.told() + 5_000, clock.told(), clock.now()) == pytest.approx(clock.now() + 5, abs=0.01)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the monotonic clock counts suspension here")
def test_the_clock_of_a_client_counts_suspension() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= Clock().now() <= time.clock_gettime(time.CLOCK_BOOTTIME)
