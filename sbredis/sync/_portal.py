"""The way from threads without an event loop into the one event loop of a client, and back.

The loop runs in a thread of its own, which begins with the first call. A call costs one entry in the list of what the
loop is to do, and one lock that the caller waits for. What is called runs in the context of its caller
(:mod:`contextvars`), so that a span of the caller is the parent of the client's.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from sbredis._call_site import Line, calling_line, warn_of_line
from sbredis.exceptions import Outcome, ServiceBusError

__all__ = ["Portal"]

P = ParamSpec("P")
T = TypeVar("T")
_Close = Callable[[], Coroutine[Any, Any, None]]
_CLOSED = "The client is closed, and with it all its senders and receivers: make another one."


class _Call(Generic[T]):
    """Something to be done in the event loop, and a thread that waits for it."""

    __slots__ = ("begun", "done", "ended", "error", "left", "make", "result", "task", "unwanted", "worker")

    result: T

    def __init__(
        self, make: Callable[[], Awaitable[T]], unwanted: Callable[[T], object] | None, worker: _Worker
    ) -> None:
        self.make = make
        self.unwanted = unwanted
        """What becomes of a result that nobody waits for any more."""
        self.worker = worker
        self.error: BaseException | None = None
        self.done = threading.Lock()
        """Held until there is a result or an error. A lock is the cheapest thing that can be waited for."""
        self.done.acquire()
        self.left: threading.Lock | None = None
        """Held, once the caller was interrupted, until nothing of the call is left."""
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.ended = False

    def begin(self) -> None:
        """Do it, in the loop."""
        if self.worker.stopping:
            self.abort()
            return
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        self.begun = True
        try:
            self.result = await self.make()
        except BaseException as error:  # noqa: BLE001  # the caller's
            self.error = error
        # Not by a callback of the task, which would come a round of the loop later.
        self.end()
        if self.left is not None:
            self._leave()

    def withdraw(self) -> None:
        """The caller was interrupted: end it, in the loop."""
        if self.task is not None and not self.ended:
            self.task.cancel()
            if self.begun:
                return  # it leaves when it has ended
            self.error = asyncio.CancelledError()  # it never begins now
            self.end()
        self._leave()

    def _leave(self) -> None:
        self.worker.calls.discard(self)
        left, self.left = self.left, None
        if left is None:
            return
        try:
            if self.task is not None and self.error is None and self.unwanted is not None:
                self.unwanted(self.result)
        finally:
            left.release()

    def end(self) -> None:
        """Tell the caller, if he was not told."""
        if not self.ended:
            self.ended = True
            self.worker.calls.discard(self)
            self.done.release()

    def abort(self) -> None:
        """The loop ends, or has ended."""
        if not self.ended:
            self.error = ValueError(_CLOSED) if self.task is None else asyncio.CancelledError()
            self.end()
        if self.left is not None:
            self.left.release()


class _Worker(threading.Thread):
    """The thread with the event loop. A daemon: a client that was forgotten does not keep the interpreter alive."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.loop = _event_loop()
        self.calls: set[_Call[Any]] = set()
        """Those that somebody waits for."""
        self.stopping = False
        self.over = False
        self.last: asyncio.Task[None] | None = None
        """Held here, as a loop holds its tasks weakly."""

    def run(self) -> None:
        """What the thread does. Who waits for a call when the loop ends is told so, whenever he began to wait."""
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.get_loop().run_forever()
                self.stopping = True  # the runner cancels what runs: nothing else may begin
        finally:
            self.over = True
            for call in list(self.calls):
                call.abort()

    def begin(self, call: _Call[Any]) -> None:
        """Have a call begun. It is noted first: from then on it ends, even if the loop does."""
        self.calls.add(call)
        try:
            self.post(call.begin)
        except ValueError:
            self.calls.discard(call)
            raise

    def post(self, callback: Callable[[], object]) -> None:
        """Have something done in the loop, and do not wait for it."""
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:  # it is closed
            raise ValueError(_CLOSED) from None

    def withdraw(self, call: _Call[Any]) -> None:
        """Cancel a call, and wait until that is done."""
        left = threading.Lock()
        left.acquire()
        call.left = left
        self.calls.add(call)
        try:
            self.post(call.withdraw)
        except ValueError:
            self.calls.discard(call)
            return
        left.acquire()

    def stop(self) -> None:
        """End the loop, in a moment."""
        with suppress(ValueError):
            self.post(self.loop.stop)

    def close_and_stop(self, close: _Close) -> None:
        """End the loop after ``close``, and do not wait for that."""

        async def last() -> None:
            try:
                await close()
            finally:
                self.loop.stop()

        def begin() -> None:
            self.last = self.loop.create_task(last())

        with suppress(ValueError):
            self.post(begin)


