"""The part of a traceback that belongs to the application."""

from __future__ import annotations

import asyncio
import concurrent
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["from_the_handler"]

_OURS: Final = (
    str(Path(__file__).parents[2]),  # sbredis
    *(module.__path__[0] for module in (asyncio, concurrent)),
    contextlib.__file__,
)
"""The beginnings of the file names of frames that lead to a handler."""


def from_the_handler(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return an error for the log, without the frames of the worker that lead to the handler."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OURS):
        frame = frame.tb_next
    return type(error), error, frame or error.__traceback__
