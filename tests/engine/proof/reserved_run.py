"""The run of the machine of reserved ranges: it ends when each required case has happened often enough.

python -m tests.engine.proof.reserved_run [--times N] [--seconds N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from hypothesis import Phase

from sbredis.engine._lua_files import read_source
from tests.engine.proof.extent import OFTEN, bounded, copied
from tests.engine.proof.hosts import USUAL, Host, host
from tests.engine.proof.reserved_machine import CASES, ReservedMachine
from tests.engine.proof.reserved_partition import narrow
from tests.engine.proof.running import run_machine

__all__ = ["prove"]


def prove(
    on: Host,
    *,
    examples: int,
    steps: int = 40,
    begin_at: int | None = None,
    often: Sequence[str] = (),
    seen: Counter[str] | None = None,
) -> Counter[str]:
    """Run the machine; return how often each case has happened. ``begin_at`` is the seed, or None for chance.

    The rules that are named in ``often`` are taken often. The cases are counted in ``seen``, also if the machine fails.
    """
    seen = Counter() if seen is None else seen
    members: dict[str, object] = {"on": on, "seen": seen}
    for name in often:
        members |= copied(ReservedMachine, name, OFTEN // 4)
    machine = type("Machine", (ReservedMachine,), members)
    phases = (Phase.generate, Phase.shrink) if begin_at is None else (Phase.generate,)
    run_machine(machine, bounded(examples, steps=steps, phases=phases), begin_at=begin_at)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="the number of times that each case must have happened")
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which to give up")
    given = parser.parse_args()
    started, seen = time.monotonic(), Counter[str]()
    short: tuple[str, ...] = CASES
    with host(USUAL, narrow(read_source)) as on:
        while short and time.monotonic() - started < given.seconds:
            seen += prove(on, examples=100)
            short = tuple(case for case in CASES if seen[case] < given.times)
            spent = time.monotonic() - started
            sys.stdout.write(f"{seen['steps']:>9,} steps in {spent:,.0f} s; too rare: {', '.join(short) or 'none'}\n")
            sys.stdout.flush()
    sys.stdout.write("".join(f"  {case:<50}{seen[case]:>9,}\n" for case in CASES))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
