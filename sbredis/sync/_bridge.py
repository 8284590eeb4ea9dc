"""Run calls from threads without an event loop in the one event loop of a client.

The loop runs in a thread of its own, which starts with the first call. A call needs one callback in the loop, and one
lock on which the caller waits. A call runs in the context of its caller (:mod:`contextvars`), so that a span of the
caller is the parent of the client's spans.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from sbredis._call_site import Line, calling_line, warn_of_line
from sbredis._loop_thread import LoopThread, fast_loop
from sbredis.exceptions import Outcome, ServiceBusError

__all__ = ["Bridge"]

P = ParamSpec("P")
T = TypeVar("T")
_Close = Callable[[], Coroutine[Any, Any, None]]
_CLOSED = "The client is closed, and so are all its senders and receivers: make another client."


class _LoopCall(Generic[T]):
    """A call in the event loop, and the thread that waits for it."""

    __slots__ = ("begun", "cleaned_up", "done", "ended", "error", "make", "result", "task", "thread", "undo")

    result: T

    def __init__(
        self, make: Callable[[], Awaitable[T]], undo: Callable[[T], object] | None, thread: _CallThread
    ) -> None:
        self.make = make
        self.undo = undo
        """A function that undoes a result, for a result that arrives when the caller no longer waits."""
        self.thread = thread
        self.error: BaseException | None = None
        self.done = threading.Lock()
        """A lock that is held until there is a result or an error. A lock is the cheapest object to wait for."""
        self.done.acquire()
        self.cleaned_up: threading.Lock | None = None
        """A lock for a caller that was interrupted. It is held until the call has ended and its result is undone."""
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.ended = False

    def begin(self) -> None:
        """Start the call. This runs in the loop."""
        if self.thread.stopping:
            self.abort()
            return
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        self.begun = True
        try:
            self.result = await self.make()
        except BaseException as error:  # noqa: BLE001  # the caller raises the error
            self.error = error
        # Do this here, because a callback of the task would run only in the next turn of the loop.
        self.end()
        if self.cleaned_up is not None:
            self._clean_up()

    def withdraw(self) -> None:
        """End the call of an interrupted caller. This runs in the loop."""
        if self.task is not None and not self.ended:
            self.task.cancel()
            if self.begun:
                return  # _run() cleans up when it ends
            self.error = asyncio.CancelledError()  # _run() sets no error if the task is cancelled before its start
            self.end()
        self._clean_up()

    def _clean_up(self) -> None:
        self.thread.calls.discard(self)
        cleaned_up, self.cleaned_up = self.cleaned_up, None
        if cleaned_up is None:
            return
        try:
            if self.task is not None and self.error is None and self.undo is not None:
                self.undo(self.result)
        finally:
            cleaned_up.release()

    def end(self) -> None:
        """Wake the caller, unless it was woken already."""
        if not self.ended:
            self.ended = True
            self.thread.calls.discard(self)
            self.done.release()

    def abort(self) -> None:
        """End the call because the loop ends, or has ended."""
        if not self.ended:
            self.error = ValueError(_CLOSED) if self.task is None else asyncio.CancelledError()
            self.end()
        if self.cleaned_up is not None:
            self.cleaned_up.release()


class _CallThread(LoopThread):
    """The thread with the event loop, and the calls that it runs for waiting callers.

    :meth:`LoopThread.call` is not enough here: it takes two callbacks in the loop for each call, cannot undo a result
    that nobody waits for, and leaves callers waiting whose calls come while the loop ends.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, fast_loop)  # this loop is internal, so the application cannot choose one
        self.calls: set[_LoopCall[Any]] = set()
        """The calls for which a caller waits."""

    def run(self) -> None:
        """Run the loop. When the loop ends, end all calls that have a waiting caller, even calls that came too late."""
        try:
            super().run()
        finally:
            for call in list(self.calls):
                call.abort()

    def begin(self, call: _LoopCall[Any]) -> None:
        """Register a call, and start it in the loop. If the loop ends, the registered calls end too."""
        self.calls.add(call)
        if not self.post(call.begin):
            self.calls.discard(call)
            raise ValueError(_CLOSED)

    def withdraw(self, call: _LoopCall[Any]) -> None:
        """Cancel a call, and wait until it has ended."""
        cleaned_up = threading.Lock()
        cleaned_up.acquire()
        call.cleaned_up = cleaned_up
        self.calls.add(call)
        if self.post(call.withdraw):
            cleaned_up.acquire()
        else:
            self.calls.discard(call)


