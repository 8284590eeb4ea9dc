"""Tests of reserving entities and releasing them, as a consumer, a receiver and an administrator see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.bulk import Awaited, Reservation, list_reservations, release, reserve
from sbredis.bulk import _reserving as reserving_module
from sbredis.engine import perform
from sbredis.exceptions import (
    EntityReservedError,
    MessagingEntityNotFoundError,
    Outcome,
    ReservationLostError,
    ReservationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from sbredis.model import ReservationStatus, ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.registry import Namespace, reservation_of
from tests.aio.diverting import divert
from tests.aio.queues import PATIENT
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("the partitions of a reserved entity are on several nodes")

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient
BY_NAME = "'orders' is reserved for the consumer 'capture' by 'job 7 on host' since "


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient(url, slot_count=3, _timings=PATIENT) as client:
        yield client


@pytest.fixture
async def admin(url: str, client: ServiceBusClient) -> AsyncIterator[Admin]:  # noqa: ARG001 -- it makes the namespace
    async with Admin(url, slot_count=3) as admin:
        await admin.create_queue("orders", enable_partitioning=True)
        yield admin


async def capture(client: ServiceBusClient, path: str = "orders", **options: Any) -> Reservation:
    return await reserve(client, path, consumer="capture", owner="job 7 on host", **options)


async def listed(admin: Admin) -> list[ReservationStatus]:
    return [each async for each in admin.list_reservations()]


async def send(client: ServiceBusClient, count: int, name: str = "orders") -> None:
    async with client.get_sender(name) as sender:
        await sender.send_messages([ServiceBusMessage(f"{name} {number}") for number in range(count)])


async def receive(client: ServiceBusClient, path: str = "orders") -> list[ServiceBusReceivedMessage]:
    async with client.get_receiver(path) as receiver:
        return await receiver.receive_messages(100, 0)


# -- receivers ---------------------------------------------------------------------------------------------------------


async def test_other_receivers_are_refused_and_told_who_has_the_entity(
    url: str, client: ServiceBusClient, admin: Admin
) -> None:
    await send(client, 1)
    reservation = await capture(client)
    async with ServiceBusClient(url) as other:
        with pytest.raises(EntityReservedError) as raised:
            await receive(other)
    error = raised.value
    assert (error.consumer, error.owner, error.outcome) == ("capture", "job 7 on host", Outcome.REFUSED)
    assert error.message.startswith(BY_NAME)
    assert "python -m sbredis.spark release orders" in error.message
    [status] = await listed(admin)
    assert error.since == status.since
    assert reservation.partitions == (0, 1, 2)


async def test_a_receiver_that_waits_is_told_at_once(client: ServiceBusClient, admin: Admin) -> None:  # noqa: ARG001
    async with client.get_queue_receiver("orders") as receiver:
        waiting = asyncio.ensure_future(receiver.receive_messages(max_wait_time=600))
        await eventually(lambda: _waits(client))
        await capture(client)
        with pytest.raises(EntityReservedError, match=BY_NAME):
            await waiting
        await release(client, "orders")
        await send(client, 1)
        assert len(await receiver.receive_messages(max_wait_time=60)) == 1


def _waits(client: ServiceBusClient) -> bool:
    entity = client._connection._entities.get("orders")
    return entity is not None and len(entity._partition_clients) == 3


async def test_messages_can_be_sent_peeked_and_scheduled_meanwhile(client: ServiceBusClient, admin: Admin) -> None:
    await capture(client)
    await send(client, 3)
    async with client.get_queue_receiver("orders") as receiver:
        assert len(await receiver.peek_messages(10)) == 3
    assert (await admin.get_queue_runtime_properties("orders")).active_message_count == 3


async def test_dead_letters_can_be_received_meanwhile(client: ServiceBusClient, admin: Admin) -> None:  # noqa: ARG001
    await send(client, 1)
    async with client.get_queue_receiver("orders", max_wait_time=60) as receiver:
        [message] = await receiver.receive_messages()
        await receiver.dead_letter_message(message)
    await capture(client)
    async with client.get_queue_receiver("orders", sub_queue="deadletter", max_wait_time=60) as receiver:
        [message] = await receiver.receive_messages()
        await receiver.complete_message(message)


async def test_a_release_gives_the_messages_back(client: ServiceBusClient, admin: Admin) -> None:
    await send(client, 5)
    await capture(client)
    assert await release(client, "orders", "capture")
    assert await listed(admin) == []
    assert not await release(client, "orders")
    assert len(await receive(client)) > 0
    with pytest.raises(MessagingEntityNotFoundError):
        await admin.release_reservation("missing")


# -- consumers ---------------------------------------------------------------------------------------------------------


async def test_another_consumer_is_refused(client: ServiceBusClient, admin: Admin) -> None:
    reservation = await capture(client)
    await reservation.begin(1)
    before = await listed(admin)
    with pytest.raises(EntityReservedError, match=BY_NAME) as raised:
        await reserve(client, "ORDERS", consumer="other")
    assert raised.value.last_seen == before[0].last_seen is not None
    assert await listed(admin) == before
    with pytest.raises(EntityReservedError, match="the reservation of the consumer 'other' cannot be released"):
        await release(client, "orders", "other")
    assert await listed(admin) == before


@pytest.mark.conformance
async def test_the_next_run_of_a_consumer_takes_over(url: str, client: ServiceBusClient, admin: Admin) -> None:
    """The partitions refuse the run before, also one of another client, and each run after a release."""
    await send(client, 1)
    async with ServiceBusClient(url) as other:
        first = await capture(other)
        begun = await first.begin(0)
        second = await reserve(client, "orders", consumer="capture", owner="job 8")
        assert second.fence > first.fence
        await second.plan(0, begun, 1, 1)
        with pytest.raises(ReservationLostError):
            await first.plan(0, begun, 1, 1)
        assert [each.owner async for each in admin.list_reservations()] == ["job 8"]
        await release(client, "orders")
        with pytest.raises(ReservationLostError):
            await second.plan(0, begun, 1, 1)


async def test_a_subscription_can_be_reserved(client: ServiceBusClient, admin: Admin) -> None:
    await admin.create_topic("news")
    await admin.create_subscription("news", "all")
    await admin.create_subscription("news", "rest")
    await send(client, 2, "news")
    reservation = await capture(client, "news/subscriptions/all")
    assert reservation.path == "news/subscriptions/all"
    with pytest.raises(EntityReservedError, match="'news/subscriptions/all' is reserved"):
        await receive(client, "news/subscriptions/all")
    assert len(await receive(client, "news/subscriptions/rest")) == 2
    with pytest.raises(EntityReservedError, match="its topic cannot be deleted"):
        await admin.delete_topic("news")
    with pytest.raises(EntityReservedError, match="it cannot be deleted"):
        await admin.delete_subscription("news", "all")
    assert [each.path async for each in admin.list_reservations()] == ["news/subscriptions/all"]
    await admin.release_reservation("news/subscriptions/all")
    await admin.delete_topic("news")


@in_memory
async def test_entities_that_cannot_be_reserved_are_refused(client: ServiceBusClient, admin: Admin) -> None:
    await admin.create_topic("news")
    await admin.create_queue("sessions", requires_session=True)
    await admin.create_queue("forwarding", forward_to="orders")
    for name, why in (("news", "it is a topic"), ("sessions", "sessions"), ("forwarding", "it forwards its messages")):
        with pytest.raises(ServiceBusError, match=f"'{name}' cannot be reserved, because .*{why}"):
            await capture(client, name)
    with pytest.raises(MessagingEntityNotFoundError):
        await capture(client, "missing")
    with pytest.raises(ValueError, match="consumer must be"):
        await reserve(client, "orders", consumer="")
    with pytest.raises(ValueError, match="timeout must be 0 or more"):
        await capture(client, timeout=-1)
    assert await listed(admin) == []


# -- waiting for other receivers ---------------------------------------------------------------------------------------


async def test_a_reservation_waits_until_no_receiver_has_a_message(client: ServiceBusClient, admin: Admin) -> None:  # noqa: ARG001
    await send(client, 2)
    seen: list[Awaited] = []
    async with client.get_queue_receiver("orders", max_wait_time=60) as receiver:
        one, *others = await receiver.receive_messages(2)
        reserving = asyncio.ensure_future(capture(client, progress=seen.append))
        await eventually(lambda: seen)
        for message in others:
            await receiver.abandon_message(message)
        await receiver.complete_message(one)  # a receiver that has a message may settle it
        await reserving
    assert (seen[0].locked, seen[0].unreachable) == (1 + len(others), ())
    assert seen[0].until is not None
    with pytest.raises(EntityReservedError):
        await receive(client)


async def test_a_reservation_that_waits_for_too_long_opens_the_entity_again(
    client: ServiceBusClient, admin: Admin
) -> None:
    await send(client, 2)
    async with client.get_queue_receiver("orders", max_wait_time=60) as receiver:
        one, *others = await receiver.receive_messages(2)
        await receiver.abandon_message(one, delay=3600)
        for message in others:
            await receiver.complete_message(message)
        with pytest.raises(ReservationTimeoutError, match=r"messages in partition \d are still 1 delayed\. No lock"):
            await capture(client, timeout=0)
        assert await listed(admin) == []
        assert reservation_of(await client._connection.namespace.get_entity("orders")) is None
        await send(client, 1)
        assert len(await receiver.receive_messages()) == 1


async def test_a_reservation_that_waits_shows_signs_of_life(
    client: ServiceBusClient, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for longer than a consumer without a call counts as alive. Then it opens the entity as before."""
    monkeypatch.setattr(reserving_module, "SHOWING_LIFE", 0.0)
    await send(client, 1)
    waits: list[Awaited] = []
    seen: set[datetime] = set()

    async def seen_twice() -> bool:
        [status] = await listed(admin)
        assert status.state == "reserving"
        seen.update([] if status.last_seen is None else [status.last_seen])
        return len(seen) > 1

    async with client.get_queue_receiver("orders", max_wait_time=60) as receiver:
        [message] = await receiver.receive_messages()
        waiting = asyncio.ensure_future(capture(client, progress=waits.append))
        await eventually(lambda: waits)
        await eventually(seen_twice)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await listed(admin) == []
        await receiver.abandon_message(message)
        [message] = await receiver.receive_messages()
        await receiver.complete_message(message)


