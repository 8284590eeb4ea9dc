"""Tests of the end of a worker: clean-ups that are under way, and a second cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated

import pytest

from sbredis.testing import Bus
from sbredis.workers import Depends
from tests.waiting import eventually
from tests.workers.looking import worker_of


@pytest.mark.parametrize(("seconds", "end"), [(60.0, "cleaned up"), (0.0, "cancelled")])
async def test_the_clean_up_of_a_session_has_the_time_of_the_shutdown(
    sbredis_bus: Bus, seconds: float, end: str
) -> None:
    worker = await worker_of(sbredis_bus, "steps", requires_session=True, shutdown_timeout=seconds)
    let_go = asyncio.Event()
    told: list[str] = []

    async def connection() -> AsyncGenerator[int]:
        yield 1
        told.append("cleaning up")
        try:
            await let_go.wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        told.append("cleaned up")

    @worker.queue("steps", session_idle_timeout=0.05)
    async def step(_: Annotated[int, Depends(connection, scope="session")]) -> None:
        told.append("handled")

    running = asyncio.create_task(worker.run())
    await eventually(lambda: worker._runtime is not None and worker._runtime._state == "running")
    await worker.send("steps", b"", session_id="a")
    await eventually(lambda: "cleaning up" in told)
    runtime = worker._running()
    worker.stop()
    await eventually(lambda: runtime._state == "stopping")
    if seconds:
        asyncio.get_running_loop().call_later(0.05, let_go.set)
    await running
    assert told == ["handled", "cleaning up", end]


@pytest.mark.parametrize("requires_session", [False, True])
async def test_a_second_cancellation_cancels_the_handlers_and_gives_their_messages_back(
    sbredis_bus: Bus, requires_session: bool
) -> None:
    """No handler outlives the client of its worker, and the locks that its messages have."""
    worker = await worker_of(sbredis_bus, "orders", requires_session=requires_session, shutdown_timeout=3600)
    told: list[str] = []

    @worker.queue("orders")
    async def place() -> None:
        told.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(100):
                await asyncio.sleep(0)  # it is cancelled only once, so that it can clean up
            told.append("ended")

    running = asyncio.create_task(worker.run())
    await eventually(lambda: worker._runtime is not None and worker._runtime._state == "running")
    runtime = worker._running()
    await worker.send("orders", b"", session_id="a")
    await eventually(lambda: told)
    running.cancel()
    await eventually(lambda: runtime._state == "stopping")
    await asyncio.sleep(0)
    assert told == ["begun"]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert told == ["begun", "ended"]
    session_id = "a" if requires_session else None
    receiver = sbredis_bus.client.get_queue_receiver("orders", session_id=session_id)
    (message,) = await receiver.receive_messages(1, 60)
    assert (message.delivery_count, message.interrupted) == (1, True)
