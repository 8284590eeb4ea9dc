"""Tests of changes to an entity by a client that ends after any step, or that is slower than all other clients."""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.engine import PartitionSettings, ScriptCaller
from sbredis.exceptions import (
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    ServiceBusCommunicationError,
    ServiceBusError,
)
from sbredis.registry import EntityChangedError, EntityRecord, Namespace
from sbredis.transport import Transport
from tests.engine.opening import open_with_scripts
from tests.registry.cuts import Cuts, Operation, opened, settled
from tests.registry.keys import bucket_of, keys_of, snapshot
from tests.registry.turns import Crowd, Cut
from tests.stored_settings import settings_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.everywhere("a creation cut off in the middle has reached some slots and not others"),
]

SETTINGS = PartitionSettings(lock_duration=1234)
SECOND = next(name for name in map(str, range(100)) if bucket_of(name, 3) == bucket_of("First", 3))
"""The name of a queue in the bucket of the queue ``First``."""
CHANGED = PartitionSettings(lock_duration=4321)

shapes = pytest.mark.both_shapes


async def nothing(_: Namespace) -> None:
    pass


def creating(*, partitioned: bool) -> Operation:
    return lambda namespace: namespace.create_entity("Orders", SETTINGS, partitioned=partitioned)


async def deleting(namespace: Namespace) -> None:
    await namespace.delete_entity("Orders")


async def changing(namespace: Namespace) -> None:
    await namespace.update_entity(await namespace.get_entity("Orders"), CHANGED)


# -- interrupted clients -----------------------------------------------------------------------------------------------


@shapes
async def test_an_interrupted_creation_is_finished_by_a_reader(transport: Transport, *, partitioned: bool) -> None:
    create = creating(partitioned=partitioned)
    cuts = Cuts(transport, nothing, create)
    async for namespace, steps in cuts.all():
        if not steps:
            with pytest.raises(MessagingEntityNotFoundError):
                await namespace.get_entity("Orders")
            await namespace.create_entity("Orders", SETTINGS, partitioned=partitioned)
        else:
            record = await namespace.get_entity("orders")
            assert (record.name, record.state, record.settings) == ("Orders", "active", SETTINGS)
        await cuts.as_if_nothing_had_happened(namespace)


@shapes
async def test_an_interrupted_creation_is_finished_by_a_second_creation(
    transport: Transport, *, partitioned: bool
) -> None:
    create = creating(partitioned=partitioned)
    cuts = Cuts(transport, nothing, create)
    async for namespace, steps in cuts.all():
        if steps:
            with pytest.raises(MessagingEntityAlreadyExistsError):
                await namespace.create_entity("ORDERS", CHANGED)
        else:
            await create(namespace)
        await cuts.as_if_nothing_had_happened(namespace)


async def test_an_interrupted_creation_in_a_new_bucket_can_be_repeated(transport: Transport) -> None:
    """The first creation in a bucket begins it. An interruption leaves the bucket and the entity, or less."""
    cuts = Cuts(transport, nothing, creating(partitioned=True), begun=False)
    async for namespace, _ in cuts.all():
        with suppress(MessagingEntityNotFoundError):
            await namespace.get_entity("Orders")
        if not await namespace.list_entities():
            await namespace.create_entity("Orders", SETTINGS, partitioned=True)
        await cuts.as_if_nothing_had_happened(namespace)


@shapes
async def test_an_interrupted_creation_can_be_deleted(transport: Transport, *, partitioned: bool) -> None:
    async for namespace, steps in Cuts(transport, nothing, creating(partitioned=partitioned)).all():
        if steps:
            await namespace.delete_entity("Orders")
        kept = settled(await snapshot(transport), namespace.name)
        assert set(kept) == {"{registry}:namespace"}


@shapes
@pytest.mark.parametrize("look", ["delete", "get", "create"])
async def test_an_interrupted_deletion_is_finished(transport: Transport, look: str, *, partitioned: bool) -> None:
    cuts = Cuts(transport, creating(partitioned=partitioned), deleting)
    async for namespace, steps in cuts.all():
        listed = await namespace.list_entities()
        assert [record.state for record in listed] in ([["active"]] if steps < 2 else [["deleting"], []])
        if steps < 2 or (look == "delete" and listed):  # the first step only reads
            await namespace.delete_entity("Orders")
        elif look == "create":
            record = await namespace.create_entity("Orders", CHANGED)
            assert (record.state, record.settings) == ("active", CHANGED)
            await namespace.delete_entity("Orders")
        else:
            with pytest.raises(MessagingEntityNotFoundError):
                await namespace.get_entity("Orders")
        await cuts.as_if_nothing_had_happened(namespace)


@shapes
async def test_an_interrupted_change_is_complete_or_absent_and_can_be_repeated(
    transport: Transport, *, partitioned: bool
) -> None:
    cuts = Cuts(transport, creating(partitioned=partitioned), changing)
    async for namespace, steps in cuts.all():
        record = await namespace.get_entity("Orders")
        assert (record.version, record.settings) == ((2, CHANGED) if steps > 1 else (1, SETTINGS))
        again = await namespace.update_entity(record, CHANGED)
        assert again.version == record.version + 1
        kept = settled(await snapshot(transport), namespace.name)
        states = [value for key, value in kept.items() if key.endswith(":state")]
        assert {settings_of(state[b"settings"])["version"] for state in states} == {b"%d" % again.version}