class Portal:
    """Calls from any thread into the event loop of one client.

    Everything that users hold of the client holds the portal; when nobody does any more, and it was not closed, the
    client is closed in its place, with a :class:`ResourceWarning`. It belongs to the process that first calls through
    it: the parts of a client are numbered so that a call is never done twice, and two processes must not go on from the
    same number. Before that it may be forked, and each process has a portal of its own then.
    """

    def __init__(self, name: str, close: _Close) -> None:
        self._name = name
        self._close = close
        self._made_at = calling_line()
        self._lock = threading.Lock()
        self._process: int | None = None
        """The one in which the loop runs, once it does."""
        self._worker: _Worker | None = None
        self._closed = False
        self._forgotten: Callable[[], object] = lambda: None
        _portals.add(self)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is being closed."""
        return self._closed

    def call(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a coroutine function returns, or raises.

        Who is interrupted while he waits, for instance by :class:`KeyboardInterrupt`, cancels it and waits for its end.
        """
        return self._do(partial(function, *args, **kwargs), None)

    def bring(
        self,
        unwanted: Callable[[T], object],
        function: Callable[P, Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The same; a result that comes in the moment in which the caller is interrupted is given to ``unwanted``."""
        return self._do(partial(function, *args, **kwargs), unwanted)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a plain function returns, or raises, that is to run in the loop."""

        async def made() -> T:
            return function(*args, **kwargs)

        return self._do(made, None)

    def make(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a plain function returns, or raises, that makes something and starts nothing.

        It runs in the loop, if that runs, and here otherwise: so what is made may be forked, until it is used.
        """
        with self._lock:
            if self._worker is None:
                self._check_open()
                return function(*args, **kwargs)
        return self.run(function, *args, **kwargs)

    def finish(self, function: _Close) -> None:
        """The same as :meth:`call` for what ends something, and has ended with the client or in another process."""
        if self._is_elsewhere or (self._worker is None and self._closed):
            return
        try:
            self._do(function, None)
        except ValueError:
            if self._worker is not None and not self._worker.over:
                raise

    def post(self, callback: Callable[[], object]) -> None:
        """Have something done in the loop, and do not wait for it."""
        self._working().post(callback)

    def close(self) -> None:
        """Close the client, end the loop and wait for its thread. In another process this does nothing."""
        if self._is_elsewhere:
            return
        with self._lock:
            worker, first, self._closed = self._worker, not self._closed, True
        if worker is None:
            return
        try:
            if first and not worker.over:
                self._forgotten()  # no longer needed
                self._do(self._close, None)
        finally:
            if first:
                worker.stop()
            if worker.ident != threading.get_ident():
                worker.join()

    def _do(self, make: Callable[[], Awaitable[T]], unwanted: Callable[[T], object] | None) -> T:
        worker = self._worker
        if worker is None or self._is_elsewhere:
            worker = self._working()
        if worker.ident == threading.get_ident():
            raise RuntimeError(
                "This runs in the event loop of the client, and would wait for itself: call it from another thread."
            )
        call = _Call(make, unwanted, worker)
        try:
            worker.begin(call)
            call.done.acquire()
        except BaseException:
            worker.withdraw(call)
            raise
        # An interruption is noticed after a call of a function. There is none from here to the caller's next line, so
        # that what was brought is not lost on the way.
        if call.error is None:
            return call.result
        error, call.error = call.error, None
        try:
            if isinstance(error, asyncio.CancelledError):
                raise ServiceBusError("The client was closed meanwhile.", outcome=Outcome.UNKNOWN) from None
            raise error
        finally:
            del error  # it holds this frame

    def free(self) -> None:
        """Have nobody hold its lock, in a child of a process in which somebody may."""
        self._lock = threading.Lock()

    @property
    def _is_elsewhere(self) -> bool:
        """Whether its loop runs in another process, from which this one was forked."""
        return self._process is not None and self._process != os.getpid()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(_CLOSED)

    def _working(self) -> _Worker:
        if self._is_elsewhere:
            raise RuntimeError(
                f"The client was used in process {self._process} and cannot be used in process {os.getpid()}, which "
                "was forked from there: make another one in each process, after the fork (in gunicorn: in the hook "
                "post_fork), or do not use it before the fork."
            )
        with self._lock:
            if self._worker is None:
                self._check_open()
                worker = _Worker(self._name)
                try:
                    worker.start()
                except BaseException:
                    if worker.ident is None:
                        worker.loop.close()
                    else:
                        worker.stop()
                    raise
                self._worker, self._process = worker, os.getpid()
                finalizer = weakref.finalize(self, _close_forgotten, worker, self._close, self._process, self._made_at)
                finalizer.atexit = False
                self._forgotten = finalizer.detach
            return self._worker


def _close_forgotten(worker: _Worker, close: _Close, process: int, made_at: Line) -> None:
    if process == os.getpid() and not worker.over:
        worker.close_and_stop(close)
        warn_of_line(f"A client was not closed: {worker.name}", ResourceWarning, made_at)


_portals: weakref.WeakSet[Portal] = weakref.WeakSet()


def _free_locks() -> None:
    """Another thread of the parent may have held one in the moment of the fork."""
    for portal in list(_portals):
        portal.free()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)


def _event_loop() -> asyncio.AbstractEventLoop:
    """One of uvloop's where that is installed: nobody but us can choose here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
