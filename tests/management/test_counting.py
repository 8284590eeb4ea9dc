"""Tests of counting the messages of a queue: the totals and the counts by state, and missing partitions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import CallId, Copy, Lock, Outgoing, Partition, Request, perform, slot_salt
from sbredis.entities import Counter
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServerUnsuitableError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.management import (
    CorrelationRuleFilter,
    EntityAvailabilityStatus,
    QueueRuntimeProperties,
    SqlRuleFilter,
    SubscriptionRuntimeProperties,
    TopicRuntimeProperties,
)
from sbredis.servers import LocalCluster
from sbredis.transport import Script, Transport, key_slot
from tests.engine.taking import first_token, receiving, run_of
from tests.engine.terms import Side, State, band, member, score
from tests.management.conftest import held, in_namespace
from tests.registry.keys import bucket_of
from tests.stored_settings import settings_of, with_settings

pytestmark = pytest.mark.everywhere("counts come from partitions on several nodes")

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient


class Queue:
    """A queue to which the tests send the requests of the engine."""

    def __init__(self, admin: Admin, partitions: Sequence[Partition]) -> None:
        self.transport = admin._connection.transport
        self.partitions = partitions
        self.number = 0

    @classmethod
    async def named(cls, admin: Admin, name: str) -> Queue:
        namespace = admin._connection.namespace
        record = await namespace.get_entity(name)
        return cls(admin, [namespace.partition(record, number) for number in record.partitions])

    async def ask(self, request: Request[Any]) -> Any:
        return await perform(self.transport, request)

    def call_id(self) -> CallId:
        self.number += 1
        return CallId(f"lane{self.number}", 1)

    async def fill(self, partition: Partition) -> None:
        """Store eight messages of ten bytes.

        Two are active. One each is locked, delayed, deferred, scheduled, dead-lettered, and both dead-lettered and
        locked.
        """
        due = int((time.time() + 3600) * 1000)
        await self.ask(partition.send(self.call_id(), [Outgoing(b"0123456789")] * 7))
        await self.ask(partition.send(self.call_id(), [Outgoing(b"0123456789", due=due)]))
        token, run = first_token(), run_of(self.transport, partition)
        given = await self.ask(receiving(partition, token, 5, run=run))
        names = [message.name for message in given.messages]
        await self.ask(partition.abandon(self.call_id(), [Lock(token, names[0], delay=3_600_000)]))
        await self.ask(partition.defer(self.call_id(), [Lock(token, names[1])]))
        await self.ask(partition.dead_letter(self.call_id(), [Lock(token, names[2]), Lock(token, names[3])]))
        await self.ask(receiving(partition, first_token(), 1, run=run, side="d"))


async def test_all_counts_of_an_empty_queue_are_zero(admin: Admin) -> None:
    await admin.create_queue("Orders")
    found = await admin.get_queue_runtime_properties("orders")
    assert abs(found.created_at_utc - datetime.now(UTC)) < timedelta(minutes=1)
    assert abs(found.accessed_at_utc - datetime.now(UTC)) < timedelta(minutes=1), "each partition was made just now"
    assert found == QueueRuntimeProperties(
        name="Orders",
        created_at_utc=found.created_at_utc,
        updated_at_utc=found.created_at_utc,
        accessed_at_utc=found.accessed_at_utc,
    )


@pytest.mark.both_shapes
async def test_messages_are_counted_by_state_over_all_partitions(admin: Admin, *, partitioned: bool) -> None:
    await admin.create_queue("q", enable_partitioning=partitioned)
    queue = await Queue.named(admin, "q")
    for partition in queue.partitions:
        await queue.fill(partition)
    before = await held(admin)
    found = await admin.get_queue_runtime_properties("q")
    times = len(queue.partitions)
    assert (found.active_message_count, found.scheduled_message_count) == (5 * times, times)
    assert (found.dead_letter_message_count, found.total_message_count) == (2 * times, 8 * times)
    assert (found.transfer_message_count, found.transfer_dead_letter_message_count) == (0, 0)
    assert found.size_in_bytes >= 80 * times
    assert found.availability_status is EntityAvailabilityStatus.AVAILABLE
    assert [each async for each in admin.list_queues_runtime_properties()] == [found]
    assert await held(admin) == before


@pytest.mark.both_shapes
async def test_messages_of_a_queue_that_forwards_count_as_waiting_for_their_move(
    admin: Admin, *, partitioned: bool
) -> None:
    """Messages and dead letters that no receiver could get now are not counted as waiting. The total is the same."""
    await admin.create_queue("all")
    await admin.create_queue("q", enable_partitioning=partitioned)
    queue = await Queue.named(admin, "q")
    for partition in queue.partitions:
        await queue.fill(partition)
    times = len(queue.partitions)
    before = await admin.get_queue_runtime_properties("q")
    await admin.update_queue({"name": "q"}, forward_dead_lettered_messages_to="all")
    found = await admin.get_queue_runtime_properties("q")
    assert found == replace(
        before,
        updated_at_utc=found.updated_at_utc,
        accessed_at_utc=found.accessed_at_utc,
        dead_letter_message_count=times,
        transfer_message_count=times,
    )
    await admin.update_queue({"name": "q"}, forward_to="all")
    found = await admin.get_queue_runtime_properties("q")
    assert (found.active_message_count, found.transfer_message_count) == (3 * times, 3 * times)
    assert (found.dead_letter_message_count, found.total_message_count) == (times, 8 * times)
    await admin.update_queue({"name": "q"}, forward_to=None)
    assert (await admin.get_queue_runtime_properties("q")).active_message_count == 5 * times


async def test_messages_of_a_subscription_that_forwards_count_as_waiting_for_their_move(admin: Admin) -> None:
    await admin.create_queue("all")
    await admin.create_topic("t")
    await admin.create_subscription("t", "s", forward_to="all")
    await published(admin, "t", ["s"], 5)
    found = await admin.get_subscription_runtime_properties("t", "s")
    assert (found.active_message_count, found.transfer_message_count, found.total_message_count) == (0, 5, 5)


async def test_waiting_transfers_and_transfer_dead_letters_are_counted(admin: Admin) -> None:
    await admin.create_queue("q")
    queue = await Queue.named(admin, "q")
    order = queue.partitions[0].keys[1]
    for side, state, number in (
        (Side.MAIN, State.TRANSFER, 1),
        (Side.MAIN, State.FROZEN, 2),
        (Side.TRANSFER_DEAD, State.ACTIVE, 3),
        (Side.TRANSFER_DEAD, State.LOCKED, 4),
        (Side.TRANSFER_DEAD, State.FROZEN, 5),
    ):
        at = score(band(side, state), number)
        await queue.transport.command("ZADD", order, at, member(side, number), key=order)
    found = await admin.get_queue_runtime_properties("q")
    assert (found.transfer_message_count, found.transfer_dead_letter_message_count) == (2, 3)
    assert (found.active_message_count, found.dead_letter_message_count, found.total_message_count) == (0, 0, 5)


async def published(admin: Admin, topic: str, subscriptions: Sequence[str], count: int) -> None:
    """In each partition, publish ``count`` messages of ten bytes to each of these subscriptions, and schedule one
    message.
    """
    queue = await Queue.named(admin, topic)
    targets = [await Queue.named(admin, f"{topic}/subscriptions/{name}") for name in subscriptions]
    copies = [Copy(place) for place in range(len(targets))]
    due = int((time.time() + 3600) * 1000)
    for place, partition in enumerate(queue.partitions):
        messages = [Outgoing(b"0123456789")] * count + [Outgoing(b"0123456789", due=due)]
        routes: list[list[Copy]] = [copies] * count + [[]]
        for_here = [target.partitions[place] for target in targets]
        await queue.ask(partition.publish(queue.call_id(), messages, routes, for_here))


@pytest.mark.both_shapes
async def test_a_topic_counts_its_messages_and_subscriptions(admin: Admin, *, partitioned: bool) -> None:
    await admin.create_topic("News", enable_partitioning=partitioned)
    empty = await admin.get_topic_runtime_properties("news")
    assert empty == TopicRuntimeProperties(
        name="News",
        created_at_utc=empty.created_at_utc,
        updated_at_utc=empty.updated_at_utc,
        accessed_at_utc=empty.accessed_at_utc,
    )
    await admin.create_subscription("news", "all")
    await admin.create_subscription("news", "some", rules=[])
    await admin.create_rule("news", "some", "red", filter=CorrelationRuleFilter(label="red"))
    await admin.create_rule("news", "some", "blue", filter=SqlRuleFilter("colour = 'blue'"))
    await admin.create_rule("news", "some", "green", filter=SqlRuleFilter("colour = 'green'"))
    await published(admin, "news", ["all", "some"], 3)
    before = await held(admin)
    found = await admin.get_topic_runtime_properties("news")
    times = 4 if partitioned else 1
    assert (found.subscription_count, found.sql_filter_count, found.correlation_filter_count) == (2, 3, 1)
    assert found.scheduled_message_count == times
    assert found.size_in_bytes >= 40 * times
    assert found.created_at_utc == empty.created_at_utc
    assert [each async for each in admin.list_topics_runtime_properties()] == [found]
    assert [each async for each in admin.list_queues_runtime_properties()] == []
    assert await held(admin) == before


@pytest.mark.both_shapes
async def test_a_subscription_counts_its_own_messages_by_state(admin: Admin, *, partitioned: bool) -> None:
    await admin.create_topic("t", enable_partitioning=partitioned)
    for name in ("One", "other"):
        await admin.create_subscription("t", name)
    await published(admin, "t", ["one", "other"], 5)
    queue = await Queue.named(admin, "t/subscriptions/one")
    for partition in queue.partitions:
        token, run = first_token(), run_of(queue.transport, partition)
        given = await queue.ask(receiving(partition, token, 3, run=run))
        names = [message.name for message in given.messages]
        await queue.ask(partition.defer(queue.call_id(), [Lock(token, names[0])]))
        await queue.ask(partition.dead_letter(queue.call_id(), [Lock(token, names[1])]))
    before = await held(admin)
    found = await admin.get_subscription_runtime_properties("T", "one")
    times = len(queue.partitions)
    assert found == SubscriptionRuntimeProperties(
        name="One",
        created_at_utc=found.created_at_utc,
        updated_at_utc=found.created_at_utc,
        accessed_at_utc=found.accessed_at_utc,
        active_message_count=4 * times,
        dead_letter_message_count=times,
        total_message_count=5 * times,
    )
    other = await admin.get_subscription_runtime_properties("t", "other")
    assert (other.active_message_count, other.dead_letter_message_count) == (5 * times, 0)
    assert [each async for each in admin.list_subscriptions_runtime_properties("t")] == [found, other]
    assert await held(admin) == before


async def test_a_change_updates_the_time_of_the_last_change(admin: Admin) -> None:
    await admin.create_queue("q")
    created = await admin.get_queue_runtime_properties("q")
    await admin.update_queue({"name": "q"}, max_delivery_count=3)
    changed = await admin.get_queue_runtime_properties("q")
    assert changed.created_at_utc == created.created_at_utc
    assert changed.updated_at_utc >= created.updated_at_utc
    assert changed.accessed_at_utc >= created.accessed_at_utc


# -- partitions that are missing, or miss a change ---------------------------------------------------------------------


class Failing:
    """Passes calls to another transport, and fails the calls to some partitions."""

    def __init__(self, transport: Transport, partitions: dict[int, ServiceBusError]) -> None:
        self.transport = transport
        self.errors = {f"{{{slot_salt('ns', number, 4)}}}".encode(): error for number, error in partitions.items()}

    async def call(self, script: Script, keys: Sequence[bytes], *arguments: Any, **options: Any) -> Any:
        for salt, error in self.errors.items():
            if salt in keys[0]:
                raise error
        return await self.transport.call(script, keys, *arguments, **options)

    def endpoint_of(self, key: bytes) -> Any:
        return None if any(salt in key for salt in self.errors) else self.transport.endpoint_of(key)

    async def aclose(self) -> None:
        await self.transport.aclose()


def failing(admin: Admin, partitions: dict[int, ServiceBusError]) -> None:
    """From now on, make the client's calls to these partitions fail."""
    connection: Any = admin._connection
    connection.transport = Failing(connection.transport, partitions)


