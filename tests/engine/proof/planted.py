"""Bugs that are planted in the scripts, one at a time, to test that the machines find each of them.

python -m tests.engine.proof.planted [--workers N] [--parts N] [NAME...]

A bug is a text in a Lua file and its replacement. The text is replaced when the file is read, never on disk.
A search is the same in each run, and half of it takes the rules often that call the changed script.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from hypothesis import Phase
from hypothesis.errors import Flaky

from sbredis.exceptions import DataLayoutError
from sbredis.servers import LocalServer
from tests.engine.model import Refused
from tests.engine.proof.bugs import Bug, detect, found_by, with_bug
from tests.engine.proof.comparison import Tally
from tests.engine.proof.extent import BOUNDS, MACHINES, drive
from tests.engine.proof.hosts import USUAL, Host, host, with_bounds
from tests.engine.proof.moves_aims import AimedMovesMachine
from tests.engine.proof.moves_run import prove as prove_moves
from tests.engine.proof.planted_by_name import BY_NAME
from tests.engine.proof.planted_calls import OF_CALLS
from tests.engine.proof.planted_messages import OF_MESSAGES
from tests.engine.proof.planted_moves import OF_MOVES
from tests.engine.proof.planted_reserved import OF_RESERVED
from tests.engine.proof.planted_sessions import OF_SESSIONS
from tests.engine.proof.planted_topics import OF_TOPICS
from tests.engine.proof.planted_transactions import IN_TRANSACTIONS
from tests.engine.proof.reserved_machine import ReservedMachine
from tests.engine.proof.reserved_partition import narrow
from tests.engine.proof.reserved_run import prove as prove_reserved


class Finding(NamedTuple):
    """The way in which a bug was found."""

    steps: int
    how: str


BUGS = (
    *(*OF_MESSAGES, *BY_NAME, *OF_CALLS),
    *found_by("sessions", OF_SESSIONS),
    *found_by("topic", OF_TOPICS),
    *found_by("transactions", IN_TRANSACTIONS),
    *found_by("moves", OF_MOVES),
    *found_by("reserved", OF_RESERVED),
)

COMPLAINTS = (AssertionError, Refused, DataLayoutError)
"""How a machine complains: a comparison, a refusal that the model does not expect, and data without a meaning."""
PARTS = 48
"""The most parts of a search. They differ in their seeds, in the bounds, and in what they draw often."""
EXAMPLES = 30
"""The number of examples of a part."""


class Part(NamedTuple):
    """A part of a search."""

    seed: int
    bounds: str
    aims: bool
    """Whether it takes rules often that call the changed script."""


def parts(count: int) -> Iterator[Part]:
    """Return the parts of a search: with narrow bounds and with real ones, by chance and with an aim."""
    for seed in range(count):
        yield Part(seed, ("narrow", "narrow", "real", "real")[seed % 4], seed % 2 == 1)


def aims(bug: Bug) -> tuple[str, ...]:
    """Return the rules that a search with an aim takes often: those that the bug names, or the one with the name of its
    script.
    """
    others: dict[str, type] = {"moves": AimedMovesMachine, "reserved": ReservedMachine}
    machine = others.get(bug.of) or MACHINES[bug.of]
    name = bug.file.removeprefix("includes/").removeprefix("check_").removeprefix("apply_")
    return bug.aims or tuple(one for one in (name,) if hasattr(machine, one))


def find(bug: Bug | None, server: LocalServer, *, count: int = PARTS, clean: bool = False) -> Finding | None:
    """Return how the machine finds a bug, or None if it finds none. Without a bug, None is the right result.

    The search is the same in each run. A disagreement counts only if the machine can repeat it. With ``clean``,
    the same part is run without the bug too, and must have no disagreement.
    """
    tally = Tally()
    for part in parts(count):
        for what in [bug.of] if bug else [*MACHINES, "moves", "reserved"]:
            often = aims(bug) if bug and part.aims else ()

            def run(planted: Bug | None, tally: Tally) -> None:
                changed = with_bug(planted)
                read = narrow(changed) if what == "reserved" else with_bounds(BOUNDS[part.bounds], changed)  # noqa: B023
                with host(USUAL, read, server=server) as on:
                    _run(on, tally, part, what, often)  # noqa: B023

            found = detect(lambda: run(bug, tally), COMPLAINTS)
            if found:
                if bug is not None and clean:
                    run(None, Tally())
                return Finding(tally.steps, found.partition("\n")[0])
    return None


def _run(on: Host, tally: Tally, part: Part, what: str, often: tuple[str, ...]) -> None:
    """Run a part of a search with one machine."""
    if what not in MACHINES:
        seen = Counter[str]()
        try:
            if what == "moves":
                prove_moves(on, examples=EXAMPLES // 2, begin_at=part.seed, often=often, seen=seen)
            else:
                prove_reserved(on, examples=EXAMPLES, begin_at=part.seed, often=often, seen=seen)
        finally:
            tally.steps += seen["steps"]
        return
    bounds, only = BOUNDS[part.bounds], (Phase.generate,)
    drive(on, tally, bounds=bounds, examples=EXAMPLES, begin_at=part.seed, phases=only, what=what, often=often)


def _search(name: str | None, count: int) -> tuple[bool, str]:
    """Search for one bug, or run without one. Return whether the outcome is right, and a line about it."""
    started = time.monotonic()
    right, how = False, "not found"
    with LocalServer() as server:
        bug = next((bug for bug in BUGS if bug.name == name), None)
        try:
            finding = find(bug, server, count=count if bug else max(4, count // 6), clean=True)
        except Flaky as flaky:
            how = f"not repeatable: {[str(one) for one in getattr(flaky, 'exceptions', ())] or flaky}"
        except Exception as error:  # noqa: BLE001 - it finds no bug, but the search goes on with the next one
            how = f"{type(error).__name__}: {error}"
        else:
            right = (finding is None) is (bug is None)
            how = f"after {finding.steps:,} steps: {finding.how}" if finding else how
    shown = how[:100] if bug else how
    return right, f"{name or '(no bug)':<60} {time.monotonic() - started:5.1f} s  {shown}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the bugs to search for; all by default")
    parser.add_argument("--workers", type=int, default=2, help="the number of processes")
    parser.add_argument("--parts", type=int, default=PARTS, help="the most parts of a search for one bug")
    given = parser.parse_args()
    names: list[str | None] = [*given.names] or [None, *(bug.name for bug in BUGS)]
    wrong = 0
    with ProcessPoolExecutor(given.workers) as workers:
        for search in as_completed([workers.submit(_search, name, given.parts) for name in names]):
            right, line = search.result()
            wrong += not right
            sys.stdout.write(f"{'' if right else 'WRONG: '}{line.splitlines()[0]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(names)} searches, {wrong} not as it should be\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
