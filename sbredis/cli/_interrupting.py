"""Blocks without ``await`` that Ctrl-C and SIGTERM end: questions to the user, and writing to a slow reader."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Terminated", "ending_at_once", "interruption"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM has ended a block."""


@contextmanager
def ending_at_once() -> Generator[list[int]]:
    """Let Ctrl-C and SIGTERM end the block at once. asyncio only notes them, and acts when the block has ended.

    A command without an event loop that reacts to them in its own way is left alone. The block gets the list of
    signals that have come. They raise what :func:`interruption` returns.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def end(number: int, _: FrameType | None) -> None:
        came.append(number)
        raise interruption(number)

    before = [(number, handler) for number in _SIGNALS if _is_replaced(handler := signal.getsignal(number))]
    try:
        for number, _ in before:
            signal.signal(number, end)
        yield came
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _is_replaced(handler: object) -> bool:
    if handler is signal.default_int_handler:
        return True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return callable(handler)


def interruption(number: int) -> KeyboardInterrupt:
    """Return what a signal raises."""
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