@pytest.mark.slow
@in_memory
@pytest.mark.parametrize(
    "error", [ServiceBusConnectionError, ServiceBusCommunicationError, OperationTimeoutError, ServiceBusServerBusyError]
)
async def test_unreachable_partitions_of_a_queue_are_named_and_left_out_of_the_counts(
    admin: Admin, error: type[ServiceBusError]
) -> None:
    await admin.create_queue("q", enable_partitioning=True)
    await admin.create_queue("other", enable_partitioning=True)
    queue = await Queue.named(admin, "q")
    for partition in queue.partitions:
        await queue.fill(partition)
    failing(admin, {1: error("down"), 3: error("down")})
    found = await admin.get_queue_runtime_properties("q")
    assert found.availability_status is EntityAvailabilityStatus.LIMITED
    assert found.unreachable_partitions == (1, 3)
    assert (found.total_message_count, found.active_message_count) == (16, 10)
    listed = [each async for each in admin.list_queues_runtime_properties()]
    assert [(each.name, each.unreachable_partitions) for each in listed] == [("other", (1, 3)), ("q", (1, 3))]
    assert listed[1] == found


@in_memory
async def test_unreachable_partitions_of_a_topic_are_named_and_left_out_of_the_counts(admin: Admin) -> None:
    await admin.create_topic("t", enable_partitioning=True)
    await admin.create_subscription("t", "all")
    await published(admin, "t", ["all"], 2)
    failing(admin, {1: ServiceBusConnectionError("down")})
    topic = await admin.get_topic_runtime_properties("t")
    assert (topic.availability_status, topic.unreachable_partitions) == ("Limited", (1,))
    assert (topic.scheduled_message_count, topic.subscription_count) == (3, 1)
    found = await admin.get_subscription_runtime_properties("t", "all")
    assert (found.availability_status, found.unreachable_partitions) == ("Limited", (1,))
    assert found.active_message_count == 6
    assert (await admin.get_topic("t")).availability_status == "Limited"
    assert (await admin.get_subscription("t", "all")).availability_status == "Limited"


