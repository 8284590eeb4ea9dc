"""Bugs that are planted in the scripts, one at a time, to test that the machine finds each of them.

python -m tests.engine.proof.planted [NAME...]

A bug is a text in a Lua file and its replacement. The text is replaced when the file is read, never on disk.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

from hypothesis import Phase

from sbredis.servers import LocalServer
from tests.engine.proof.bugs import Bug
from tests.engine.proof.comparison import Tally
from tests.engine.proof.extent import BOUNDS, MACHINES, drive
from tests.engine.proof.hosts import host, with_bounds, with_texts_replaced
from tests.engine.proof.planted_by_name import BY_NAME
from tests.engine.proof.planted_calls import OF_CALLS
from tests.engine.proof.planted_messages import OF_MESSAGES
from tests.engine.proof.planted_sessions import OF_SESSIONS
from tests.engine.proof.planted_topics import OF_TOPICS
from tests.engine.proof.planted_transactions import IN_TRANSACTIONS


class Finding(NamedTuple):
    """The way in which a bug was found."""

    steps: int
    how: str


BUGS = (*OF_MESSAGES, *BY_NAME, *OF_CALLS, *OF_SESSIONS, *OF_TOPICS, *IN_TRANSACTIONS)

EXAMPLES = 1_500
"""The number of partitions that the machine may run through until it has found a bug."""


def find(bug: Bug | None, server: LocalServer, *, examples: int = EXAMPLES) -> Finding | None:
    """Return how the machine finds a bug, or None if it finds none. Without a bug, None is the right result."""
    tally = Tally()
    changes = {bug.file: [(bug.right, bug.wrong)]} if bug else {}
    for name in ("narrow", "real"):
        read = with_bounds(BOUNDS[name], with_texts_replaced(changes))
        with host("server", read, server=server) as on:
            try:
                for what in [bug.of] if bug else MACHINES:
                    drive(on, tally, bounds=BOUNDS[name], examples=examples // 2, phases=(Phase.generate,), what=what)
            except AssertionError as error:
                text = str(error).partition("\n")[0]
                if "compiling" in text:
                    raise
                return Finding(tally.steps, text)
    return None


def _say(*lines: str) -> None:
    """Print output for the person at the terminal at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> int:
    bugs = [bug for bug in BUGS if not sys.argv[1:] or bug.name in sys.argv[1:]]
    wrong: list[str] = []
    with LocalServer() as server:
        for bug in (None, *bugs):
            started = time.monotonic()
            finding = find(bug, server, examples=EXAMPLES if bug else EXAMPLES // 5)
            name = bug.name if bug else "(no bug)"
            if (finding is None) is not (bug is None):
                wrong.append(name)
            found = f"found after {finding.steps:,} steps: {finding.how[:100]}" if finding else "not found"
            _say(f"{name:<46} {time.monotonic() - started:5.1f} s  {found}")
    _say(
        f"{len(bugs)} bugs, {len(wrong)} not as it should be: {wrong}" if wrong else f"all {len(bugs)} bugs were found"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
