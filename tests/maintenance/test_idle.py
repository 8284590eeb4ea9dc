"""Tests of the removal of entities that nobody uses, by the client that maintains the namespace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.bulk import reserve
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.testing import Bus
from tests.waiting import eventually

FIVE = timedelta(minutes=5)
LONG_ENOUGH = timedelta(minutes=6, seconds=1)


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async with Bus() as bus:
        yield bus


@pytest.fixture
async def admin(bus: Bus) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with ServiceBusAdministrationClient.from_connection_string(bus.url) as admin:
        yield admin


async def gone(admin: ServiceBusAdministrationClient, name: str) -> bool:
    """Return whether a queue or a topic does not exist any more.

    The question is a list, because a question about one entity takes its removal back. On a busy machine every attempt
    to remove it would meet such a question.
    """
    names = [queue.name async for queue in admin.list_queues()]
    return name not in [*names, *[topic.name async for topic in admin.list_topics()]]


async def opened(bus: Bus) -> ServiceBusClient:
    """Return a client of the bus that is connected, and so maintains the namespace."""
    return await bus.client.__aenter__()


@pytest.mark.parametrize("partitioned", [False, True])
async def test_an_unused_queue_is_removed_and_others_stay(
    bus: Bus, admin: ServiceBusAdministrationClient, *, partitioned: bool
) -> None:
    for name, idle in (("short", FIVE), ("long", 3 * FIVE), ("endless", None)):
        await admin.create_queue(name, auto_delete_on_idle=idle, enable_partitioning=partitioned)
    await opened(bus)
    bus.clock.advance(LONG_ENOUGH)
    await eventually(lambda: gone(admin, "short"))
    assert [queue.name async for queue in admin.list_queues()] == ["endless", "long"]


@pytest.mark.parametrize("name", ["reserved", "news/subscriptions/all"])
async def test_a_reserved_entity_stays(bus: Bus, admin: ServiceBusAdministrationClient, name: str) -> None:
    for queue in ("unused", "reserved"):
        await admin.create_queue(queue, auto_delete_on_idle=FIVE)
    await admin.create_topic("news", auto_delete_on_idle=FIVE)
    await admin.create_subscription("news", "all", auto_delete_on_idle=FIVE)
    client = await opened(bus)
    await reserve(client, name, consumer="capture")
    bus.clock.advance(LONG_ENOUGH)
    await eventually(lambda: gone(admin, "unused"))
    bus.clock.advance(LONG_ENOUGH)
    await admin.create_queue("later", auto_delete_on_idle=FIVE)
    bus.clock.advance(LONG_ENOUGH)
    await eventually(lambda: gone(admin, "later"))
    assert [each.path async for each in admin.list_reservations()] == [name]
    await admin.release_reservation(name)

    async def all_removed() -> bool:
        bus.clock.advance(LONG_ENOUGH)  # the maintaining client may have asked just before the release
        return await gone(admin, "reserved") and await gone(admin, "news")

    await eventually(all_removed)


async def test_counting_listing_and_reading_do_not_keep_a_queue(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_queue("q", auto_delete_on_idle=FIVE)
    before = (await admin.get_queue_runtime_properties("q")).accessed_at_utc
    for _ in range(4):
        bus.clock.advance(minutes=1)
        await admin.get_queue("q")
        connection = await admin.get_queue_runtime_properties("q")
        assert connection.accessed_at_utc == before
        assert [each.name async for each in admin.list_queues_runtime_properties()] == ["q"]
    await opened(bus)
    bus.clock.advance(minutes=3)
    await eventually(lambda: gone(admin, "q"))


@pytest.mark.parametrize("use", ["send", "schedule", "receive", "peek", "update"])
async def test_a_use_keeps_a_queue(bus: Bus, admin: ServiceBusAdministrationClient, use: str) -> None:
    await admin.create_queue("q", auto_delete_on_idle=FIVE)
    await admin.create_queue("unused", auto_delete_on_idle=FIVE)
    client = await opened(bus)
    bus.clock.advance(minutes=4)
    async with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
        if use == "send":
            await sender.send_messages(ServiceBusMessage(b"m"))
        elif use == "schedule":
            (number,) = await sender.schedule_messages([ServiceBusMessage(b"m")], bus.clock.now + timedelta(minutes=1))
            await sender.cancel_scheduled_messages(number)
        elif use == "receive":
            assert not await receiver.receive_messages(max_wait_time=0.01)
        elif use == "peek":
            before = (await admin.get_queue_runtime_properties("q")).accessed_at_utc
            assert not await receiver.peek_messages()

            async def noted() -> bool:
                return (await admin.get_queue_runtime_properties("q")).accessed_at_utc > before

            await eventually(noted)
        else:
            await admin.update_queue({"name": "q"}, user_metadata="new")
    bus.clock.advance(minutes=3)
    await eventually(lambda: gone(admin, "unused"))
    assert not await gone(admin, "q")
    bus.clock.advance(minutes=4)
    await eventually(lambda: gone(admin, "q"))


@pytest.mark.parametrize("held", [False, True])
async def test_an_open_receiver_on_which_no_caller_waits_does_not_keep_a_queue(
    bus: Bus, admin: ServiceBusAdministrationClient, *, held: bool
) -> None:
    """Such a receiver makes no calls, even if the clock is moved."""
    await admin.create_queue("q", auto_delete_on_idle=FIVE)
    client = await opened(bus)
    async with client.get_queue_receiver("q") as receiver:
        if held:
            await client.get_queue_sender("q").send_messages(ServiceBusMessage(b"m"))
        assert len(await receiver.receive_messages(max_wait_time=0.05)) == held
        before = (await admin.get_queue_runtime_properties("q")).accessed_at_utc
        for _ in range(2):
            bus.clock.advance(minutes=2)
            await admin.get_queue("q")
            assert (await admin.get_queue_runtime_properties("q")).accessed_at_utc == before
        bus.clock.advance(LONG_ENOUGH)
        await eventually(lambda: gone(admin, "q"))


async def test_a_queue_is_used_again_at_the_moment_of_its_removal(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    """Each accepted message can be received, and a refused one reports that the queue is gone."""
    client = await opened(bus)
    for round_ in range(5):
        name = f"q{round_}"
        await admin.create_queue(name, auto_delete_on_idle=FIVE, enable_partitioning=True)
        async with client.get_queue_sender(name) as sender:
            await sender.send_messages(ServiceBusMessage(b"first"))
            bus.clock.advance(LONG_ENOUGH)
            for _ in range(round_):
                await asyncio.sleep(0)
            try:
                await sender.send_messages(ServiceBusMessage(b"second"))
            except MessagingEntityNotFoundError:
                await eventually(lambda name=name: gone(admin, name))
            else:
                assert (await bus.counts(name)).active_message_count == 2


async def test_the_removal_of_a_topic_warns_of_nothing(
    bus: Bus, admin: ServiceBusAdministrationClient, caplog: pytest.LogCaptureFixture
) -> None:
    await admin.create_topic("t", auto_delete_on_idle=FIVE)
    await admin.create_subscription("t", "s")
    client = await opened(bus)
    async with client.get_topic_sender("t") as sender:
        await sender.send_messages(ServiceBusMessage(b"m"))
    bus.clock.advance(LONG_ENOUGH)

    async def topic_is_gone() -> bool:
        return [each.name async for each in admin.list_topics()] == []

    await eventually(topic_is_gone)
    await bus.close()
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_a_subscription_is_removed_without_receivers_though_its_topic_is_used(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_topic("t", auto_delete_on_idle=3 * FIVE)
    for name in ("unused", "ruled", "read"):
        await admin.create_subscription("t", name, auto_delete_on_idle=FIVE)
    client = await opened(bus)
    bus.clock.advance(minutes=4)
    async with client.get_topic_sender("t") as sender:
        await sender.send_messages(ServiceBusMessage(b"m"))
    async with client.get_subscription_receiver("t", "read") as receiver:
        assert len(await receiver.receive_messages()) == 1
    await admin.create_rule("t", "ruled", "more")
    bus.clock.advance(minutes=3)

    async def left() -> list[str]:
        return [each.name async for each in admin.list_subscriptions("t")]

    async def only_the_unused_is_gone() -> bool:
        return await left() == ["read", "ruled"]

    await eventually(only_the_unused_is_gone)
    bus.clock.advance(minutes=14)

    async def topic_is_gone() -> bool:
        return [each.name async for each in admin.list_topics()] == []

    await eventually(topic_is_gone)
