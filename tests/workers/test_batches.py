"""Tests of handlers that take batches."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import Context, DeadLetter, Retries, Worker
from sbredis.workers.running._calls import message_of
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


@dataclass
class Order:
    id: int
    price: float = 0.0


NOW = Retries(first_delay=0)


async def bodies(bus: Bus, queue: str) -> list[bytes]:
    return [bytes(message.body) for message in await bus.active(queue)]


async def empty(bus: Bus, queue: str) -> bool:
    return not await bus.active(queue)


async def test_a_handler_of_batches_gets_lists_and_answers_for_each_message(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2)
    worker = Worker(sbredis_bus.url, retries=NOW, max_concurrent_calls=2)
    sizes: list[int] = []
    done: list[int] = []

    @worker.queue("orders", batch=4, batch_wait=0.05)
    async def insert(orders: list[Order], messages: list[ServiceBusReceivedMessage]) -> list[Any]:
        sizes.append(len(orders))
        assert [message.delivery_count for message in messages]
        done.extend(order.id for order in orders if order.id != 3)
        return [DeadLetter("three") if order.id == 3 else None for order in orders]

    sender = sbredis_bus.client.get_queue_sender("orders")
    await sender.send_messages([message_of(Order(number), {}) for number in range(9)])
    await sender.send_messages(ServiceBusMessage(b"{}"))
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "orders"))
    assert sorted(done) == [0, 1, 2, 4, 5, 6, 7, 8]
    assert max(sizes) == 4
    letters = await sbredis_bus.dead_lettered("orders")
    assert {dead.dead_letter_reason for dead in letters} == {"three", "MessageBody"}


async def test_an_error_in_a_batch_lets_all_its_messages_come_again(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2)
    await sbredis_bus.create_queue("out")
    worker = Worker(sbredis_bus.url, retries=NOW)
    counts: list[list[int]] = []

    @worker.queue("orders", batch=10, batch_wait=0.05)
    async def insert(messages: list[ServiceBusReceivedMessage], context: Context) -> Any:
        counts.append([message.delivery_count for message in messages])
        if context.attempt == 1:
            raise ValueError
        context.send("out", len(messages))
        return ["not an outcome"] if len(messages) > 10 else None

    await sbredis_bus.client.get_queue_sender("orders").send_messages([ServiceBusMessage(b"") for _ in range(3)])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "orders"))
    assert sorted(chain.from_iterable(counts)) == [1, 1, 1, 2, 2, 2]
    assert sum(int(body) for body in await bodies(sbredis_bus, "out")) == 3
    assert not await sbredis_bus.dead_lettered("orders")


async def test_a_batch_of_sessions_holds_one_session(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    worker = Worker(sbredis_bus.url)
    batches: list[tuple[str | None, list[int]]] = []

    @worker.queue("steps", batch=3, batch_wait=0.05, session_idle_timeout=0.1)
    async def steps(numbers: list[int], context: Context) -> None:
        assert context.session is not None
        batches.append((context.session.session_id, numbers))

    sender = sbredis_bus.client.get_queue_sender("steps")
    for session_id in ("a", "b"):
        await sender.send_messages([message_of(number, {"session_id": session_id}) for number in range(5)])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "steps"))
    for session_id in ("a", "b"):
        assert [numbers for of, numbers in batches if of == session_id] == [[0, 1, 2], [3, 4]]
