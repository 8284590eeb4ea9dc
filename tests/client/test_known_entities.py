"""A client forgets entities that it has not used lately, but none that is in use."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from sbredis import ServiceBusMessage
from sbredis.client._entity import KnownEntities
from sbredis.model import hold_of
from sbredis.testing import Bus
from tests.waiting import eventually

MOST = 5
OTHERS = [f"other-{number}" for number in range(3 * MOST)]


def known_by(bus: Bus) -> KnownEntities:
    """Return the entities that the client knows. It keeps few of them."""
    connection: Any = bus.client._connection
    connection._entities.most = MOST
    known: KnownEntities = connection._entities
    return known


def kept_by(known: KnownEntities) -> list[Any]:
    return list(known._kept)


async def send(bus: Bus, queue: str, text: str) -> None:
    async with bus.client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage(text))


async def use_others(bus: Bus, text: str = "x") -> None:
    """Send a message to each of many queues."""
    for queue in OTHERS:
        await bus.client.ensure_queue(queue)
        await send(bus, queue, text)


async def forgotten(known: KnownEntities, most: int = MOST) -> None:
    """Wait until only this number of entities is left."""

    def few() -> bool:
        gc.collect()
        return len(known) <= most

    await eventually(few)


async def texts(bus: Bus, queue: str) -> list[str]:
    return [str(message) for message in await bus.active(queue)]


async def test_a_client_keeps_a_limited_number_of_entities(sbredis_bus: Bus) -> None:
    known = known_by(sbredis_bus)
    await use_others(sbredis_bus)
    await forgotten(known)
    assert not [task for task in asyncio.all_tasks() if "Pipeline" in task.get_name()]


async def test_a_message_to_a_forgotten_queue_is_no_repetition_of_an_earlier_one(sbredis_bus: Bus) -> None:
    known = known_by(sbredis_bus)
    await sbredis_bus.create_queue("orders")
    await send(sbredis_bus, "orders", "one")
    await use_others(sbredis_bus)
    await forgotten(known)
    assert known.get("orders") is None
    await send(sbredis_bus, "orders", "two")
    assert await texts(sbredis_bus, "orders") == ["one", "two"]


async def test_the_queue_of_an_open_sender_is_not_forgotten(sbredis_bus: Bus) -> None:
    known = known_by(sbredis_bus)
    await sbredis_bus.create_queue("orders")
    async with sbredis_bus.client.get_queue_sender("orders") as sender:
        own: Any = sender
        await sender.send_messages(ServiceBusMessage("one"))
        await use_others(sbredis_bus)
        await forgotten(known, MOST + 1)
        assert "orders" not in {entity.name for entity in kept_by(known)}
        await sender.send_messages(ServiceBusMessage("two"))
        assert own._outbox.entity is known.get("orders")
    assert await texts(sbredis_bus, "orders") == ["one", "two"]


async def test_a_queue_is_not_forgotten_while_a_receiver_waits_or_has_a_message(sbredis_bus: Bus) -> None:
    known = known_by(sbredis_bus)
    await sbredis_bus.create_queue("orders")
    async with sbredis_bus.client.get_queue_receiver("orders") as receiver:
        waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=600))
        await eventually(lambda: known.get("orders"))
        await use_others(sbredis_bus)
        await forgotten(known, MOST + 1)
        await send(sbredis_bus, "orders", "tea")
        (message,) = await waiting
        await use_others(sbredis_bus, "y")
        await forgotten(known, MOST + 1)
        assert hold_of(message).reception.link.entity is known.get("orders")
        await receiver.complete_message(message)
    assert await texts(sbredis_bus, "orders") == []
    await use_others(sbredis_bus, "z")
    del message, waiting, receiver
    await forgotten(known)


async def test_clients_that_wait_for_the_rules_of_a_topic_learn_that_others_have_read_them(sbredis_bus: Bus) -> None:
    """The record is the same as before, but they must not take it for one that nobody has read again."""
    await sbredis_bus.create_topic("news")
    until = asyncio.get_running_loop().time() + 60
    entity = await sbredis_bus.client._connection.entity("news", until)
    seen, before = entity.record, entity.routing
    await asyncio.gather(entity.reload(seen, until), entity.reload(seen, until))
    assert (before, entity.routing is None, entity.record) == (None, False, seen)
