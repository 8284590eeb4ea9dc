"""Tests of clients that code under test makes from the URL of a bus: they use the clock of the bus in every thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus
from tests.testing.waiters import wait_for_waiters
from tests.waiting import eventually


async def by_sending(url: str) -> None:
    async with ServiceBusClient(url) as client, client.get_queue_sender("orders", create_if_missing=True):
        pass


async def by_sending_with_properties(url: str) -> None:
    async with ServiceBusClient(url) as client:
        sender = client.get_queue_sender("orders", create_if_missing={"max_delivery_count": 3})
        await sender.send_messages(ServiceBusMessage("one"))


async def by_receiving(url: str) -> None:
    async with ServiceBusClient(url) as client, client.get_queue_receiver("orders", create_if_missing=True):
        pass


async def by_ensuring(url: str) -> None:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders")


async def by_ensuring_as_administrator(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as client:
        await client.ensure_queue("orders")


async def by_creating(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as client:
        await client.create_queue("orders", enable_partitioning=True)


@pytest.mark.parametrize(
    "create",
    [by_sending, by_sending_with_properties, by_receiving, by_ensuring, by_ensuring_as_administrator, by_creating],
)
async def test_every_queue_of_the_bus_uses_its_clock(
    bus: Bus, create: Callable[[str], Coroutine[Any, Any, None]]
) -> None:
    await create(bus.url)
    async with ServiceBusClient(bus.url) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.schedule_messages(ServiceBusMessage("later"), bus.clock.now + timedelta(hours=1))
        bus.clock.advance(hours=1)
        assert [message.body for message in await bus.active("orders")][-1] == b"later"
        receiver = client.get_queue_receiver("orders")
        assert (await receiver.receive_messages())[0].delivery_count == 1


async def test_another_in_memory_server_uses_the_machine_clock(bus: Bus) -> None:
    async with ServiceBusClient(f"{bus.url}-another") as client:
        assert client._connection.clock.kind == "server"
        await client.ensure_queue("orders")


async def test_a_client_of_another_namespace_uses_the_clock_and_stays_separate(bus: Bus) -> None:
    await bus.create_queue("orders")
    async with ServiceBusClient(f"{bus.url}?namespace=another") as client:
        async with client.get_queue_sender("orders", create_if_missing=True) as sender:
            await sender.send_messages(ServiceBusMessage("one"))
        receiver = client.get_queue_receiver("orders")
        await receiver.receive_messages()
        waiting = asyncio.ensure_future(receiver.receive_messages(max_wait_time=60))
        await wait_for_waiters(client, "orders")
        bus.clock.advance(minutes=5)
        assert (await waiting)[0].delivery_count == 2
    assert await bus.sent("orders") == await bus.messages("orders") == []


@pytest.mark.slow
async def test_a_receiver_in_another_thread_notices_a_moved_clock(bus: Bus) -> None:
    await bus.create_queue("orders")
    waits, got = threading.Event(), list[bytes]()

    async def receive() -> None:
        async with ServiceBusClient(bus.url) as client, client.get_queue_receiver("orders") as receiver:
            waiting = asyncio.ensure_future(receiver.receive_messages(max_wait_time=60))
            await wait_for_waiters(client, "orders")
            waits.set()
            for message in await waiting:
                got.append(message.body)
                await receiver.complete_message(message)

    thread = asyncio.create_task(asyncio.to_thread(asyncio.run, receive()))
    async with bus.client.get_queue_sender("orders") as sender:
        await sender.schedule_messages(ServiceBusMessage("later"), bus.clock.now + timedelta(days=1))
    await asyncio.to_thread(waits.wait, 60)
    assert not thread.done()
    bus.clock.advance(days=1)
    await thread
    assert got == [b"later"]
    assert await bus.messages("orders") == []


@pytest.mark.slow
async def test_many_threads_share_one_bus(bus: Bus) -> None:
    """Each thread has its own client, sender and receiver. While the clock is moved, every message is received once."""
    await bus.create_queue("orders", lock_duration=timedelta(minutes=5), enable_partitioning=True)
    threads, each = 4, 50
    got: list[bytes] = []

    async def work(name: int) -> None:
        async with ServiceBusClient(bus.url) as client:
            sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
            await sender.send_stream(ServiceBusMessage(f"{name} {number}") for number in range(each))
            while len(got) < threads * each:
                for message in await receiver.receive_messages(10, max_wait_time=0.1):
                    await receiver.complete_message(message)
                    got.append(message.body)

    def run(name: int) -> None:
        asyncio.run(work(name), debug=True)

    with ThreadPoolExecutor(threads) as pool:
        running = [asyncio.wrap_future(pool.submit(run, name)) for name in range(threads)]
        for _ in range(20):
            bus.clock.advance(seconds=1)
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*running), 200)
    wanted = {f"{name} {number}".encode() for name in range(threads) for number in range(each)}
    assert sorted(got) == sorted(wanted)
    assert sorted(message.body for message in await bus.sent("orders")) == sorted(wanted)
    await eventually(lambda: _nothing_left(bus))


async def _nothing_left(bus: Bus) -> bool:
    return await bus.messages("orders") == []
