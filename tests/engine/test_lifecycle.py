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
from sbredis.engine._lifecycle import (
    COUNTED,
    ENDS,
    TRANSITIONS,
    Condition,
    Event,
    ImpossibleError,
    Reason,
    Side,
    Stage,
    State,
    decide,
)
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


def test_locked_deferred_and_scheduled_messages_never_expire_by_time() -> None:
    assert [of[:2] for of in TRANSITIONS if of[2] is Event.EXPIRE] == [(MAIN, State.ACTIVE)]
    expiring = {(state, event) for _, state, event, condition, _ in WAYS if condition is Condition.EXPIRED}
    states = {State.ACTIVE, State.LOCKED, State.HELD, State.DELAYED, State.DEFERRED, State.FROZEN}
    assert {state for state, _ in expiring} == states
    asking = {Event.RECEIVE_DEFERRED, Event.RECEIVE_DEFERRED_AND_DELETE}
    assert {event for state, event in expiring if state is State.DEFERRED} == asking
    ending = {Event.ABANDON, Event.RELEASE, Event.LAPSE}
    for out in (State.LOCKED, State.HELD):
        assert {event for state, event in expiring if state is out} == ending, "a lock that goes on was broken"


def test_a_dead_letter_never_expires_and_returns_only_by_a_redrive() -> None:
    dead = [(event, condition, outcome) for side, _, event, condition, outcome in WAYS if side is DEAD]
    assert {event for event, _, outcome in dead if outcome.side is MAIN} == {Event.REDRIVE}
    redriven = {of[:2]: outcome for of, outcome in TRANSITIONS.items() if of[2] is Event.REDRIVE}
    for side, then in ((DEAD, State.ACTIVE), (Side.TRANSFER_DEAD, State.TRANSFER)):
        outcomes = {state: tuple(outcome.values()) for (of, state), outcome in redriven.items() if of is side}
        assert set(outcomes) | {State.KEPT} == {State.ACTIVE, State.KEPT, State.DELAYED, State.DEFERRED}
        assert set(outcomes.values()) == {(Stage(MAIN, then),)}
    assert {event for event, *_ in dead} & {Event.EXPIRE, Event.DEAD_LETTER, Event.BURY} == set()
    assert {condition for _, condition, _ in dead} & {
        Condition.LIMIT, Condition.EXPIRED, Condition.EXPIRED_KEPT, Condition.SESSION,
    } == set()  # fmt: skip
    assert State.EXPIRED not in {outcome.state for *_, outcome in dead}


def test_a_message_gets_a_reason_only_when_it_becomes_a_dead_letter() -> None:
    for side, _, event, condition, outcome in WAYS:
        crossing = side is not outcome.side
        assert (outcome.reason is not Reason.NONE) is (crossing and outcome.side is not MAIN)
        if outcome.side is MAIN:
            continue
        if crossing:
            assert outcome.state is State.ACTIVE
            expected = {
                Condition.LIMIT: Reason.LAPSES if event is Event.LAPSE else Reason.DELIVERIES,
                Condition.EXPIRED_KEPT: Reason.EXPIRED,
                Condition.FAULTY: Reason.FILTER,
                Condition.NO_SESSION: Reason.NO_SESSION,
            }
            usual = Reason.LOST if event is Event.LOSE else Reason.APPLICATION
            assert outcome.reason is expected.get(condition, usual)
            assert outcome.reason is not Reason.APPLICATION or event in {Event.DEAD_LETTER, Event.BURY, Event.REFUSE}


def test_the_delivery_limit_is_checked_only_where_a_failure_is_counted() -> None:
    limited = {(side, event) for side, _, event, condition, _ in WAYS if condition is Condition.LIMIT}
    assert limited == COUNTED
    assert {(MAIN, Event.ABANDON), (MAIN, Event.LAPSE), (MAIN, Event.DEFER)} == COUNTED
    for state in (State.LOCKED, State.HELD):
        assert all(next(iter(TRANSITIONS[side, state, event])) is Condition.LIMIT for side, event in COUNTED)


def test_only_a_receive_locks_messages_and_only_locked_messages_can_be_settled() -> None:
    for out in (State.LOCKED, State.HELD):
        locking = {event for *_, event, _, outcome in WAYS if outcome.state is out}
        assert locking == {Event.RECEIVE, Event.RECEIVE_DEFERRED, Event.RENEW}
    settling = {Event.RENEW, Event.COMPLETE, Event.ABANDON, Event.RELEASE, Event.LAPSE, Event.DEFER, Event.DEAD_LETTER}
    assert {state for _, state, event in TRANSITIONS if event in settling} == {State.LOCKED, State.HELD}


