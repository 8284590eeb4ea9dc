"""The run of the machine of credit: it ends after enough steps, when each required case has happened often enough.

python -m tests.engine.proof.credit_run [--steps N] [--times N] [--seconds N] [--begin-at SEED]

It prints a table of all cases: the transitions of the decider, what the partition did with grants, faults, and others.
A run that breaks a promise prints its seed; ``run(SEED, STEPS)`` of credit_machine.py repeats it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from sbredis.receiving._credit import TABLE
from tests.engine.proof.credit_machine import run, transition

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
    *(
        f"grant: {what}"
        for what in (
            "taken",
            "older",
            "repeated",
            "withdrawn",
            "new prefix",
            "forgotten",
            "before the epoch",
            "of another process",
            "refused",
            "session lost",
        )
    ),
    *("grant expired", "word begun", "word forgotten", "epoch", "settings end credit", "session: free"),
    *(
        "session: with first messages",
        "session: left",
        "session: not left, because nobody waits",
        "session: its holder is told of the end",
    ),
    *("session: release refused", "gift: several sessions", "others wait: in a reply", "others wait: in a push"),
    *(f"settlement: {what}" for what in ("completed", "released", "lost")),
    *("interest", "interest: announced", "interest: size", "interest: unseen gifts", "interest: passed on"),
    "interest: without credit",
    *("bound of a call", "reply: too much unseen", "no listener"),
    *(
        f"due: {what}"
        for what in ("keeper", "deputy", "deputy of another client", "next keeper", "comes forward", "scheduled")
    ),
    *(
        f"network: {what}"
        for what in (
            "a call is lost",
            "a call is repeated",
            "a reply is lost",
            "a push is lost",
            "a subscription is cut",
        )
    ),
    *(f"client: {what}" for what in ("subscribes", "a call fails", "lock over", "pauses", "dies")),
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000, help="the least number of steps")
    parser.add_argument("--times", type=int, default=100, help="the number of times that each case must have happened")
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which to give up")
    parser.add_argument("--begin-at", type=int, default=0, metavar="SEED", help="the seed of the first run")
    given = parser.parse_args()
    started, seen, seed = time.monotonic(), Counter[str](), given.begin_at
    rare: list[str] = [*REQUIRED]
    try:
        while (rare or seen["steps"] < given.steps) and time.monotonic() - started < given.seconds:
            prove(range(seed, seed + 50), seen)
            seed += 50
            rare = sorted((case for case in REQUIRED if seen[case] < given.times), key=seen.__getitem__)
            spent = time.monotonic() - started
            shown = ", ".join(rare[:4]) or "none"
            sys.stdout.write(f"{seen['steps']:>9,} steps in {spent:,.0f} s; too rare: {shown}\n")
            sys.stdout.flush()
    finally:  # the table says what was done before a failure, too
        others = sorted(seen.keys() - {*REQUIRED})
        sys.stdout.write("".join(f"  {case:<50}{seen[case]:>9,}\n" for case in (*REQUIRED, *others)))
    return 1 if rare else 0


if __name__ == "__main__":
    sys.exit(main())