class Bridge:
    """Runs calls from any thread in the event loop of one client.

    Every public object of the client has a reference to the bridge. If the last reference is dropped before the bridge
    is closed, the client is closed with a :class:`ResourceWarning`. A bridge belongs to the process that makes the
    first call through it. A client numbers its calls so that no call runs twice, and two processes must not continue
    with the same numbers. Before the first call the process may fork; then each process has its own bridge.
    """

    def __init__(self, name: str, close: _Close) -> None:
        self._name = name
        self._close = close
        self._made_at = calling_line()
        self._lock = threading.Lock()
        self._thread: _CallThread | None = None
        self._closed = False
        self._detach_finalizer: Callable[[], object] = lambda: None
        _bridges.add(self)

    @property
    def closed(self) -> bool:
        """Whether the bridge is closed, or is being closed."""
        return self._closed

    def call(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function in the loop; return its result, or raise its error.

        If the waiting caller is interrupted, for instance by :class:`KeyboardInterrupt`, the call is cancelled, and the
        caller waits for its end.
        """
        return self._do(partial(function, *args, **kwargs), None)

    def call_undoable(
        self,
        undo: Callable[[T], object],
        function: Callable[P, Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do the same as :meth:`call`. If the caller is interrupted when a result arrives, ``undo`` gets the result."""
        return self._do(partial(function, *args, **kwargs), undo)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a plain function in the loop; return its result, or raise its error."""

        async def made() -> T:
            return function(*args, **kwargs)

        return self._do(made, None)

    def make(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a plain function that makes an object and starts nothing; return its result, or raise its error.

        The function runs in the loop if the loop is running. Otherwise it runs in the thread of the caller, and starts
        no loop. So the process may fork before it uses the object.
        """
        with self._lock:
            if self._thread is None:
                self._check_open()
                return function(*args, **kwargs)
        return self.run(function, *args, **kwargs)

    def finish(self, function: _Close) -> None:
        """Run a function that closes an object. Do nothing if the client is closed or belongs to another process."""
        if self._in_other_process or (self._thread is None and self._closed):
            return
        try:
            self._do(function, None)
        except ValueError:
            if self._thread is not None and not self._thread.ended.done():
                raise

    def post(self, callback: Callable[[], object]) -> None:
        """Schedule a callback in the loop, and do not wait for it."""
        if not self._running_thread().post(callback):
            raise ValueError(_CLOSED)

    def close(self) -> None:
        """Close the client, end the loop and wait for its thread. In another process this does nothing."""
        if self._in_other_process:
            return
        with self._lock:
            thread, first, self._closed = self._thread, not self._closed, True
        if thread is None:
            return
        try:
            if first and not thread.ended.done():
                self._detach_finalizer()  # the client is being closed by its user, so no warning is needed
                self._do(self._close, None)
        finally:
            if first:
                thread.stop()
            if thread.ident != threading.get_ident():
                thread.join()

    def _do(self, make: Callable[[], Awaitable[T]], undo: Callable[[T], object] | None) -> T:
        thread = self._thread
        if thread is None or self._in_other_process:
            thread = self._running_thread()
        if thread.ident == threading.get_ident():
            raise RuntimeError(
                "This call was made in the event loop of the client, and would wait for itself: make it from another "
                "thread."
            )
        call = _LoopCall(make, undo, thread)
        try:
            thread.begin(call)
            call.done.acquire()
        except BaseException:
            thread.withdraw(call)
            raise
        # Python handles an interruption only after a function call. There is no function call between here and the
        # caller's next line, so an interruption cannot lose the result.
        if call.error is None:
            return call.result
        error, call.error = call.error, None
        try:
            if isinstance(error, asyncio.CancelledError):
                raise ServiceBusError("The client was closed meanwhile.", outcome=Outcome.UNKNOWN) from None
            raise error
        finally:
            del error  # the error references this frame, which would reference the error

    def reset_lock(self) -> None:
        """Replace the lock, in a forked process: in the parent, another thread may have held it."""
        self._lock = threading.Lock()

    @property
    def _in_other_process(self) -> bool:
        """Whether the loop runs in another process, from which this one was forked."""
        return self._thread is not None and self._thread.in_other_process

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(_CLOSED)

    def _running_thread(self) -> _CallThread:
        if self._thread is not None and self._thread.in_other_process:
            raise RuntimeError(
                f"The client was used in process {self._thread.process}, and cannot be used in process {os.getpid()}, "
                "which was forked from it. Make another client in each process, after the fork (in gunicorn: in the "
                "hook post_fork), or do not use this client before the fork."
            )
        with self._lock:
            if self._thread is None:
                self._check_open()
                thread = _CallThread(self._name)
                thread.start()
                self._thread = thread
                finalizer = weakref.finalize(self, _close_forgotten, thread, self._close, self._made_at)
                finalizer.atexit = False
                self._detach_finalizer = finalizer.detach
            return self._thread


def _close_forgotten(thread: _CallThread, close: _Close, made_at: Line) -> None:
    if not thread.in_other_process and not thread.ended.done():
        thread.stop_after(close)
        warn_of_line(f"A client was not closed: {thread.name}", ResourceWarning, made_at)


_bridges: weakref.WeakSet[Bridge] = weakref.WeakSet()


def _reset_locks() -> None:
    """Replace the locks in a forked process: other threads of the parent may have held them during the fork."""
    for bridge in list(_bridges):
        bridge.reset_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_locks)
