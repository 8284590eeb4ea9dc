"""The command in a process of its own, for tests that send signals to it."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self

__all__ = ["Child"]


class Child:
    """A run of the command. It is killed if the test fails."""

    def __init__(
        self, *arguments: str, code: str = "", stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE
    ) -> None:
        """``code`` is run in the place of the command's module, with the same arguments."""
        command = [sys.executable, *(["-c", code] if code else ["-m", "sbredis.cli"]), *arguments]
        self.process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is not None:
            self.process.kill()
        self.process.__exit__(kind, None, None)

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for the end. Return the exit code and what was written to stderr."""
        _, shown = self.process.communicate(timeout=60)
        return self.process.returncode, shown
