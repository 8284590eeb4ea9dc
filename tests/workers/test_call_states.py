"""The life of a call: its table, and a machine that compares the table with a plain history of what has happened."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import pytest

from sbredis.workers.running._call_states import (
    TRANSITIONS,
    CallCondition,
    CallEvent,
    CallState,
    CallStep,
    CallTask,
    decide,
)
from tests.offenders import for_each

S, E, C, T = CallState, CallEvent, CallCondition, CallTask
STEPS = [
    (state, event, condition, step) for (state, event), row in TRANSITIONS.items() for condition, step in row.items()
]
NONE: set[CallCondition] = set()
FATES = {T.SETTLE, T.ABANDON, T.GIVE_BACK, T.GIVE_BACK_UNTRIED}
"""The tasks by which the worker settles messages."""


# -- the table -----------------------------------------------------------------------------------------------------


def test_every_state_can_be_reached() -> None:
    reached, found = set[CallState](), {S.OPEN}
    while found:
        reached |= found
        found = {step.state for state, _, _, step in STEPS if state in reached} - reached
    assert reached == set(S)


def test_every_event_condition_and_task_is_in_the_table() -> None:
    assert {event for _, event, _, _ in STEPS} == set(E)
    assert {condition for _, _, condition, _ in STEPS} == set(C)
    assert {step.task for *_, step in STEPS} == set(T)


@for_each(("of", "row"), [pytest.param(of, row, id=f"{of[0].name} {of[1].name}") for of, row in TRANSITIONS.items()])
def test_the_last_condition_of_a_row_always_holds(
    of: tuple[CallState, CallEvent], row: dict[CallCondition, CallStep]
) -> None:
    assert list(row).index(C.OTHERWISE) == len(row) - 1, of


def test_an_event_without_a_row_changes_nothing() -> None:
    for state in S:
        for event in E:
            if (state, event) not in TRANSITIONS:
                assert decide(state, event, tuple(C)) == (state, T.NOTHING)


# -- whole lives ---------------------------------------------------------------------------------------------------


class Life:
    """A call beside the plain list of what has happened to it, from which each answer is worked out anew.

    The life also knows what a call really has: a function that may wait for a thread or run in it, and a worker that
    may be ending.
    """

    def __init__(self, *, plain: bool) -> None:
        self.state = S.OPEN
        self.history: list[CallEvent] = []
        """The events that counted, in their order."""
        self.tasks: list[CallTask] = []
        self.plain = plain
        self.function = "waits" if plain else "none"
        """Where a plain function is: nowhere, in the queue for threads, in a thread, or ended."""
        self.ending = self.ended = False

    def moves(self) -> dict[str, Callable[[], None]]:
        """Return what can happen next."""
        found: dict[str, Callable[[], None]] = {"the lock is lost": self.lose}
        if self.function == "waits":
            found["a thread takes the function"] = self.begin
        if self.function == "runs":
            found["the function ends"] = self.return_
        found.update({"it is refused": self.refuse} if self.settled else {"the handler settles": self.settle})
        if not self.ended and self.function not in {"waits", "runs"}:
            for name, holding in (("well", {C.COMPLETES, C.OUTCOME}), ("badly", {C.OUTCOME}), ("unsaid", NONE)):
                found[f"the handler ends {name}"] = partial(self.end, holding)
        if not self.ending:
            found["the worker ends"] = self.begin_ending
            found["the session breaks"] = self.break_
            return found
        if self.function == "waits":  # it is unqueued before anything else
            found["the function is unqueued"] = self.unqueue
        else:
            found["the work is over"] = self.stop
        found["the time of the handlers is over"] = self.cut
        found["the handler is left"] = self.leave
        return found

    # -- the plain history

    @property
    def settled(self) -> bool:
        """Whether the last attempt of the handler to settle was not refused."""
        tries = [event for event in self.history if event in {E.SETTLE, E.REFUSE}]
        return tries[-1:] == [E.SETTLE]

    @property
    def decided(self) -> bool:
        return T.SETTLE in self.tasks or T.ABANDON in self.tasks

    @property
    def given_back(self) -> bool:
        return T.GIVE_BACK in self.tasks or T.GIVE_BACK_UNTRIED in self.tasks

    @property
    def left(self) -> bool:
        return T.LEAVE in self.tasks

    @property
    def lost(self) -> bool:
        return E.LOSE in self.history or self.left

    @property
    def unqueued(self) -> bool:
        """Whether the function was taken out of the queue, and no middleware has settled in its place."""
        return E.UNQUEUE in self.history and E.SETTLE not in self.history[self.history.index(E.UNQUEUE) :]

    @property
    def cut_off(self) -> bool:
        return E.CUT_OFF in self.history or (E.UNQUEUE in self.history and not self.unqueued)

    def happens(self, event: CallEvent, expected: CallTask, *, counts: bool, holding: set[CallCondition]) -> None:
        step = decide(self.state, event, tuple(holding))
        assert step.task is expected, f"{self.history}, {event}: {step.task} instead of {expected}"
        if counts:
            self.history.append(event)
        self.tasks.append(step.task)
        self.state = step.state

    @property
    def running(self) -> set[CallCondition]:
        return {C.IN_THREAD} if self.function == "runs" else NONE

    # -- what happens

    def begin(self) -> None:
        self.function = "runs"

    def return_(self) -> None:
        self.function = "ended"

    def begin_ending(self) -> None:
        self.ending = True

    def settle(self) -> None:
        self.happens(E.SETTLE, T.NOTHING, counts=not (self.decided or self.given_back), holding=NONE)

    def refuse(self) -> None:
        self.happens(E.REFUSE, T.NOTHING, counts=True, holding=NONE)

    def end(self, holding: set[CallCondition]) -> None:
        self.ended = True
        if self.decided or self.given_back or self.unqueued:
            expected = T.NOTHING
        elif self.lost:
            expected = T.DROP
        elif self.settled:
            expected = T.NOTHING
        elif self.cut_off:
            expected = T.SETTLE if C.COMPLETES in holding else T.NOTHING
        else:
            expected = T.SETTLE if holding else T.NOTHING
        self.happens(E.END, expected, counts=True, holding=holding)

    def lose(self) -> None:
        waited = self.function == "waits"
        told = self.plain and not waited
        if waited:
            self.function = "none"
        counts = not (self.left or self.given_back or self.unqueued)
        if not counts or (self.decided and self.lost):
            expected = T.NOTHING
        elif self.decided or (self.settled and self.cut_off and not self.lost):
            expected = T.CANCEL
        else:
            expected = T.NOTHING if told else T.CANCEL
        self.happens(E.LOSE, expected, counts=counts, holding={C.PLAIN} if told else NONE)

    def unqueue(self) -> None:
        self.function = "none"
        over = self.left or self.lost or self.given_back or self.decided or (self.settled and self.cut_off)
        self.happens(E.UNQUEUE, T.NOTHING, counts=not over, holding=NONE)
        if not over and self.settled:  # nothing of it is left to give back
            self.history[-1] = E.CUT_OFF

    def cut(self) -> None:
        over = self.decided or self.given_back or self.left or self.function == "runs"
        again = self.lost or self.unqueued
        expected = T.NOTHING if over or (self.cut_off and not again) else T.CANCEL
        self.happens(E.CUT_OFF, expected, counts=not (over or again), holding=self.running)

    def leave(self) -> None:
        over = self.decided or self.given_back or self.left or self.unqueued
        self.happens(E.LEAVE, T.NOTHING if over else T.LEAVE, counts=not over, holding=NONE)

    def stop(self) -> None:
        if self.decided or self.given_back or self.lost or self.settled:
            expected = T.NOTHING
        elif self.unqueued:
            expected = T.GIVE_BACK_UNTRIED
        else:
            expected = T.LEAVE if self.function == "runs" else T.GIVE_BACK
        self.happens(E.STOP, expected, counts=False, holding=self.running)
        assert not (self.tasks[-1] in FATES and self.function == "runs")

    def break_(self) -> None:
        over = self.decided or self.given_back or self.lost or self.settled or self.cut_off or self.unqueued
        self.happens(E.BREAK, T.NOTHING if over else T.ABANDON, counts=False, holding=NONE)

    # -- what always holds

    def check(self) -> None:
        """Compare the state with the history."""
        assert self.state.is_settled == self.settled
        assert self.state.has_lost_lock == self.lost
        assert self.state.is_left == self.left
        assert self.state.is_dropped == (self.lost or self.given_back or self.unqueued)
        assert self.state.is_free == (not (self.state.is_dropped or (self.cut_off and not self.decided)))
        fates = [task for task in self.tasks if task in FATES]
        assert len(fates) + self.tasks.count(T.LEAVE) <= 1

    @property
    def present(self) -> tuple[object, ...]:
        """What the next answers depend on."""
        facts = self.settled, self.decided, self.given_back, self.left, self.lost, self.unqueued, self.cut_off
        past = E.UNQUEUE in self.history, E.CUT_OFF in self.history
        return (self.state, *facts, *past, self.plain, self.function, self.ending, self.ended)


def test_each_answer_follows_from_the_history() -> None:
    """The test takes every way to every present once."""
    waiting, seen = [Life(plain=False), Life(plain=True)], set[object]()
    while waiting:
        life = waiting.pop()
        life.check()
        if life.present not in seen:
            seen.add(life.present)
            for name in life.moves():
                after = deepcopy(life)
                after.moves()[name]()
                waiting.append(after)
    assert len(seen) > 100
