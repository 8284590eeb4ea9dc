"""Work in the background for which no caller waits: its tasks, and what becomes of its failures.

Such work never ends the client. An error is logged, and the work is tried again after a pause. Only a cancellation ends
it: the client is closed, or its owner needs the work no more.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from sbredis.client._pauses import Pauses
from sbredis.exceptions import DataLayoutError, ServiceBusConnectionError, ServiceBusError

__all__ = ["CALLING", "BackgroundFailures", "BackgroundTasks"]

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_PAUSE = 1.0
"""The seconds after an error that is expected now and then, such as a server that is down."""
_MOST: Final = 1000


class BackgroundFailures:
    """Logs the failures of a client's work in the background, each cause once, and tries the work again."""

    def __init__(self, log: logging.Logger, closed: Callable[[], bool]) -> None:
        """``closed`` returns whether the client is closed. An error after that is a consequence of the closing."""
        self._log = log
        self._closed = closed
        self._causes: set[tuple[object, ...]] = set()

    def report(self, what: str, error: BaseException) -> None:
        """Log that ``what`` has failed. An error that should not happen is logged with its traceback."""
        if self._closed():
            self._log.debug("%s has ended, because the client was closed: %s", what, error)
        elif isinstance(error, DataLayoutError):
            level = logging.WARNING if self._is_new((error.message,)) else logging.DEBUG
            self._log.log(level, "%s waits: %s", what, error)
        elif isinstance(error, ServiceBusError):
            unreachable = isinstance(error, ServiceBusConnectionError)  # the transport logs once that it is
            self._log.log(logging.DEBUG if unreachable else logging.INFO, "%s waits: %s", what, error)
        elif self._is_new((what, *_cause(error))):
            self._log.error("%s failed because of a defect, and is tried again", what, exc_info=error)
        else:
            self._log.debug("%s failed again because of a defect: %r", what, error)

    def guard(self, what: str, function: Callable[[], object]) -> None:
        """Call a function. If it fails, only log that."""
        try:
            function()
        except Exception as error:  # noqa: BLE001 -- no defect may end the work of the caller
            self.report(what, error)

    async def attempt(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do some work once. If it fails, only log that."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- no defect may end the client
            self.report(what, error)

    async def tend(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do some work until it ends by itself. If it fails, begin it again after a pause, which grows."""
        loop, pauses = asyncio.get_running_loop(), Pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            began = loop.time()
            try:
                await work()
            except Exception as error:  # noqa: BLE001 -- no defect may end the work
                self.report(what, error)
                if loop.time() - began > _LONGEST_PAUSE:
                    pauses.reset()
                await asyncio.sleep(_PAUSE if isinstance(error, ServiceBusError) else pauses.next())
            else:
                return

    def _is_new(self, cause: tuple[object, ...]) -> bool:
        """Remember a cause. Return whether it was not known."""
        if cause in self._causes:
            return False
        if len(self._causes) >= _MOST:
            self._causes.clear()
        self._causes.add(cause)
        return True


def _cause(error: BaseException) -> tuple[object, ...]:
    """Return the class of an error and the line that raised it. Of a group of errors, take the first one."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return type(error), *((frame.filename, frame.lineno) for frame in frames)


CALLING = 30.0
"""The seconds after which a call of maintenance gives up. The work is then tried again."""


class BackgroundTasks:
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

    async def wait(self) -> None:
        """Wait until one of the tasks has ended."""
        await asyncio.wait(list(self._tasks), return_when=asyncio.FIRST_COMPLETED)

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
