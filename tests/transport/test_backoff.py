"""The delays between attempts: their bounds and their growth, for every history of failures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sbredis.transport import Backoff
from sbredis.transport._backoff import RefreshPacing

LUCK = st.floats(0, 1, exclude_max=True)
COUNT = st.integers(1, 10_000)
AGO = st.floats(0, 1e6)


def ceiling(failures: int, redirections: int) -> float:
    """Return the longest possible delay after this many failures."""
    return Backoff(random=lambda: 1.0).delay(failures, redirections)


@given(COUNT, LUCK)
def test_a_delay_is_between_half_its_ceiling_and_its_ceiling(failures: int, luck: float) -> None:
    delay = Backoff(random=lambda: luck).delay(failures, 0)
    assert ceiling(failures, 0) / 2 <= delay <= ceiling(failures, 0) <= Backoff().longest


@given(COUNT, st.integers(0, 100))
def test_a_delay_below_half_the_first_delay_occurs_only_after_a_redirection(failures: int, redirections: int) -> None:
    backoff = Backoff(random=lambda: 0.0)
    delay = backoff.delay(failures, min(failures, redirections))
    assert delay >= backoff.first / 2 or 0 < min(failures, redirections) <= backoff.free_redirections


@given(COUNT)
def test_ceilings_never_decrease(failures: int) -> None:
    assert ceiling(failures + 1, 0) >= ceiling(failures, 0)


def test_ceilings_double_up_to_the_longest_delay() -> None:
    assert [ceiling(failures, 0) for failures in (1, 2, 3, 6, 7, 8)] == [0.02, 0.04, 0.08, 0.64, 1.0, 1.0]


@given(COUNT, st.integers(1, 5), LUCK)
def test_the_first_redirections_in_a_row_are_followed_immediately(
    failures: int, redirections: int, luck: float
) -> None:
    assert Backoff(random=lambda: luck).delay(max(failures, redirections), redirections) == 0


@given(st.integers(6, 200), st.integers(0, 200))
def test_more_redirections_in_a_row_wait_longer_and_longer(redirections: int, failures_before: int) -> None:
    failures = failures_before + redirections
    assert 0 < ceiling(failures, redirections) <= ceiling(failures + 1, redirections + 1)


def test_a_storm_of_redirections_starts_with_the_shortest_delay() -> None:
    assert [ceiling(count, count) for count in (5, 6, 7, 8)] == [0, 0.02, 0.04, 0.08]


# -- the slot map ------------------------------------------------------------------------------------------------------


@given(AGO, LUCK)
def test_requests_for_the_slot_map_are_separated_by_a_minimum_time(since_last: float, luck: float) -> None:
    pacing = RefreshPacing(random=lambda: luck)
    pause = pacing.pause(since_last, 0)
    assert since_last + pause >= pacing.apart
    assert 0 <= pause <= 1.5 * pacing.apart


@given(LUCK)
def test_the_first_request_for_the_slot_map_is_sent_immediately(luck: float) -> None:
    assert RefreshPacing(random=lambda: luck).pause(0.1, 0) == 0


@given(AGO, st.integers(0, 10_000), LUCK)
def test_an_unanswered_request_is_repeated_at_growing_intervals(since_last: float, failed: int, luck: float) -> None:
    pacing = RefreshPacing(random=lambda: luck)
    pause = pacing.pause(since_last, failed)
    assert 0 <= pause <= 2.0 + 0.5 * pacing.apart
    assert since_last + RefreshPacing(random=lambda: 0.0).pause(since_last, failed + 1) >= min(
        2.0, pacing.after_failure * 2.0 ** min(failed, 10)
    )
