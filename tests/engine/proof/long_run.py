"""The long run of the proof: it ends after enough steps, when each required case has happened often enough.

python -m tests.engine.proof.long_run [--steps N] [--times N] [--seconds N]

The run prints a table of all cases: operations, transitions, refusals, and repeated calls.
The run fails as soon as the scripts and the model disagree, or if a case is too rare when the time is over.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import cycle
from typing import Any

from sbredis.servers import LocalServer
from tests.engine.model import Bounds
from tests.engine.proof.cases import TITLES, Case, lacking, required, table, times
from tests.engine.proof.comparison import Tally
from tests.engine.proof.extent import BOUNDS, MACHINES, drive
from tests.engine.proof.hosts import KINDS, Host, host, with_bounds


def total(tallies: Mapping[str, Tally]) -> Tally:
    """Return the counts of all hosts together."""
    whole = Tally()
    for one in tallies.values():
        whole.steps += one.steps
        whole.left_more += one.left_more
        for name in TITLES:
            counter: Counter[Any] = getattr(whole, name)
            counter.update(getattr(one, name))
    return whole


def _of_use(of_machine: Mapping[str, Tally], short: list[Case], least: int) -> str:
    """Return the machine that brings the most of the lacking cases about; without such cases, the one with the fewest
    steps.
    """
    votes: Counter[str] = Counter()
    for case in short:
        happened = {what: times(tally, case) for what, tally in of_machine.items()}
        best = max(happened, key=lambda what: happened[what] / of_machine[what].steps)
        votes[best] += least - sum(happened.values())
    return max(votes, key=votes.__getitem__) if votes else min(of_machine, key=lambda what: of_machine[what].steps)


def _say(*lines: str) -> None:
    """Print output for the person at the terminal at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="the least number of steps, on all hosts together")
    parser.add_argument("--times", type=int, default=100, help="the number of times that each case must have happened")
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which to give up")
    given = parser.parse_args()
    started = time.monotonic()
    tallies: dict[str, Tally] = {kind: Tally() for kind in KINDS}
    of_machine: dict[str, Tally] = {what: Tally() for what in MACHINES}
    with ExitStack() as stack:
        server = stack.enter_context(LocalServer())
        hosts: list[tuple[Host, Bounds]] = [
            (stack.enter_context(host(kind, with_bounds(bounds), server=server)), bounds)
            for kind in ("server", "memory", "server")  # steps in memory take three times as long
            for bounds in BOUNDS.values()
        ]
        whole, short = Tally(), list(required())
        first = [what for what in MACHINES for _ in KINDS]
        for place, (on, bounds) in enumerate(cycle(hosts)):
            what = first[place] if place < len(first) else _of_use(of_machine, short, given.times)
            done = Tally()
            drive(on, done, bounds=bounds, examples=30, derandomize=False, what=what, sought=short or None)
            tallies[on.kind] = total({"before": tallies[on.kind], "now": done})
            of_machine[what] = total({"before": of_machine[what], "now": done})
            whole, spent = total(tallies), time.monotonic() - started
            short = lacking(whole, given.times)
            rarest = ", ".join(map(str, sorted(short, key=lambda case: times(whole, case))[:5]))
            _say(f"{whole.steps:>9,} steps in {spent:,.0f} s, {what}; {len(short)} cases too rare: {rarest}")
            if (whole.steps >= given.steps and not short) or spent > given.seconds:
                break
    _say("", *table(tallies, given.times))
    _say(f"\n{whole.steps:,} steps in {time.monotonic() - started:,.0f} s without a disagreement")
    if short:
        _say(f"less often than {given.times} times: {', '.join(map(str, short))}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
