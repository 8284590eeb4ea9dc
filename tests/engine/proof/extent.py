"""The extent of a proof: the machines, the bounds of the scripts, and the number of examples and steps."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.model import Bounds
from tests.engine.proof.aims import machine as queue_machine
from tests.engine.proof.cases import Case, required
from tests.engine.proof.comparison import Tally
from tests.engine.proof.hosts import Host
from tests.engine.proof.session_rules import session_machine
from tests.engine.proof.topic_rules import topic_machine
from tests.engine.proof.transaction_rules import transaction_machine

EXAMPLES = int(os.environ.get("SBREDIS_ENGINE_EXAMPLES", "25"))
STEPS = int(os.environ.get("SBREDIS_ENGINE_STEPS", "50"))
"""The number of partitions that a test uses on each host, and the number of rules that run on each partition."""

BOUNDS = {"real": Bounds(), "narrow": Bounds(share=3, weight=70, purged=60, held=3)}
"""The real bounds of the scripts, and narrow bounds that calls reach often."""

MACHINES = {
    "queue": queue_machine,
    "sessions": session_machine,
    "topic": topic_machine,
    "transactions": transaction_machine,
}
"""The machine for each kind of entity. The machine of transactions has a topic with its subscriptions, and a queue."""
SHARES = {"queue": 1.0, "sessions": 0.6, "topic": 0.3, "transactions": 0.1}
"""The number of partitions that each machine uses, relative to the first machine. A topic counts as four partitions."""

DIRECTED = ("seek", "call_wrongly", "call_the_topic_wrongly", "transact_wrongly")
OFTEN = 24
"""The rules that a long run takes more often than others, because they choose what the run lacks; and how often."""


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
    sought: Collection[Case] | None = None,
) -> None:
    """Run one of the machines on a host whose scripts have these bounds.

    Some rules choose among the cases that are ``sought``, by default among all. Named cases are sought more often.
    """
    with_these = bounded(max(1, round(examples * SHARES[what])), derandomize=derandomize, phases=phases)
    cases = required() if sought is None else tuple(sought)
    machine = MACHINES[what](on, tally, bounds)
    members: dict[str, object] = {"sought": cases}
    for name in DIRECTED if sought else ():
        members |= {f"{name}_{again}": getattr(machine, name) for again in range(OFTEN) if getattr(machine, name, None)}
    made = type("Seeking", (machine,), members)
    run_state_machine_as_test(made, settings=with_these)
