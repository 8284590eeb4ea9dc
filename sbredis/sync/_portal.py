"""The way from threads without an event loop to the one event loop of a client, and back.

A call costs one entry in the loop's list of what to do, and one lock that the caller waits for. What is called runs in
the context of the caller (:mod:`contextvars`), so that its span is the parent of the client's.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, ParamSpec, Self, TypeVar

from sbredis.exceptions import Outcome, ServiceBusError

__all__ = ["Portal"]

P = ParamSpec("P")
T = TypeVar("T")


class _Call(Generic[T]):
    """Something to be done in the event loop, and a thread that waits for it."""

    __slots__ = ("done", "ended", "error", "make", "result", "task", "unwanted", "withdrawn")

    result: T

    def __init__(self, make: Callable[[], Awaitable[T]], unwanted: Callable[[T], object] | None) -> None:
        self.make = make
        self.unwanted = unwanted
        """What becomes of a result that came when nobody waited for it any more."""
        self.error: BaseException | None = None
        self.done = threading.Lock()
        """Held until there is a result or an error. A lock is the cheapest thing to wait for."""
        self.done.acquire()
        self.task: asyncio.Task[None] | None = None
        self.ended = self.withdrawn = False

    # -- in the loop ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start it, unless the caller has left already."""
        if self.ended:
            return
        self.task = asyncio.get_running_loop().create_task(self.run())

    async def run(self) -> None:
        """Do it. The caller is told from here, not by a callback of the task, which would come a round later."""
        try:
            self.result = await self.make()
        except BaseException as error:  # noqa: BLE001  # the caller's
            self.error = error
        self.end()
        if self.withdrawn and self.error is None and self.unwanted is not None:
            self.unwanted(self.result)

    def withdraw(self) -> None:
        """The caller was interrupted."""
        self.withdrawn = True
        if self.task is None:
            return
        if not self.ended:
            self.task.cancel()
        elif self.error is None and self.unwanted is not None:
            self.unwanted(self.result)

    def end(self) -> None:
        """Tell the caller."""
        if not self.ended:
            self.ended = True
            self.done.release()
