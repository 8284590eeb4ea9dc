"""Tests of the bus itself: its helpers list the messages that were sent and stored, and it can be closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client import _test_hooks, connection_of, deadline_of
from sbredis.exceptions import (
    MessageSizeExceededError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
)
from sbredis.maintenance import DutyResources
from sbredis.management import EntityStatus
from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus, SyncBus, TestClock
from sbredis.transport import _memory
from tests.aio.queues import Calls, receive_exactly
from tests.offenders import for_each
from tests.waiting import wait_until


@pytest.fixture
async def receiver(bus: Bus) -> AsyncIterator[ServiceBusReceiver]:
    """A receiver of the queue ``orders``."""
    await bus.create_queue("orders")
    async with bus.client.get_queue_receiver("orders") as receiver:
        yield receiver


async def send(bus: Bus, *bodies: str) -> None:
    async with bus.client.get_queue_sender("orders") as sender:
        for body in bodies:
            await sender.send_messages(ServiceBusMessage(body))


def bodies(messages: list[Any]) -> list[bytes]:
    return [message.body for message in messages]


async def test_a_client_of_a_bus_asks_only_for_the_parts_of_the_registry_that_exist(bus: Bus) -> None:
    connection = connection_of(bus.client)
    await connection.open(deadline_of(None))
    census = DutyResources.of(connection).census
    with Calls(connection.transport) as calls:
        await census.read()
        assert calls.by_script["read_changes"] == 0
        assert census.whole
        await bus.create_queue("orders")
        await census.read()
        assert calls.by_script["read_changes"] <= 3  # the maintenance of the client may hear of the queue too
    assert [record.path for record in census.by_id.values()] == ["orders"]


# -- sent messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [7, UUID(int=7), b"bytes", b"\xff"])
async def test_ids_and_values_of_every_kind_are_recorded_as_sent(bus: Bus, given: Any) -> None:
    properties = {"exact": Decimal("1.10"), "large": 2**64 - 1, "none": None}
    await bus.create_queue("orders", requires_duplicate_detection=True)
    message = ServiceBusMessage("x", message_id=given, correlation_id=given, application_properties=properties)
    async with bus.client.get_queue_sender("orders") as sender:
        await sender.send_messages(message)
        await sender.send_messages(ServiceBusMessage("again", message_id=given))
    (kept,) = await bus.active("orders")
    for told in ((await bus.sent("orders"))[0], kept):
        assert (told.message_id, told.correlation_id, told.application_properties) == (given, given, properties)
        assert type(told.message_id) is type(given)


@pytest.mark.both_shapes
async def test_all_sent_messages_are_recorded_in_order(bus: Bus, partitioned: bool) -> None:
    await bus.create_queue("orders", enable_partitioning=partitioned)
    async with bus.client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("one"))
        await sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("four"))
        await sender.send_messages(batch)
        await sender.schedule_messages(ServiceBusMessage("five"), bus.clock.now + timedelta(days=1))
        await sender.send_stream([ServiceBusMessage("six")])
    assert bodies(await bus.sent("orders")) == [b"one", b"two", b"three", b"four", b"five", b"six"]


async def test_a_message_is_recorded_as_sent_whatever_happens_to_it_later(
    bus: Bus, receiver: ServiceBusReceiver
) -> None:
    await send(bus, "one", "two")
    for message in await receiver.receive_messages(2):
        await receiver.complete_message(message)
    assert await bus.messages("orders") == []
    assert bodies(await bus.sent("orders")) == [b"one", b"two"]


async def test_a_message_is_recorded_with_its_values_at_the_time_of_sending(bus: Bus) -> None:
    await bus.create_queue("orders")
    message = ServiceBusMessage("one", message_id="id", application_properties={"size": 1}, subject="before")
    async with bus.client.get_queue_sender("orders") as sender:
        await sender.send_messages(message)
    message.subject = "after"
    (sent,) = await bus.sent("orders")
    assert type(sent) is ServiceBusMessage
    assert (sent.message_id, sent.subject, sent.application_properties) == ("id", "before", {"size": 1})
    sent.subject = "changed by the test"
    assert (await bus.sent("orders"))[0].subject == "before"


async def test_a_refused_message_is_not_recorded_as_sent(bus: Bus) -> None:
    await bus.create_queue("orders", max_message_size_in_kilobytes=1)
    await bus.create_queue("shut", status=EntityStatus.SEND_DISABLED)
    async with bus.client.get_queue_sender("orders") as sender:
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage("x" * 2000))
    async with bus.client.get_queue_sender("shut") as sender:
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(ServiceBusMessage("x"))
    assert await bus.sent("orders") == await bus.sent("shut") == []


async def test_the_case_of_a_queue_name_does_not_matter(bus: Bus) -> None:
    await bus.create_queue("Orders")
    await send(bus, "one")
    assert bodies(await bus.sent("ORDERS")) == bodies(await bus.active("oRDERS")) == [b"one"]


@for_each(
    "look",
    [
        Bus.sent,
        Bus.messages,
        Bus.active,
        Bus.locked,
        Bus.scheduled,
        Bus.deferred,
        Bus.dead_lettered,
        Bus.counts,
        Bus.purge,
    ],
)
async def test_a_misspelt_queue_name_is_an_error(bus: Bus, look: Callable[[Bus, str], Any]) -> None:
    """Otherwise a test with the typo ``assert not await bus.sent("ordres")`` would pass."""
    with pytest.raises(MessagingEntityNotFoundError, match="ordres"):
        await look(bus, "ordres")


# -- stored messages ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.both_shapes
async def test_messages_are_listed_by_state(bus: Bus, partitioned: bool) -> None:
    await bus.create_queue("orders", enable_partitioning=partitioned)
    await send(bus, "active", "locked", "delayed", "deferred", "fetched", "dead", "done")
    async with bus.client.get_queue_sender("orders") as sender:
        await sender.schedule_messages(ServiceBusMessage("scheduled"), bus.clock.now + timedelta(days=1))
    receiver = bus.client.get_queue_receiver("orders")
    held = {message.body: message for message in await receive_exactly(receiver, 7)}
    await receiver.abandon_message(held[b"active"])
    await receiver.abandon_message(held[b"delayed"], delay=60)
    await receiver.defer_message(held[b"deferred"])
    await receiver.defer_message(held[b"fetched"])
    await receiver.receive_deferred_messages(held[b"fetched"].sequence_number)
    await receiver.dead_letter_message(held[b"dead"], "why")
    await receiver.complete_message(held[b"done"])

    async def told(look: Callable[[Bus, str], Any]) -> set[bytes]:
        return set(bodies(await look(bus, "orders")))

    assert await told(Bus.active) == {b"active", b"locked", b"delayed", b"fetched"}
    assert await told(Bus.locked) == {b"locked", b"fetched"}
    assert await told(Bus.deferred) == {b"deferred"}
    assert await told(Bus.scheduled) == {b"scheduled"}
    assert await told(Bus.dead_lettered) == {b"dead"}
    assert await told(Bus.messages) == {b"active", b"locked", b"delayed", b"deferred", b"fetched", b"scheduled"}
    assert [dead.dead_letter_reason for dead in await bus.dead_lettered("orders")] == ["why"]
    counts = await bus.counts("orders")
    assert (counts.active_message_count, counts.scheduled_message_count, counts.dead_letter_message_count) == (5, 1, 1)


async def test_listing_messages_changes_nothing(bus: Bus, receiver: ServiceBusReceiver) -> None:
    await send(bus, "one")
    for _ in range(3):
        assert bodies(await bus.active("orders")) == [b"one"]
    (message,) = await receiver.receive_messages()
    assert message.delivery_count == 1
    assert bodies(await bus.locked("orders")) == [b"one"]
    await receiver.complete_message(message)


@pytest.mark.slow
async def test_a_list_longer_than_one_peek_is_complete(bus: Bus) -> None:
    await bus.create_queue("orders", enable_partitioning=True)
    async with bus.client.get_queue_sender("orders") as sender:
        assert await sender.send_stream(ServiceBusMessage(str(number)) for number in range(2500)) == 2500
    assert len(await bus.active("orders")) == len(await bus.sent("orders")) == 2500


async def test_dead_letters_of_all_partitions_are_forwarded_before_messages_are_listed(bus: Bus) -> None:
    """The messages expire only by the list. Nothing else has moved them by then."""
    await bus.create_queue("graves")
    await bus.create_queue(
        "orders", default_message_time_to_live=timedelta(seconds=10), dead_lettering_on_message_expiration=True,
        forward_dead_lettered_messages_to="graves", enable_partitioning=True, partition_count=3,
    )  # fmt: skip
    async with ServiceBusClient(bus.url) as client, client.get_queue_sender("orders") as sender:
        for key in map(str, range(24)):
            await sender.send_messages(ServiceBusMessage(key, partition_key=key))
    assert len({message.sequence_number >> 48 for message in await bus.active("orders")}) == 3
    bus.clock.advance(seconds=20)
    assert await bus.dead_lettered("orders") == []
    assert len(await bus.active("graves")) == 24


@pytest.mark.slow
async def test_a_purge_keeps_locked_messages(bus: Bus, receiver: ServiceBusReceiver) -> None:
    await send(bus, "locked", "deferred", "dead", "active")
    async with bus.client.get_queue_sender("orders") as sender:
        await sender.schedule_messages(ServiceBusMessage("scheduled"), bus.clock.now + timedelta(days=1))
    held = await receiver.receive_messages(3)
    await receiver.defer_message(held[1])
    await receiver.dead_letter_message(held[2])
    assert await bus.purge("orders") == 4
    assert bodies(await bus.messages("orders")) == [b"locked"]
    assert await bus.dead_lettered("orders") == []
    await receiver.complete_message(held[0])
    assert await bus.purge("orders") == 0
    assert len(await bus.sent("orders")) == 5


async def test_a_queue_is_created_once_with_the_given_properties(bus: Bus) -> None:
    made = await bus.create_queue("orders", max_delivery_count=3, lock_duration=timedelta(seconds=5))
    assert (made.name, made.max_delivery_count, made.lock_duration) == ("orders", 3, timedelta(seconds=5))
    with pytest.raises(MessagingEntityAlreadyExistsError):
        await bus.create_queue("orders")


# -- several buses, and closing ----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_two_test_buses_share_nothing(bus: Bus) -> None:
    async with Bus() as other:
        await bus.create_queue("orders")
        await other.create_queue("orders")
        await send(bus, "one")
        bus.clock.advance(days=1)
        assert other.clock.now < bus.clock.now - timedelta(hours=23)
        assert await other.sent("orders") == await other.messages("orders") == []
        await bus.active("orders")
        await send(other, "two")
        (others,) = await other.active("orders")
        assert others.enqueued_time_utc < other.clock.now + timedelta(seconds=1) < bus.clock.now


async def test_a_bus_has_few_slots_unless_it_is_given_more() -> None:
    async with Bus() as bus:
        with pytest.raises(ValueError, match="has 16 slots"):
            await bus.create_queue("wide", enable_partitioning=True, partition_count=17)
    async with Bus(slot_count=32) as bus:
        await bus.create_queue("wide", enable_partitioning=True, partition_count=17)
        async with (
            ServiceBusAdministrationClient(bus.url) as own,
            ServiceBusAdministrationClient(f"{bus.url}?namespace=other") as other,
        ):
            for each in (own, other):
                assert (await each.get_namespace_properties()).slot_count == 32
    with pytest.raises(ValueError, match="a namespace has 1 to 1024 slots"):
        Bus(slot_count=0)


async def test_a_bus_starts_at_the_given_time() -> None:
    begins = datetime(2031, 5, 1, tzinfo=UTC)
    async with Bus(begins=begins) as bus:
        await bus.create_queue("orders")
        await send(bus, "one")
        (message,) = await bus.active("orders")
        assert timedelta() <= message.enqueued_time_utc - begins < timedelta(minutes=1)


async def test_code_under_test_may_close_the_client(bus: Bus, receiver: ServiceBusReceiver) -> None:
    client = bus.client
    assert bus.client is client
    await send(bus, "one")
    await client.close()
    assert bodies(await bus.sent("orders")) == bodies(await bus.active("orders")) == [b"one"]
    assert bus.client is not client
    await send(bus, "two")
    assert len(await bus.active("orders")) == 2
    del receiver


async def test_a_closed_bus_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    async with Bus() as bus:
        await bus.create_queue("orders")
        await send(bus, "one")
        client = bus.client
        assert "open" in repr(bus)
    assert client._connection.closed
    assert "closed" in repr(bus)
    assert asyncio.all_tasks() == before
    assert bus._name not in _memory._SERVERS
    assert bus._name not in _test_hooks._hooks
    await bus.close()
    with pytest.raises(ValueError, match="closed"):
        _ = bus.client
    with pytest.raises(ValueError, match="closed"):
        await bus.sent("orders")


def test_a_bus_used_in_an_event_loop_that_has_ended_can_be_discarded() -> None:
    bus = Bus()

    async def use() -> None:
        await bus.create_queue("orders")
        await send(bus, "one")

    asyncio.run(use())
    bus.discard()
    assert bus._name not in _memory._SERVERS


def test_a_bus_can_be_discarded_outside_a_running_event_loop() -> None:
    bus = Bus()
    loop = asyncio.new_event_loop()

    async def use() -> None:
        await bus.create_queue("orders")
        await send(bus, "one")

    try:
        loop.run_until_complete(use())
        bus.discard()
        assert asyncio.all_tasks(loop) == set()
    finally:
        loop.close()


def test_a_bus_works_across_several_event_loops() -> None:
    bus = Bus()

    async def use() -> None:
        await bus.client.ensure_queue("orders")
        await send(bus, "one")

    asyncio.run(use())
    asyncio.run(use())
    assert len(asyncio.run(bus.sent("orders"))) == 2
    bus.discard()


def test_a_bus_that_was_never_used_can_be_discarded() -> None:
    bus = Bus()
    bus.discard()
    assert bus._name not in _test_hooks._hooks


# -- without an event loop ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_helpers_work_without_an_event_loop(sync_bus: SyncBus) -> None:
    made = sync_bus.create_queue("orders", max_delivery_count=3)
    assert made.max_delivery_count == 3
    assert isinstance(sync_bus.clock, TestClock)

    async def use() -> None:
        async with ServiceBusClient(sync_bus.url) as client:
            async with client.get_queue_sender("orders") as sender:
                for body in ("locked", "deferred", "dead", "active"):
                    await sender.send_messages(ServiceBusMessage(body))
                await sender.schedule_messages(ServiceBusMessage("scheduled"), sync_bus.clock.now + timedelta(days=1))
            receiver = client.get_queue_receiver("orders")
            _, deferred, dead = await receiver.receive_messages(3)
            await receiver.defer_message(deferred)
            await receiver.dead_letter_message(dead)

    asyncio.run(use())
    assert len(sync_bus.sent("orders")) == 5
    assert len(sync_bus.messages("orders")) == 4
    assert bodies(sync_bus.active("orders")) == [b"locked", b"active"]
    assert bodies(sync_bus.locked("orders")) == [b"locked"]
    assert bodies(sync_bus.scheduled("orders")) == [b"scheduled"]
    assert bodies(sync_bus.deferred("orders")) == [b"deferred"]
    assert bodies(sync_bus.dead_lettered("orders")) == [b"dead"]
    sync_bus.clock.advance(days=2)
    assert sync_bus.locked("orders") == sync_bus.scheduled("orders") == []
    assert sync_bus.counts("orders").active_message_count == 4
    assert sync_bus.purge("orders") == 5
    assert repr(sync_bus) == f"<SyncBus {sync_bus.url} open>"


@pytest.mark.slow
def test_the_synchronous_client_uses_the_test_clock(sync_bus: SyncBus) -> None:
    sync_bus.create_queue("orders")
    client = sync_bus.client
    assert sync_bus.client is client
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.schedule_messages(ServiceBusMessage("later"), sync_bus.clock.now + timedelta(hours=1))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(receiver.receive_messages, max_wait_time=60)
            with pytest.raises(TimeoutError):
                waiting.result(0.1)
            sync_bus.clock.advance(hours=1)
            (message,) = waiting.result(60)
        receiver.complete_message(message)
        sync_bus.clock.advance(minutes=5)
        assert receiver.receive_messages(max_wait_time=0.1) == []
    assert sync_bus.messages("orders") == []
    assert bodies(sync_bus.sent("orders")) == [b"later"]
    client.close()
    assert sync_bus.client is not client


def test_a_bus_closed_without_an_event_loop_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with SyncBus() as bus:
        bus.create_queue("orders")
        with bus.client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("one"))
        assert set(threading.enumerate()) - before
    wait_until(lambda: set(threading.enumerate()) <= before)
    bus.close()
    with pytest.raises(ValueError, match="closed"):
        bus.sent("orders")
    with pytest.raises(ValueError, match="closed"):
        _ = bus.client


def test_a_bus_without_an_event_loop_can_be_closed_unused() -> None:
    with SyncBus() as bus:
        pass
    assert "closed" in repr(bus)


async def test_messages_are_shown_at_the_end_of_a_chain_that_no_client_has_opened(bus: Bus) -> None:
    await bus.create_queue("end")
    await bus.create_queue("between", forward_to="end")
    await bus.create_topic("topic")
    await bus.create_subscription("topic", "sub", forward_to="between")
    async with bus.client as client, client.get_topic_sender("topic") as sender:
        await sender.send_messages(ServiceBusMessage("a"))
        assert [str(each) for each in await bus.messages("end")] == ["a"]
        assert await bus.messages("topic", "sub") == await bus.messages("between") == []
    assert await bus.sent("end") == []


async def test_a_queue_that_is_created_again_forwards_to_its_new_destination(bus: Bus) -> None:
    for name in ("one", "other"):
        await bus.create_queue(name)
    async with bus.client as client:
        for destination in ("one", "other"):
            await bus.create_queue("from", forward_to=destination)
            async with client.get_queue_sender("from") as sender:
                await sender.send_messages(ServiceBusMessage(destination))
            assert [str(each) for each in await bus.messages(destination)] == [destination]
            async with ServiceBusAdministrationClient(bus.url) as administration:
                await administration.delete_queue("from")
