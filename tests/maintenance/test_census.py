"""Tests of the census: it knows what has changed at once, and what it was not told soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client import Connection
from sbredis.engine import PartitionSettings, bucket_keys, slot_salt
from sbredis.exceptions import Outcome, ServiceBusConnectionError
from sbredis.maintenance import DutyResources
from sbredis.maintenance._census import Census
from sbredis.registry import EntityRecord
from sbredis.rules import Rule
from sbredis.servers import LocalServer
from tests.aio.diverting import divert
from tests.aio.queues import PATIENT, Calls, queue_at
from tests.registry.damage import UNREADABLE, Registered
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("buckets lie in all slots")
SETTINGS = PartitionSettings()


class Kept:
    """A census that is used, and the records that its user knows."""

    def __init__(self, connection: Connection, census: Census) -> None:
        self.connection = connection
        self.census = census
        self.namespace = connection.namespace
        self.known: dict[str, EntityRecord] = {}
        self.told = 0

    def changed(self, entities: Collection[str]) -> None:
        self.told += 1
        for entity in entities:
            record = self.census.by_id.get(entity)
            if record is None:
                self.known.pop(entity, None)
            else:
                self.known[entity] = record

    def paths(self) -> set[str]:
        assert self.known == self.census.by_id
        return {record.path for record in self.known.values()}


@asynccontextmanager
async def kept_at(url: str, **timings: Any) -> AsyncIterator[Kept]:
    async with queue_at(url, partitions=4, timings=replace(PATIENT, **timings)) as queue:
        connection = queue.client._connection
        made = DutyResources.of(connection).census
        kept = Kept(connection, made)
        ended = made.use(kept.changed)
        task = asyncio.create_task(made.run())
        try:
            await eventually(lambda: made.whole)
            yield kept
        finally:
            ended()
            task.cancel()
            await asyncio.wait([task])


async def test_a_census_follows_every_change(url: str) -> None:
    async with kept_at(url) as kept:
        namespace = kept.namespace
        assert kept.paths() == {"q"}
        await namespace.create_entity("topic", PartitionSettings(topic=True), kind="topic", partitioned=True)
        shared = PartitionSettings(shared=True)
        await namespace.create_subscription("topic", "sub", shared, rules=[Rule("all")])
        await eventually(lambda: kept.paths() == {"q", "topic", "topic/subscriptions/sub"})
        await eventually(lambda: all(record.state == "active" for record in kept.known.values()))
        record = await namespace.get_entity("q")
        await namespace.update_entity(record, SETTINGS, properties={"forward_to": "topic"})
        await eventually(lambda: kept.census.by_id[record.id].properties == {"forward_to": "topic"})
        await namespace.delete_entity("topic")
        await eventually(lambda: kept.paths() == {"q"})
        await namespace.delete_entity("q")
        again = await namespace.create_entity("q", SETTINGS)
        await eventually(lambda: set(kept.known) == {again.id})


async def test_a_census_hears_all_buckets_before_it_reads_each_of_them_once(url: str) -> None:
    async with queue_at(url, partitions=4, timings=PATIENT) as queue:
        connection = queue.client._connection
        made = DutyResources.of(connection).census
        with Calls(connection.transport) as calls:
            ended = made.use(lambda _: None)
            task = asyncio.create_task(made.run())
            await eventually(lambda: calls.by_script["read_changes"])
            heard_all = made._channels.all_open  # otherwise the census did not wait for a slow server
            await eventually(lambda: made.whole and made._channels.all_open)
            assert calls.by_script["read_changes"] == connection.namespace.slots or not heard_all
            ended()
            task.cancel()
            await asyncio.wait([task])


async def test_a_user_is_told_once_that_all_buckets_were_read_and_nothing_has_changed(url: str) -> None:
    async with kept_at(url) as kept:
        await eventually(lambda: kept.census._channels.all_open and kept.census.whole)
        told = kept.told
        await kept.census.read()
        assert kept.connection.namespace.slots > 1
        assert kept.told == told + 1


async def test_a_user_that_comes_later_is_told_everything(url: str) -> None:
    async with kept_at(url) as kept:
        for number in range(20):
            await kept.namespace.create_entity(f"q{number}", SETTINGS)
        await eventually(lambda: len(kept.paths()) == 21)
        late = Kept(kept.connection, kept.census)
        ended = kept.census.use(late.changed)
        await eventually(lambda: late.known == kept.known)
        await kept.namespace.delete_entity("q")
        await eventually(lambda: len(late.known) == 20)
        ended()
        told = late.told
        await kept.namespace.delete_entity("q1")
        await eventually(lambda: len(kept.paths()) == 19)
        assert late.told == told


async def test_a_census_that_misses_announcements_still_learns_of_changes(url: str) -> None:
    async with kept_at(url, reading_buckets=0.2) as kept, ServiceBusClient(url, namespace="ns") as client:
        await client._connection.open(asyncio.get_running_loop().time() + 60)
        registry = kept.namespace._steps.registry
        bucket = registry.keys("q")[0]
        elsewhere = bucket + b":elsewhere"  # the announcements of the bucket go to another channel
        await client._connection.transport.command("HSET", bucket, "channel", elsewhere, key=bucket)
        new = next(name for name in map(str, range(99)) if registry.keys(name)[0] == bucket)
        await kept.namespace.create_entity(new, SETTINGS)
        await eventually(lambda: kept.paths() == {"q", new})
        await kept.namespace.delete_entity("q")
        await eventually(lambda: kept.paths() == {new})


async def test_a_bucket_that_cannot_be_read_delays_no_other(url: str) -> None:
    async with kept_at(url) as kept:
        transport = kept.namespace._steps._transport
        through: Any = transport.call
        lost = kept.namespace._steps.registry.keys("q")

        async def call(script: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
            if script.name == "read_changes" and tuple(keys) == lost and away:
                raise ServiceBusConnectionError("The server is away.", outcome=Outcome.NEVER_SENT)
            return await through(script, keys, *arguments, **options)

        away = True
        divert(transport, call)
        other = next(name for name in "abcdefgh" if kept.namespace._steps.registry.keys(name) != lost)
        await kept.namespace.delete_entity("q")
        await kept.namespace.create_entity(other, SETTINGS)
        await eventually(lambda: kept.paths() == {"q", other})
        assert not kept.census.whole
        away = False
        await eventually(lambda: kept.paths() == {other})


async def test_a_record_that_is_mended_by_hand_is_known_after_the_next_reading(url: str) -> None:
    async with kept_at(url) as kept, ServiceBusClient(url, namespace="ns") as client:
        await client._connection.open(asyncio.get_running_loop().time() + 60)
        record = Registered(client._connection.transport, "q", namespace="ns", slots=4)
        await record.spoil(UNREADABLE["not JSON"])
        bucket = kept.namespace._steps.registry.bucket_of("q")
        kept.census.doubt(bucket)
        await kept.namespace.create_entity("other", SETTINGS)
        await eventually(lambda: "other" in kept.paths())
        beside = next(name for name in map(str, range(99)) if kept.namespace._steps.registry.bucket_of(name) == bucket)
        await kept.namespace.create_entity(beside, SETTINGS)
        await eventually(lambda: beside in kept.paths())
        await record.heal()
        await kept.census.read()
        assert kept.paths() == {"q", "other", beside}


async def test_an_entity_is_gone_only_if_the_registry_says_so(url: str) -> None:
    async with kept_at(url) as kept:
        (record,) = kept.known.values()
        cold = DutyResources.of(kept.connection).census
        assert cold.by_id == {}
        assert await cold.find(record.id) == record
        await kept.namespace.delete_entity("q")
        assert await cold.find(record.id) is None
        assert await cold.find("unknown") is None


async def test_a_census_that_reads_a_bucket_from_its_beginning_forgets_what_is_not_there(url: str) -> None:
    """The log of the bucket does not have the deletion any more."""
    async with kept_at(url) as kept:
        cold = DutyResources.of(kept.connection).census
        await cold.read()
        assert {record.path for record in cold.by_id.values()} == {"q"}
        await kept.namespace.delete_entity("q")
        entries = kept.namespace._steps.registry.keys("q")[8]
        assert await kept.connection.transport.command("ZREM", entries, "q", key=entries) == 1
        for log in cold._logs.logs:
            log.restart()
        await cold.read()
        assert cold.by_id == {}


# -- large buckets -----------------------------------------------------------------------------------------------------

MANY = 260  # more than one page


@pytest.mark.parametrize("broken", ["q000", f"q{MANY - 1:03}"])
async def test_a_broken_record_keeps_no_other_of_its_bucket_from_the_census(server: LocalServer, broken: str) -> None:
    async with (
        ServiceBusClient(server.url, namespace="census", slot_count=1) as client,
        ServiceBusAdministrationClient(server.url, namespace="census") as administration,
    ):
        for number in range(MANY):
            await administration.create_queue(f"q{number:03}")
        transport, key = client._connection.transport, bucket_keys("census", slot_salt("census", 0, 1))[1]
        await transport.command("HSET", key, broken, b"2 nothing that a release has written", key=key)
        census = DutyResources.of(client._connection).census
        async with asyncio.timeout(60):
            await census.read()
        assert {record.name for record in census.by_id.values()} == {f"q{n:03}" for n in range(MANY)} - {broken}
        assert census.whole