@in_memory
async def test_an_entity_is_not_deleted_if_its_waiting_messages_cannot_be_counted(admin: Admin) -> None:
    await admin.create_queue("q", enable_partitioning=True)
    transport = admin._connection.transport
    failing(admin, {1: ServiceBusConnectionError("down")})
    with pytest.raises(ServiceBusCommunicationError, match=r"^'q' was not deleted, because") as caught:
        await admin.delete_queue("q")
    assert (caught.value.outcome, caught.value.unreachable_partitions) == (Outcome.REFUSED, (1,))
    connection: Any = admin._connection
    connection.transport = transport
    assert (await admin.get_queue("q")).status == "Active"
    queue = await Queue.named(admin, "q")
    for partition in queue.partitions:  # all accept messages
        await queue.fill(partition)


@in_memory
async def test_the_availability_is_limited_if_a_partition_has_no_server(admin: Admin) -> None:
    whole = await admin.create_queue("q", enable_partitioning=True)
    assert whole.availability_status is EntityAvailabilityStatus.AVAILABLE
    failing(admin, {2: ServiceBusConnectionError("down")})
    found = await admin.get_queue("q")
    assert found.availability_status is EntityAvailabilityStatus.LIMITED
    found.availability_status = EntityAvailabilityStatus.AVAILABLE
    assert found == whole


