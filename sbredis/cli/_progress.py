"""How far a long command has come: shown on a terminal, and said when the command is interrupted."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from sbredis._counting import counted

__all__ = ["ProgressCounter"]

_PERIOD = 0.1  # seconds between two showings


class ProgressCounter:
    """Counts what a command has done. Use it as a context manager around the work.

    On a terminal that can rewrite a line, stderr shows the count while it grows. With ``beside_output`` it does not,
    because the work writes to the same terminal. If the work is interrupted or fails, a line on stderr says how far it
    came.
    """

    def __init__(
        self,
        verb: str,
        noun: str = "message",
        total: int | None = None,
        *,
        plural: str | None = None,
        beside_output: bool = False,
    ) -> None:
        self.count = 0
        self._verb, self._noun, self._plural, self._total = verb, noun, plural, total
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not beside_output
        self._shown_at = 0.0
        self._asks = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._is_shown:
            self._write("\r\x1b[K")
        if kind is None or issubclass(kind, BrokenPipeError) or self._asks:
            return
        interrupted = issubclass(kind, asyncio.CancelledError | KeyboardInterrupt)
        if self.count or interrupted:
            how = "interrupted" if interrupted else "stopped"
            self._write(f"{how}: {self}\n")

    def __str__(self) -> str:
        if self._total is None:
            return f"{self._verb} {counted(self.count, self._noun, self._plural)}"
        return f"{self._verb} {self.count:,} of {counted(self._total, self._noun, self._plural)}"

    def add(self, count: int = 1) -> None:
        """Count more."""
        self.reach(self.count + count, self._total)

    def reach(self, count: int, total: int | None) -> None:
        """Note how much is done, and of how much."""
        self.count, self._total = count, total
        if self._is_shown and (now := time.monotonic()) - self._shown_at >= _PERIOD:
            self._shown_at = now
            self._write(f"\r\x1b[K{self}")

    @contextmanager
    def asking(self) -> Generator[None]:
        """Ask the user in the block. If it is interrupted, only the question says so."""
        self._asks = True
        yield
        self._asks = False  # not if an exception leaves the block

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
