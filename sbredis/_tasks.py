"""Tasks, waits and the running loop: a group of tasks that can be cancelled, work that cannot, a wait with an end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

__all__ = ["TaskScope", "ended", "loop_time", "running_loop", "to_the_end", "wait_until"]


def loop_time() -> float:
    """Return the time of the running event loop. anyio has such a function, but its first use takes 20 ms."""
    return asyncio.get_running_loop().time()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs here, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class TaskScope:
    """A group of tasks that ends with its block. :meth:`cancel` ends only the tasks, and not the block."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._group.__aexit__(kind, error, traceback)

    def start(self, work: Coroutine[Any, Any, None]) -> bool:
        """Start a task. In a cancelled scope, the task is cancelled at its first wait.

        Returns whether the task was started. No task is started if the block has ended, or is ending because of an
        error.
        """
        try:
            task = self._group.create_task(work, name=getattr(work, "__qualname__", None))
        except RuntimeError:
            work.close()
            return False
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._cancelled:
            self._loop.call_soon(task.cancel)
        return True

    def cancel(self) -> None:
        """Cancel all tasks. A task that was just started runs up to its first wait, so it can clean up."""
        self._cancelled = True
        for task in self._tasks:
            self._loop.call_soon(task.cancel)


async def ended(task: asyncio.Future[Any]) -> None:
    """Wait until a task ends, even if the caller is cancelled. The cancellation is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # asyncio would log an error that no code retrieves
        raise cancelled


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, even if the caller is cancelled. The cancellation is raised afterwards."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no loop runs: the caller is garbage-collected after its event loop has ended
        work.close()
        raise
    task = loop.create_task(work)
    await ended(task)
    task.result()


async def wait_until(event: asyncio.Event, at: float) -> None:
    """Wait until an event is set, or until a time of the event loop. The time may be infinite."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(None if at == math.inf else at):
            await event.wait()
