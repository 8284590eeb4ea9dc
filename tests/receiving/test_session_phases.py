"""What a receiver does with its session: which calls release it, and what the loss of its lock means."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sbredis.receiving._session_phases import PHASES, SessionEvent, SessionPhase, phase_after

ENDS = {SessionPhase.RELEASED, SessionPhase.LOST}


def walked(*events: SessionEvent) -> SessionPhase:
    phase = SessionPhase.KEPT
    for event in events:
        phase = phase_after(phase, event)
    return phase


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ("LEAVE", "LEAVING"),
        ("LEAVE STAY", "KEPT"),
        ("LEAVE HELD", "LEAVING"),
        ("LEAVE CALLED", "LEFT"),
        ("LEAVE CALLED STAY", "LEFT"),
        ("LEAVE CALLED CALLED", "LEFT"),
        ("LEAVE CALLED HELD", "KEPT"),
        ("LEAVE CALLED LOSE", "RELEASED"),
        ("LEAVE CALLED STAY LOSE", "RELEASED"),
        ("LEAVE CALLED HELD LOSE", "LOST"),
        ("LEAVE LOSE", "LOST"),
        ("LOSE", "LOST"),
        ("RETURN", "RETURNING"),
        ("RETURN BACK", "KEPT"),
        ("RETURN BACK RECALL", "RECALLED"),
        ("RETURN BACK RECALL RESUME", "KEPT"),
        ("RETURN RESUME", "RETURNING"),
        ("RETURN LOSE", "LOST"),
        ("RECALL RETURN BACK", "KEPT"),
        ("LEAVE CALLED RETURN", "LEFT_RETURNING"),
        ("LEAVE CALLED RETURN BACK", "LEFT_RETURNING"),
        ("LEAVE CALLED RETURN HELD", "RETURNING"),
        ("LEAVE CALLED RETURN LOSE", "RELEASED"),
        ("LEAVE RETURN LOSE", "LOST"),
    ],
)
def test_events_lead_to_a_phase(events: str, phase: str) -> None:
    assert walked(*(SessionEvent[name] for name in events.split())) is SessionPhase[phase]


def test_the_end_stays() -> None:
    for phase, event in product(ENDS, SessionEvent):
        assert phase_after(phase, event) is phase


def test_each_phase_is_reached_and_each_event_changes_one() -> None:
    assert {*PHASES.values()} == {*SessionPhase}
    assert {event for _, event in PHASES} == {*SessionEvent}
    assert {phase for phase, _ in PHASES} == {*SessionPhase} - ENDS


@pytest.mark.parametrize("phase", list(SessionPhase))
def test_nothing_is_fetched_while_messages_return(phase: SessionPhase) -> None:
    assert not (phase.fetches and phase.returns)
    assert not (phase in ENDS and (phase.fetches or phase.returns))


class SessionHolds(RuleBasedStateMachine):
    """A receiver and its partition: calls may release the session, answers may be lost, and locks too."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = SessionPhase.KEPT
        self.released = self.lost = False
        self.doubted = False
        """Whether a call that may have released the session was made and no later answer has come."""

    def happens(self, event: SessionEvent) -> None:
        self.phase = phase_after(self.phase, event)

    @rule()
    def leave(self) -> None:
        self.happens(SessionEvent.LEAVE)

    @rule()
    def stay(self) -> None:
        self.happens(SessionEvent.STAY)

    @rule()
    def messages_return(self) -> None:
        self.happens(SessionEvent.RETURN)

    @rule()
    def recall(self) -> None:
        if not self.doubted:
            self.happens(SessionEvent.RECALL)

    @rule()
    def resume(self) -> None:
        self.happens(SessionEvent.RESUME)

    @precondition(lambda self: self.phase not in ENDS)
    @rule()
    def lose_lock(self) -> None:
        """The partition ends the lock for another reason."""
        self.lost = self.lost or not self.released

    def call(self, *, empty: bool, answered: bool) -> None:
        leaves = self.phase is SessionPhase.LEAVING
        self.happens(SessionEvent.CALLED)
        gone = self.released or self.lost
        if leaves:
            self.doubted = True
            self.released = self.released or (empty and not gone)
        if not answered:
            return
        if gone or (leaves and empty):
            self.happens(SessionEvent.LOSE)
            return
        self.doubted = False
        self.happens(SessionEvent.HELD)
        if self.phase.returns:
            self.happens(SessionEvent.BACK)

    @precondition(lambda self: self.phase not in ENDS)
    @rule()
    def call_of_an_empty_session(self) -> None:
        self.call(empty=True, answered=True)

    @precondition(lambda self: self.phase not in ENDS)
    @rule()
    def call_with_messages(self) -> None:
        self.call(empty=False, answered=True)

    @precondition(lambda self: self.phase not in ENDS)
    @rule()
    def call_without_an_answer(self) -> None:
        self.call(empty=True, answered=False)

    @invariant()
    def what_was_released_is_not_reported_as_lost(self) -> None:
        if self.phase is SessionPhase.RELEASED:
            assert self.released or self.doubted
        if self.phase is SessionPhase.LOST:
            assert self.lost
            assert not self.released

    @invariant()
    def a_doubt_stays_until_an_answer(self) -> None:
        doubtful = {SessionPhase.LEFT, SessionPhase.LEFT_RETURNING}
        assert (self.phase in doubtful) == (self.doubted and self.phase not in ENDS)


TestSessionHolds = SessionHolds.TestCase
TestSessionHolds.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
