"""Describe in words how a process has ended. Pure."""

from __future__ import annotations

import signal

__all__ = ["ending_of"]


def ending_of(code: int) -> str:
    """Say what an exit code means; a negative one is the number of a signal."""
    if code >= 0:
        return f"the exit code {code}"
    try:
        return f"the signal {signal.Signals(-code).name}"
    except ValueError:  # most of the real-time signals have no names
        return f"the signal {-code}"
