"""Threads for plain functions. They do not keep the program alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["Threads"]

T = TypeVar("T")
_Work = tuple["Future[Any]", Callable[[], Any]]


class Threads(Executor):
    """A pool of daemon threads, which are started when they are needed.

    Python waits at its end for the threads of a :class:`~concurrent.futures.ThreadPoolExecutor`. A plain function that
    does not end would so keep a program alive that was told to end.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a function in a thread, when one is free."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("The worker has ended: no more functions run in its threads.")
            self._waiting.put((future, lambda: fn(*args, **kwargs)))
            if not self._idle.acquire(blocking=False) and self._count < self._most:
                self._count += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._count}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end when their functions have. Waits for no thread."""
        del wait
        with self._lock:
            self._closed = True
            while cancel_futures and not self._waiting.empty():
                if (work := self._waiting.get()) is not None:
                    work[0].cancel()
            for _ in range(self._count):
                self._waiting.put(None)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            future, function = work
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:  # noqa: BLE001 -- it is raised where the future is awaited
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del work, future, function  # nothing is kept alive while the thread waits
            self._idle.release()
