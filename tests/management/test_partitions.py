"""Tests of showing the partitions of an entity one by one, and whether maintenance is done."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sbredis import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.management import PartitionRuntimeProperties
from sbredis.servers import LocalCluster
from tests.aio.queues import receive_exactly
from tests.management.conftest import held, in_namespace
from tests.registry.keys import bucket_of
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("the partitions lie on several nodes")

Admin = ServiceBusAdministrationClient


async def parts(admin: Admin, path: str) -> list[PartitionRuntimeProperties]:
    return [each async for each in admin.list_partitions(path)]


def total(found: list[PartitionRuntimeProperties], field: str) -> int:
    return sum(getattr(each, field) for each in found)


async def test_the_partitions_of_a_queue_have_their_counts_by_state(admin: Admin, where: str) -> None:
    await admin.create_queue("q", enable_partitioning=True)
    before = datetime.now(UTC) - timedelta(seconds=60)
    found: list[PartitionRuntimeProperties] = []
    async with ServiceBusClient(where) as client, client.get_queue_sender("q") as sender:
        for number in range(12):
            await sender.send_messages(ServiceBusMessage(b"x", partition_key=str(number)))
        await sender.schedule_messages(ServiceBusMessage(b"later"), datetime.now(UTC) + timedelta(hours=1))
        async with client.get_queue_receiver("q") as receiver:
            locked, deferred, dead, delayed = await receive_exactly(receiver, 4)
            await receiver.defer_message(deferred)
            await receiver.dead_letter_message(dead)
            await receiver.abandon_message(delayed, delay=60)

            async def only_reads() -> bool:
                contents = await held(admin)
                found[:] = await parts(admin, "q")
                return await held(admin) == contents

            await eventually(only_reads)  # the receiver reports what it has begun meanwhile
            await receiver.complete_message(locked)
    assert [each.number for each in found] == [0, 1, 2, 3]
    assert all(each.available and each.server for each in found)
    assert total(found, "active_message_count") == 8
    for state in ("locked", "deferred", "dead_letter", "delayed", "scheduled"):
        assert total(found, f"{state}_message_count") == 1, state
    assert total(found, "size_in_bytes") > 12
    for each in found:
        if each.active_message_count:
            assert each.oldest_enqueued_at_utc is not None
            assert before < each.oldest_enqueued_at_utc < datetime.now(UTC) + timedelta(seconds=60)
        else:
            assert each.oldest_enqueued_at_utc is None


async def test_the_oldest_message_that_can_be_received_is_shown(admin: Admin, where: str) -> None:
    await admin.create_queue("q")

    async def oldest() -> datetime | None:
        (found,) = await parts(admin, "q")
        return found.oldest_enqueued_at_utc

    async with ServiceBusClient(where) as client, client.get_queue_sender("q") as sender:
        for _ in range(2):
            await sender.send_messages(ServiceBusMessage(b"x"))
        async with client.get_queue_receiver("q") as receiver:
            first, second = await receiver.peek_messages(2)
            assert await oldest() == first.enqueued_time_utc
            (locked,) = await receiver.receive_messages(1, 60)
            assert await oldest() == second.enqueued_time_utc
            await receiver.complete_message(locked)
            (locked,) = await receiver.receive_messages(1, 60)
            assert await oldest() is None
            await receiver.complete_message(locked)


async def test_a_waiting_receiver_is_counted_until_it_leaves(admin: Admin, where: str) -> None:
    await admin.create_queue("q")

    async def waiting(expected: int) -> bool:
        return total(await parts(admin, "q"), "waiting_receiver_count") == expected

    async with ServiceBusClient(where) as client:
        assert await waiting(0)
        async with client.get_queue_receiver("q") as receiver:
            wait = asyncio.create_task(receiver.receive_messages(1, 60))
            await eventually(lambda: waiting(1))
            wait.cancel()
        await eventually(lambda: waiting(0))


async def test_the_sessions_of_a_queue_are_counted(admin: Admin, where: str) -> None:
    await admin.create_queue("q", requires_session=True)
    async with ServiceBusClient(where) as client, client.get_queue_sender("q") as sender:
        for session in "abc":
            await sender.send_messages(ServiceBusMessage(b"x", session_id=session))
        async with client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION) as receiver:
            assert await receiver.receive_messages(1, 60)
            (found,) = await parts(admin, "q")
            assert (found.waiting_session_count, found.locked_session_count) == (2, 1)
            assert (found.active_message_count, found.locked_message_count) == (2, 1)
    await eventually(lambda: freed(admin))


async def freed(admin: Admin) -> bool:
    (found,) = await parts(admin, "q")
    return (found.waiting_session_count, found.locked_session_count) == (3, 0)


async def test_topics_and_subscriptions_have_partitions_too(admin: Admin, where: str) -> None:
    await admin.create_topic("news")
    await admin.create_subscription("news", "all")
    async with ServiceBusClient(where) as client, client.get_topic_sender("news") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
    (topic,) = await parts(admin, "news")
    (subscription,) = await parts(admin, "news/subscriptions/all")
    assert (topic.active_message_count, subscription.active_message_count) == (0, 1)
    assert subscription.oldest_enqueued_at_utc is not None
    with pytest.raises(MessagingEntityNotFoundError, match="'news/subscriptions/none'"):
        await parts(admin, "news/subscriptions/none")


async def test_a_partition_without_a_server_is_listed_as_not_available(binary: str | None) -> None:
    with LocalCluster(3, binary=binary, config={"cluster-require-full-coverage": "no"}) as cluster:
        async with Admin(in_namespace(cluster.url), slot_count=4) as admin:
            await admin.create_queue("q", enable_partitioning=True)
            found = await parts(admin, "q")
            home = admin._connection.transport.endpoint_of(bucket_of("q", 4)[0])
            lost = next(node for node in cluster.masters if home and node.port != home.port)
            lost.kill()
            left = await parts(admin, "q")
    reachable = {each.number for each in found if not str(each.server).endswith(f":{lost.port}")}
    assert 0 < len(reachable) < 4
    assert {each.number for each in left if each.available} == reachable
    assert [each.number for each in left] == [0, 1, 2, 3]


async def test_maintenance_is_seen_while_a_client_does_it(admin: Admin, where: str) -> None:
    await admin.create_queue("q")
    assert not await admin.has_maintenance()
    async with ServiceBusClient(where, maintenance=True):
        await eventually(admin.has_maintenance)

    async def ended() -> bool:
        return not await admin.has_maintenance()

    await eventually(ended)
