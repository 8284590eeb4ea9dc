"""Check the subjects of the commits that can still be changed: ``python -m tools.check_commits``.

These are the commits of HEAD that are not in any of the commits below. ``BASE`` takes the place of all of them, if the
environment has it: ``make check BASE=main`` checks what a branch adds to ``main``.

- ``BEGINNING``, since which the rule holds.
- The releases: tags whose names begin with ``v`` and a digit.
- The default branch of each remote, whose commits are public.

The check needs the history. In a shallow clone, and in a folder that is no clone, it says so and passes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.repository import ROOT

__all__ = ["LONGEST", "UncheckedHistoryError", "findings", "problems"]

LONGEST = 72
"""The length of a subject that every list of commits shows whole."""

BEGINNING = "413b8a25e55030d222bed5d9ef4d2ce8ac805f02"
"""The last commit with a longer subject."""

LEFTOVERS = ("fixup!", "squash!", "amend!")
"""The marks of commits that ``git rebase --autosquash`` joins with others."""


class UncheckedHistoryError(Exception):
    """There is no history to check; its text says why."""


def git(root: Path, *arguments: str) -> str | None:
    """Return the output of git, or ``None`` if it failed."""
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    return done.stdout if done.returncode == 0 else None


def is_commit(root: Path, name: str) -> bool:
    return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}") is not None


def problems(message: str) -> Iterator[str]:
    """Yield what is wrong with the message of one commit."""
    subject, _, rest = message.partition("\n")
    if len(subject) > LONGEST:
        yield f"its subject has {len(subject)} characters, and {LONGEST} are allowed"
    if rest.strip() and not rest.startswith("\n"):
        yield "an empty line is missing between its subject and its body"
    if subject.startswith(LEFTOVERS):
        yield "it is still to be joined with another one (git rebase --autosquash)"
    if subject.endswith("."):
        yield "its subject ends with a full stop"


def excluded(root: Path, base: str, beginning: str) -> list[str]:
    """Return the commits whose history is not checked."""
    if base:
        if not is_commit(root, base):
            raise ValueError(f"BASE={base} is no commit of this clone")
        return [base]
    patterns = ("refs/tags/v[0-9]*", "refs/remotes/*/HEAD")
    names = (git(root, "for-each-ref", "--format=%(refname)", *patterns) or "").split()
    return [*names, *([beginning] if is_commit(root, beginning) else [])]


def messages(root: Path, base: str, beginning: str) -> dict[str, str]:
    """Return the messages of the commits to check, by their short hashes. Merges are left out: git names them."""
    if shutil.which("git") is None:
        raise UncheckedHistoryError("git is not installed")
    top = git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top.rstrip("\n")).resolve() != root.resolve():
        raise UncheckedHistoryError("git sees no clone in this folder")
    if git(root, "rev-parse", "--is-shallow-repository") != "false\n":
        raise UncheckedHistoryError("this clone is shallow (git fetch --unshallow)")
    if not is_commit(root, "HEAD"):
        raise UncheckedHistoryError("there is no commit")
    without = excluded(root, base, beginning)
    if not without:
        raise UncheckedHistoryError("nothing says where it begins: no release, no remote, and no BASE=…")
    listed = git(root, "log", "--no-merges", "-z", "--format=%h %B", "HEAD", "--not", *without) or ""
    return dict(commit.split(" ", 1) for commit in listed.split("\0") if commit)


def findings(root: Path, base: str = "", beginning: str = BEGINNING) -> tuple[int, list[str]]:
    """Return the number of the commits that were checked, and a line for each problem."""
    checked = messages(root, base, beginning)
    lines = [
        f"{name} {problem}: {message.partition(chr(10))[0]}"
        for name, message in checked.items()
        for problem in problems(message)
    ]
    return len(checked), lines


def main() -> int:
    try:
        number, lines = findings(ROOT, os.environ.get("BASE", ""))
    except UncheckedHistoryError as reason:
        print(f"no commit was checked: {reason}")
        return 0
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(*(lines or [f"the messages of {number} commits are well-formed"]), sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
