"""Remarks about entities that cannot be read: the client logs them, and the command prints them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

__all__ = ["remarking"]


class _Remarks(logging.Handler):
    """Prints the warnings of a logger as remarks."""

    def __init__(self, remark: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._remark = remark
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning, unless it was printed before."""
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            self._remark(text)


@contextmanager
def remarking(remark: Callable[[str], None]) -> Generator[None]:
    """Print a remark about each entity that is left out because its record cannot be read, while the block runs."""
    log, handler = logging.getLogger("sbredis.registry"), _Remarks(remark)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
