"""The tasks of a duty, and the time that their calls may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbredis.client._failures import BackgroundFailures

__all__ = ["CALLING", "Jobs"]

CALLING = 30.0
"""The seconds after which a call of maintenance gives up. The work is then tried again."""


class Jobs:
    """Tasks that run while their owner does other things. An unexpected error in one of them is only logged."""

    def __init__(self, purpose: str, failures: BackgroundFailures, ended: Callable[[], None]) -> None:
        """``purpose`` begins the text that is logged about an error. ``ended`` is called whenever a task has ended."""
        self._purpose = purpose
        self._failures = failures
        self._when_ended = ended
        self._tasks: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        """Return whether a task is under way."""
        return bool(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.report(self._purpose, error)
        self._when_ended()