@in_memory
@pytest.mark.parametrize("error", [ServiceBusAuthorizationError, ServerUnsuitableError])
async def test_a_permanent_error_of_a_partition_is_raised(admin: Admin, error: type[ServiceBusError]) -> None:
    await admin.create_queue("q", enable_partitioning=True)
    failing(admin, {2: error("no")})
    with pytest.raises(error):
        await admin.get_queue_runtime_properties("q")


async def test_a_partition_that_missed_a_change_is_updated_and_counted(admin: Admin) -> None:
    await admin.create_queue("q", enable_partitioning=True)
    namespace = admin._connection.namespace
    record = await namespace.get_entity("q")
    behind = namespace.partition(record, 2)
    await admin.update_queue({"name": "q"}, max_delivery_count=3)
    state = behind.keys[0]
    command = admin._connection.transport.command
    held = with_settings(await command("HGET", state, "settings", key=state), {"version": "1", "deliveries": "10"})
    await command("HSET", state, "settings", held, key=state)
    assert (await admin.get_queue_runtime_properties("q")).availability_status == "Available"
    stored = settings_of(await command("HGET", state, "settings", key=state))
    assert (stored["version"], stored["deliveries"]) == (b"2", b"3")


@pytest.mark.slow
async def test_a_partition_lost_in_a_failover_is_recreated_and_counted(admin: Admin) -> None:
    await admin.create_queue("q", enable_partitioning=True)
    queue = await Queue.named(admin, "q")
    for partition in queue.partitions:
        await queue.fill(partition)
    for key in queue.partitions[1].keys:
        await queue.transport.command("DEL", key, key=key)
    found = await admin.get_queue_runtime_properties("q")
    assert (found.total_message_count, found.availability_status) == (24, "Available")