@in_memory
async def test_a_claim_whose_answer_does_not_come_is_taken_back(client: ServiceBusClient, admin: Admin) -> None:
    async def call(script: Any, *arguments: Any, **options: Any) -> Any:
        answer = await through(script, *arguments, **options)
        if script.name == "revise_entity" and not claimed.is_set():
            claimed.set()
            await asyncio.Event().wait()
        return answer

    claimed = asyncio.Event()
    transport: Any = client._connection.transport
    through = transport.call
    divert(transport, call)
    reserving = asyncio.ensure_future(capture(client))
    await asyncio.wait_for(claimed.wait(), 60)
    assert [each.consumer for each in await listed(admin)] == ["capture"]
    reserving.cancel()
    await asyncio.wait([reserving])
    assert reserving.cancelled()
    assert await listed(admin) == []


@in_memory
async def test_an_entity_stays_closed_until_all_its_partitions_are_unpinned(
    client: ServiceBusClient, admin: Admin
) -> None:
    async def call(script: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
        if script.name == "unpin" and keys[0] == lost:
            raise ServiceBusConnectionError("There is no way.", outcome=Outcome.NEVER_SENT)
        return await through(script, keys, *arguments, **options)

    await send(client, 9)
    reservation = await capture(client)
    for number in reservation.partitions:
        await reservation.plan(number, await reservation.begin(number), 100, 1 << 20)
    transport: Any = client._connection.transport
    entity = await client._connection.entity("orders", asyncio.get_running_loop().time() + 60)
    lost, through = entity.partition(2).keys[0], transport.call
    divert(transport, call)
    with pytest.raises(ServiceBusCommunicationError, match="partitions of it could not be reached: 2"):
        await release(client, "orders", "capture", timeout=60)
    assert [each.consumer for each in await listed(admin)] == ["capture"]
    with pytest.raises(EntityReservedError):
        await receive(client)
    divert(transport, through)
    assert await release(client, "orders", "capture")
    assert len(await receive(client)) == 9


@in_memory
async def test_a_release_that_the_partitions_refuse_ends_with_their_error(
    client: ServiceBusClient, admin: Admin
) -> None:
    """A failover of the registry has lost a later reservation, so the partitions have a higher fence."""
    await send(client, 1)
    await capture(client)
    entity = await client._connection.entity("orders", asyncio.get_running_loop().time() + 60)
    await perform(client._connection.transport, entity.partition(1).unpin(1_000_000))
    async with asyncio.timeout(60):
        with pytest.raises(ReservationLostError):
            await release(client, "orders", "capture")
    assert [each.consumer for each in await listed(admin)] == ["capture"]


@in_memory
async def test_a_reservation_that_was_taken_over_while_it_waited_leaves_the_entity_closed(
    client: ServiceBusClient, admin: Admin
) -> None:
    await send(client, 1)
    seen: list[Awaited] = []
    async with client.get_queue_receiver("orders", max_wait_time=60) as receiver:
        [message] = await receiver.receive_messages()
        first = asyncio.ensure_future(capture(client, progress=seen.append))
        await eventually(lambda: seen)
        second = asyncio.ensure_future(reserve(client, "orders", consumer="capture", owner="second"))
        with pytest.raises(ReservationLostError):
            await first
        await receiver.complete_message(message)
        await second
    assert [each.owner async for each in admin.list_reservations()] == ["second"]


# -- administrators ----------------------------------------------------------------------------------------------------


async def test_a_reserved_entity_is_not_deleted_and_not_forwarded(client: ServiceBusClient, admin: Admin) -> None:
    await admin.create_queue("other")
    await capture(client)
    for attempt in (admin.delete_queue("orders"), admin.update_queue({"name": "orders"}, forward_to="other")):
        with pytest.raises(EntityReservedError, match=BY_NAME) as raised:
            await attempt
        assert raised.value.outcome is Outcome.REFUSED
    await admin.update_queue({"name": "orders"}, max_delivery_count=5, forward_dead_lettered_messages_to="other")
    with pytest.raises(EntityReservedError):
        await receive(client)
    assert await admin.release_reservation("orders")
    await admin.update_queue({"name": "orders"}, forward_to="other")
    await admin.delete_queue("orders")


async def test_the_list_says_who_has_which_entity_and_how_far(client: ServiceBusClient, admin: Admin) -> None:
    await admin.create_queue("another")
    assert await list_reservations(client) == []
    reservation = await capture(client, "another")
    await capture(client)
    await send(client, 5, "another")
    [number] = reservation.partitions
    begun = await reservation.begin(number)
    planned = await reservation.plan(number, begun, 2, 1_000_000)
    await reservation.plan(number, planned.committed, 1, 1_000_000)
    first, second = await list_reservations(client)
    assert (first.path, first.consumer, first.owner) == ("another", "capture", "job 7 on host")
    assert (first.state, first.stale, first.unreachable_partitions) == ("reserved", False, ())
    assert first.last_seen is not None
    position = first.positions[number]
    assert (position.plan, position.committed, position.planned, position.left) == (2, planned.end, planned.end + 1, 2)
    assert (second.path, second.last_seen, sorted(second.positions)) == ("orders", None, [0, 1, 2])
    assert [each.stale async for each in admin.list_reservations(stale_after=1e-6)] == [True, True]


async def test_the_reservation_of_one_entity_is_read_alone(
    client: ServiceBusClient, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entities are not listed, so the other ones cost nothing."""
    await admin.create_queue("another")
    await admin.create_topic("news")
    await admin.create_subscription("news", "all")
    await capture(client)
    await capture(client, "news/subscriptions/all")
    monkeypatch.delattr(Namespace, "list_entities")
    for path, found in (
        ("Orders", ["orders"]),
        ("news/Subscriptions/ALL", ["news/subscriptions/all"]),
        ("another", []),
    ):
        assert [each.path async for each in admin.list_reservations(entity_path=path)] == found
    with pytest.raises(MessagingEntityNotFoundError):
        assert [each async for each in admin.list_reservations(entity_path="none")] == []
