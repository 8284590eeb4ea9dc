"""Tests of the limits of a namespace: how many entities it may have, and how large they may be together."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sbredis.engine import PartitionSettings, registry_keys
from sbredis.exceptions import ServiceBusQuotaExceededError
from sbredis.registry import Namespace
from sbredis.rules import Rule, TrueFilter
from sbredis.transport import Transport
from tests.registry.keys import snapshot

pytestmark = pytest.mark.anyio

MEGABYTE = 2**20
NAMESPACE, ENTITIES, NAMES = registry_keys("ns")[:3]
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
    await transport.command("HSET", ENTITIES, "two", "damaged", key=ENTITIES)
    await namespace.delete_entity("two")
    assert (await namespace.facts()).megabytes == 0
    assert [field for field in (await snapshot(transport))[NAMESPACE][1] if field.startswith(b"size")] == []


async def test_limits_that_are_taken_away_limit_nothing(transport: Transport, namespace: Namespace) -> None:
    await namespace.limit(entities=0, megabytes=0)
    await refused(transport, namespace.create_entity("queue", sized(1)), match="more than 0 entities")
    await namespace.limit(entities=None, megabytes=0)
    await refused(transport, namespace.create_entity("queue", sized(1)), match="more than 0 MB")
    await namespace.limit(entities=None, megabytes=None)
    await namespace.create_entity("queue", sized(1))


async def test_several_clients_together_do_not_exceed_a_limit(namespace: Namespace) -> None:
    await namespace.limit(entities=100, megabytes=30)

    async def create(name: str) -> bool:
        try:
            await namespace.create_entity(name, sized(10))
        except ServiceBusQuotaExceededError:
            return False
        return True

    assert sum(await asyncio.gather(*(create(f"q{number}") for number in range(10)))) == 3
    facts = await namespace.facts()
    assert (facts.entities, facts.megabytes) == (3, 30)
