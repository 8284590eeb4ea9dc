"""The output to a terminal that shows a live line at its bottom."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, TextIO

__all__ = ["CLEAR", "AboveLine", "above_the_line", "terminal"]

CLEAR: Final = "\r\x1b[K"
"""Clears the line that the cursor is in."""


class AboveLine:
    """A stream that clears the live line before each line that is written. The live line is then shown again below."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._at_start = True

    def write(self, text: str) -> int:
        """Write a text, which may begin or end in the middle of a line."""
        if text:
            self.stream.write(CLEAR + text if self._at_start else text)
            self._at_start = text.endswith("\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def terminal() -> TextIO | None:
    """Return the stream for the live line; ``None`` if the standard error output is no terminal."""
    stream = sys.stderr.stream if isinstance(sys.stderr, AboveLine) else sys.stderr
    return stream if stream.isatty() else None


@contextmanager
def above_the_line() -> Generator[None]:
    """Let everything that this process writes to a terminal appear above the live line while the block runs.

    The processes of a supervisor write to its terminal, too.
    """
    before = sys.stdout, sys.stderr
    if terminal() is not None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream.isatty() and not isinstance(stream, AboveLine):
                setattr(sys, name, AboveLine(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
