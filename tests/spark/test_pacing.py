"""Tests of the pauses of an idle stream."""

from __future__ import annotations

import pytest

from sbredis.spark._pacing import PollPacer, RatePacer


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_pauses_of_an_idle_stream_grow_to_ten_times_the_first() -> None:
    pacer = PollPacer(0.1, clock=Clock())
    found: list[float] = []
    for _ in range(7):
        pacer.polled(idle=True)
        found.append(pacer.left())
    assert found == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0])


def test_a_stream_that_has_found_something_looks_at_once_and_begins_with_the_first_pause() -> None:
    pacer = PollPacer(0.1, clock=Clock())
    assert pacer.left() == 0
    for _ in range(5):
        pacer.polled(idle=True)
    pacer.polled(idle=False)
    assert pacer.left() == 0
    pacer.polled(idle=True)
    assert pacer.left() == pytest.approx(0.1)


def test_the_time_for_which_the_trigger_of_spark_has_waited_counts() -> None:
    clock = Clock()
    pacer = PollPacer(0.1, clock=clock)
    pacer.polled(idle=True)
    clock.now += 0.06
    assert pacer.left() == pytest.approx(0.04)
    clock.now += 10
    assert pacer.left() == 0


def test_a_stream_without_a_pause_never_waits() -> None:
    pacer = PollPacer(0.0, clock=Clock())
    pacer.polled(idle=True)
    assert pacer.left() == 0


def test_a_limited_read_waits_as_long_as_its_bytes_take() -> None:
    now = 100.0
    pacer = RatePacer(1000.0, clock=lambda: now)
    assert pacer.left(500) == pytest.approx(0.5)
    assert pacer.left(500) == pytest.approx(1.0)
    now = 102.0  # it does not catch up
    assert pacer.left(2000) == pytest.approx(2.0)
    assert RatePacer(None).left(10**9) == 0.0
