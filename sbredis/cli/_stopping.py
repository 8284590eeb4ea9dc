"""Ctrl-C and SIGTERM: they let long work end in a good state, and end a block without ``await`` at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

__all__ = ["Stop", "Terminated", "ending_at_once", "interruption", "to_a_good_end"]

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """A wish to end, which the work sees between two of its steps."""

    def __init__(self) -> None:
        self._wished = asyncio.Event()
        self._callbacks: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return self._wished.is_set()

    def wish(self) -> None:
        """Ask the work to end."""
        self._wished.set()
        for callback in self._callbacks:
            callback()

    def call(self, callback: Callable[[], object]) -> None:
        """Call a function when the work is asked to end, or now if it was already."""
        self._callbacks.append(callback)
        if self:
            callback()

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Generator[None]:
        """Call a function if the work is asked to end while the block runs, or was asked before."""
        self.call(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    async def unless(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of work that may be cancelled at any moment, or ``None`` if the command is interrupted."""
        task, wished = asyncio.ensure_future(work), asyncio.ensure_future(self._wished.wait())
        try:
            await asyncio.wait({task, wished}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            wished.cancel()
            task.cancel()

    async def sleep(self, seconds: float) -> None:
        """Sleep until the time is over or the work is to end."""
        try:
            async with asyncio.timeout(seconds):
                await self._wished.wait()
        except TimeoutError:
            pass


async def to_a_good_end(work: Callable[[Stop], Coroutine[Any, Any, None]]) -> None:
    """Run work in steps that are not interrupted.

    When the command is interrupted, the work is asked to stop, and the command waits until it has. A second Ctrl-C ends
    the command at once.
    """
    stop = Stop()
    task = asyncio.ensure_future(work(stop))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise
        stop.wish()
        await task
        raise


# -- questions to the user, and writing to a slow reader ---------------------------------------------------------------


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
