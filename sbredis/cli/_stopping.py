"""Long work that ends in a good state when the command is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["Stop", "to_a_good_end"]

T = TypeVar("T")


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