async def test_a_queue_may_change_while_it_is_counted(admin: Admin) -> None:
    """During the count another client changes the queue, or deletes it and perhaps creates it again."""
    connection = admin._connection
    counter = Counter(connection.transport, connection.namespace, connection.clock)
    await admin.create_queue("q")
    old = await connection.namespace.get_entity("q")
    until = anyio.current_time() + 60
    await admin.update_queue({"name": "q"}, max_delivery_count=3)
    assert (await counter.count(old, until)).record.name == "q"
    await admin.delete_queue("q")
    with pytest.raises(MessagingEntityNotFoundError, match="no entity 'q'"):
        await counter.count(old, until)
    await admin.create_queue("Q", enable_partitioning=True)
    assert (await counter.count(old, until)).record.name == "Q"


async def test_a_cluster_that_lost_a_server_counts_the_remaining_partitions(binary: str | None) -> None:
    with LocalCluster(3, 0, binary=binary, config={"cluster-require-full-coverage": "no"}) as cluster:
        async with Admin.from_connection_string(in_namespace(cluster.url), slot_count=4) as admin:
            await admin.create_queue("q", enable_partitioning=True)
            queue = await Queue.named(admin, "q")
            for partition in queue.partitions:
                await queue.fill(partition)
            masters = [cluster.master_of(key_slot(partition.keys[0])) for partition in queue.partitions]
            lost = next(master for master in masters if master is not cluster.master_of(key_slot(bucket_of("q", 4)[0])))
            lost.kill()
            found = await admin.get_queue_runtime_properties("q")
            away = tuple(number for number, master in enumerate(masters) if master is lost)
            assert (found.availability_status, found.unreachable_partitions) == ("Limited", away)
            assert found.total_message_count == 8 * (4 - len(away))
