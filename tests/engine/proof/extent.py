"""The extent of a proof: the number of steps, and the cases that must have happened often enough."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sbredis.engine._lifecycle import TRANSITIONS, Event, Side, State
from sbredis.engine._scripts import contract, read_source, refusals
from tests.engine.model import Bounds
from tests.engine.proof.aims import machine
from tests.engine.proof.breakages import script_of
from tests.engine.proof.comparison import Tally, Transition, in_transactions
from tests.engine.proof.hosts import Host
from tests.engine.proof.session_rules import session_machine
from tests.engine.proof.topic_rules import topic_machine
from tests.engine.proof.transaction_rules import transaction_machine

EXAMPLES = int(os.environ.get("SBREDIS_ENGINE_EXAMPLES", "50"))
STEPS = int(os.environ.get("SBREDIS_ENGINE_STEPS", "50"))
"""The number of partitions that a test uses on each host, and the number of rules that run on each partition."""

BOUNDS = {"real": Bounds(), "narrow": Bounds(share=3, weight=70, purged=60, held=3)}
"""The real bounds of the scripts, and narrow bounds that calls reach often."""

OPERATIONS = (
    *("abandon", "cancel", "complete", "configure", "count", "dead_letter", "defer", "destroy", "due", "look"),
    *("peek", "purge", "receive", "receive_deferred", "redrive", "renew", "send"),
    *("accept_session", "bury_session", "get_state", "list_sessions", "list_sessions_since", "look_for_session"),
    *("release_session", "renew_session", "set_state", "publish", "ripe", "transact"),
)

_LOCKED = "UNLOCKED"
_STORING = "DISABLED TOOLARGE QUOTA"
REFUSED_IN_TRANSACTIONS = {
    "send": f"{_STORING} DUE SESSIONS",
    "publish": f"{_STORING} TARGET FENCED",
    "set_state": "TOOLARGE QUOTA DUE SESSIONS LOST",
    "complete": _LOCKED,
    "abandon": _LOCKED,
    "defer": _LOCKED,
    "dead_letter": f"{_LOCKED} DEAD",
    "once": "KNOWN",
    "another participant": "GONE STALE CONFIG",
}
"""The refusals of each operation of a transaction, and of participants other than the first."""
TRANSACTED = tuple(name for name in REFUSED_IN_TRANSACTIONS if name != "another participant")
"""The operations that a transaction can have."""

MACHINES = {
    "queue": machine,
    "sessions": session_machine,
    "topic": topic_machine,
    "transactions": transaction_machine,
}
"""The machine for each kind of entity. The machine of transactions has a topic with its subscriptions, and a queue."""
SHARES = {"queue": 1.0, "sessions": 0.6, "topic": 0.3, "transactions": 0.1}
"""The number of partitions that each machine uses, relative to the first machine. A topic counts as four partitions."""

_OF_MOVES = {Event.TRANSFER, Event.WITHDRAW, Event.FREEZE, Event.TAKE, Event.RETURN, Event.REFUSE}


def _of_a_move(side: Side, state: State, event: Event) -> bool:
    """Return whether only moves bring a transition about. The machine of moves is in moves_machine.py."""
    return side is Side.TRANSFER_DEAD or state is State.KEPT or event in _OF_MOVES


ALL_TRANSITIONS: tuple[Transition, ...] = tuple(
    (*of, condition) for of, outcomes in TRANSITIONS.items() for condition in outcomes if not _of_a_move(*of)
)
_OF_TRANSACTIONS = {
    *(Event.SEND, Event.SCHEDULE, Event.PUBLISH, Event.COPY),
    *(Event.COMPLETE, Event.ABANDON, Event.RELEASE, Event.DEFER, Event.DEAD_LETTER),
}
TRANSACTED_TRANSITIONS = tuple(one for one in ALL_TRANSITIONS if one[2] in _OF_TRANSACTIONS)
"""The transitions that operations of transactions make."""


@cache
def all_refusals() -> tuple[tuple[str, str], ...]:
    """Return pairs of an operation and a refusal code that its header lists."""
    of_every_call = refusals(read_source("includes/begin") or "")
    found: list[tuple[str, str]] = []
    for operation in OPERATIONS:
        for code in contract(read_source(script_of(operation)) or "").refusals:
            found += [(operation, one) for one in (of_every_call if code == "call" else (code,))]
    found.remove(("transact", "ABSENT"))  # a refusal of movers
    for operation, codes in REFUSED_IN_TRANSACTIONS.items():
        found += [(in_transactions(operation), code) for code in codes.split()]
    return tuple(found)


def bounded(
    examples: int,
    *,
    steps: int = STEPS,
    derandomize: bool = True,
    phases: Iterable[Phase] = (Phase.generate, Phase.shrink),
) -> settings:
    """Return the settings for this many examples, without a deadline. By default each run has the same examples."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=derandomize,
        phases=tuple(phases),
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
    )


def drive(
    on: Host,
    tally: Tally,
    *,
    bounds: Bounds = BOUNDS["real"],
    examples: int = EXAMPLES,
    derandomize: bool = True,
    phases: Iterable[Phase] = (Phase.generate, Phase.shrink),
    what: str = "queue",
) -> None:
    """Run one of the machines on a host whose scripts have these bounds."""
    with_these = bounded(max(1, round(examples * SHARES[what])), derandomize=derandomize, phases=phases)
    run_state_machine_as_test(MACHINES[what](on, tally, bounds), settings=with_these)
