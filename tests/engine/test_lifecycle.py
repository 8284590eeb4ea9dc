"""The table of the life cycle, and the layout of the bands."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine._bands import (
    BAND_WIDTH,
    BANDS,
    LEVELS,
    RESERVED,
    band,
    member,
    score,
    split_member,
    split_score,
    state_of_band,
)
from sbredis.engine._lifecycle import ENDS, TRANSITIONS, Condition, Event, ImpossibleError, Side, State, decide
from tests.offenders import for_each

MAIN, DEAD = Side.MAIN, Side.DEAD
WAYS = [(*of, condition, outcome) for of, outcomes in TRANSITIONS.items() for condition, outcome in outcomes.items()]

ROWS = [f"{side.name} {state.name} {event.name}" for side, state, event in TRANSITIONS]

numbers = st.integers(1, BAND_WIDTH - 1)
sides = st.sampled_from(Side)


# -- the table ---------------------------------------------------------------------------------------------------------


def reachable(side: Side, state: State) -> set[tuple[Side, State]]:
    """Return every side and state that a message can reach from here."""
    seen: set[tuple[Side, State]] = set()
    ahead = [(side, state)]
    while ahead:
        here = ahead.pop()
        seen.add(here)
        leads = {(outcome.side, outcome.state) for *of, _, _, outcome in WAYS if (of[0], of[1]) == here}
        ahead += leads - seen
    return seen


def all_reachable() -> set[tuple[Side, State]]:
    """Return all places that a message can reach."""
    return reachable(MAIN, State.NEW)


def test_every_state_except_reserved_ones_can_be_reached() -> None:
    reached = all_reachable()
    assert {state for _, state in reached} == set(State)
    assert {place for place in BANDS if place not in RESERVED} <= reached
    assert not reached & RESERVED


def test_every_message_can_reach_a_final_state() -> None:
    for side, state in reachable(MAIN, State.NEW):
        assert {end for _, end in reachable(side, state)} & ENDS


def test_no_transition_leaves_a_final_state_or_involves_a_reserved_state() -> None:
    assert {state for _, state, _ in TRANSITIONS} & ENDS == set()
    assert {(side, state) for side, state, _ in TRANSITIONS} & RESERVED == set()
    assert {(outcome.side, outcome.state) for *_, outcome in WAYS} & RESERVED == set()


def test_no_message_becomes_new_and_only_new_messages_can_be_dropped() -> None:
    assert State.NEW not in {outcome.state for *_, outcome in WAYS}
    assert {state for _, state, *_, outcome in WAYS if outcome.state is State.DROPPED} == {State.NEW}


def test_every_event_is_in_the_table() -> None:
    assert {event for *_, event in TRANSITIONS} == set(Event)


def test_every_condition_decides_at_least_one_transition() -> None:
    assert {condition for *_, condition, _ in WAYS} == set(Condition)


@for_each(
    ("of", "outcomes"), [pytest.param(*row, id=name) for row, name in zip(TRANSITIONS.items(), ROWS, strict=True)]
)
def test_the_last_condition_of_a_row_always_holds(
    of: tuple[Side, State, Event], outcomes: dict[Condition, Any]
) -> None:
    """The rows of an expiry are the exception: an expiry happens only to a message that has expired."""
    places = [place for place, condition in enumerate(outcomes) if condition is Condition.OTHERWISE]
    assert places == ([] if of[2] is Event.EXPIRE else [len(outcomes) - 1])


def test_a_lost_record_never_touches_a_message_that_can_be_settled_without_it() -> None:
    """A held message is the exception: its session is buried as a whole."""
    lost = {of[:2] for of in TRANSITIONS if of[2] is Event.LOSE}
    states = (State.SCHEDULED, State.ACTIVE, State.DELAYED, State.DEFERRED, State.HELD)
    assert lost == {(MAIN, state) for state in states}


def test_a_message_that_a_caller_holds_is_never_moved() -> None:
    moving = {(side, state) for side, state, event in TRANSITIONS if event in {Event.FREEZE, Event.WITHDRAW}}
    assert moving == {
        *((side, state) for side in Side for state in (State.ACTIVE, State.DELAYED, State.DEFERRED)),
        (MAIN, State.TRANSFER),
        (DEAD, State.KEPT),
    }
    frozen = {(side, event) for side, state, event in TRANSITIONS if state is State.FROZEN}
    assert frozen == {(side, event) for side in Side for event in (Event.TAKE, Event.RETURN, Event.REFUSE)}


RELEASES = [
    ({Condition.LIMIT, Condition.HOME_DEFERRED, Condition.EXPIRED}, Condition.LIMIT),
    ({Condition.HOME_DEFERRED, Condition.EXPIRED, Condition.DELAY}, Condition.HOME_DEFERRED),
    ({Condition.EXPIRED_KEPT, Condition.EXPIRED, Condition.DELAY}, Condition.EXPIRED_KEPT),
    ({Condition.EXPIRED, Condition.DELAY}, Condition.EXPIRED),
    ({Condition.DELAY}, Condition.DELAY),
    (set[Condition](), Condition.OTHERWISE),
]


@pytest.mark.parametrize(("holding", "decisive"), RELEASES)
def test_the_first_true_condition_of_a_row_decides_the_outcome(holding: set[Condition], decisive: Condition) -> None:
    condition, outcome = decide(MAIN, State.LOCKED, Event.ABANDON, holding)
    assert (condition, outcome) == (decisive, TRANSITIONS[MAIN, State.LOCKED, Event.ABANDON][decisive])


def test_the_delivery_limit_does_not_apply_to_a_message_given_back_unread() -> None:
    assert decide(MAIN, State.LOCKED, Event.RELEASE, {Condition.LIMIT})[0] is Condition.OTHERWISE


@pytest.mark.parametrize(
    ("side", "state", "event"),
    [
        (MAIN, State.LOCKED, Event.EXPIRE),
        (MAIN, State.ACTIVE, Event.COMPLETE),
        (MAIN, State.DEFERRED, Event.RECEIVE),
        (DEAD, State.LOCKED, Event.DEAD_LETTER),
        (DEAD, State.NEW, Event.SEND),
        (MAIN, State.ACTIVE, Event.EXPIRE),  # the message has not expired: no condition of the row holds
    ],
)
def test_an_event_that_is_not_in_the_table_is_refused(side: Side, state: State, event: Event) -> None:
    with pytest.raises(ImpossibleError, match=event.value):
        decide(side, state, event, ())


# -- the bands ---------------------------------------------------------------------------------------------------------


def test_bands_do_not_overlap_and_are_listed_in_ascending_order() -> None:
    bounds = [(bands.start, bands.stop) for bands in BANDS.values()]
    assert all(start < stop for start, stop in bounds)
    assert all(before[1] <= after[0] for before, after in pairwise(bounds))


def test_the_bands_match_the_contract() -> None:
    """Stored data depends on the bands, so they may change only with a new layout version."""
    listed = {(side.name, state.name): (bands.start, bands.stop - 1) for (side, state), bands in BANDS.items()}
    assert listed == {
        ("MAIN", "ACTIVE"): (0, 7),
        ("MAIN", "HELD"): (8, 8),
        ("MAIN", "LOCKED"): (9, 9),
        ("MAIN", "DELAYED"): (10, 10),
        ("MAIN", "DEFERRED"): (11, 11),
        ("MAIN", "FROZEN"): (12, 12),
        ("MAIN", "SCHEDULED"): (13, 13),
        ("MAIN", "TRANSFER"): (14, 14),
        ("DEAD", "ACTIVE"): (16, 16),
        ("DEAD", "KEPT"): (17, 17),
        ("DEAD", "LOCKED"): (18, 18),
        ("DEAD", "DELAYED"): (19, 19),
        ("DEAD", "DEFERRED"): (20, 20),
        ("DEAD", "FROZEN"): (21, 21),
        ("TRANSFER_DEAD", "ACTIVE"): (22, 22),
        ("TRANSFER_DEAD", "HELD"): (23, 23),
        ("TRANSFER_DEAD", "LOCKED"): (24, 24),
        ("TRANSFER_DEAD", "DELAYED"): (25, 25),
        ("TRANSFER_DEAD", "DEFERRED"): (26, 26),
        ("TRANSFER_DEAD", "FROZEN"): (27, 27),
    }


def test_every_stored_state_has_a_band_and_final_states_have_none() -> None:
    standing = {(side, state) for side, state in all_reachable() if state not in ENDS | {State.NEW}}
    assert standing | RESERVED == set(BANDS)


def test_every_score_is_exact_as_a_double_even_in_reserved_bands() -> None:
    highest = score(27, BAND_WIDTH - 1)
    assert highest < 2**53
    assert int(float(highest)) == highest


@given(st.sampled_from(list(BANDS)), st.integers(0, LEVELS - 1), numbers)
def test_a_score_contains_band_and_number(place: tuple[Side, State], level: int, number: int) -> None:
    of = band(*place, level)
    assert split_score(int(float(score(of, number)))) == (of, number)
    assert state_of_band(of) == (*place, level if place == (MAIN, State.ACTIVE) else 0)


@given(st.tuples(st.integers(0, LEVELS - 1), numbers), st.tuples(st.integers(0, LEVELS - 1), numbers))
def test_active_messages_are_ordered_by_level_and_number(one: tuple[int, int], other: tuple[int, int]) -> None:
    scores = [score(band(MAIN, State.ACTIVE, level), number) for level, number in (one, other)]
    assert (scores[0] < scores[1]) is (one < other)


@given(sides, numbers)
def test_a_member_contains_side_and_number(side: Side, number: int) -> None:
    assert split_member(member(side, number)) == (side, number)


@pytest.mark.parametrize("name", ["", "d", "0", "d0", "01", "x5", "5d", "-5", "5\n", "\u0665", " 5", str(BAND_WIDTH)])
def test_an_invalid_member_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a message"):
        split_member(name)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: band(MAIN, State.ACTIVE, LEVELS),
        lambda: band(MAIN, State.ACTIVE, -1),
        lambda: band(MAIN, State.COMPLETED),
        lambda: band(DEAD, State.SCHEDULED),
        lambda: state_of_band(15),
        lambda: state_of_band(28),
        lambda: score(0, BAND_WIDTH),
        lambda: score(0, -1),
    ],
)
def test_a_state_without_a_band_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"outside|does not fit|no message on|not used"):
        wrong()
