"""Tests of plain functions, whose threads cannot be ended: what they are told, and what becomes of their messages."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from sbredis.testing import Bus
from sbredis.workers import SyncContext, Worker
from sbredis.workers.running import _consuming, _sessions
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def empty(bus: Bus) -> bool:
    return not await bus.active("orders")


async def dead(bus: Bus, count: int) -> bool:
    return len(await bus.dead_lettered("orders")) == count


async def test_a_thread_that_takes_too_long_is_told_and_its_outcome_counts(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    await sbredis_bus.create_queue("orders")
    worker = Worker(sbredis_bus.url)
    told: list[int] = []

    @worker.queue("orders", timeout=0.02)
    def place(context: SyncContext) -> None:
        while not context.timed_out:
            time.sleep(0.001)
        told.append(context.attempt)

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: empty(sbredis_bus))
        completed = worker._running().report().counts["orders"].completed
    assert told == [1]
    assert completed == 1
    assert "has run for longer than its time-out of 0.02 s for message 1, and runs on" in caplog.text


async def test_a_coroutine_that_takes_too_long_has_failed(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=1)
    worker = Worker(sbredis_bus.url)

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
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, requires_session: bool
) -> None:
    for module in (_consuming, _sessions):
        monkeypatch.setattr(module, "CANCELLING", 0.05)
    await sbredis_bus.create_queue("orders", requires_session=requires_session)
    worker = Worker(sbredis_bus.url, shutdown_timeout=0)
    begun, end = threading.Event(), threading.Event()
    told: list[bool] = []

    @worker.queue("orders")
    def place(context: SyncContext) -> None:
        begun.set()
        end.wait(60)
        told.append(context.lock_lost)

    async with worker.running():
        await worker.send("orders", b"", session_id="a")
        await eventually(begun.is_set)
    assert len(await sbredis_bus.locked("orders")) == 1
    assert "still runs in its thread, which cannot be ended" in caplog.text
    end.set()
    await eventually(lambda: told == [True])


async def test_a_thread_that_ends_just_after_the_time_for_shutdown_keeps_its_outcome(
    sbredis_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sbredis_bus.create_queue("orders")
    worker = Worker(sbredis_bus.url, shutdown_timeout=0)
    begun, end = threading.Event(), threading.Event()
    release = _consuming.Running.finish

    async def finish(running: Any, seconds: float) -> None:
        asyncio.get_running_loop().call_later(0.05, end.set)
        await release(running, seconds)

    monkeypatch.setattr(_consuming.Running, "finish", finish)

    @worker.queue("orders")
    def place() -> None:
        begun.set()
        end.wait(60)

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(begun.is_set)
    assert await empty(sbredis_bus)
