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


class SharedAttempt(Generic[T]):
    """An attempt at something that all who come meanwhile wait for together.

    It runs in a task of its own: the caller who began it may be cancelled while others wait for it.
    """

    def __init__(self, name: str, late: str) -> None:
        self._name = name
        self._late = late
        """What a caller is told whose time is over."""
        self.task: asyncio.Task[T] | None = None
        """The attempt that is under way, or the last one."""

    @property
    def under_way(self) -> bool:
        """Whether somebody may wait for it now."""
        return self.task is not None and not self.task.done()

    async def join(self, begin: Callable[[], Coroutine[Any, Any, T]], until: float) -> T:
        """Return what the attempt under way brings, or one that ``begin`` begins, by the time ``until`` of the loop.

        If one that another caller began fails because that caller had less time, this one begins another.
        """
        loop = asyncio.get_running_loop()
        mine = not self.under_way
        if mine:
            self.task = loop.create_task(begin(), name=self._name)
            self.task.add_done_callback(_looked_at)
        assert self.task is not None
        try:
            async with asyncio.timeout_at(until):
                return await asyncio.shield(self.task)
        except TimeoutError:
            raise OperationTimeoutError(self._late, outcome=Outcome.NEVER_SENT) from None
        except ServiceBusError as error:
            if mine or not error.is_transient or loop.time() + MARGIN >= until:
                raise error.twin() from None
        return await self.join(begin, until)


def _looked_at(attempt: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not attempt.cancelled():
        attempt.exception()
