"""A source of messages rests, was asked, or is late with its answer."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from sbredis.receiving._asking import AskedSource, AskingState


class Source(AskedSource):
    """A source that somebody asks."""

    @property
    def troubled(self) -> bool:
        return False

    @property
    def may_answer(self) -> bool:
        return False

    def ask_now(self) -> None:
        raise AssertionError

    def look_again(self) -> None:
        raise AssertionError


@pytest.fixture
def source() -> Source:
    return Source(cast("Any", None), 1.0)


def test_an_answer_is_late_when_its_time_is_over(source: Source) -> None:
    assert (source.state, source.changes_at) == (AskingState.RESTING, math.inf)
    source.begin_asking(10.0)
    source.pass_time(10.9)
    assert (source.under_way, source.late, source.changes_at) == (True, False, 11.0)
    source.pass_time(11.0)
    assert (source.under_way, source.late, source.changes_at) == (True, True, math.inf)
    source.end_asking()
    assert (source.under_way, source.late, source.changes_at) == (False, False, math.inf)


def test_a_source_that_rests_is_never_late(source: Source) -> None:
    source.hurry()
    source.pass_time(1e9)
    assert source.state is AskingState.RESTING


def test_a_second_question_leaves_the_time_of_the_first_one(source: Source) -> None:
    source.begin_asking(10.0)
    source.begin_asking(10.5)
    assert (source.asked_at, source.changes_at) == (10.0, 11.0)
    source.pass_time(11.0)
    source.begin_asking(12.0)
    assert source.late


def test_a_caller_whose_time_is_over_waits_for_a_shorter_time(source: Source) -> None:
    source.begin_asking(10.0)
    source.hurry()
    source.hurry()
    assert source.changes_at == 10.2
    source.pass_time(10.2)
    source.hurry()
    assert (source.state, source.changes_at) == (AskingState.LATE, math.inf)


def test_a_source_that_rests_may_be_paused_until_a_time(source: Source) -> None:
    source.pause(5.0)
    assert (source.state, source.under_way, source.late, source.prompt) == (AskingState.PAUSED, False, False, False)
    source.begin_asking(4.0)
    source.pass_time(4.9)
    assert (source.state, source.changes_at) == (AskingState.PAUSED, 5.0)
    source.pass_time(5.0)
    assert (source.state, source.changes_at, source.prompt) == (AskingState.RESTING, math.inf, True)


def test_a_pause_can_be_ended_and_nothing_else_ends_with_it(source: Source) -> None:
    source.pause(5.0)
    source.end_pause()
    assert (source.state, source.changes_at) == (AskingState.RESTING, math.inf)
    source.begin_asking(6.0)
    source.pause(9.0)
    source.end_pause()
    assert (source.state, source.changes_at) == (AskingState.ASKED, 7.0)


def test_a_source_that_was_left_is_never_asked_again(source: Source) -> None:
    source.begin_asking(10.0)
    source.leave()
    assert (source.state, source.under_way, source.prompt) == (AskingState.LEFT, False, False)
    source.end_asking()
    source.pause(11.0)
    source.end_pause()
    source.begin_asking(12.0)
    source.hurry()
    source.pass_time(1e9)
    assert (source.state, source.changes_at) == (AskingState.LEFT, math.inf)
