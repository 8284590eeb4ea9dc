"""Tests of handlers that are cancelled at the end of a worker, and end in their own way."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from sbredis import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Abandon, DeadLetter, Outcome
from tests.waiting import eventually
from tests.workers.looking import send_to, worker_of


async def until_cancelled(begun: list[str], end: str) -> Outcome | None:
    begun.append(end)
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    if end == "raises":
        raise LookupError
    return Abandon() if end == "abandons" else None


async def send(bus: Bus, *texts: str) -> None:
    await send_to(bus, "orders", [ServiceBusMessage(text) for text in texts])


@pytest.mark.parametrize("requires_session", [False, True])
async def test_a_handler_that_ends_well_although_it_was_cancelled_has_handled_its_message(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, requires_session: bool
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=requires_session, shutdown_timeout=0)
    begun: list[str] = []

    @worker.queue("orders")
    async def place(text: str) -> Outcome | None:
        return await until_cancelled(begun, text)

    async with worker.running():
        await worker.send("orders", "returns", session_id="a")
        await eventually(lambda: begun)
        counts = worker._running().report().counts["orders"]
    assert await sbredis_bus.active("orders") == []
    assert (counts.completed, counts.given_back) == (1, 0)
    assert "not given back" not in caplog.text


async def test_a_handler_that_fails_when_it_is_cancelled_was_interrupted(sbredis_bus: Bus) -> None:
    worker, begun = await worker_of(sbredis_bus, "orders", shutdown_timeout=0), list[str]()

    @worker.queue("orders")
    async def place(text: str) -> Outcome | None:
        return await until_cancelled(begun, text)

    async with worker.running():
        await send(sbredis_bus, "raises", "abandons")
        await eventually(lambda: len(begun) == 2)
    receiver = sbredis_bus.client.get_queue_receiver("orders")
    again = await receiver.receive_messages(2, 60)
    assert [(message.interrupted, message.delivery_count) for message in again] == [(True, 1)] * 2


@pytest.mark.parametrize(("end", "left"), [("returns", 0), ("raises", 2)])
async def test_a_batch_that_ends_well_although_it_was_cancelled_is_completed(
    sbredis_bus: Bus, end: str, left: int
) -> None:
    worker, begun = await worker_of(sbredis_bus, "orders", shutdown_timeout=0), list[str]()

    @worker.queue("orders", batch=2, batch_wait=30)
    async def place(texts: list[str]) -> Outcome | None:
        return await until_cancelled(begun, texts[0])

    async with worker.running():
        await send(sbredis_bus, end, end)
        await eventually(lambda: begun)
    again = await sbredis_bus.client.get_queue_receiver("orders").receive_messages(2, 0)
    assert [(message.interrupted, message.delivery_count) for message in again] == [(True, 1)] * left


@pytest.mark.parametrize("requires_session", [False, True])
async def test_a_batch_whose_answers_are_not_all_good_after_it_was_cancelled_was_interrupted(
    sbredis_bus: Bus, requires_session: bool
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=requires_session, shutdown_timeout=0)
    begun: list[str] = []

    @worker.queue("orders", batch=2, batch_wait=30)
    async def place(texts: list[str]) -> list[Outcome | None]:
        return [await until_cancelled(begun, texts[0]), DeadLetter("no")]

    session_id = "a" if requires_session else None
    async with worker.running():
        await send_to(sbredis_bus, "orders", [ServiceBusMessage("returns", session_id=session_id) for _ in range(2)])
        await eventually(lambda: begun)
    async with sbredis_bus.client.get_queue_receiver("orders", session_id=session_id) as receiver:
        again = await receiver.receive_messages(2, 60)
    assert [(message.interrupted, message.delivery_count) for message in again] == [(True, 1)] * 2
    assert not await sbredis_bus.dead_lettered("orders")
