"""Warnings that point at the line of whoever called sbredis, however deep inside it they are given."""

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
    """The innermost line outside sbredis that led here; the outermost inside where there is none."""
    return _caller()[0]


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn of the line outside sbredis that led here."""
    warnings.warn(message, category, stacklevel=_caller()[1])


def warn_of_line(message: str, category: type[Warning], line: Line) -> None:
    """Warn of another line, which led to this earlier."""
    warnings.warn_explicit(message, category, line.file, line.number)


def _caller() -> tuple[Line, int]:
    """The line, and how many calls lie between it and the caller of this function, as ``stacklevel`` counts them."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # what `warnings` and `logging` use too
    level = 1
    while frame.f_code.co_filename.startswith(_INSIDE) and frame.f_back is not None:
        frame = frame.f_back
        level += 1
    return Line(frame.f_code.co_filename, frame.f_lineno), level
