"""Tests of the ways in which the benchmarks call a queue: all messages are sent and completed, with few enough calls at
a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchmarks.ways import BACKLOG, IN_STEP, by_batches, by_callers, trip_through, with_tasks


class CountingQueue:
    """A queue in memory that counts the concurrent calls."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[int] = asyncio.Queue()
        self.sent = 0
        self.completed: list[int] = []
        self.calls = 0
        self.most = {"send": 0, "complete": 0, "waiting": 0}
        self._under_way = {"send": 0, "complete": 0}

    async def _call(self, kind: str) -> None:
        self.calls += 1
        self._under_way[kind] += 1
        self.most[kind] = max(self.most[kind], self._under_way[kind])
        for _ in range(3):
            await asyncio.sleep(0)
        self._under_way[kind] -= 1

    def _put(self, count: int) -> None:
        for _ in range(count):
            self.waiting.put_nowait(self.sent)
            self.sent += 1
        self.most["waiting"] = max(self.most["waiting"], self.waiting.qsize())

    async def send(self) -> None:
        await self._call("send")
        self._put(1)

    async def send_all(self, count: int) -> None:
        await self._call("send")
        self._put(count)

    async def receive(self, count: int) -> list[int]:
        return [self.waiting.get_nowait() for _ in range(min(count, self.waiting.qsize()))]

    async def settle_all(self, count: int) -> None:
        await self._call("complete")
        self.completed += await self.receive(count)

    async def complete(self, message: int) -> None:
        await self._call("complete")
        self.completed.append(message)

    @asynccontextmanager
    async def consumer(self, start: Callable[[Any], Awaitable[None]]) -> AsyncGenerator[None]:
        async def consume() -> None:
            while True:
                await start(await self.waiting.get())

        async with asyncio.TaskGroup() as tasks:
            consuming = tasks.create_task(consume())
            yield
            consuming.cancel()


WAYS = {"tasks": with_tasks, "callers": by_callers, "batches": by_batches}


@pytest.mark.parametrize("shape", [IN_STEP, BACKLOG])
@pytest.mark.parametrize("way", WAYS)
async def test_every_message_is_sent_and_completed_once(way: str, shape: str) -> None:
    queue = CountingQueue()
    for step in WAYS[way](queue, shape).values():
        await step(250)
    assert queue.sent == 250
    assert sorted(queue.completed) == list(range(250))


@pytest.mark.parametrize("way", WAYS)
async def test_in_step_at_most_a_hundred_messages_wait_and_with_a_backlog_all_of_them_wait(way: str) -> None:
    for shape, expected in ((IN_STEP, range(1, 101)), (BACKLOG, range(250, 251))):
        queue = CountingQueue()
        for step in WAYS[way](queue, shape).values():
            await step(250)
        assert queue.most["waiting"] in expected


@pytest.mark.parametrize(("way", "at_once", "calls"), [("tasks", 100, 500), ("callers", 100, 500), ("batches", 1, 6)])
async def test_at_most_a_hundred_calls_run_at_the_same_time(way: str, at_once: int, calls: int) -> None:
    queue = CountingQueue()
    for step in WAYS[way](queue, BACKLOG).values():
        await step(250)
    assert (queue.most["send"], queue.most["complete"], queue.calls) == (at_once, at_once, calls)


async def test_a_measured_trip_ends_when_its_handler_starts_and_the_next_begins_after_the_handler() -> None:
    queue = CountingQueue()
    completed_before: list[int] = []

    async def measure(trip: Callable[[], Awaitable[float]]) -> list[float]:
        taken: list[float] = []
        for _ in range(3):
            completed_before.append(len(queue.completed))
            taken.append(await trip())
        return taken

    taken = await trip_through(queue, measure)
    assert completed_before == [0, 1, 2]
    assert len(taken) == 3
    assert min(taken) > 0
