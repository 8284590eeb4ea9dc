"""Fetching: how many messages a receiver requests, and how many it keeps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.receiving._fetching import Stock, keep_for


def stock(most: int = 100, *, adaptive: bool = False, lock: float = 60.0) -> Stock:
    return Stock(most, adaptive, lock, 0.0)


@pytest.mark.parametrize(
    ("kept", "coming", "demand", "missing"),
    [
        (0, 0, 0, 100),
        (50, 0, 0, 50),
        (51, 0, 0, 0),
        (0, 51, 0, 0),  # messages that are already on their way count as available
        (20, 30, 0, 50),
        (0, 0, 1, 101),  # a call is needed anyway, so it also fills the stock
        (0, 1, 1, 100),
        (0, 60, 1, 0),
        (0, 50, 60, 110),
        (130, 0, 0, 0),
    ],
)
def test_a_stock_is_refilled_when_half_of_it_is_used(kept: int, coming: int, demand: int, missing: int) -> None:
    assert stock().missing(kept, coming, demand, 1.0) == missing


@pytest.mark.parametrize(("coming", "demand", "missing"), [(0, 0, 0), (0, 3, 3), (2, 3, 1), (5, 3, 0)])
def test_no_message_is_prefetched_if_the_receiver_has_no_stock(coming: int, demand: int, missing: int) -> None:
    none = stock(0)
    assert none.missing(0, coming, demand, 1.0) == missing
    assert stock().wanted(0, coming, demand, 1.0, stocks=False, exactly=True, rides=False) == demand
    assert not none.wants_more(0)
    assert none.refill_at == -1


@pytest.mark.parametrize(
    ("demand", "coming", "exactly", "rides", "wanted"),
    [
        (4, 1, False, False, 4),
        (4, 2, False, False, 2),  # less than half of the credit is used up
        (4, 2, True, False, 4),
        (4, 3, False, True, 4),  # a quarter is used up
        (8, 7, False, True, 7),
        (2, 5, False, False, 2),
    ],
)
def test_credit_stays_as_it_is_until_half_of_it_is_used_up(
    demand: int, coming: int, exactly: bool, rides: bool, wanted: int
) -> None:
    assert stock(0).wanted(0, coming, demand, 1.0, stocks=False, exactly=exactly, rides=rides) == wanted


def test_a_stock_that_is_being_filled_is_filled_where_credit_was_lost() -> None:
    """Partitions without messages may have lost credit to others that have given nothing."""

    def wanted(kept: int, coming: int, *, exactly: bool = True, rides: bool = False) -> int:
        return filled.wanted(kept, coming, 0, 1.0, stocks=True, exactly=exactly, rides=rides)

    filled = stock()
    assert wanted(60, 0) == 0
    assert wanted(50, 0) == 50
    assert [wanted(60, 0), wanted(60, 0, exactly=False), wanted(60, 30)] == [40, 0, 30]
    assert [wanted(100, 0), wanted(60, 0)] == [0, 0]
    assert [wanted(75, 0, rides=True), wanted(100, 0, rides=True), wanted(76, 0, rides=True)] == [25, 0, 0]


def test_the_rest_of_a_stock_is_fetched_unless_callers_use_the_stock_up_meanwhile() -> None:
    """A message that nobody else wants must not wait. While callers take messages, the next large call brings it."""

    def wanted(kept: int, coming: int = 0) -> int:
        return filled.wanted(kept, coming, 0, 1.0, stocks=True, exactly=True, rides=False)

    filled = stock(5)
    assert [wanted(0), wanted(4), wanted(4, 1)] == [5, 1, 1]
    filled.took(1)
    assert [wanted(4), wanted(4), wanted(3)] == [0, 0, 2]
    assert [wanted(4), wanted(5), wanted(4)] == [1, 0, 0]


def test_a_stock_that_was_returned_is_refilled_only_when_a_caller_asks() -> None:
    kept = stock()
    kept.gave_back()
    assert (kept.refill_at, kept.missing(0, 0, 0, 1.0), kept.wants_more(0)) == (-1, 0, False)
    kept.took(0)
    assert kept.missing(0, 0, 0, 1.0) == 100
    kept.gave_back()
    assert kept.missing(0, 0, 1, 1.0) == 101


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(0, 1000), st.integers(0, 1000), st.booleans())
def test_refill_at_returns_the_level_at_which_the_receiver_asks_again(
    most: int, kept: int, coming: int, adaptive: bool
) -> None:
    """Above this level the receiver need not ask."""
    made = stock(most, adaptive=adaptive)
    assert (made.missing(kept, coming, 0, 0.0) > 0) == (kept + coming <= made.refill_at)
    assert made.wants_more(kept) == (kept < made.target)


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_a_request_is_large_enough_for_the_callers_and_never_overfills_the_stock(
    most: int, kept: int, coming: int, demand: int
) -> None:
    missing = stock(most).missing(kept, coming, demand, 0.0)
    assert kept + coming + missing >= demand
    assert missing == 0 or kept + coming + missing - demand <= most


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5000), st.floats(0.01, 5)), max_size=30),
    st.integers(1, 2000),
    st.sampled_from([1.0, 8.0, 60.0]),
)
def test_the_adaptive_target_matches_a_plain_computation(
    steps: list[tuple[int, float]], most: int, lock: float
) -> None:
    """The plain computation weighs all measurements one by one."""
    made, now = stock(most, adaptive=True, lock=lock), 0.0
    speeds: list[float] = []
    taken, since = 0, 0.0
    for count, seconds in steps:
        made.took(count)
        taken, now = taken + count, now + seconds
        made.missing(0, 0, 0, now)
        if taken and now - since >= 0.1:
            speeds.append(taken / (now - since))
            taken, since = 0, now
    if not speeds:
        assert made.target == min(most, 10)
        return
    speed = speeds[0]
    for each in speeds[1:]:
        speed = 0.7 * speed + 0.3 * each
    wanted = speed * min(2.0, lock / 4)
    assert 1 <= made.target <= most
    assert abs(made.target - max(1, min(most, wanted))) <= 0.5 + 1e-6 * wanted


@pytest.mark.parametrize(
    ("lock", "taken", "every", "target"),
    [
        (60.0, 0, 0.5, 10),
        (60.0, 50, 0.5, 200),
        (60.0, 1000, 0.5, 500),
        (60.0, 1, 0.5, 4),
        (60.0, 1, 60.0, 1),
        (1.0, 50, 0.5, 25),
    ],
)
def test_the_adaptive_target_approaches_the_recent_consumption(
    lock: float, taken: int, every: float, target: int
) -> None:
    made, now = stock(500, adaptive=True, lock=lock), 0.0
    for _ in range(40):
        now += every
        made.took(taken)
        made.missing(0, 0, 0, now)
    assert made.target == target


@pytest.mark.parametrize(
    ("left", "lock", "in_session", "seconds"),
    [(60, 60, False, 30), (30, 60, False, 0), (60, 60, True, 57), (3, 60, True, 0), (5, 5, True, 4), (1, 5, True, 0)],
)
def test_keep_for_returns_the_seconds_until_a_message_must_be_returned(
    left: float, lock: float, in_session: bool, seconds: float
) -> None:
    assert keep_for(left, lock, in_session=in_session) == pytest.approx(seconds)
