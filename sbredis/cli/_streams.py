"""The standard streams of the process, some of which may be closed."""

from __future__ import annotations

import os
import sys

__all__ = ["replace_closed_streams"]


def replace_closed_streams() -> bool:
    """Open the null device in place of a closed stdin or stderr. Return whether stdout is open.

    Python has no object for a stream that is closed, and a file or a socket could get its descriptor.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 -- it stays open
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    return sys.stdout is not None
