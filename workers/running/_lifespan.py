"""The lifespan of a worker: the application's code around its work, which may take only so long to begin and to end."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, TypeVar

from sbredis.exceptions import OperationTimeoutError, Outcome, WorkerSetupError
from sbredis.workers.declaring._worker_options import Lifespan
from sbredis.workers.running._tracebacks import for_the_log

__all__ = ["BoundedLifespan", "lifespan_of"]

T = TypeVar("T")

_log = logging.getLogger("sbredis.worker")
_CANCELLING: Final = 5.0
"""The seconds that a lifespan gets to end after it was cancelled."""


class BoundedLifespan(AbstractAsyncContextManager[Any]):
    """A lifespan that is cancelled if it takes too long to begin or to end.

    A lifespan that blocks the event loop, or goes on although it was cancelled, cannot be ended. Only a program can end
    with it: ``stuck`` is then called, in a thread.
    """

    def __init__(
        self, made: AbstractAsyncContextManager[Any], seconds: float, stuck: Callable[[], None] | None
    ) -> None:
        self._made = made
        self._seconds = seconds
        self._stuck = stuck
        self._thread = threading.get_ident()

    async def __aenter__(self) -> Any:
        return await self._within("begin", self._made.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> bool | None:
        return await self._within("end", self._made.__aexit__(kind, error, frames))

    async def _within(self, what: str, work: Awaitable[T]) -> T:
        watch = threading.Timer(self._seconds + _CANCELLING, self._give_up, (what,))
        watch.daemon = True
        if self._stuck is not None:
            watch.start()
        cancelled: asyncio.CancelledError | None = None
        try:
            async with asyncio.timeout(self._seconds):
                try:
                    return await work
                except asyncio.CancelledError as error:
                    cancelled = error
                    raise
        except TimeoutError:
            if cancelled is None:
                raise
            _log.error(
                "the lifespan of the worker was cancelled here: %s", self._late(what), exc_info=for_the_log(cancelled)
            )
            raise OperationTimeoutError(self._late(what), outcome=Outcome.NEVER_SENT) from None
        finally:
            watch.cancel()

    def _late(self, what: str) -> str:
        return f"The lifespan of the worker did not {what} within {self._seconds:g} s (lifespan_timeout)."

    def _give_up(self, what: str) -> None:
        """End the program, which the lifespan does not let end. Called in a thread."""
        assert self._stuck is not None
        stack = "".join(traceback.format_stack(sys._current_frames()[self._thread]))
        _log.error("the process ends at once: %s It cannot be cancelled:\n%s", self._late(what), stack)
        self._stuck()


def lifespan_of(
    lifespan: Lifespan, worker: object, seconds: float, stuck: Callable[[], None] | None
) -> BoundedLifespan:
    """Return the lifespan of a worker. Raise if the function has made something else."""
    made: Any = lifespan(worker)
    if inspect.iscoroutine(made):
        made.close()  # it is never awaited
    if not isinstance(made, AbstractAsyncContextManager):
        raise WorkerSetupError(
            f"lifespan must return an asynchronous context manager, not {type(made).__name__}: write an async def with "
            "a yield, and decorate it with @contextlib.asynccontextmanager."
        )
    found: AbstractAsyncContextManager[Any] = made
    return BoundedLifespan(found, seconds, stuck)
