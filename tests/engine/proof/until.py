"""A run of a proof that ends when each required case has happened often enough."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

__all__ = ["run_until"]


RunPart = Callable[[int, Counter[str]], object]


def run_until(description: str | None, cases: Sequence[str], part: RunPart, *, steps: int, times: int) -> int:
    """Run parts of a proof until each case has happened often enough. Return the exit code.

    ``part`` gets the number of the part, and counts the steps and the cases. The command line may name other limits.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=steps, help="the least number of steps")
    parser.add_argument("--times", type=int, default=times, help="how often each case must have happened")
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which to give up")
    parser.add_argument("--begin-at", type=int, default=0, metavar="PART", help="the number of the first part")
    given = parser.parse_args()
    started, seen, rare, spent = time.monotonic(), Counter[str](), [*cases], 0.0
    numbers = itertools.count(given.begin_at)
    try:
        while (rare or seen["steps"] < given.steps) and spent < given.seconds:
            part(next(numbers), seen)
            rare = sorted((case for case in cases if seen[case] < given.times), key=seen.__getitem__)
            spent = time.monotonic() - started
            shown = ", ".join(rare[:4]) or "none"
            sys.stdout.write(f"{seen['steps']:>9,} steps in {spent:,.0f} s; too rare: {shown}\n")
            sys.stdout.flush()
    finally:  # the table says what was done before a failure, too
        others = sorted(seen.keys() - {*cases})
        sys.stdout.write("".join(f"  {case:<50}{seen[case]:>9,}\n" for case in (*cases, *others)))
    return 1 if rare else 0
