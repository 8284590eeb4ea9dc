"""Roles that are divided into shards: several clients share the work, and each does that of its own slots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client import MOVE, ROUTE
from sbredis.maintenance._duty import Tenure
from sbredis.maintenance._visiting import Visitor
from sbredis.model import ServiceBusMessage
from tests.aio.diverting import divert
from tests.aio.queues import PATIENT, Queue, queue_at
from tests.waiting import eventually

SLOTS = 16
SHARING = replace(PATIENT, claiming=2.0)


def shards_of(client: ServiceBusClient, role: str) -> set[int]:
    """Return the shards of a role that a client has."""
    offer = client._offer.maintenance
    assert offer is not None
    keeper = offer.keeper(role)
    return set(keeper.standing.shards) if keeper.held else set()


def visitor_of(client: ServiceBusClient, role: str) -> Visitor:
    offer = client._offer.maintenance
    assert offer is not None
    visitor = offer.duties[role].visitor  # type: ignore[attr-defined]
    assert isinstance(visitor, Visitor)
    return visitor


def deadline() -> float:
    return asyncio.get_running_loop().time() + 60


@asynccontextmanager
async def maintaining(queue: Queue) -> AsyncIterator[ServiceBusClient]:
    """Open another client that offers to maintain the namespace."""
    async with queue.other_client(maintenance=True) as client:
        await client._connection.open(deadline())
        yield client


def slots_of(client: ServiceBusClient, role: str) -> frozenset[int]:
    """Return the slots to which a client listens for a role."""
    visitor = visitor_of(client, role)
    return frozenset(visitor._slots._heard_slots) if visitor._slots.all_open else frozenset()


@pytest.mark.parametrize("role", [ROUTE, MOVE])
async def test_clients_share_the_shards_of_a_role_and_one_takes_all_when_it_is_alone(url: str, role: str) -> None:
    async with queue_at(url, partitions=SLOTS, timings=SHARING) as queue, maintaining(queue) as one:
        await eventually(lambda: len(shards_of(one, role)) == 8)
        async with maintaining(queue) as two:
            await eventually(lambda: (len(shards_of(one, role)), len(shards_of(two, role))) == (4, 4))
            assert shards_of(one, role) | shards_of(two, role) == set(range(8))
            await eventually(lambda: (len(slots_of(one, role)), len(slots_of(two, role))) == (8, 8))
            assert slots_of(one, role) | slots_of(two, role) == set(range(SLOTS))
        await eventually(lambda: len(shards_of(one, role)) == 8)
        await eventually(lambda: len(slots_of(one, role)) == SLOTS)
        await eventually(lambda: visitor_of(one, role).at_rest)


async def test_a_client_takes_shards_from_another_only_when_it_knows_all_entities(url: str) -> None:
    async with queue_at(url, partitions=SLOTS, timings=SHARING) as queue, maintaining(queue) as one:
        await eventually(lambda: len(shards_of(one, ROUTE)) == 8)
        async with queue.other_client(maintenance=True) as two:
            await two._connection.open(deadline())
            through: Any = two._connection.transport.call
            asked, answers = 0, asyncio.Event()

            async def call(script: Any, *arguments: Any, **options: Any) -> Any:
                nonlocal asked
                if script.name == "read_changes":
                    await answers.wait()
                asked += script.name == "hold_role"
                return await through(script, *arguments, **options)

            divert(two._connection.transport, call)
            await eventually(lambda: asked >= 6)
            assert (len(shards_of(one, ROUTE)), len(shards_of(two, ROUTE))) == (8, 0)
            answers.set()
            await eventually(lambda: (len(shards_of(one, ROUTE)), len(shards_of(two, ROUTE))) == (4, 4))


@pytest.mark.slow
async def test_messages_of_all_slots_are_moved_while_shards_change_hands(url: str) -> None:
    async with (
        queue_at(url, partitions=SLOTS, partitioned=True, timings=SHARING) as queue,
        ServiceBusAdministrationClient(url, namespace="ns") as admin,
        maintaining(queue),
    ):
        await admin.create_queue("source", enable_partitioning=True, forward_to="q")
        async with queue.client.get_queue_sender("source") as sender:
            for round_ in range(3):
                async with maintaining(queue) as other:
                    for number in range(40):
                        await sender.send_messages(ServiceBusMessage(f"{round_}-{number}"))
                    if round_ == 1:
                        await eventually(lambda: shards_of(other, MOVE))
        await eventually(lambda: queue.counts_are(120, 0))


def test_each_slot_is_in_one_shard_and_those_of_a_shard_follow_each_other() -> None:
    for slots in (1, 3, 8, 9, 256, 1000):
        shards = min(8, slots)
        numbers = [Tenure(slots, shards, lambda: {shard: 5}, lambda: None).numbers for shard in range(shards)]  # noqa: B023
        assert sorted(number for each in numbers for number in each) == list(range(slots))
        assert all(max(each) - min(each) == len(each) - 1 for each in numbers)
        assert max(map(len, numbers)) - min(map(len, numbers)) <= 1


def test_the_fence_of_a_slot_is_that_of_its_shard() -> None:
    tenure = Tenure(16, 8, lambda: {0: 70, 7: 80}, lambda: None)
    assert [tenure.fence(number) for number in (0, 1, 14, 15)] == [70, 70, 80, 80]
    assert tenure.fence(2) == 1  # the shard was lost meanwhile
    assert Tenure(16, 8, lambda: None, lambda: None).fence(2) is None
