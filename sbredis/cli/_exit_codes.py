"""The exit codes of the command. They stay the same across releases, so that scripts can rely on them.

Every command imports this module first, so it imports nothing that takes time.
"""

from __future__ import annotations

import enum
import sys

__all__ = ["ExitCode", "interrupted_before_work"]


class ExitCode(enum.IntEnum):
    """What the command reports to the shell."""

    DONE = 0
    FAILED = 1
    """The server refused the operation, a part of the work failed, or the user answered a question with no. The output
    says how much was done.
    """
    USAGE = 2
    """An argument, a file or a setting is wrong. Nothing was changed."""
    DIFFERENT = 3
    """Done, and the answer is not the usual one: no message came, a plan has changes, or a check has warnings."""
    CRITICAL = 4
    """A check has found something that can lose messages or stop the service."""
    UNREACHABLE = 5
    """No server answered in time, or it did not answer any more."""
    INTERRUPTED = 130
    """Ctrl-C. The last line says how far the command came."""
    BROKEN_PIPE = 141
    """The reader of the output has gone."""
    TERMINATED = 143
    """SIGTERM. The last line says how far the command came."""


def interrupted_before_work() -> ExitCode:
    """Say that Ctrl-C came before the command had begun its work, and return the exit code."""
    below = "\n" if sys.stderr.isatty() else ""  # the terminal has shown ^C
    print(f"{below}interrupted before anything was done", file=sys.stderr)  # noqa: T201 -- it is a program
    return ExitCode.INTERRUPTED
