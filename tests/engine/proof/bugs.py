"""Bugs that are planted in the product, and the search for them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.changes import change
from tests.engine.proof.hosts import Read, source_at_start

__all__ = ["Bug", "bugs_in", "detect", "detect_with_seeds", "found_by", "search", "with_bug"]


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


def bugs_in(file: str, *rows: tuple[str, ...]) -> tuple[Bug, ...]:
    """Return bugs of one file. A row is a name, a text in which "«right→wrong»" marks the change, and any aims."""
    return tuple(Bug(name, file, *change(text), aims=tuple(aims)) for name, text, *aims in rows)


def found_by(machine: str, bugs: Iterable[Bug]) -> tuple[Bug, ...]:
    """Return bugs that this machine must find."""
    return tuple(bug._replace(of=machine) for bug in bugs)


COMPLAINT = (AssertionError,)


def with_bug(bug: Bug | None, read: Read = source_at_start) -> Read:
    """Read the files with a bug, if there is one. Its right text must be there once: otherwise the list is wrong."""

    def changed(name: str) -> str | None:
        text = read(name)
        if bug is None or name != bug.file:
            return text
        if text is None or text.count(bug.right) != 1:
            raise LookupError(f"{name} does not hold {bug.right!r} once")
        return text.replace(bug.right, bug.wrong)

    return changed


def detect(prove: Callable[[], object], complaints: tuple[type[Exception], ...] = COMPLAINT) -> str:
    """Return the complaint of a machine, or an empty text. Any other exception is raised: it finds no bug."""
    try:
        prove()
    except complaints as error:
        return str(error) or type(error).__name__
    return ""


def detect_with_seeds(seeds: Iterable[int], with_bug: Callable[[int], object], without: Callable[[int], object]) -> str:
    """Return how the first of these seeds finds a bug. Without the bug, a run with this seed must have no complaint."""
    for seed in seeds:
        found = detect(lambda: with_bug(seed))  # noqa: B023
        if found:
            wrong = detect(lambda: without(seed))  # noqa: B023
            if wrong:
                raise AssertionError(f"seed {seed} has a complaint without the bug: {wrong}")
            return f"seed {seed}: {found}"
    return ""


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
        found, how = "", "not found"
        try:
            found = find(bug)
        except Exception as error:  # noqa: BLE001 - it finds no bug, but the search goes on with the next one
            how = f"{type(error).__name__}: {error}"
        wrong += not found
        line = f"{bug.name:<66} {time.monotonic() - started:5.1f} s  {(found or how)[:90]}\n"
        sys.stdout.write(line if found else f"WRONG: {line}")
        sys.stdout.flush()
    sys.stdout.write(f"{len(wanted)} searches, {wrong} not as it should be\n")
    return 1 if wrong or not wanted else 0
