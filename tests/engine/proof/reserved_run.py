"""The run of the machine of reserved ranges: it ends when each required case has happened often enough.

python -m tests.engine.proof.reserved_run [--times N] [--seconds N]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from hypothesis import Phase

from sbredis.engine._lua_files import read_source
from tests.engine.proof.extent import OFTEN, bounded, copied
from tests.engine.proof.hosts import USUAL, Host, host
from tests.engine.proof.reserved_machine import CASES, ReservedMachine
from tests.engine.proof.reserved_partition import narrow
from tests.engine.proof.running import run_machine
from tests.engine.proof.until import run_until

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
    with host(USUAL, narrow(read_source)) as on:
        return run_until(__doc__, CASES, lambda _, seen: prove(on, examples=100, seen=seen), steps=0, times=100)


if __name__ == "__main__":
    sys.exit(main())
