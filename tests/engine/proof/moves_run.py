"""The run of the machine of moves: it ends after enough steps, when each required case has happened often enough.

python -m tests.engine.proof.moves_run [--steps N] [--times N] [--seconds N]

The run prints a table of all cases: transitions, verdicts, and other answers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle

from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test

from sbredis.servers import LocalServer
from tests.engine.proof.extent import OFTEN, bounded
from tests.engine.proof.hosts import Host, host
from tests.engine.proof.moves_aims import AimedMovesMachine
from tests.engine.proof.moves_cases import REQUIRED, table

__all__ = ["ALL", "prove"]

ALL = tuple(case for cases in REQUIRED.values() for case in cases)
_RULES = {
    "take: TOOLARGE": "let_the_destination_refuse",
    "take: SESSIONS": "let_the_destination_refuse",
    "take: over": "repeat_the_call_before_the_last",
    "lost freeze": "lose_a_freeze",
    "lost take": "lose_a_take",
    "made again": "repeat_a_take_from_a_former_source",
    "forget: unknown": "repeat_a_take_from_a_former_source",
    "redrive: by its client": "redrive_elsewhere",
    "redrive: by another mover": "redrive_elsewhere",
    **{f"repeated {name}": "repeat" for name in ("freeze", "take", "settle_batch", "transact")},
}
"""The rules that bring cases about. The rule that brings transitions about is `seek`."""


def _rules(sought: Sequence[str]) -> set[str]:
    """Return the rules that a run takes more often than others."""
    return {_RULES.get(case, "seek") for case in sought}


def prove(
    on: Host, *, examples: int, steps: int = 40, derandomize: bool = False, sought: Sequence[str] = ALL
) -> Counter[str]:
    """Run the machine; return how often each case has happened. If cases are ``sought``, they come more often."""
    seen: Counter[str] = Counter()
    members: dict[str, object] = {"on": on, "seen": seen, "sought": tuple(sought)}
    for name in sorted(_rules(sought)) if sought is not ALL else ():
        members |= {f"{name}_{again}": getattr(AimedMovesMachine, name) for again in range(OFTEN // 4)}
    machine = type("Machine", (AimedMovesMachine,), members)
    phases = (Phase.generate,) if derandomize else (Phase.generate, Phase.shrink)
    given = bounded(examples, steps=steps, derandomize=derandomize, phases=phases)
    run_state_machine_as_test(machine, settings=given)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="the least number of calls of scripts")
    parser.add_argument("--times", type=int, default=100, help="the number of times that each case must have happened")
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which to give up")
    given = parser.parse_args()
    started, seen = time.monotonic(), Counter[str]()
    short = [*ALL]
    with LocalServer() as server, host("server", server=server) as real, host("memory") as memory:
        for on in cycle((*[real] * 7, memory)):  # steps in memory take several times as long
            seen += prove(on, examples=20 if on is real else 5, steps=50, sought=tuple(short) if short else ALL)
            short, spent = [case for case in ALL if seen[case] < given.times], time.monotonic() - started
            rarest = ", ".join(sorted(short, key=seen.__getitem__)[:5])
            sys.stdout.write(f"{seen['steps']:>9,} steps in {spent:,.0f} s; {len(short)} cases too rare: {rarest}\n")
            sys.stdout.flush()
            if (seen["steps"] >= given.steps and not short) or spent > given.seconds:
                break
    sys.stdout.write("\n".join((*table(seen, given.times), "")))
    sys.stdout.write(
        f"\n{seen['steps']:,} steps in {time.monotonic() - started:,.0f} s; each message was at one place\n"
    )
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
