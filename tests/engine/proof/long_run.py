"""The long run of the proof: it ends after enough steps, when each possible case has happened often enough.

python -m tests.engine.proof.long_run [--steps N] [--times N] [--seconds N]

The run prints the counts of operations, transitions and refusals.
The run fails as soon as the scripts and the model disagree, or if a case is missing when the time is over.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import cycle
from typing import Any

from sbredis.servers import LocalServer
from tests.engine.model import Bounds
from tests.engine.proof.breakages import WITHOUT_LANE
from tests.engine.proof.comparison import UNTURNED, Tally, in_transactions
from tests.engine.proof.extent import (
    ALL_TRANSITIONS,
    BOUNDS,
    MACHINES,
    OPERATIONS,
    TRANSACTED,
    TRANSACTED_TRANSITIONS,
    all_refusals,
    drive,
)
from tests.engine.proof.hosts import KINDS, Host, host, with_bounds


def lacking(tally: Tally, times: int) -> list[str]:
    """Return the cases that have happened less often than this."""
    found = [_transition(one) for one in ALL_TRANSITIONS if tally.transitions[one] < times]
    found += [" ".join(one) for one in all_refusals() if tally.refusals[one] < times]
    found += [f"in transactions {_transition(one)}" for one in TRANSACTED_TRANSITIONS if tally.transacted[one] < times]
    found += [in_transactions(one) for one in TRANSACTED if tally.operations[in_transactions(one)] < times]
    return found + [f"repeated {one}" for one in _repeatable() if tally.repetitions[one] < times]


def _repeatable() -> tuple[str, ...]:
    return tuple(one for one in OPERATIONS if one not in (*UNTURNED, *WITHOUT_LANE))


def _transition(one: tuple[Any, ...]) -> str:
    side, state, event, condition = one
    return f"{side.name} {state.name} {event.name} {condition.name}"


def report(tallies: Mapping[str, Tally]) -> Iterator[str]:
    """Yield the lines of a table of all counts, with a column for each host."""
    names = list(tallies)

    def line(text: str, counts: list[int]) -> str:
        return f"{text:<60}" + "".join(f"{count:>12,}" for count in counts)

    def part(title: str, rows: Mapping[str, list[int]]) -> Iterator[str]:
        yield ""
        yield f"{title:<60}" + "".join(f"{name:>12}" for name in names)
        yield from (line(text, counts) for text, counts in rows.items())

    every = [tallies[name] for name in names]
    done = {"steps": [one.steps for one in every], "calls that left more": [one.left_more for one in every]}
    yield from part("done", done | {op: [one.operations[op] for one in every] for op in OPERATIONS})
    carried_out = {in_transactions(op): [one.operations[in_transactions(op)] for one in every] for op in TRANSACTED}
    yield from part("operations of transactions", carried_out)
    yield from part("repeated calls", {op: [one.repetitions[op] for one in every] for op in _repeatable()})
    ways = {_transition(way): [one.transitions[way] for one in every] for way in ALL_TRANSITIONS}
    yield from part(f"transitions ({len(ways)})", ways)
    together = {_transition(way): [one.transacted[way] for one in every] for way in TRANSACTED_TRANSITIONS}
    yield from part(f"transitions in transactions ({len(together)})", together)
    codes = {" ".join(code): [one.refusals[code] for one in every] for code in all_refusals()}
    yield from part(f"refusals ({len(codes)})", codes)


def total(tallies: Mapping[str, Tally]) -> Tally:
    """Return the counts of all hosts together."""
    whole = Tally()
    for one in tallies.values():
        whole.steps += one.steps
        whole.left_more += one.left_more
        for name in ("operations", "transitions", "transacted", "refusals", "repetitions"):
            counter: Counter[Any] = getattr(whole, name)
            counter.update(getattr(one, name))
    return whole


def _of_use(of_machine: Mapping[str, Tally], short: list[str]) -> list[str]:
    """Return the machines in which some of the rare cases have happened; if there is no such machine, return all."""
    useful = [what for what, tally in of_machine.items() if not {*short} <= {*lacking(tally, 1)}]
    return useful or [*of_machine]


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
        hosts: list[tuple[str, Host, Bounds]] = [
            (what, stack.enter_context(host(kind, with_bounds(bounds), server=server)), bounds)
            for bounds in BOUNDS.values()
            for kind in KINDS
            for what in MACHINES
        ]
        whole, short = Tally(), [""]
        for place, (what, on, bounds) in enumerate(cycle(hosts)):
            if place >= len(hosts) and what not in _of_use(of_machine, short):
                continue
            done = Tally()
            drive(on, done, bounds=bounds, examples=100, derandomize=False, what=what)
            tallies[on.kind] = total({"before": tallies[on.kind], "now": done})
            of_machine[what] = total({"before": of_machine[what], "now": done})
            whole, spent = total(tallies), time.monotonic() - started
            short = lacking(whole, given.times)
            _say(f"{whole.steps:>9,} steps in {spent:,.0f} s, {len(short)} things too rare: {', '.join(short[:5])}")
            if (whole.steps >= given.steps and not short) or spent > given.seconds:
                break
    _say(*report(tallies))
    _say(f"\n{whole.steps:,} steps in {time.monotonic() - started:,.0f} s without a disagreement")
    if short:
        _say(f"less often than {given.times} times: {', '.join(short)}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
