"""Tests that handlers share a task only as long as no handler can notice it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from types import coroutine
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Context
from sbredis.workers.running import _starting
from sbredis.workers.running._starting import SharedTask, new_task
from tests.workers.looking import send_to, worker_of

NAME: ContextVar[str] = ContextVar("NAME", default="unset")


class Works:
    """Items that are worked on by one function, and what happened to them."""

    def __init__(self, work: Callable[[int], Awaitable[None]]) -> None:
        self._work = work
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.busy: dict[asyncio.Task[None], int] = {}
        self.errors: dict[int, Exception] = {}

    async def work_on(self, item: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks[item] = task
        await self._work(item)

    def began(self, task: asyncio.Task[None], item: int) -> None:
        self.busy[task] = item

    def ended(self, task: asyncio.Task[None]) -> None:
        del self.busy[task]

    def failed(self, item: int, error: Exception) -> None:
        self.errors[item] = error

    def start_alone(self, item: int) -> None:
        task = new_task(asyncio.get_running_loop(), self.work_on(item))
        self.busy[task] = item
        task.add_done_callback(self.busy.pop)

    async def run(self, count: int) -> Works:
        """Work on this number of items, and wait until all work has ended."""
        work: Coroutine[Any, Any, None] = SharedTask(self, deque(range(count))).run()
        task = new_task(asyncio.get_running_loop(), work)
        await asyncio.wait({task})
        while self.busy:
            await asyncio.wait(set(self.busy))
        return self


async def test_work_that_does_not_wait_shares_a_task() -> None:
    async def work(item: int) -> None:
        pass

    works = await Works(work).run(5)
    assert list(works.tasks) == [0, 1, 2, 3, 4]
    assert len(set(works.tasks.values())) == 1


async def test_when_one_waits_the_others_get_tasks_of_their_own_and_all_wait_at_once() -> None:
    met = asyncio.Event()
    waiting: list[int] = []

    async def work(item: int) -> None:
        if item == 0:
            return
        waiting.append(item)
        if len(waiting) == 4:
            met.set()
        await met.wait()

    works = await Works(work).run(5)
    assert works.tasks[0] is works.tasks[1]
    assert len(set(works.tasks.values())) == 4


async def test_a_time_out_ends_the_work_that_has_set_it() -> None:
    ended: dict[int, str] = {}

    async def work(item: int) -> None:
        try:
            async with asyncio.timeout(0 if item in (1, 3) else 60):
                if item:
                    await asyncio.sleep(0 if item in (2, 4) else 3600)
        except TimeoutError:
            ended[item] = "late"
        else:
            ended[item] = "done"

    await Works(work).run(5)
    assert ended == {0: "done", 1: "late", 2: "done", 3: "late", 4: "done"}


async def test_a_context_variable_does_not_pass_to_the_next_work() -> None:
    seen: list[str] = []

    async def work(item: int) -> None:
        seen.append(NAME.get())
        if item % 2:
            NAME.set(f"{item}")

    await Works(work).run(5)
    assert seen == ["unset"] * 5
    assert NAME.get() == "unset"


async def test_a_context_variable_that_was_reset_leaves_the_task_shared() -> None:
    async def work(item: int) -> None:
        NAME.reset(NAME.set(f"{item}"))

    works = await Works(work).run(5)
    assert len(set(works.tasks.values())) == 1


async def test_work_that_cancels_its_task_does_not_cancel_the_others() -> None:
    ended: list[int] = []

    async def work(item: int) -> None:
        if item == 1:
            works.tasks[1].cancel()
        elif item == 3:
            raise asyncio.CancelledError
        await asyncio.sleep(0)
        ended.append(item)

    works = Works(work)
    await works.run(5)
    assert sorted(ended) == [0, 2, 4]


async def test_work_without_a_wait_that_cancels_its_task_leaves_the_task() -> None:
    async def work(item: int) -> None:
        if item == 1:
            works.tasks[1].cancel()

    works = Works(work)
    await works.run(5)
    assert sorted(works.tasks) == [0, 1, 2, 3, 4]
    assert works.tasks[0] is works.tasks[1]
    assert not {works.tasks[1]} & {works.tasks[2], works.tasks[3], works.tasks[4]}


async def test_an_error_is_reported_and_the_others_go_on() -> None:
    async def work(item: int) -> None:
        if item == 3:
            await asyncio.sleep(0)
        if item % 2:
            raise LookupError(item)

    works = await Works(work).run(4)
    assert sorted(works.tasks) == [0, 1, 2, 3]
    assert [str(error) for error in works.errors.values()] == ["1", "3"]


async def test_a_cancellation_from_outside_reaches_the_work_that_waits() -> None:
    cancelled: list[int] = []
    begun = asyncio.Event()

    async def work(item: int) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(item)
            raise

    works = Works(work)
    task = new_task(asyncio.get_running_loop(), SharedTask(works, deque([0])).run())
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})
    assert cancelled == [0]
    assert task.cancelled()
    assert not works.busy


@pytest.mark.parametrize("options", [{}, {"batch": 1, "batch_wait": 0}], ids=["single", "batch"])
async def test_the_lock_of_a_handler_is_renewed_from_its_first_step_on(
    sbredis_bus: Bus, options: dict[str, Any]
) -> None:
    """The first step may block the event loop for longer than the lock, and a thread renews the lock meanwhile."""
    worker, renewed, both = await worker_of(sbredis_bus, "orders"), dict[str, bool](), asyncio.Event()

    @worker.queue("orders", **options)
    async def place(context: Context) -> None:
        consumer: Any = worker._running().services[0].consumer
        renewed[str(context.message)] = any(each is context.message for each in consumer.renewables())
        if len(renewed) == 2:
            both.set()
        await both.wait()  # so the other handler gets a task of its own

    await send_to(sbredis_bus, "orders", [ServiceBusMessage("one"), ServiceBusMessage("two")])
    async with worker.running():
        await both.wait()
    assert renewed == {"one": True, "two": True}


def test_a_coroutine_that_ended_before_does_not_disturb_the_end_of_its_task() -> None:
    """At the end of a program, Python closes coroutines in any order."""

    @coroutine
    def waiting() -> Generator[None]:
        yield

    async def work() -> None:
        await waiting()

    inner = work()
    outer: Any = _starting._rest_of(inner, inner.send(None))
    outer.send(None)
    inner.close()
    outer.close()
