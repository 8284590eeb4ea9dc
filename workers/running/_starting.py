"""Start coroutines at a low cost: in a shared task as long as they end without waiting, and eagerly where Python can.

A handler that does not wait needs no task of its own: many such handlers run one after the other in one task. The task
of a handler must not change while the handler runs, because time-outs and cancel scopes refer to it. So the handler
that waits first keeps the shared task, and the others get tasks of their own. Nothing passes from one handler to the
next: the shared task is left as soon as a handler has changed a context variable, or was asked to cancel its task.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["SharedTask", "new_task"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
Work = Coroutine[Any, Any, None]

if sys.version_info >= (3, 12):

    def new_task(loop: asyncio.AbstractEventLoop, work: Work) -> asyncio.Task[None]:
        """Run a coroutine in a task. Its first step runs at once."""
        return asyncio.Task(work, loop=loop, eager_start=True)
else:

    def new_task(loop: asyncio.AbstractEventLoop, work: Work) -> asyncio.Task[None]:
        """Run a coroutine in a task."""
        return loop.create_task(work)


class Owner(Protocol[T_contra]):
    """The owner of the items that a shared task works on."""

    def work_on(self, item: T_contra, /) -> Work:
        """Return the coroutine that works on an item."""
        ...

    def began(self, task: asyncio.Task[None], item: T_contra) -> None:
        """Note that a task works on an item now, and no longer on the one before."""
        ...

    def ended(self, task: asyncio.Task[None]) -> None:
        """Note that a task no longer works on any item."""
        ...

    def failed(self, item: T_contra, error: Exception) -> None:
        """Report an error that the work on an item has raised."""
        ...

    def start_alone(self, item: T_contra) -> None:
        """Work on an item in a task of its own."""
        ...


class SharedTask(Generic[T]):
    """Works on many items in one task, as long as the work ends without waiting."""

    def __init__(self, owner: Owner[T], items: deque[T]) -> None:
        self._owner = owner
        self._items = items

    async def run(self) -> None:
        """Work on all items that do not wait, and on the first one that does."""
        task = asyncio.current_task()
        assert task is not None
        owner, items, context = self._owner, self._items, copy_context()

        def hand_over() -> None:
            context.run(self._hand_over)  # the new tasks begin with the context of this one

        try:
            while items:
                item = items.popleft()
                owner.began(task, item)
                work = owner.work_on(item)
                try:
                    awaited = work.send(None)
                    hand_over()  # the work waits
                    await _rest_of(work, awaited)
                except StopIteration:
                    pass
                except Exception as error:  # noqa: BLE001 -- the other items go on
                    owner.failed(item, error)
                if items and (task.cancelling() or copy_context() != context):
                    break
        finally:
            owner.ended(task)
            if items:
                hand_over()

    def _hand_over(self) -> None:
        items = self._items
        while items:
            self._owner.start_alone(items.popleft())


@coroutine
def _rest_of(work: Work, awaited: Any) -> Generator[Any, Any, None]:
    """Run the rest of a coroutine, which waits for something, in the present task."""
    while True:
        step: Callable[[Any], Any] = work.send
        try:
            value = yield awaited
        except GeneratorExit:  # the program ends, and its garbage may have ended the coroutine before
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001 -- a cancellation is for the coroutine
            step, value = work.throw, error
        try:
            awaited = step(value)
        except StopIteration:
            return
