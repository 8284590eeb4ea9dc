"""The slots of a consumer of sessions: their table, and the order of those in one state."""

from __future__ import annotations

import pytest

from sbredis.workers.running._session_slots import SLOT_STATES, SessionSlots, SlotEvent, SlotState

S, E = SlotState, SlotEvent


def walked(*events: SlotEvent) -> SlotState | None:
    """Return the state of a slot after these events."""
    slots = SessionSlots[str](1)
    slots.take("a")
    for event in events:
        slots.happens("a", event)
    return slots.state_of("a")


def test_every_state_can_be_reached_and_every_event_matters() -> None:
    reached, found = set[SlotState](), {S.ACCEPTED}
    while found:
        reached |= found
        found = {after for (before, _), after in SLOT_STATES.items() if before in reached} - reached
    assert reached == set(S)
    assert {event for _, event in SLOT_STATES} == set(E)


def test_every_session_can_be_given_back() -> None:
    for state in S:
        after = SLOT_STATES.get((state, E.END), state)
        assert after.ends or state is S.IDLE  # which is FILLED before


@pytest.mark.parametrize(
    ("events", "state"),
    [
        pytest.param([E.OPEN, E.BEGIN, E.EMPTY], S.IDLE, id="a session without messages is idle"),
        pytest.param([E.OPEN, E.BEGIN, E.EMPTY, E.REPLACE, E.FILLED], S.REPLACED, id="its slot goes to another one"),
        pytest.param([E.OPEN, E.BEGIN, E.REPLACE], S.WORKING, id="but not while it works"),
        pytest.param([E.OPEN, E.BEGIN, E.LEAVE, E.STAY], S.WORKING, id="a session that has messages stays"),
        pytest.param([E.OPEN, E.BEGIN, E.LEAVE, E.END], S.REPLACED, id="one that was released needs no slot"),
        pytest.param([E.OPEN, E.BEGIN, E.LEAVE, E.END, E.CLEAN_UP], S.ENDING, id="apart from its dependencies"),
        pytest.param([E.OPEN, E.BEGIN, E.SUSPECT, E.REPLACE], S.WAITING, id="a suspect keeps its session"),
        pytest.param([E.OPEN, E.BEGIN, E.SUSPECT, E.CHOOSE, E.EMPTY], S.CHOSEN, id="nobody takes the slot in its turn"),
        pytest.param([E.OPEN, E.BEGIN, E.SUSPECT, E.CHOOSE, E.TURN_OVER], S.WORKING, id="it may go on beside others"),
        pytest.param([E.REPLACE, E.CUT_OFF], S.ACCEPTED, id="work that has not begun is not cancelled"),
        pytest.param([E.OPEN, E.REPLACE, E.BEGIN], S.REPLACED, id="a session without room may be given back"),
        pytest.param([E.OPEN, E.BEGIN, E.CUT_OFF, E.CUT_OFF, E.ABANDON], S.LEFT, id="a handler that goes on is left"),
    ],
)
def test_the_steps_that_matter_most(events: list[SlotEvent], state: SlotState) -> None:
    assert walked(*events) is state


def test_an_event_that_changes_nothing_says_so() -> None:
    slots = SessionSlots[str](1)
    slots.take("a")
    assert (slots.happens("a", E.OPEN), slots.happens("a", E.OPEN), slots.happens("b", E.OPEN)) == (True, False, False)
    assert slots.state_of("b") is None


def test_a_slot_is_free_as_soon_as_its_session_is_being_left_or_replaced() -> None:
    slots = SessionSlots[str](2)
    for name in ("a", "b"):
        slots.take(name)
        slots.happens(name, E.OPEN)
        slots.happens(name, E.BEGIN)
    seen = [slots.free]
    for name, event in (("a", E.LEAVE), ("b", E.EMPTY), ("b", E.REPLACE), ("a", E.STAY), ("b", E.CLEAN_UP)):
        slots.happens(name, event)
        seen.append(slots.free)
    slots.give_up("b")
    assert [*seen, slots.free, len(slots)] == [0, 1, 1, 2, 1, 0, 1, 1]


def test_the_slot_that_is_in_a_state_for_longest_comes_first() -> None:
    slots = SessionSlots[str](3)
    for name in ("a", "b", "c"):
        slots.take(name)
        for event in (E.OPEN, E.BEGIN, E.EMPTY):
            slots.happens(name, event)
    slots.happens("a", E.FILLED)
    slots.happens("a", E.EMPTY)
    assert [*slots.those(S.IDLE)] == ["b", "c", "a"]
    assert (slots.longest_in(S.IDLE), slots.longest_in(S.WAITING)) == ("b", None)
    slots.give_up("b")
    assert slots.longest_in(S.IDLE) == "c"
