"""Work that several callers wait for together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusError

__all__ = ["MARGIN", "SharedAttempt"]

T = TypeVar("T")
MARGIN = 0.25
"""Seconds before the deadline of a caller at which an attempt ends, so that its error says what is in the way."""
_GRACE = 0.05
"""For so many seconds more the caller who began an attempt waits for its error, which says more than "too late"."""


class SharedAttempt(Generic[T]):
    """An attempt at something that all who come meanwhile wait for together.

    It runs in a task of its own: the caller who began it may be cancelled while others wait for it.
    """

    def __init__(self, name: str, late: str, outcome: Outcome, when_over: Callable[[], object] = lambda: None) -> None:
        self._name = name
        self._late = late, outcome
        """What a caller is told whose time is over."""
        self._when_over = when_over
        """Called when an attempt has ended that was the last one until then."""
        self._begun = 0
        """How many attempts were begun."""
        self.task: asyncio.Task[T] | None = None
        """The attempt that is under way, or the last one."""

    @property
    def under_way(self) -> bool:
        """Whether somebody may wait for it now."""
        return self.task is not None and not self.task.done()

    async def join(self, begin: Callable[[], Coroutine[Any, Any, T]], until: float) -> T:
        """Return what the attempt under way brings, or one that ``begin`` begins, by the time ``until`` of the loop.

        An attempt that was begun before this caller came may succeed for it, but not fail: things may have changed
        since then. Nor does one fail for it that another caller began who had less time.
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
            attempt.exception()  # those who wait for it learn of it, and if nobody does, it is no defect
        if self.task is attempt:
            self._when_over()