async def test_an_error_in_mid_operation_names_what_may_be_incomplete_and_how_to_finish_it(
    transport: Transport,
) -> None:
    namespace = await opened(transport, "ns", 3)
    with pytest.raises(ServiceBusCommunicationError) as raised:
        await creating(partitioned=True)(Namespace(Cut(transport, 3, before=True), "ns", 3, 0))
    assert raised.value.message == (
        "The connection was cut by the test. Partitions of 'Orders' that could not be reached: 1, 2. "
        "The entity 'Orders' may be half created or half deleted: the next call continues that."
    )
    assert [record.state for record in await namespace.list_entities()] == ["creating"]
    assert [record.state for record in await namespace.list_entities()] == ["creating"], "listing leaves it as it is"
    record = await namespace.get_entity("Orders")
    with pytest.raises(ServiceBusCommunicationError) as raised:
        await Namespace(Cut(transport, 2, before=True), "ns", 3, 0).update_entity(record, CHANGED)
    assert raised.value.message == (
        "The connection was cut by the test. Partitions of 'Orders' that could not be reached: 0, 1, 2. "
        "The registry has version 2 of the settings of 'Orders'; a partition may still have an older version."
    )


# -- slow clients ------------------------------------------------------------------------------------------------------


async def test_a_creation_stops_if_another_entity_has_a_partition_under_its_id(transport: Transport) -> None:
    """If lost data makes an id repeat, the messages of the first entity with that id must not be changed."""
    namespace = await opened(transport, "ns", 3)
    record = await namespace.create_entity("First", SETTINGS, partitioned=True)
    (bucket, *_), (other, *_) = bucket_of("First", 3), bucket_of(SECOND, 3)
    assert bucket == other
    await transport.command("HSET", bucket, "last", str(int(record.id[2:], 36) - 1), key=bucket)
    with pytest.raises(MessagingEntityNotFoundError, match=f"'{SECOND}' may be half created"):
        await namespace.create_entity(SECOND, CHANGED, partitioned=True, timeout=60)
    partitions_of(keys_of(await snapshot(transport), "ns"), record, number=3)
    await namespace.delete_entity(SECOND)
    partitions_of(keys_of(await snapshot(transport), "ns"), record, number=3)


EXPECTED = (MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError, EntityChangedError)
OPERATIONS: dict[str, Operation] = {
    "create": creating(partitioned=True),
    "get": lambda namespace: namespace.get_entity("Orders"),
    "update": changing,
    "delete": deleting,
}


EXAMPLES = 30  # each example opens a transport, and makes up to a few hundred calls


class Creators(Crowd):
    """Clients that create, read, change and delete one queue."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._done: list[tuple[str, object]] = []

    async def perform(self, what: str, client: ScriptCaller) -> None:
        try:
            result = await OPERATIONS[what](Namespace(client, "ns", 2, 0))
        except EXPECTED as error:
            result = error
        self._done.append((what, result))

    def succeeded(self, what: str) -> int:
        return sum(done == what and not isinstance(result, ServiceBusError) for done, result in self._done)


operations_of_several = st.lists(st.sampled_from(list(OPERATIONS)), min_size=1, max_size=5).map(
    lambda operations: ["create", *operations]
)
chances = st.randoms(use_true_random=True)  # only the seed is drawn, so no example ends between its calls


def partitions_of(kept: dict[str, Any], record: EntityRecord, number: int = 2) -> dict[str, Any]:
    """Return the keys of a record's partitions, after a check that all partitions exist."""
    own = {key: value for key, value in kept.items() if key.split(":")[1] == record.id}
    states = [settings_of(value[b"settings"]) for key, value in own.items() if key.endswith(":state")]
    assert (record.state, len(states), len(own)) == ("active", number, 4 * number)
    assert {state["incarnation"].decode() for state in states} == {record.incarnation}
    assert max(int(state["version"]) for state in states) <= record.version
    return own


@settings(deadline=None, max_examples=EXAMPLES)
@given(operations_of_several, chances)
def test_an_entity_is_complete_or_absent_for_any_order_of_calls(operations: list[str], chance: random.Random) -> None:
    async def act() -> None:
        async with await open_with_scripts(f"memory://{uuid.uuid4().hex}") as transport:
            namespace = await opened(transport, "ns", 2)
            crowd = Creators(transport, operations, chance)
            await crowd.act()
            listed = await namespace.list_entities()
            kept = keys_of(await snapshot(transport), "ns")
            there = partitions_of(kept, listed[0]) if listed else {}
            assert {key for key in kept if key.count(":") > 1} == set(there)
            states = [settings_of(value[b"settings"]) for key, value in there.items() if key.endswith(":state")]
            assert {int(state["version"]) for state in states} <= {record.version for record in listed}
            created, deleted = crowd.succeeded("create"), crowd.succeeded("delete")
            assert created <= deleted + len(listed)
            if "delete" not in operations:
                assert (created, len(listed)) == (1, 1)

    asyncio.run(act())


@settings(deadline=None, max_examples=EXAMPLES)
@given(operations_of_several, chances, st.integers(1, 3))
def test_after_clients_crash_the_next_client_finds_the_entity_complete_or_absent(
    operations: list[str], chance: random.Random, dying: int
) -> None:
    async def act() -> None:
        async with await open_with_scripts(f"memory://{uuid.uuid4().hex}") as transport:
            namespace = await opened(transport, "ns", 2)
            await Creators(transport, operations, chance, dying).act()
            with suppress(MessagingEntityNotFoundError):
                record = await namespace.get_entity("Orders")
                partitions_of(keys_of(await snapshot(transport), "ns"), record)
                await namespace.delete_entity("Orders")
                assert [key for key in keys_of(await snapshot(transport), "ns") if f":{record.id}:" in key] == []
            assert await namespace.list_entities() == ()
            assert (await namespace.create_entity("Orders", SETTINGS)).state == "active"

    asyncio.run(act())
