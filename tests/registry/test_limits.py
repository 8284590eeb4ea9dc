"""Tests of the limits of a namespace: how many entities it may have, and how large they may be together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import PartitionSettings, bucket_keys, slot_for_name
from sbredis.exceptions import ServiceBusQuotaExceededError
from sbredis.registry import Namespace
from sbredis.rules import Rule, TrueFilter
from sbredis.transport import Transport
from tests.registry.keys import bucket_of, snapshot
from tests.registry.turns import RecordingTransport

MEGABYTE = 2**20
RULE = Rule("$Default", TrueFilter())


def sized(megabytes: int) -> PartitionSettings:
    return PartitionSettings(quota=megabytes * MEGABYTE)


async def refused(transport: Transport, call: object, *, match: str) -> None:
    """Make a call that a limit must refuse, and check that nothing changed."""
    before = await snapshot(transport)
    with pytest.raises(ServiceBusQuotaExceededError, match=match):
        await call  # type: ignore[misc]
    assert await snapshot(transport) == before


async def test_queues_topics_and_subscriptions_count(transport: Transport, namespace: Namespace) -> None:
    await namespace.limit(entities=3, megabytes=None)
    await namespace.create_entity("queue", sized(1))
    topic = replace(sized(1), topic=True)
    await namespace.create_entity("topic", topic, kind="topic")
    shared = PartitionSettings(shared=True)
    await namespace.create_subscription("topic", "one", shared, rules=[RULE])
    match = "'ns' would have more than 3 entities"
    await refused(transport, namespace.create_entity("another", sized(1)), match=match)
    await refused(transport, namespace.create_subscription("topic", "two", shared, rules=[RULE]), match=match)
    await namespace.delete_entity("topic/subscriptions/one")
    await namespace.create_subscription("topic", "two", shared, rules=[RULE])
    facts = await namespace.facts()
    assert (facts.entities, facts.subscriptions, facts.most_entities, facts.most_megabytes) == (2, 1, 3, None)


async def test_the_sizes_of_all_partitions_count(transport: Transport, namespace: Namespace) -> None:
    await namespace.limit(entities=None, megabytes=100)
    await namespace.create_entity("whole", sized(20))
    await namespace.create_entity("divided", sized(10), partitioned=True)
    match = "may have 60 MB together, and with 'more' they would have more than 100 MB"
    await refused(transport, namespace.create_entity("more", sized(41)), match=match)
    await namespace.create_entity("more", sized(40))
    assert (await namespace.facts()).megabytes == 100


async def test_a_change_of_a_size_counts_and_a_smaller_one_is_always_accepted(
    transport: Transport, namespace: Namespace
) -> None:
    record = await namespace.create_entity("queue", sized(50))
    await namespace.limit(entities=0, megabytes=10)
    await refused(transport, namespace.update_entity(record, sized(51)), match="more than 10 MB")
    record = await namespace.update_entity(record, replace(sized(50), lock_duration=1))
    record = await namespace.update_entity(record, sized(20))
    await refused(transport, namespace.update_entity(record, sized(21)), match="more than 10 MB")
    await namespace.limit(entities=0, megabytes=21)
    await namespace.update_entity(record, sized(21))
    assert (await namespace.facts()).megabytes == 21


async def test_a_deleted_entity_gives_its_size_back(transport: Transport, namespace: Namespace) -> None:
    for name in ("one", "two"):
        await namespace.create_entity(name, sized(30))
    await namespace.delete_entity("one")
    assert (await namespace.facts()).megabytes == 30
    bucket, entities, *_ = bucket_of("two", 4)
    await transport.command("HSET", entities, "two", "damaged", key=entities)
    await namespace.delete_entity("two")
    assert (await namespace.facts()).megabytes == 0
    assert [field for field in (await snapshot(transport))[bucket][1] if field.startswith(b"size")] == []


async def test_limits_that_are_taken_away_limit_nothing(transport: Transport, namespace: Namespace) -> None:
    await namespace.limit(entities=0, megabytes=0)
    await refused(transport, namespace.create_entity("queue", sized(1)), match="more than 0 entities")
    await namespace.limit(entities=None, megabytes=0)
    await refused(transport, namespace.create_entity("queue", sized(1)), match="more than 0 MB")
    await namespace.limit(entities=None, megabytes=None)
    await namespace.create_entity("queue", sized(1))


async def test_clients_that_create_one_after_another_do_not_exceed_a_limit(
    transport: Transport, namespace: Namespace
) -> None:
    """Two that create at the same moment may: each bucket counts its own entities."""
    await namespace.limit(entities=100, megabytes=30)
    clients = [namespace, await Namespace.open(transport, "ns")]

    async def create(number: int) -> bool:
        try:
            await clients[number % 2].create_entity(f"q{number}", sized(10))
        except ServiceBusQuotaExceededError:
            return False
        return True

    assert [await create(number) for number in range(10)] == [number < 3 for number in range(10)]
    facts = await namespace.facts()
    assert (facts.entities, facts.megabytes) == (3, 30)


async def test_a_bucket_that_is_begun_later_has_the_limits(transport: Transport, namespace: Namespace) -> None:
    await namespace.limit(entities=1, megabytes=None)
    await namespace.create_entity("first", sized(1))
    for number in range(4):  # the servers of some slots lose their data
        for key in bucket_keys("ns", namespace.salt(number)):
            if number != slot_for_name("first", 4):
                await transport.command("DEL", key, key=key)
    other = await Namespace.open(transport, "ns")
    for name in ("a", "b", "c", "d", "e", "f"):
        with pytest.raises(ServiceBusQuotaExceededError):
            await other.create_entity(name, sized(1))


async def test_without_limits_no_call_is_made_for_them(transport: Transport, namespace: Namespace) -> None:
    recorder = RecordingTransport(transport)
    client = Namespace(recorder, "ns", 4, 0)
    await client.create_entity("first", sized(1))
    await client.delete_entity("first")
    recorder.calls.clear()
    await client.create_entity("first", sized(1))
    assert {name for name, _ in recorder.calls}.isdisjoint({"read_namespace", "read_bucket"})
    await namespace.limit(entities=9, megabytes=None)
    recorder.calls.clear()
    await client.create_entity("second", sized(1))
    assert [name for name, _ in recorder.calls if name == "read_bucket"] == ["read_bucket"] * 4
