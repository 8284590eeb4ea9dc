"""Attempts that several callers wait for together, such as opening the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusError

__all__ = ["MARGIN", "SharedAttempt"]

T = TypeVar("T")
MARGIN = 0.25
"""An attempt ends this number of seconds before its caller's deadline, so that the caller gets the attempt's error."""
_GRACE = 0.05
"""The caller that began an attempt waits this much longer, because the attempt's error explains more than its own."""


class SharedAttempt(Generic[T]):
    """An attempt that is shared by all callers that come while it is under way.

    The attempt runs in a task of its own, because the caller that began it may be cancelled while others wait for it.
    """

    def __init__(self, name: str, late: str, outcome: Outcome, when_over: Callable[[], object] = lambda: None) -> None:
        self._name = name
        self._late = late, outcome
        """The error text and the outcome for a caller whose deadline is over."""
        self._when_over = when_over
        """A function that is called when an attempt ends, unless another attempt has begun meanwhile."""
        self._begun = 0
        """The number of attempts that were begun."""
        self.task: asyncio.Task[T] | None = None
        """The attempt under way, or the last one."""

    @property
    def under_way(self) -> bool:
        """Whether an attempt is under way."""
        return self.task is not None and not self.task.done()

    async def join(self, begin: Callable[[], Coroutine[Any, Any, T]], until: float) -> T:
        """Return the result of the attempt under way, or of a new attempt that ``begin`` makes.

        Wait at most until the loop time ``until``. If an attempt that began before this caller came fails, this caller
        makes another attempt, because the cause may be gone. If a later caller's attempt fails temporarily, this caller
        also makes another attempt, because the later caller may have had less time.
        """
        loop = asyncio.get_running_loop()
        begun_before = self._begun
        while True:
            task, mine = self.task, False
            if task is None or task.done():
                mine = True
                self._begun += 1
                task = self.task = loop.create_task(begin(), name=self._name)
                task.add_done_callback(self._ended)
            is_older = self._begun == begun_before
            await asyncio.wait((task,), timeout=max(0.0, until - loop.time()) + (_GRACE if mine else 0.0))
            if not task.done():
                late, outcome = self._late
                raise OperationTimeoutError(late, outcome=outcome)
            try:
                return task.result()
            except ServiceBusError as error:
                if mine or loop.time() >= until or not (is_older or error.is_transient):
                    raise error.twin() from None

    def _ended(self, attempt: asyncio.Task[Any]) -> None:
        if not attempt.cancelled():
            attempt.exception()  # asyncio would report an error that is never read
        if self.task is attempt:
            self._when_over()
