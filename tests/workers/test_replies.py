"""Tests of replies: what a handler returns goes to the one who asks, and an asker who is gone harms nothing."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.management import EntityStatus
from sbredis.testing import Bus
from sbredis.workers import Context, Retries, SyncContext, Worker
from sbredis.workers.running._senders import Senders
from tests.waiting import eventually
from tests.workers.looking import empty, worker_of

NOW = Retries(first_delay=0)


async def test_a_handler_that_returns_nothing_replies_with_none(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders")

    @worker.queue("orders", replies=True)
    async def place(text: str) -> str | None:
        return text or None

    async with worker.running():
        assert await worker.client.request("orders", "text", timeout=60) == "text"
        assert await worker.client.request("orders", "", timeout=60) is None


async def test_a_worker_keeps_no_sender_to_those_who_have_asked(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders")

    @worker.queue("orders", replies=True)
    async def place(text: str) -> str:
        return text

    async with worker.running():
        open_before = len(worker.client._children)
        for _ in range(3):
            async with ServiceBusClient(sbredis_bus.url) as asker:
                assert await asker.request("orders", "text", timeout=60) == "text"
        await eventually(lambda: worker._running().report().counts["orders"].completed == 3)
        assert len(worker._running()._senders) == 0
        assert len(worker.client._children) == open_before


async def test_a_worker_does_not_know_the_queues_of_all_who_have_ever_asked(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", maintenance=False)

    @worker.queue("orders", replies=True)
    async def place(text: str) -> str:
        return text

    async with worker.running():
        known = worker.client._connection._entities
        known.most = 5
        for number in range(20):
            await sbredis_bus.client.ensure_queue(f"answers-{number}")
            await worker.send("orders", "text", reply_to=f"answers-{number}")
        await eventually(lambda: worker._running().report().counts["orders"].completed == 20)

        def few() -> bool:
            gc.collect()
            return len(known) <= known.most + 1  # the entity of the worker is in use

        await eventually(few)


async def test_a_sender_that_was_not_used_for_a_while_is_closed(sbredis_bus: Bus) -> None:
    for name in ("one", "two", "three"):
        await sbredis_bus.create_queue(name)
    now = 0.0
    senders = Senders(sbredis_bus.client, lambda: now)
    one, two = senders.to("one"), senders.to("two")
    now = 200
    assert senders.to("one") is one
    now = 400
    await senders.to("three").send_messages(ServiceBusMessage("text"))
    assert len(senders) == 2
    assert senders.to("one") is one
    await one.send_messages(ServiceBusMessage("text"))
    with pytest.raises(ValueError, match="The sender is closed"):
        await two.send_messages(ServiceBusMessage("text"))
    assert senders.to("two") is not two


@pytest.mark.parametrize("why", ["full", "disabled", "missing", "a name that cannot be"])
async def test_a_reply_that_cannot_be_sent_does_not_fail_the_completion(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    await sbredis_bus.create_queue("orders")
    if why in {"full", "disabled"}:
        status = EntityStatus.ACTIVE if why == "full" else EntityStatus.SEND_DISABLED
        await sbredis_bus.create_queue("answers", max_size_in_megabytes=1, status=status)
    if why == "full":
        async with sbredis_bus.client.get_queue_sender("answers") as sender:
            for _ in range(4):
                await sender.send_messages(ServiceBusMessage(bytes(250_000)))
    worker = Worker(sbredis_bus.url)
    attempts: list[int] = []

    @worker.queue("orders", replies=True)
    async def place(context: Context) -> bytes:
        attempts.append(context.attempt)
        return bytes(100_000)

    async with worker.running():
        await worker.send("orders", b"", reply_to="no name!" if why == "a name that cannot be" else "answers")
        await eventually(lambda: worker._running().report().counts["orders"].completed == 1)
        counts = worker._running().report().counts["orders"]
    assert attempts == [1]
    assert (counts.errors, counts.settlements_failed) == (0, 0)
    assert "the reply to message 1 was not sent to" in caplog.text


@pytest.mark.parametrize("requires_session", [False, True])
async def test_a_handler_whose_lock_was_lost_sends_no_reply(sbredis_bus: Bus, requires_session: bool) -> None:
    """Its outcome is dropped, so the message comes again, and the next handler replies."""
    await sbredis_bus.create_queue("orders", requires_session=requires_session)
    worker = await worker_of(sbredis_bus, "answers", retries=NOW)
    begun, let_go = threading.Event(), threading.Event()

    @worker.queue("orders", replies=True, session_idle_timeout=0.05)
    def place(context: SyncContext) -> int:
        begun.set()
        let_go.wait(60)
        return context.attempt

    async with worker.running():
        await worker.send("orders", b"", reply_to="answers", session_id="a")
        await eventually(begun.is_set)
        consumer: Any = worker._running().services[0].consumer
        (held,) = list(consumer.renewables())
        assert consumer.lost(held)
        if not requires_session:
            token = str(held.lock_token)
            await sbredis_bus.client.get_settler("orders").abandon_message(token)  # as if the lock had ended
        let_go.set()
        await eventually(lambda: empty(sbredis_bus))
    (answer,) = await sbredis_bus.active("answers")
    assert str(answer) == ("1" if requires_session else "2")
