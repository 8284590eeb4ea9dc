"""The direction of a long run: for each case, the machine that is to make it happen, and the rules that do it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tests.engine.proof import aims, session_rules, topic_rules, transaction_rules
from tests.engine.proof.cases import Case
from tests.engine.proof.machine import AGAIN, REFUSED_FOR
from tests.engine.proof.transaction_scenes import SCENES
from tests.engine.terms import Condition, Event, State

__all__ = ["home", "rules", "wrong_calls"]

_WRONG = {
    "queue": ("call_wrongly", aims.WRONG),
    "sessions": ("call_wrongly", session_rules.WRONG),
    "topic": ("call_the_topic_wrongly", topic_rules.WRONG),
    "transactions": ("transact_wrongly", transaction_rules.WRONG),
}
"""The rule of each machine that makes calls with a defect and repeats calls, and these calls."""


@cache
def home(case: Case) -> str:
    """Return the machine that is to make a case happen."""
    scene = SCENES.get((case.kind, case.key))
    if scene:
        return scene.machine
    if case.kind == "transacted":
        return "transactions"
    if case.kind == "transitions":
        _, state, event, condition = case.key
        if event in {Event.PUBLISH, Event.COPY}:
            return "topic"
        of_sessions = state is State.HELD or condition is Condition.SESSION or event is Event.BURY
        return "sessions" if of_sessions else "queue"
    operation = case.key if isinstance(case.key, str) else case.key[0]
    if operation.startswith("transact"):
        return "transactions"
    if operation in topic_rules.ANY:
        return "topic"
    return "queue" if operation in aims.ANY else "sessions"


@cache
def wrong_calls(what: str) -> frozenset[Case]:
    """Return the cases that the rule with wrong calls makes happen on a machine."""
    return frozenset(
        Case("repetitions", operation) if defect == AGAIN else Case("refusals", (operation, REFUSED_FOR[defect]))
        for operation, defect in _WRONG[what][1]
        if defect == AGAIN or defect in REFUSED_FOR
    )


def rules(what: str, sought: Sequence[Case]) -> list[str]:
    """Return the rules of a machine that choose among the cases that are sought."""
    wrong = [case for case in sought if (case.kind, case.key) not in SCENES and case in wrong_calls(what)]
    others = [case for case in sought if case not in wrong]
    return ["seek"] * bool(others) + [_WRONG[what][0]] * bool(wrong)
