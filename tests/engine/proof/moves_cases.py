"""The cases that the machine of moves must bring about: transitions, verdicts, and other answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.engine.proof.cases import of_a_move
from tests.engine.proof.comparison import Transition
from tests.engine.terms import ENDS, TRANSITIONS, Condition, Event, Side, State

__all__ = ["MOVES", "REQUIRED", "Place", "condition_of", "table", "text_of"]

MOVES: tuple[Transition, ...] = tuple(
    (*of, condition) for of, outcomes in TRANSITIONS.items() for condition in outcomes if of_a_move(*of)
)
"""The transitions that only moves bring about, and those of the transfer dead-letter queue."""


def text_of(way: Transition) -> str:
    return " ".join(part.name for part in way)


_VERDICTS = ("taken", "again", "over", "door", "QUOTA", "DISABLED", "TOOLARGE", "SESSIONS")
_SETTLED = ("taken", "again", "back", "refused")
REQUIRED: dict[str, tuple[str, ...]] = {
    "transitions": tuple(map(text_of, MOVES)),
    "verdicts of a destination": tuple(f"take: {one}" for one in _VERDICTS),
    "settlements of a batch": tuple(f"settle: {one}{end}" for one in _SETTLED for end in ("", ", not outstanding")),
    "other answers": (
        *("freeze: a batch", "freeze: the outstanding batch", "freeze: no batch"),
        *(f"sweep: {state}" for state in ("frozen", "nothing", "limits", "other", "a batch was settled")),
        *("take: several", "withdraw: all", "withdraw: ABSENT", "forget: known", "forget: unknown"),
    ),
    "failures and repetitions": (
        *("lost freeze", "lost take", "made again", "repeated freeze", "repeated take", "repeated settle_batch"),
        "repeated sweep",
        *("repeated transact", "redrive: by its client", "redrive: by another mover"),
    ),
}
"""The cases by kind."""


class Place(NamedTuple):
    """The side and the state of a message."""

    side: Side
    state: State


def condition_of(before: Place, event: Event, after: Place | None, added: set[Side]) -> Condition | None:
    """Return the condition under which the table has this transition; None if it has none.

    ``after`` is None if the message is not there any more under its name, and ``added`` are the sides on which messages
    have new names.
    """
    for condition, outcome in TRANSITIONS.get((before.side, before.state, event), {}).items():
        gone = outcome.state in ENDS or (outcome.side is not before.side and outcome.side in added)
        if gone if after is None else after == (outcome.side, outcome.state):
            return condition
    return None


def table(counts: Mapping[str, int], least: int) -> Iterator[str]:
    """Yield the lines of a table of all cases. A case that has happened less often than ``least`` is marked."""
    for kind, cases in REQUIRED.items():
        yield from ("", f"{kind} ({len(cases)})")
        for case in cases:
            count = counts.get(case, 0)
            yield f"  {case:<60}{count:>10,}" + "  too rare" * (count < least)
