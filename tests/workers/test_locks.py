"""Tests of locks while handlers run: they follow the life of the worker, and not its event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.servers import LocalServer
from sbredis.workers import Context, SyncContext, Worker
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LOCK = timedelta(seconds=5)


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    with LocalServer() as server:
        async with ServiceBusAdministrationClient(server.url) as admin:
            await admin.create_queue("orders", lock_duration=LOCK)
            await admin.create_queue("steps", lock_duration=LOCK, requires_session=True)
        yield server.url


async def empty(client: ServiceBusClient, queue: str) -> bool:
    if queue == "steps":
        return await client.accept_next_session(queue, max_wait_time=0) is None
    return not await client.get_queue_receiver(queue).peek_messages()


async def test_handlers_that_block_the_event_loop_keep_their_locks(url: str) -> None:
    worker = Worker(url)
    attempts: list[tuple[str, int]] = []

    @worker.queue("orders")
    async def place(context: Context) -> None:
        attempts.append(("orders", context.attempt))
        time.sleep(3 * LOCK.total_seconds())  # noqa: ASYNC251 -- what the test is about

    @worker.queue("steps")
    async def step(context: Context) -> None:
        attempts.append(("steps", context.attempt))
        end = time.monotonic() + 3 * LOCK.total_seconds()
        while time.monotonic() < end:
            sum(range(1000))

    async with worker.running():
        await worker.send("orders", b"")
        await worker.send("steps", b"", session_id="a")
        await eventually(lambda: len(attempts) == 2)

        await eventually(lambda: empty(worker.client, "orders"))
    async with ServiceBusClient(url) as client:
        assert await empty(client, "steps")
    assert sorted(attempts) == [("orders", 1), ("steps", 1)]


async def test_a_lost_lock_cancels_a_coroutine_and_is_told_to_a_thread(url: str) -> None:
    worker = Worker(url, max_concurrent_calls=1)
    ended: list[str] = []
    begun: list[Any] = []

    @worker.queue("orders", subject="async")
    async def wait(context: Context) -> None:
        begun.append(context)
        if context.attempt == 1:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    @worker.queue("orders", subject="thread")
    def work(context: SyncContext) -> None:
        begun.append(context)
        while context.attempt == 1 and not context.lock_lost:
            time.sleep(0.01)
        if context.attempt == 1:
            ended.append("told")

    async with worker.running():
        for subject in ("async", "thread"):
            await worker.send("orders", b"", subject=subject)
            await eventually(lambda: begun)
            receiver = worker.client.get_queue_receiver("orders")
            handle = await receiver.get_lock_handle(begun[-1].message)
            await worker.client.get_settler("orders").abandon_message(handle)  # as if the lock had ended
            await eventually(lambda subject=subject: len(ended) == 1 + (subject == "thread"))
            begun.clear()
            await eventually(lambda: empty(worker.client, "orders"))
        counts = worker._running().report().counts["orders"]
    assert ended == ["cancelled", "told"]
    assert counts.locks_lost == 2


async def test_a_lock_is_given_up_after_the_longest_time_for_renewals(url: str) -> None:
    worker = Worker(url)
    attempts: list[int] = []

    @worker.queue("orders", max_auto_lock_renewal_duration=1)
    async def place(context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt == 1:
            await asyncio.sleep(3600)

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: 2 in attempts)
    assert attempts[0] == 1
