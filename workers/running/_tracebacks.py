"""The part of a traceback that belongs to the application."""

from __future__ import annotations

import asyncio
import concurrent
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from sbredis.exceptions import ServiceBusError

__all__ = ["SaysEverything", "for_the_log"]

_log = logging.getLogger("sbredis.worker")
_OURS: Final = str(Path(__file__).parents[2]) + os.sep
"""The beginning of the file names of sbredis."""
_LEADING: Final = (_OURS, *(module.__path__[0] + os.sep for module in (asyncio, concurrent)), contextlib.__file__)
"""The beginnings of the file names of frames that lead to a handler."""


class SaysEverything(Exception):  # noqa: N818 -- a mark beside the class of an error
    """Marks an error of another process: its text says everything, and its traceback here has only our frames."""


def for_the_log(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return an error as the ``exc_info`` of a line of the log: without the frames of sbredis.

    They stay at the level DEBUG. They also stay if there are no others, because then sbredis may have a defect; but not
    if the error is one that sbredis raises on purpose. The error itself keeps its traceback.
    """
    whole = error.__traceback__
    if _log.isEnabledFor(logging.DEBUG):
        return type(error), error, whole
    theirs = _of_the_application(whole)
    if theirs is None and not isinstance(error, (ServiceBusError, TimeoutError, SaysEverything)):
        theirs = whole
    return type(error), error, theirs


def _of_the_application(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_LEADING):
        traceback = traceback.tb_next
    theirs = [each for each in _frames(traceback) if not each.tb_frame.f_code.co_filename.startswith(_OURS)]
    found: TracebackType | None = None
    for each in reversed(theirs):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
