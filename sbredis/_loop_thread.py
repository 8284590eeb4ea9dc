"""An event loop in a thread: for callers without an event loop, and beside an event loop that may be blocked."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["LoopThread", "fast_loop"]

T = TypeVar("T")


class LoopThread(threading.Thread):
    """A thread that runs an event loop until it is stopped.

    It is a daemon: it does not keep the interpreter alive, and the end of the interpreter ends it wherever it is. It
    belongs to the process that made it. A process that is forked from this one has the object and not the thread.
    """

    def __init__(self, name: str, make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        super().__init__(name=name, daemon=True)
        self.loop = make_loop()
        self.process = os.getpid()
        self.stopping = False
        """Whether the loop starts no more tasks, because the running ones are cancelled."""
        self.ended = Future[None]()
        """Done when the loop is closed, and the thread has nothing left to do but to end."""
        self._last: asyncio.Task[None] | None = None
        """The task that ends the loop. It is kept here because a loop references its tasks only weakly."""

    @property
    def in_other_process(self) -> bool:
        """Whether the thread runs in another process, from which this one was forked."""
        return self.process != os.getpid()

    def start(self) -> None:
        """Start the thread. If that fails, the loop is closed."""
        try:
            super().start()
        except BaseException:
            if self.ident is None:
                self.loop.close()
            else:  # the caller was interrupted
                self.stop()
            raise

    def run(self) -> None:
        """Run the loop. When it ends, cancel the tasks that still run, and close it."""
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.get_loop().run_forever()
                self.stopping = True
        finally:
            self.ended.set_result(None)

    def post(self, callback: Callable[[], object]) -> bool:
        """Schedule a callback in the loop, from any thread. Return whether the loop is not closed yet."""
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, from another thread; return its result, or raise its error.

        If the waiting caller is interrupted, the coroutine is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop soon, without waiting."""
        self.post(self.loop.stop)

    def stop_after(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call a coroutine function in the loop, and end the loop after it, without waiting."""

        async def last() -> None:
            try:
                await function()
            finally:
                self.loop.stop()

        def begin() -> None:
            self._last = self.loop.create_task(last())

        self.post(begin)


def fast_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop: one of uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
