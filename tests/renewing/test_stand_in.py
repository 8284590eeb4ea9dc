"""The process that stands in for the thread of a renewer: which locks it renews when, and what it is told."""

from __future__ import annotations

import math

import pytest

from sbredis.renewing._stand_in import CoveredLock, LockNews, StandIn, lines_of, news_in

LOCK = CoveredLock(1, "orders", 3, "token", 10.0, 110.0, math.inf)
"""A lock of ten seconds, taken at 100."""


def told(*locks: CoveredLock, trusted: float = 1000.0) -> StandIn:
    stand_in = StandIn()
    for line in lines_of(locks, (), trusted):
        stand_in.hear(line)
    return stand_in


def test_a_lock_is_renewed_when_half_of_its_duration_has_passed() -> None:
    stand_in = told(LOCK)
    assert (stand_in.due(104.9), stand_in.wait(104.5)) == ([], 0.5)
    assert stand_in.due(105.0) == [[LOCK]]
    assert stand_in.due(105.1) == []  # the call is under way
    assert stand_in.renewed([LOCK], 115.0, ()) == [LockNews(1, 115.0)]
    assert stand_in.due(109.9) == []
    assert stand_in.due(110.0) == [[LOCK._replace(until=115.0)]]


def test_what_the_thread_has_renewed_is_left_alone() -> None:
    stand_in = told(LOCK)
    for line in lines_of([LOCK._replace(until=113.0)], (), 1000.0):
        stand_in.hear(line)
    assert stand_in.due(107.9) == []
    assert len(stand_in.due(108.0)) == 1


def test_a_line_that_comes_after_a_renewal_shortens_no_lock() -> None:
    stand_in = told(LOCK)
    stand_in.renewed([LOCK], 119.0, ())
    stand_in.hear(lines_of([LOCK._replace(until=111.0)], (), 1000.0)[0])
    assert stand_in.due(112.0) == []
    assert stand_in.due(114.0) == [[LOCK._replace(until=119.0)]]


def test_locks_of_one_partition_share_a_call() -> None:
    others = [LOCK._replace(id=2, key="other"), LOCK._replace(id=3, number=4), LOCK._replace(id=4, entity="bills")]
    assert [[lock.id for lock in together] for together in told(LOCK, *others).due(105.0)] == [[1, 2], [3], [4]]


@pytest.mark.parametrize(
    "stand_in",
    [told(LOCK, trusted=105.0), told(LOCK._replace(last=105.0)), told(LOCK._replace(until=105.0))],
    ids=["the program is silent", "its last time is over", "it has ended"],
)
def test_a_lock_is_not_renewed_when_its_time_or_that_of_the_program_is_over(stand_in: StandIn) -> None:
    assert stand_in.due(105.0) == []
    assert stand_in.wait(105.0) == 1.0


def test_a_lock_that_is_settled_is_forgotten() -> None:
    stand_in = told(LOCK)
    stand_in.hear(lines_of((), [1], 1000.0)[0])
    assert stand_in.due(109.0) == []
    assert stand_in.renewed([LOCK], 119.0, ()) == [LockNews(1, 119.0)]  # a late answer
    assert stand_in.due(115.0) == []


def test_a_failed_call_is_made_again_soon() -> None:
    stand_in = told(LOCK)
    assert len(stand_in.due(105.0)) == 1
    stand_in.failed([LOCK], 106.0)
    assert stand_in.due(106.4) == []
    assert len(stand_in.due(106.5)) == 1


def test_a_lock_that_the_partition_has_ended_is_reported_and_forgotten() -> None:
    stand_in = told(LOCK)
    assert stand_in.renewed([LOCK], 0.0, ["token"]) == [LockNews(1, 0.0)]
    assert stand_in.locks == {}


def test_no_line_is_longer_than_the_process_reads() -> None:
    number = 2**62
    locks = [CoveredLock(number + each, "e" * 260, 255, "k" * 40, 300.0, 1e9 / 7, 1e9 / 3) for each in range(1000)]
    lines = lines_of(locks, [number - 1] * 300, 1e9 / 7)
    assert max(map(len, lines)) < 64 * 1024
    stand_in = StandIn()
    for line in lines:
        stand_in.hear(line)
    assert sorted(stand_in.locks.values()) == locks


def test_news_are_read_in_their_order() -> None:
    assert news_in([b"[]", b"[[1, 5.0], [2, 0.0]]"]) == [LockNews(1, 5.0), LockNews(2, 0.0)]