def test_a_locked_session_message_changes_state_like_any_locked_message_but_is_never_delayed() -> None:
    """A delay blocks the whole session instead: no message of the session may be overtaken."""
    for (side, state, event), outcomes in TRANSITIONS.items():
        if (side, state) == (MAIN, State.LOCKED):
            held = TRANSITIONS[MAIN, State.HELD, event]
            expected = {
                condition: outcome._replace(state=State.HELD) if outcome.state is State.LOCKED else outcome
                for condition, outcome in outcomes.items()
                if condition is not Condition.DELAY
            }
            assert held == expected
    of_session = [(of, outcome.state) for *of, condition, outcome in WAYS if condition is Condition.SESSION]
    assert {state for _, state in of_session} == {State.HELD}
    assert {tuple(of) for of, _ in of_session} == {
        (MAIN, State.ACTIVE, Event.RECEIVE),
        (MAIN, State.ACTIVE, Event.RECEIVE_DEFERRED),
        (MAIN, State.DEFERRED, Event.RECEIVE_DEFERRED),
    }


def test_a_lost_record_never_touches_a_message_that_can_be_settled_without_it() -> None:
    """A held message is the exception: its session is buried as a whole."""
    lost = {of[:2] for of in TRANSITIONS if of[2] is Event.LOSE}
    states = (State.SCHEDULED, State.ACTIVE, State.DELAYED, State.DEFERRED, State.HELD)
    assert lost == {(MAIN, state) for state in states}


def test_burying_a_session_buries_its_enqueued_messages() -> None:
    """A scheduled message stays, because it is not enqueued yet."""
    buried = {of for of in TRANSITIONS if of[2] is Event.BURY}
    assert buried == {(MAIN, state, Event.BURY) for state in (State.ACTIVE, State.HELD, State.DEFERRED)}


def test_a_topic_keeps_only_scheduled_messages() -> None:
    published = {of[1] for *of, _, outcome in WAYS if outcome.state is State.PUBLISHED}
    assert published == {State.NEW, State.SCHEDULED}
    assert list(TRANSITIONS[MAIN, State.NEW, Event.COPY]) == [
        Condition.FAULTY,
        Condition.NO_SESSION,
        Condition.OTHERWISE,
    ]


def test_a_purge_keeps_locked_and_scheduled_messages() -> None:
    purged = {state for _, state, event in TRANSITIONS if event is Event.PURGE}
    assert purged == {State.ACTIVE, State.DELAYED, State.DEFERRED, State.KEPT}


def test_a_message_that_a_caller_holds_is_never_moved() -> None:
    moving = {(side, state) for side, state, event in TRANSITIONS if event in {Event.FREEZE, Event.WITHDRAW}}
    assert moving == {
        *((side, state) for side in Side for state in (State.ACTIVE, State.DELAYED, State.DEFERRED)),
        (MAIN, State.TRANSFER),
        (DEAD, State.KEPT),
    }
    frozen = {(side, event) for side, state, event in TRANSITIONS if state is State.FROZEN}
    assert frozen == {(side, event) for side in Side for event in (Event.TAKE, Event.RETURN, Event.REFUSE)}


@pytest.mark.parametrize("event", Event)
def test_both_sides_differ_only_in_delivery_limit_and_expiry(event: Event) -> None:
    gone = {Condition.LIMIT, Condition.EXPIRED, Condition.EXPIRED_KEPT, Condition.SESSION}
    for state in (State.LOCKED, State.DELAYED, State.DEFERRED, State.ACTIVE):
        main, dead = (TRANSITIONS.get((side, state, event)) for side in (MAIN, DEAD))
        if event in (Event.EXPIRE, Event.DEAD_LETTER, Event.BURY, Event.COMMIT, Event.LOSE):
            assert dead is None
        elif event is Event.REDRIVE:
            assert main is None
        elif main is None or dead is None:
            assert main is dead
        else:
            rest = [(condition, outcome.state) for condition, outcome in main.items() if condition not in gone]
            assert rest == [(condition, outcome.state) for condition, outcome in dead.items()]


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
