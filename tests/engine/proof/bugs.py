"""Bugs that are planted in the product, and the search for them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

__all__ = ["Bug", "search"]


class Bug(NamedTuple):
    """A plausible programming mistake: a text in a Lua file, and the text that replaces it."""

    name: str
    file: str
    right: str
    wrong: str
    of: str = "queue"
    """The machine that must find it."""
    aims: tuple[str, ...] = ()
    """The rules that bring the machine to the bug, if they do not have the name of the file."""


def search(description: str | None, bugs: Iterable[Bug], find: Callable[[Bug], str]) -> int:
    """Search for the bugs that the command line names, or for all, and print a line for each. Return the exit code.

    ``find`` returns how a bug is found, or an empty text.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the bugs to search for; all by default")
    given = parser.parse_args()
    wanted = [bug for bug in bugs if not given.names or bug.name in given.names]
    wrong = 0
    for bug in wanted:
        started = time.monotonic()
        found = find(bug)
        wrong += not found
        line = f"{bug.name:<66} {time.monotonic() - started:5.1f} s  {found[:90] or 'not found'}\n"
        sys.stdout.write(line if found else f"WRONG: {line}")
        sys.stdout.flush()
    sys.stdout.write(f"{len(wanted)} searches, {wrong} not as it should be\n")
    return 1 if wrong or not wanted else 0
