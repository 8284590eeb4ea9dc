"""The extent of a proof: the machines, the bounds of the scripts, and the number of examples and steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from hypothesis import HealthCheck, Phase, settings

from tests.engine.model import Bounds
from tests.engine.proof.aims import AimedMachine
from tests.engine.proof.cases import Case, required
from tests.engine.proof.comparison import Tally
from tests.engine.proof.directing import rules
from tests.engine.proof.hosts import Host
from tests.engine.proof.machine import Machine
from tests.engine.proof.running import run_machine
from tests.engine.proof.session_rules import SessionMachine
from tests.engine.proof.topic_rules import TopicMachine
from tests.engine.proof.transaction_machine import TRANSACTIONS

EXAMPLES = int(os.environ.get("SBREDIS_ENGINE_EXAMPLES", "15"))
STEPS = int(os.environ.get("SBREDIS_ENGINE_STEPS", "50"))
"""The number of partitions that a test uses on each host, and the number of rules that run on each partition."""

BOUNDS = {"real": Bounds(), "narrow": Bounds(share=3, weight=70, purged=60, held=3, watermarks=3, remembered=1)}
"""The real bounds of the scripts, and narrow bounds that calls reach often."""

MACHINES: dict[str, type[Machine]] = {
    "queue": AimedMachine,
    "sessions": SessionMachine,
    "topic": TopicMachine,
    "transactions": TRANSACTIONS,
}
"""The machine for each kind of entity. The machine of transactions has a topic with its subscriptions, and a queue."""
SHARES = {"queue": 1.0, "sessions": 0.6, "topic": 0.3, "transactions": 0.1}
"""The number of partitions that each machine uses, relative to the first machine. A topic counts as four partitions."""

OFTEN = 60
"""How often a directed run takes a rule that chooses what the run lacks, compared with another rule."""


def bounded(examples: int, *, steps: int = STEPS, phases: Iterable[Phase] = (Phase.generate, Phase.shrink)) -> settings:
    """Return the settings for this many examples, without a deadline."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=tuple(phases),
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
    )


def machine_of(
    what: str, on: Host, tally: Tally, bounds: Bounds, members: Mapping[str, object] = MappingProxyType({})
) -> type[Machine]:
    """Return one of the machines, for a host whose scripts have these bounds."""
    return type("Made", (MACHINES[what],), {"host": on, "tally": tally, "bounds": bounds, **members})


def copied(machine: type, name: str, times: int) -> dict[str, object]:
    """Return copies of a rule under other names. With them, a machine takes the rule more often."""
    return {f"{name}_{again}": getattr(machine, name) for again in range(times)}


def drive(
    on: Host,
    tally: Tally,
    *,
    bounds: Bounds = BOUNDS["real"],
    examples: int = EXAMPLES,
    begin_at: int | None = 0,
    phases: Iterable[Phase] = (Phase.generate, Phase.shrink),
    what: str = "queue",
    sought: Sequence[Case] | None = None,
    often: Sequence[str] = (),
) -> None:
    """Run one of the machines on a host whose scripts have these bounds. ``begin_at`` is the seed, or None for chance.

    Some rules choose among the cases that are ``sought``, by default among all. If cases are named, these rules are
    taken most of the time. A case that is named more than once is chosen more often. The rules that are named in
    ``often`` are taken often.
    """
    number = max(2, round(examples * SHARES[what]))  # the first example may be without a step
    cases = required() if sought is None else tuple(sought)
    members: dict[str, object] = {"sought": cases}
    for name in rules(what, sought) if sought else ():
        members |= copied(MACHINES[what], name, OFTEN)
    for name in often:
        members |= copied(MACHINES[what], name, OFTEN // 4)
    run_machine(machine_of(what, on, tally, bounds, members), bounded(number, phases=phases), begin_at=begin_at)
