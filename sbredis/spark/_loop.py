"""One event loop and one client for each server in a process of Spark.

Spark reuses its Python processes for many tasks, so a connection is opened once and not for each task. The loop runs in
a thread of its own, because Spark's own thread blocks in the methods that Spark calls. A process that was forked from
another one gets a loop of its own.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from sbredis._loop_thread import LoopThread, fast_loop
from sbredis.aio import ServiceBusClient
from sbredis.spark._secrets import Server

__all__ = ["ahead", "beside", "client_of", "close_clients", "run"]

T = TypeVar("T")
_AHEAD = 2
"""The number of pages that a reader fetches before Spark has taken them."""


class _SparkThread(LoopThread):
    """The event loop of this process, and the clients in it."""

    def __init__(self) -> None:
        super().__init__("sbredis spark", fast_loop)
        self.clients: dict[Server, ServiceBusClient] = {}


_lock = threading.Lock()
_current: list[_SparkThread] = []


def _loop() -> _SparkThread:
    with _lock:
        if not _current or _current[0].in_other_process:
            _current[:] = [_SparkThread()]
            _current[0].start()
        return _current[0]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run work in the event loop of this process, and return its result."""
    return _loop().call(work)


def beside(owner: object, work: Coroutine[Any, Any, None]) -> Callable[[], object]:
    """Run work in the event loop beside everything else, at most as long as ``owner`` lives.

    The work must not refer to its owner. Call the result to end the work before.
    """
    task = asyncio.get_running_loop().create_task(work)
    end = weakref.finalize(owner, _cancel, task)
    end.atexit = False  # the loop ends with the process
    return end


def _cancel(task: asyncio.Task[None]) -> None:
    task.get_loop().call_soon_threadsafe(task.cancel)


async def client_of(server: Server) -> ServiceBusClient:
    """Return the client for a server. All tasks of this process share it, and it stays open as long as the process."""
    clients = _loop().clients
    if server not in clients:
        if _in_task():
            logging.getLogger("sbredis.transport").addFilter(_is_news)
        clients[server] = ServiceBusClient(server.url, namespace=server.namespace)
    return clients[server]


def _in_task() -> bool:
    """Return whether this process runs a task of Spark, on an executor."""
    pyspark = sys.modules.get("pyspark")  # jobs that need no Spark use this module too
    return pyspark is not None and pyspark.TaskContext.get() is not None


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether the driver has not logged the same. It has logged what the servers may lose."""
    return not record.getMessage().startswith("durability=")


def close_clients() -> None:
    """Close the clients of this process. The next use of a server opens a client again."""
    run(_closed(_loop().clients))


async def _closed(clients: dict[Server, ServiceBusClient]) -> None:
    while clients:
        await clients.popitem()[1].close()


def ahead(pages: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
    """Yield the pages of an asynchronous iterator. The next pages are fetched while Spark works on the current one."""
    queue: asyncio.Queue[tuple[T | None, BaseException | None]] = asyncio.Queue(_AHEAD)

    async def fetch() -> None:
        try:
            async for page in pages():
                await queue.put((page, None))
        except Exception as error:  # noqa: BLE001  # the caller raises it
            await queue.put((None, error))
            return
        await queue.put((None, None))

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(fetch())

    task = run(begin())
    try:
        while True:
            page, error = run(queue.get())
            if error is not None:
                raise error
            if page is None:
                return
            yield page
    finally:
        _cancel(task)
