"""Groups of tasks that are cancelled together, work that is never cut off, and work in threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sbredis._tasks import TaskScope, ended, to_the_end
from sbredis._threads import in_thread
from tests.waiting import eventually


class Work:
    """Work that records its progress."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def waits(self) -> None:
        """Wait until the task is cancelled."""
        self.said.append("begun")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.said.append("cleaned up")

    async def breaks(self) -> None:
        raise ZeroDivisionError


async def test_a_cancelled_scope_ends_its_tasks_and_does_not_cancel_its_block() -> None:
    work = Work()
    async with TaskScope() as tasks:
        tasks.start(work.waits())
        await asyncio.sleep(0)
        tasks.cancel()
        work.said.append("block")
        await asyncio.sleep(0)
        work.said.append("goes on")
    assert sorted(work.said) == ["begun", "block", "cleaned up", "goes on"]


async def test_a_task_that_is_cancelled_right_after_its_start_cleans_up_too() -> None:
    """Otherwise callers that wait for this cleanup would wait for ever."""
    work = Work()
    async with TaskScope() as tasks:
        tasks.start(work.waits())
        tasks.cancel()
        tasks.start(work.waits())
    assert work.said == ["begun", "begun", "cleaned up", "cleaned up"]


async def test_a_scope_that_has_ended_starts_no_task() -> None:
    work = Work()
    async with TaskScope() as tasks:
        pass
    tasks.start(work.waits())
    await asyncio.sleep(0)
    assert work.said == []


async def test_an_unexpected_error_in_one_task_ends_the_other_tasks_and_the_block() -> None:
    work = Work()

    async def block() -> None:
        async with TaskScope() as tasks:
            tasks.start(work.waits())
            tasks.start(work.breaks())
            await asyncio.get_running_loop().create_future()

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert caught.group_contains(ZeroDivisionError)
    assert work.said == ["begun", "cleaned up"]


async def test_protected_work_ends_normally_although_its_caller_is_cancelled() -> None:
    goes_on, done = asyncio.Event(), list[str]()

    async def work() -> None:
        await goes_on.wait()
        done.append("work")

    caller = asyncio.create_task(to_the_end(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["work"]


async def test_an_error_at_the_end_of_the_work_reaches_a_caller_that_still_waits() -> None:
    with pytest.raises(ZeroDivisionError):
        await to_the_end(Work().breaks())


async def test_waiting_for_the_end_of_a_task_does_not_cancel_it() -> None:
    future = asyncio.get_running_loop().create_future()
    caller = asyncio.create_task(ended(future))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    assert not future.done()
    future.set_exception(ZeroDivisionError())
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_thread_returns_a_result_and_does_not_delay_a_cancelled_caller() -> None:
    assert await in_thread(lambda: 5) == 5
    begun, goes_on = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return goes_on.wait(200)

    caller = asyncio.create_task(in_thread(work))
    await eventually(begun.is_set)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not goes_on.is_set()
    goes_on.set()
