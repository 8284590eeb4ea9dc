"""The ways in which programs call a queue: with a task for each message, with endless callers, or in batches.

Each way is measured in two shapes. *In step*, a hundred messages are sent and completed before the next hundred. With a
*backlog*, all messages are sent before the first one is received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from benchmarks.works import ALL, AT_ONCE, PATIENCE, Step, batches, handled_in_groups, sent_by_callers

__all__ = [
    "BACKLOG",
    "BATCHES",
    "CALLERS",
    "IN_STEP",
    "SHAPES",
    "TASKS",
    "WAYS",
    "Batches",
    "Queue",
    "by_batches",
    "by_callers",
    "trip_through",
    "with_tasks",
]

TASKS = f"a task for each send and for each message, {AT_ONCE} at once"
CALLERS = f"{AT_ONCE} endless callers; messages received and handled by hundreds"
BATCHES = f"batches of {AT_ONCE}"
WAYS = (TASKS, CALLERS, BATCHES)

IN_STEP = "in step"
BACKLOG = "backlog"
SHAPES = (IN_STEP, BACKLOG)

SEND = "send"
RECEIVE = "receive, complete"
SLOWEST = 100
"""The lowest credible speed in messages a second. A slower piece of work has lost messages."""


class Batches(Protocol):
    """A queue that takes and gives many messages at once."""

    async def send_all(self, count: int) -> None:
        """Send messages with the fewest possible calls, and wait until all are stored."""

    async def settle_all(self, count: int) -> None:
        """Receive this number of messages and complete all of them, with the fewest possible calls."""


class Queue(Batches, Protocol):
    """A queue that also takes and gives messages one by one."""

    async def send(self) -> None:
        """Send a message and wait until it is stored."""

    async def receive(self, count: int) -> list[Any]:
        """Receive up to this number of messages."""
        ...

    async def complete(self, message: Any) -> None:
        """Complete a message."""

    def consumer(self, start: Callable[[Any], Awaitable[None]]) -> AbstractAsyncContextManager[None]:
        """Consume the queue while the context is open: call ``start`` with one message after the other."""
        ...


class Handlers:
    """Tasks that complete messages, one for each message."""

    def __init__(self, queue: Queue, tasks: asyncio.TaskGroup) -> None:
        self._queue = queue
        self._tasks = tasks
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._left = 0
        self._all_handled = asyncio.Event()

    async def start(self, message: Any) -> None:
        """Wait until fewer than a hundred tasks are under way, and handle a message in a new task."""
        await self._slots.acquire()
        self._tasks.create_task(self._handle(message))

    async def _handle(self, message: Any) -> None:
        try:
            await self._queue.complete(message)
        finally:
            self._slots.release()
        self._left -= 1
        if not self._left:
            self._all_handled.set()

    def expect(self, messages: int) -> None:
        """Set how many messages will come."""
        self._left = messages
        self._all_handled.clear()

    async def handled(self) -> None:
        """Wait until the expected messages have come and are completed."""
        async with asyncio.timeout(PATIENCE + self._left / SLOWEST):
            await self._all_handled.wait()


def with_tasks(queue: Queue, shape: str) -> Mapping[str, Step]:
    """A way with a task that sends each message and a task that completes each message; at most a hundred of each kind.

    In step, the consumer is open all the time. With a backlog, the consumer is opened when all messages are sent.
    """

    async def send(messages: int) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            try:
                await queue.send()
            finally:
                slots.release()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(messages):
                await slots.acquire()
                tasks.create_task(one())

    async def receive(messages: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            handlers = Handlers(queue, tasks)
            handlers.expect(messages)
            async with queue.consumer(handlers.start):
                await handlers.handled()

    async def both(messages: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            handlers = Handlers(queue, tasks)
            async with queue.consumer(handlers.start):
                for count in batches(messages):
                    handlers.expect(count)
                    await send(count)
                    await handlers.handled()

    return {ALL: both} if shape == IN_STEP else {SEND: send, RECEIVE: receive}


def by_callers(queue: Queue, shape: str) -> Mapping[str, Step]:
    """A way with a hundred endless callers. Each makes one send after the other. Messages are handled in hundreds."""
    return _shaped(shape, sent_by_callers(queue.send), handled_in_groups(queue.receive, queue.complete))


def by_batches(queue: Batches, shape: str) -> Mapping[str, Step]:
    """A way with a hundred messages in each call."""

    async def send(messages: int) -> None:
        for count in batches(messages):
            await queue.send_all(count)

    async def receive(messages: int) -> None:
        for count in batches(messages):
            await queue.settle_all(count)

    return _shaped(shape, send, receive)


def _shaped(shape: str, send: Step, receive: Step) -> Mapping[str, Step]:
    async def both(messages: int) -> None:
        for count in batches(messages):
            await send(count)
            await receive(count)

    return {ALL: both} if shape == IN_STEP else {SEND: send, RECEIVE: receive}


async def trip_through(
    queue: Queue, measure: Callable[[Callable[[], Awaitable[float]]], Awaitable[list[float]]]
) -> list[float]:
    """Measure trips of a message, from sending it to the start of its handler.

    The next message is sent when the handler has completed the previous message.
    """
    starts: asyncio.Queue[float] = asyncio.Queue()

    async def handle(message: Any) -> None:
        started = time.perf_counter()
        await queue.complete(message)
        starts.put_nowait(started)

    async def trip() -> float:
        sent = time.perf_counter()
        await queue.send()
        async with asyncio.timeout(PATIENCE):
            return await starts.get() - sent

    async with queue.consumer(handle):
        return await measure(trip)
