"""Reading the end of a server's log, for errors that quote it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["tail_of"]

_MOST = 16_384


def tail_of(log: Path, start: int = 0, lines: int = 20) -> str:
    """Return the last lines of ``log`` after the byte ``start``; empty if there is no log to read."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(min(start, size), size - _MOST))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
