"""The cases that a proof must bring about, and the table of how often each of them has happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from sbredis.engine._contracts import contract, refusals
from sbredis.engine._lua_files import read_source
from tests.engine.proof.breakages import WITHOUT_LANE, script_of
from tests.engine.proof.comparison import UNTURNED, Tally, Transition, in_transactions
from tests.engine.terms import TRANSITIONS, Event, Side, State

OPERATIONS = (
    *("abandon", "cancel", "complete", "configure", "count", "dead_letter", "defer", "destroy", "due"),
    *("peek", "purge", "receive", "receive_deferred", "redrive", "renew", "send"),
    *("accept_session", "bury_session", "get_state", "list_sessions", "list_sessions_since", "accept_next"),
    *("release_session", "renew_session", "set_state", "publish", "ripe", "transact"),
)

_LOCKED = "UNLOCKED"
_STORING = "DISABLED TOOLARGE QUOTA"
REFUSED_GRANTS = {
    "receive": ("DISABLED", "FORWARDS", "SESSIONS", "LOST"),
    "accept_next": ("DISABLED", "FORWARDS", "SESSIONS"),
}
"""The refusals in the answers to grants: the call has done due work, and nothing else."""
REFUSED_IN_TRANSACTIONS = {
    "send": f"{_STORING} DUE SESSIONS",
    "publish": f"{_STORING} TARGET FENCED",
    "set_state": "TOOLARGE QUOTA DUE SESSIONS LOST",
    "complete": _LOCKED,
    "abandon": _LOCKED,
    "defer": _LOCKED,
    "dead_letter": f"{_LOCKED} DEAD",
    "renew": _LOCKED,
    "once": "KNOWN",
    "advance": "CHANGED FULL",
    "another participant": "GONE STALE CONFIG",
}
"""The refusals of each operation of a transaction, and of participants other than the first."""
TRANSACTED = tuple(name for name in REFUSED_IN_TRANSACTIONS if name != "another participant")
"""The operations that a transaction can have."""

_OF_MOVES = {Event.TRANSFER, Event.WITHDRAW, Event.FREEZE, Event.TAKE, Event.RETURN, Event.REFUSE}


def of_a_move(side: Side, state: State, event: Event) -> bool:
    """Return whether only moves bring a transition about. The machine of moves is in moves_machine.py."""
    return side is Side.TRANSFER_DEAD or state is State.KEPT or event in _OF_MOVES


ALL_TRANSITIONS: tuple[Transition, ...] = tuple(
    (*of, condition)
    for of, outcomes in TRANSITIONS.items()
    for condition in outcomes
    # The machine of reserved ranges has commits, and test_lost_records.py damages records.
    if not of_a_move(*of) and of[2] not in {Event.COMMIT, Event.LOSE}
)
_OF_TRANSACTIONS = {
    *(Event.SEND, Event.SCHEDULE, Event.PUBLISH, Event.COPY),
    *(Event.COMPLETE, Event.ABANDON, Event.RELEASE, Event.DEFER, Event.DEAD_LETTER),
}
TRANSACTED_TRANSITIONS = tuple(one for one in ALL_TRANSITIONS if one[2] in _OF_TRANSACTIONS)
"""The transitions that operations of transactions make."""

REPEATABLE = tuple(one for one in OPERATIONS if one not in (*UNTURNED, *WITHOUT_LANE))
"""The operations whose calls a lane knows again."""

NOT_COUNTED = {
    ("transact", "ABSENT"): "only the operation of movers is refused for it, and the machine of moves counts it",
    **{
        (operation, "RESERVED"): "these machines reserve nothing; the machine of reserved ranges counts it"
        for operation in ("receive_deferred",)
    },
    ("publish", "DUE"): "the only due work of a topic is the end of locks on its transfer dead letters. These machines"
    " have no transfers; tests/engine/test_publish_put_off.py shows the refusal",
}
"""Refusals in the headers of scripts that these machines cannot bring about, and why."""

Kind = Literal["operations", "repetitions", "transitions", "transacted", "refusals"]
TITLES: dict[Kind, str] = {
    "operations": "operations, alone and in transactions",
    "repetitions": "repeated calls",
    "transitions": "transitions",
    "transacted": "transitions in transactions",
    "refusals": "refusals",
}
"""The kinds of cases. Each is the name of a counter of the tally."""


class Case(NamedTuple):
    """Something that must happen: a key in one of the counters of the tally."""

    kind: Kind
    key: Any

    def __str__(self) -> str:
        if self.kind == "refusals":
            return " ".join(self.key)
        return self.key if isinstance(self.key, str) else " ".join(one.name for one in self.key)


def all_refusals() -> tuple[tuple[str, str], ...]:
    """Return pairs of an operation and a refusal code that its header lists."""
    of_every_call = refusals(read_source("includes/begin") or "")
    found: list[tuple[str, str]] = []
    for operation in OPERATIONS:
        for code in (*contract(read_source(script_of(operation)) or "").refusals, *REFUSED_GRANTS.get(operation, ())):
            found += [(operation, one) for one in (of_every_call if code == "call" else (code,))]
    for refusal in NOT_COUNTED:
        found.remove(refusal)
    for operation, codes in REFUSED_IN_TRANSACTIONS.items():
        found += [(in_transactions(operation), code) for code in codes.split()]
    return tuple(found)


@cache
def required() -> tuple[Case, ...]:
    """Return all cases, derived from the table of transitions and the headers of the scripts."""
    keys: dict[Kind, tuple[Any, ...]] = {
        "operations": (*OPERATIONS, *map(in_transactions, TRANSACTED)),
        "repetitions": REPEATABLE,
        "transitions": ALL_TRANSITIONS,
        "transacted": TRANSACTED_TRANSITIONS,
        "refusals": all_refusals(),
    }
    return tuple(Case(kind, key) for kind, of_kind in keys.items() for key in of_kind)


def times(tally: Tally, case: Case) -> int:
    """Return how often a case has happened."""
    counted: int = getattr(tally, case.kind)[case.key]
    return counted


def lacking(tally: Tally, least: int) -> list[Case]:
    """Return the cases that have happened less often than this."""
    return [case for case in required() if times(tally, case) < least]


def table(tallies: Mapping[str, Tally], least: int) -> Iterator[str]:
    """Yield the lines of a table of all cases, with a column for each host and one for their sum. A case that has
    happened less often than ``least`` is marked.
    """

    def line(text: str, counts: list[int], mark: str = "") -> str:
        return f"{text:<60}" + "".join(f"{count:>12,}" for count in (*counts, sum(counts))) + mark

    every = [*tallies.values()]
    yield f"{'':<60}" + "".join(f"{name:>12}" for name in (*tallies, "all"))
    yield line("steps", [one.steps for one in every])
    yield line("calls that left due work", [one.left_more for one in every])
    for kind, title in TITLES.items():
        cases = [case for case in required() if case.kind == kind]
        yield from ("", f"{title} ({len(cases)})")
        for case in cases:
            counts = [times(one, case) for one in every]
            yield line(f"  {case}", counts, "  too rare" * (sum(counts) < least))
    yield from ("", f"not counted ({len(NOT_COUNTED)})")
    yield from (f"  {' '.join(refusal)}: {why}" for refusal, why in NOT_COUNTED.items())
