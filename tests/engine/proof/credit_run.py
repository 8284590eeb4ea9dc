"""The run of the machine of credit: it ends after enough steps, when each required case has happened often enough.

python -m tests.engine.proof.credit_run [--steps N] [--times N] [--seconds N] [--begin-at PART]

It prints a table of all cases: the transitions of the decider, what the partition did with grants, faults, and others.
A run that breaks a promise prints its seed; ``run(SEED, STEPS)`` of credit_machine.py repeats it.
"""

from __future__ import annotations

import sys
from collections import Counter

from sbredis.receiving._credit import TABLE
from tests.engine.proof.credit_machine import run, transition
from tests.engine.proof.until import run_until

__all__ = ["REQUIRED", "STEPS", "prove"]

STEPS = 400
"""The steps of a run with one seed."""
REQUIRED = (
    *(transition(state, event) for state, event in TABLE),
    *(f"answer: {answer}" for answer in ("taken", "known", "forgotten", "refused")),
    *(f"gift: {way}" for way in ("reply", "push")),
    *("again", "again: a gift", "handed", "handed: to be given back", "once", "lapse", "suspect"),
    *("lapse: begun", "lapse: not begun", "lapse: not begun in a session", "interest: a suspect"),
    "lapse: a careful holder has not begun a suspect",
    *(f"grant: {what}" for what in ("taken", "older", "repeated", "withdrawn", "new prefix", "forgotten")),
    *(f"grant: {what}" for what in ("before the epoch", "of another process", "refused", "session lost")),
    *("grant expired", "word begun", "word forgotten", "epoch", "settings end credit", "session: free"),
    *("session: with first messages", "session: left", "session: not left, because nobody waits"),
    *(
        "session: its holder is told of the end",
        "session: release refused",
        "gift: several sessions",
        "others wait: in a reply",
        "others wait: in a push",
    ),
    *(f"settlement: {what}" for what in ("completed", "released", "lost")),
    *("interest", "interest: announced", "interest: size", "interest: unseen gifts", "interest: passed on"),
    "interest: without credit",
    *("bound of a call", "reply: too much unseen", "no listener"),
    *("more receivers than a call looks at", "more holders than a call looks at"),
    *(f"due: {what}" for what in ("keeper", "deputy", "another receiver", "deputy of another client")),
    *(f"due: {what}" for what in ("next keeper", "comes forward", "scheduled")),
    *(f"network: a {what}" for what in ("call is lost", "call is repeated", "reply is lost", "push is lost")),
    "network: a subscription is cut",
    *(f"client: {what}" for what in ("subscribes", "a call fails", "lock over", "pauses", "dies", "no keeper is left")),
    *(
        f"server: {what}"
        for what in ("pauses", "a failover", "a failover loses writes", "the slot moves", "its clock steps")
    ),
    *("the time of the partition leaps", "a calm time", "due times are checked"),
)


def prove(seeds: range, seen: Counter[str] | None = None) -> Counter[str]:
    """Run the machine with each of these seeds. Return how often each case has happened."""
    seen = Counter() if seen is None else seen
    for seed in seeds:
        try:
            run(seed, STEPS, seen)
        except AssertionError as error:
            raise AssertionError(f"run({seed}, {STEPS}): {error}") from error
    return seen


def main() -> int:
    return run_until(
        __doc__,
        REQUIRED,
        lambda number, seen: prove(range(50 * number, 50 * (number + 1)), seen),
        steps=200_000,
        times=100,
    )


if __name__ == "__main__":
    sys.exit(main())
