"""The decisions of a redrive: fingerprints, the budget, the pace and the cursor."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis import RedriveBudget
from sbredis.moving import fingerprint
from sbredis.moving._redrive_limits import (
    DeadLetterCounts,
    PartitionBounds,
    Portions,
    RedrivePace,
    Relapses,
    cursor_text,
    read_cursor,
)

# -- fingerprints ------------------------------------------------------------------------------------------------------

FINGERPRINTS: list[tuple[str | None, str | None, str]] = [
    ("Timeout", "order 17 took 30 s\nat line 3", "Timeout: order # took # s"),
    ("Timeout", "order 4 took 2 s", "Timeout: order # took # s"),
    ("HTTP503", None, "HTTP#"),
    (None, "\n  first 1\nsecond", "(no reason): first #"),
    (None, None, "(no reason)"),
    ("Long", "x" * 500, "Long: " + "x" * 200),
]


@pytest.mark.parametrize(("reason", "description", "expected"), FINGERPRINTS)
def test_messages_that_died_of_the_same_problem_have_the_same_fingerprint(
    reason: str | None, description: str | None, expected: str
) -> None:
    assert fingerprint(reason, description) == expected


def test_a_census_counts_any_number_of_texts_in_bounded_memory() -> None:
    counts = DeadLetterCounts()
    for number in range(1500):
        counts.add(f"{number}", chr(0x4E00 + number))
    counts.add("7", chr(0x4E00 + 7))
    assert counts.matched == 1501
    assert len(counts.by_reason) == len(counts.by_fingerprint) == 1001
    assert (counts.by_reason["7"], counts.by_reason["(others)"]) == (2, 500)
    assert sum(counts.by_fingerprint.values()) == 1501


# -- the budget --------------------------------------------------------------------------------------------------------

BUDGET = RedriveBudget(share=0.25, minimum=4, window=10)


def test_the_window_of_a_budget_is_a_time_or_a_number_of_seconds() -> None:
    assert RedriveBudget(window=timedelta(minutes=2)) == RedriveBudget(window=120)
    assert RedriveBudget(window=timedelta(minutes=2)).window == 120.0


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"window": "60"}, "window must be a timedelta or a number of seconds, not str$"),
    ({"window": timedelta(0)}, "window must be more than 0 seconds and at most a day, not 0.0$"),
    ({"window": timedelta(days=2)}, "window must be more than 0 seconds and at most a day, not 172800.0$"),
    ({"window": 0}, "window must"),
    ({"window": float("nan")}, "window must"),
    ({"share": "1"}, "share must be a number, not str$"),
    ({"share": 1}, "share must"),
    ({"share": -0.1}, "share must"),
    ({"minimum": 0}, "minimum"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_a_budget_refuses_a_wrong_value(options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError if "not str" in text else ValueError, match=f"^{text}"):
        RedriveBudget(**options)


Step = tuple[str, float, int]
RUNS: list[tuple[str, list[Step], bool]] = [
    ("nothing was put back", [], False),
    ("too few for a judgement", [("put", 0, 3), ("die", 1, 3)], False),
    ("exactly the share", [("put", 0, 8), ("die", 1, 2)], False),
    ("more than the share", [("put", 0, 8), ("die", 1, 3)], True),
    ("the deaths are over the window", [("put", 0, 8), ("die", 1, 8), ("put", 11, 8)], False),
    ("messages that died too late do not count", [("put", 0, 8), ("die", 11, 8)], False),
    ("later messages dilute the dead ones", [("put", 0, 8), ("die", 1, 3), ("put", 2, 8)], False),
]


@pytest.mark.parametrize(("steps", "expected"), [run[1:] for run in RUNS], ids=[run[0] for run in RUNS])
def test_the_budget_is_spent_when_too_large_a_share_of_the_last_messages_has_died(
    steps: list[Step], expected: bool
) -> None:
    relapses, now = Relapses(BUDGET), 0.0
    for what, now, count in steps:
        if what == "put":
            relapses.put_back([b"%d" % number for number in range(count)], now)
        for number in range(count if what == "die" else 0):
            relapses.found_dead(b"%d" % number, now)
    assert relapses.exhausted(now) is expected


def test_dead_letters_that_the_redrive_did_not_put_back_do_not_count() -> None:
    relapses = Relapses(RedriveBudget(share=0, minimum=1))
    relapses.put_back([b"a"], 0)
    assert not relapses.found_dead(b"b", 1)
    assert relapses.found_dead(b"a", 1)
    assert not relapses.found_dead(b"a", 1)
    assert relapses.died_again == 1


events = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0.0, 0.0, 1.0, 4.0, 11.0]), st.sampled_from([b"a", b"b", b"c"])),
    max_size=60,
)


@given(events)
def test_the_budget_counts_like_a_list_of_all_messages(given_: list[tuple[bool, float, bytes]]) -> None:
    """Several messages may have the same key. Then the oldest one counts as dead."""
    relapses, now, died_again = Relapses(BUDGET), 0.0, 0
    everything: list[list[Any]] = []
    for puts, passed, key in given_:
        now += passed
        if puts:
            relapses.put_back([key], now)
            everything.append([now, key, True])
        else:
            alive = [one for one in everything if one[1] == key and one[2] and one[0] >= now - BUDGET.window]
            assert relapses.found_dead(key, now) is bool(alive)
            if alive:
                alive[0][2] = False
                died_again += 1
        recent = [one for one in everything if one[0] >= now - BUDGET.window]
        dead = sum(not one[2] for one in recent)
        assert relapses.recent(now) == (len(recent), dead)
        assert relapses.died_again == died_again
        assert relapses.exhausted(now) is (len(recent) >= 4 and dead > len(recent) / 4)


# -- the pace and the cursor -------------------------------------------------------------------------------------------


@given(st.floats(0.1, 10_000), st.lists(st.floats(0, 5), max_size=30))
def test_no_second_sees_more_messages_than_the_rate_allows(rate: float, pauses: list[float]) -> None:
    pace, now, begun = RedrivePace(rate, 1000), 0.0, None
    moved = 0
    for pause in pauses:
        now += pause + pace.wait(now + pause)
        begun = now if begun is None else begun
        assert moved <= rate * (now - begun) + 1e-6 * moved
        pace.moved(pace.step, now)
        moved += pace.step
    assert 1 <= pace.step <= 1000
    assert pace.step <= max(1, rate / 4)


@pytest.mark.parametrize("rate", [None, float("inf")])
def test_without_a_rate_a_redrive_takes_full_steps_and_never_waits(rate: float | None) -> None:
    pace = RedrivePace(rate, 1000)
    pace.moved(1000, 5)
    assert (pace.step, pace.page, pace.wait(5)) == (1000, 1000, 0)


def test_each_portion_is_twice_as_large_as_the_one_before() -> None:
    portions, sizes = Portions(3, 10), list[int]()
    for _ in range(4):
        sizes.append(portions.left)
        portions.moved(2)
        assert portions.left == sizes[-1] - 2
        portions.moved(portions.left)
        assert portions.left == 0
        portions.judged()
    assert sizes == [3, 6, 10, 10]
    assert Portions(50, 10).left == 50


@given(st.dictionaries(st.integers(0, 4095), st.tuples(st.integers(0, 2**48), st.integers(0, 2**48)), min_size=1))
def test_a_cursor_keeps_the_bounds(of: dict[int, tuple[int, int]]) -> None:
    bounds = {number: PartitionBounds(*both) for number, both in of.items()}
    assert read_cursor(cursor_text("abc-_9", bounds), "abc-_9", list(bounds)) == bounds


@pytest.mark.parametrize("text", ["", "abc", "abc:", ":0=1-2", "abc:0=1", "abc:0=1-2,0=1-2", "abc:0=1-2,", "abc:0=a-b"])
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the cursor of a redrive"):
        read_cursor(text, "abc", [0])


@pytest.mark.parametrize("text", ["other:0=1-2", "abc:1=1-2", "abc:0=1-2,1=3-4"])
def test_the_cursor_of_another_queue_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="another queue"):
        read_cursor(text, "abc", [0])
