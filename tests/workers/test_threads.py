"""Tests of plain functions, whose threads cannot be ended: what they are told, and what becomes of their messages."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusReceiver
from sbredis.testing import Bus
from sbredis.workers import SyncContext, Worker
from tests.waiting import eventually, wait_until
from tests.workers.looking import dead, empty, send_to, worker_of
from tests.workers.parts import Parts, begun_with


async def test_a_thread_that_takes_too_long_is_told_and_its_outcome_counts(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    worker, told = await worker_of(sbredis_bus, "orders"), list[int]()

    @worker.queue("orders", timeout=0.02)
    def place(context: SyncContext) -> None:
        while not context.timed_out:
            time.sleep(0.001)
        told.append(context.attempt)

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: worker._running().report().counts["orders"].completed == 1)
    assert told == [1]
    assert "has run for longer than its time-out of 0.02 s for message 1, and runs on" in caplog.text


async def test_a_coroutine_that_takes_too_long_has_failed(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=1)

    @worker.queue("orders", timeout=0.02)
    async def place() -> None:
        await asyncio.sleep(3600)

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: dead(sbredis_bus, 1))
    (letter,) = await sbredis_bus.dead_lettered("orders")
    assert letter.dead_letter_reason == "TimeoutError"


@pytest.mark.parametrize("requires_session", [False, True])
async def test_a_thread_that_does_not_end_is_not_given_back_at_the_end(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, requires_session: bool
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=requires_session, shutdown_timeout=0)
    begun, end = threading.Event(), threading.Event()
    told: list[bool] = []

    @worker.queue("orders")
    def place(context: SyncContext) -> None:
        begun.set()
        end.wait(60)
        told.append(context.lock_lost)

    async with begun_with(worker, Parts(cancelling=0.05)):
        await worker.send("orders", b"", session_id="a")
        await eventually(begun.is_set)
    assert len(await sbredis_bus.locked("orders")) == 1
    assert "still runs in its thread, which cannot be ended" in caplog.text
    end.set()
    await eventually(lambda: told == [True])


async def test_a_thread_that_ends_just_after_the_time_for_shutdown_keeps_its_outcome(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", shutdown_timeout=0)
    begun, end = threading.Event(), threading.Event()

    @worker.queue("orders")
    def place() -> None:
        begun.set()
        end.wait(60)

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(begun.is_set)
        asyncio.get_running_loop().call_later(0.05, end.set)  # the worker ends at once
    assert await empty(sbredis_bus)


async def test_the_time_of_a_plain_function_begins_when_a_thread_is_free(sbredis_bus: Bus) -> None:
    worker, told = await worker_of(sbredis_bus, "orders", threads=1), list[tuple[str, bool]]()

    @worker.queue("orders", timeout=1, max_concurrent_calls=2)
    def place(text: str, context: SyncContext) -> None:
        told.append((text, context.timed_out))
        if len(told) == 1:
            wait_until(lambda: context.timed_out)
            told.append((text, context.timed_out))

    async with worker.running():
        await send(sbredis_bus, "one", "two")
        await eventually(lambda: len(told) == 3)
    assert told == [("one", False), ("one", True), ("two", False)]


@pytest.mark.parametrize("requires_session", [False, True])
async def test_plain_functions_that_wait_for_a_thread_at_the_end_are_given_back_at_once(
    sbredis_bus: Bus, requires_session: bool
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=requires_session, threads=1)
    let_go, begun = threading.Event(), list[str]()

    @worker.queue("orders", max_concurrent_calls=3)
    def place(text: str) -> None:
        begun.append(text)
        let_go.wait(60)

    running = asyncio.create_task(worker.run())
    await eventually(lambda: worker._runtime is not None and worker._runtime._state == "running")
    await send(sbredis_bus, "one", "two", "three")
    await eventually(lambda: begun and worker._running().report().counts["orders"].running == 3)
    worker.stop()
    again: list[Any] = []
    for _ in range(2):
        receiver = await next_receiver(sbredis_bus, requires_session)
        again += await receiver.receive_messages(1, 60)
    assert not running.done()
    let_go.set()
    await running
    assert sorted([*begun, *map(str, again)]) == ["one", "three", "two"]
    assert [(message.delivery_count, message.interrupted) for message in again] == [(1, False)] * 2


async def test_a_plain_function_whose_lock_was_lost_before_a_thread_was_free_is_not_called(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", threads=1, max_concurrent_calls=2)
    let_go, called = threading.Event(), list[tuple[str, int]]()

    @worker.queue("orders")
    def place(text: str, context: SyncContext) -> None:
        called.append((text, context.attempt))
        let_go.wait(60)

    async with worker.running():
        await send(sbredis_bus, "one", "two")
        counts = worker._running().report().counts["orders"]
        await eventually(lambda: called and counts.running == 2)
        consumer: Any = worker._running().services[0].consumer
        (waiting,) = [message for message in consumer.renewables() if str(message) != called[0][0]]
        token = str(waiting.lock_token)
        await sbredis_bus.client.get_settler("orders").abandon_message(token)  # as if the lock had ended
        assert consumer.lost(waiting)
        await eventually(lambda: counts.received == 3)
        let_go.set()
        await eventually(lambda: empty(sbredis_bus))
    assert sorted(count for _, count in called) == [1, 2]


@pytest.mark.parametrize(("threads", "warned"), [(31, True), (32, False)])
async def test_fewer_threads_than_plain_functions_are_worth_a_warning(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, threads: int, warned: bool
) -> None:
    worker = Worker(sbredis_bus.url, threads=threads)

    def place() -> None: ...
    async def wait() -> None: ...

    worker.queue("one", create_if_missing=True)(place)
    worker.queue("two", create_if_missing=True)(place)
    worker.queue("three", create_if_missing=True)(wait)
    async with worker.running():
        pass
    assert ("up to 32 plain functions at once, but the worker has 31 threads" in caplog.text) == warned


async def send(bus: Bus, *texts: str) -> None:
    """Send messages, each to a session of its own."""
    await send_to(bus, "orders", [ServiceBusMessage(text, session_id=text) for text in texts])


async def next_receiver(bus: Bus, requires_session: bool) -> ServiceBusReceiver:
    if not requires_session:
        return bus.client.get_queue_receiver("orders")
    receiver = await bus.client.accept_next_session("orders", max_wait_time=60)
    assert receiver is not None
    return receiver
