"""Give warnings that point at the caller's line outside sbredis, however deep inside sbredis they are issued."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Line", "calling_line", "warn_caller", "warn_of_line"]

_INSIDE: Final = str(Path(__file__).absolute().parent) + os.sep


class Line(NamedTuple):
    """A line of source code."""

    file: str
    number: int


def calling_line() -> Line:
    """Return the innermost line outside sbredis in the call stack, or the outermost line if all are inside."""
    return _caller()[0]


def warn_caller(message: str, category: type[Warning]) -> None:
    """Issue a warning that points at the innermost line outside sbredis in the call stack."""
    warnings.warn(message, category, stacklevel=_caller()[1])


def warn_of_line(message: str, category: type[Warning], line: Line) -> None:
    """Issue a warning that points at a line that was recorded earlier."""
    warnings.warn_explicit(message, category, line.file, line.number)


def _caller() -> tuple[Line, int]:
    """Return the line, and the ``stacklevel`` of the line as seen from the caller of this function."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # `warnings` and `logging` use it too
    level = 1
    while frame.f_code.co_filename.startswith(_INSIDE) and frame.f_back is not None:
        frame = frame.f_back
        level += 1
    return Line(frame.f_code.co_filename, frame.f_lineno), level
