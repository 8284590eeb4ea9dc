"""Tests of the middleware that comes with the framework."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from sbredis import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Context, Idempotency, Logging, Worker
from tests.waiting import eventually
from tests.workers.looking import dead, empty, send_to, worker_of

BY_SUBJECT = Idempotency(60, key=lambda message: str(message.subject))


async def test_the_second_message_of_a_key_sends_nothing(sbredis_bus: Bus) -> None:
    worker = await worker_of(
        sbredis_bus, "orders", "out", middleware=[Idempotency(60, key=lambda message: str(message.subject))]
    )

    @worker.queue("orders", max_concurrent_calls=1)
    async def place(text: str, context: Context) -> None:
        context.send("out", text)

    async with worker.running():
        for text, subject in (("one", "a"), ("two", "a"), ("three", "b")):
            await worker.send("orders", text, subject=subject)
        await eventually(lambda: sent(sbredis_bus, 2))
    assert [bytes(message.body) for message in await sbredis_bus.active("out")] == [b"one", b"three"]


async def test_each_key_of_a_call_counts(sbredis_bus: Bus) -> None:
    """The key of a handler beside that of Idempotency: nothing is sent if either was used before."""
    worker = await worker_of(sbredis_bus, "orders", "out", middleware=[Idempotency(60)])

    @worker.queue("orders", max_concurrent_calls=1)
    async def place(text: str, context: Context) -> None:
        context.once(text.partition(" ")[0], 60)
        context.send("out", text)

    async with worker.running():
        for text, message_id in (("a 1", "1"), ("b 1", "1"), ("a 2", "2"), ("b 2", "2"), ("c 2", "2")):
            await worker.send("orders", text, message_id=message_id)
        await eventually(lambda: sent(sbredis_bus, 2))
    assert [bytes(message.body) for message in await sbredis_bus.active("out")] == [b"a 1", b"b 2"]


async def test_a_key_is_anything_that_a_message_id_may_be(sbredis_bus: Bus) -> None:
    """Idempotency uses the message id, whatever its type is, and keys are compared by their texts."""
    worker = await worker_of(sbredis_bus, "orders", "out", middleware=[Idempotency(60)])

    @worker.queue("orders", max_concurrent_calls=1)
    async def place(text: str, context: Context) -> None:
        context.once(UUID(int=1), 60)
        context.once(7, 60)
        context.once("7", 60)
        context.send("out", text)

    async with worker.running():
        await worker.send("orders", ServiceBusMessage("first", message_id=b"\xff"))
        await worker.send("orders", "second", message_id="other")
        await eventually(lambda: sent(sbredis_bus, 1))
        await eventually(lambda: empty(sbredis_bus))
    assert [bytes(message.body) for message in await sbredis_bus.active("out")] == [b"first"]


@pytest.mark.parametrize("middleware", [[], [Logging()]])
async def test_a_key_in_a_batch_is_refused(sbredis_bus: Bus, middleware: list[Any]) -> None:
    """A key belongs to one message: the others would be dropped with it."""
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=1, middleware=middleware)

    @worker.queue("orders", batch=2, batch_wait=30)
    async def place(texts: list[str], context: Context) -> None:
        context.once(texts[0], 60)

    await send_to(sbredis_bus, "orders", [ServiceBusMessage("one"), ServiceBusMessage("two")])
    async with worker.running():
        await eventually(lambda: dead(sbredis_bus, 2))
    assert {letter.dead_letter_reason for letter in await sbredis_bus.dead_lettered("orders")} == {"TypeError"}


@pytest.mark.parametrize(
    ("properties", "own", "warned"),
    [
        ({}, Idempotency(60), False),
        ({}, BY_SUBJECT, False),
        ({"enable_partitioning": True}, Idempotency(60), True),
        ({"enable_partitioning": True}, BY_SUBJECT, True),
        ({"enable_partitioning": True, "requires_session": True}, Idempotency(60), False),
        ({"enable_partitioning": True, "requires_session": True}, BY_SUBJECT, False),
        ({"enable_partitioning": True, "requires_duplicate_detection": True}, Idempotency(60), False),
        ({"enable_partitioning": True, "requires_duplicate_detection": True}, BY_SUBJECT, True),
    ],
)
async def test_keys_that_partitions_do_not_share_are_worth_a_warning(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, properties: Any, own: Idempotency, warned: bool
) -> None:
    """Messages of one key may be in several partitions, unless the key or their session decides about the partition."""
    await sbredis_bus.create_queue("orders", **properties)
    topic = {name: value for name, value in properties.items() if name != "requires_session"}
    await sbredis_bus.create_topic("news", **topic)
    session = {name: value for name, value in properties.items() if name == "requires_session"}
    await sbredis_bus.create_subscription("news", "all", **session)
    worker = Worker(sbredis_bus.url, middleware=[own])

    @worker.queue("orders")
    @worker.subscription("news", "all")
    async def place() -> None: ...

    async with worker.running():
        pass
    assert ("remembers keys in each partition, and 'orders' is partitioned" in caplog.text) == warned
    assert ("remembers keys in each partition, and 'news/subscriptions/all' is part" in caplog.text) == warned


async def sent(bus: Bus, count: int) -> bool:
    return not await bus.active("orders") and len(await bus.active("out")) == count
