"""The duty of the role ``route``: which topics it visits, and what it does when it has lost the role."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from sbredis.client import Connection, Entity
from sbredis.exceptions import ServiceBusConnectionError
from sbredis.maintenance._routing import RoutingDuty
from sbredis.model import ServiceBusMessage
from sbredis.registry import EntityRecord
from tests.aio.queues import HandClock, bodies, in_memory
from tests.aio.topics import Subject, soon, topic_at
from tests.maintenance.hand_census import HandCensus, doing, shared_of
from tests.waiting import eventually

pytestmark = in_memory


async def record_of(subject: Subject) -> EntityRecord:
    return await subject.client._connection.record("t", asyncio.get_running_loop().time() + 60)


async def test_a_topic_that_cannot_be_found_is_visited_again_without_another_census(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(_: Connection, path: str, until: float) -> Entity:
        tries.append(path)
        if len(tries) < 3:
            raise ServiceBusConnectionError("There is no way.")
        return await entity_of(subject.client._connection, path, until)

    tries: list[str] = []
    entity_of = Connection.entity
    async with topic_at(url, {"one": None}) as subject, subject.sender() as sender:
        await sender.schedule_messages(ServiceBusMessage("x"), soon(2))
        census = HandCensus()
        record = await record_of(subject)
        monkeypatch.setattr(Connection, "entity", find)
        async with doing(RoutingDuty(shared_of(subject.client, census))):
            census.show(record)
            await eventually(lambda: len(tries) >= 3)
            monkeypatch.undo()
            await subject.wait_for_count("one", 1)


async def test_a_topic_that_was_made_again_is_visited_in_place_of_the_former_one(url: str) -> None:
    """The client still knows the former topic."""
    async with topic_at(url) as subject:
        census, connection = HandCensus(), subject.client._connection
        duty = RoutingDuty(shared_of(subject.client, census))
        await connection.entity("t", asyncio.get_running_loop().time() + 60)
        async with subject.other_client() as other:
            await subject.admin.delete_topic("t")
            await subject.admin.create_topic("t")
            await subject.create({"one": None})
            async with other.get_topic_sender("t") as sender:
                await sender.schedule_messages(ServiceBusMessage("x"), soon(0.5))
            record = await other._connection.record("t", asyncio.get_running_loop().time() + 60)
        async with doing(duty):
            census.show(record)
            async with subject.other_client() as fresh, fresh.get_subscription_receiver("t", "one") as receiver:
                assert bodies(await receiver.receive_messages(1, 60)) == ["x"]


async def test_a_client_whose_fence_is_refused_doubts_that_it_has_the_role(url: str) -> None:
    """Another client has published with a higher fence. This one publishes nothing, and asks who has the role."""
    clock, doubts = HandClock(), list[None]()
    async with topic_at(url, {"one": None}, clock=clock) as subject, subject.sender() as sender:

        async def schedule(body: str) -> None:
            await sender.schedule_messages(ServiceBusMessage(body), datetime.fromtimestamp(clock.utc() + 10, UTC))
            clock.move(11)

        record = await record_of(subject)
        census = HandCensus()
        async with doing(RoutingDuty(shared_of(subject.client, census)), lambda: 9):
            census.show(record)
            await schedule("a")
            await subject.wait_for_count("one", 1)
        census = HandCensus()
        async with doing(RoutingDuty(shared_of(subject.client, census)), lambda: 8, lambda: doubts.append(None)):
            census.show(record)
            await schedule("b")
            await eventually(lambda: doubts)
        assert await subject.count("one") == 1
        assert await subject.scheduled() == 1
