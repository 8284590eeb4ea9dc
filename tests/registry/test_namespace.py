"""Tests of a namespace for its users: several clients create, find, change, list and delete entities concurrently."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from sbredis.engine import (
    NO_CALL_ID,
    CallId,
    Outgoing,
    PartitionSettings,
    SettingsBehindError,
    SettingsStaleError,
    bucket_of_id,
    head_keys,
    perform,
    slot_for_name,
    slots_for_name,
)
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError
from sbredis.registry import EntityChangedError, EntityRecord, Namespace, NamespaceSlotsError
from sbredis.transport import Transport
from tests.offenders import for_each
from tests.registry.cuts import settled
from tests.registry.keys import bucket_of, keys_of, snapshot
from tests.registry.turns import RecordingTransport
from tests.stored_settings import with_settings

SETTINGS = PartitionSettings()
(HEAD,) = head_keys("ns")
BUCKET, ENTITIES, *_ = REGISTRY = bucket_of("q", 4)


async def partition_keys_in(transport: Transport) -> list[str]:
    """Return the partition keys that exist."""
    return [key for key in keys_of(await snapshot(transport), "ns") if key.count(":") > 1]


# -- opening -----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_namespace_is_made_when_it_is_first_opened(transport: Transport) -> None:
    made = await Namespace.open(transport, "ns")
    assert (made.name, made.slots) == ("ns", 256)
    found = await Namespace.open(transport, "ns", 256)
    assert (found.slots, found.created_at) == (256, made.created_at)


@for_each(
    ("name", "partitions", "error"),
    [
        ("a b", 4, ValueError),
        ("", 4, ValueError),
        ("ns-", 4, ValueError),
        ("n" * 51, None, ValueError),
        (5, 4, TypeError),
        ("ns", 0, ValueError),
        ("ns", 1025, ValueError),
        ("ns", "4", TypeError),
        ("ns", True, TypeError),
    ],
)
async def test_an_invalid_namespace_is_not_made(
    transport: Transport, name: Any, partitions: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await Namespace.open(transport, name, partitions)
    assert await snapshot(transport) == {}


# -- creating ----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_queue_is_stored_in_one_partition_chosen_by_its_name(
    transport: Transport, namespace: Namespace
) -> None:
    settings = PartitionSettings(lock_duration=5000, duplicate_window=1000, quota=77)
    record = await namespace.create_entity("Billing/Orders", settings, properties={"user_metadata": "ours"})
    place = slot_for_name("billing/orders", 4)
    assert (record.name, record.kind, record.state, record.version) == ("Billing/Orders", "queue", "active", 1)
    assert (record.partitions, record.partitioned, record.colocated_with) == ((place,), False, None)
    assert (record.settings, record.properties) == (settings, {"user_metadata": "ours"})
    own = [f"{{{place}}}:{record.id}:{kind}" for kind in ("entries", "order", "state", "store")]
    assert await partition_keys_in(transport) == own
    assert (await perform(transport, namespace.partition(record, place).count())).bytes == 0
    assert await namespace.get_entity("BILLING/ORDERS") == record


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_partitioned_queue_is_stored_in_all_partitions(transport: Transport, namespace: Namespace) -> None:
    record = await namespace.create_entity("q", SETTINGS, partitioned=True)
    assert (record.partitions, record.partitioned) == ((0, 1, 2, 3), True)
    assert len(await partition_keys_in(transport)) == 16
    for number in record.partitions:
        partition = namespace.partition(record, number)
        sent = await perform(transport, partition.send(CallId("lane", 1), [Outgoing(b"hello")]))
        assert (sent.first, partition.version, partition.settings) == (1, 1, SETTINGS)


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_partitioned_queue_lies_in_slots_of_its_own_unless_it_is_colocated(transport: Transport) -> None:
    namespace = await Namespace.open(transport, "ns")
    first = await namespace.create_entity("First", SETTINGS, partitioned=True)
    few = await namespace.create_entity("few", SETTINGS, partitioned=True, partitions=3)
    assert (first.partitions, few.partitions) == (slots_for_name("first", 16, 256), slots_for_name("few", 3, 256))
    beside = await namespace.create_entity("beside", SETTINGS, partitioned=True, colocate_with="few")
    assert (beside.partitions, beside.colocated_with) == (few.partitions, "few")


async def test_a_partitioned_queue_in_a_small_namespace_has_a_partition_in_each_slot(namespace: Namespace) -> None:
    assert (await namespace.create_entity("q", SETTINGS, partitioned=True)).partitions == (0, 1, 2, 3)


@for_each(
    ("partitions", "text"),
    [(0, "1 to 256 partitions, not 0"), (257, "1 to 256 partitions, not 257"), (5, "'ns' has 4 slots, and each")],
)
async def test_a_number_of_partitions_that_the_namespace_cannot_place_is_refused(
    transport: Transport, namespace: Namespace, partitions: int, text: str
) -> None:
    before = await snapshot(transport)
    with pytest.raises(ValueError, match=text):
        await namespace.create_entity("q", SETTINGS, partitioned=True, partitions=partitions)
    with pytest.raises(ValueError, match="'q' is not partitioned"):
        await namespace.create_entity("q", SETTINGS, partitions=partitions)
    assert await snapshot(transport) == before


async def test_a_namespace_of_an_older_layout_is_refused_although_its_registry_was_elsewhere(
    transport: Transport,
) -> None:
    old = head_keys("old", "fjl")[0]
    await transport.command("HSET", old, "layout", "1", "partitions", "16", "created", "5", key=old)
    with pytest.raises(DataLayoutError, match=r"'old' has data layout 1, .* Use the release that wrote"):
        await Namespace.open(transport, "old")
    assert head_keys("old")[0] not in await snapshot(transport)


async def test_a_queue_cannot_be_colocated_with_a_missing_entity_or_one_with_other_partitions(
    transport: Transport, namespace: Namespace
) -> None:
    await namespace.create_entity("everywhere", SETTINGS, partitioned=True)
    with pytest.raises(ValueError, match="'q' cannot be colocated with 'everywhere', which is partitioned"):
        await namespace.create_entity("q", SETTINGS, colocate_with="everywhere")
    await namespace.create_entity("alone", SETTINGS)
    before = await snapshot(transport)
    with pytest.raises(ValueError, match="'q' cannot be colocated with 'alone', which is not partitioned"):
        await namespace.create_entity("q", SETTINGS, partitioned=True, colocate_with="alone")
    with pytest.raises(
        ValueError, match="'q' cannot be colocated with 'everywhere', which has 4 partitions, and not 2"
    ):
        await namespace.create_entity("q", SETTINGS, partitioned=True, partitions=2, colocate_with="everywhere")
    with pytest.raises(MessagingEntityNotFoundError, match="no entity 'nothing'"):
        await namespace.create_entity("q", SETTINGS, colocate_with="nothing")
    with pytest.raises(MessagingEntityNotFoundError, match="no entity 'q'"):
        await namespace.create_entity("q", SETTINGS, colocate_with="q")
    assert await snapshot(transport) == before


# -- finding -----------------------------------------------------------------------------------------------------------


CYCLE: dict[str, Any] = {}
CYCLE["cycle"] = CYCLE
DEEP: list[Any] = reduce(lambda inner, _: [inner], range(10_000), [])


@pytest.fixture
async def full_record(namespace: Namespace) -> EntityRecord:
    """Create a queue with as many properties as a record can store."""
    return await namespace.create_entity("q", SETTINGS, properties={"a": "x" * 65_528})


@for_each(
    ("properties", "error", "text"),
    [
        pytest.param({"a": "x" * 65_529}, ValueError, "have 65537 bytes; at most 65536 are stored", id="large"),
        pytest.param({"a": "é" * 20_000}, ValueError, "at most 65536 are stored", id="large in JSON"),
        pytest.param({1: "a"}, TypeError, "the name of a property of an entity must be text, not 1", id="number"),
        pytest.param({"a": [{"b": {None: 1}}]}, TypeError, "must be text, not None", id="none"),
        pytest.param({"a": {1, 2}}, TypeError, "must be a JSON value, not set", id="set"),
        pytest.param({"a": float("nan")}, ValueError, "not JSON compliant", id="nan"),
        pytest.param(["a"], TypeError, "the properties of an entity must be a mapping, not list", id="list"),
        pytest.param(CYCLE, ValueError, "Circular|nested too deeply", id="cycle"),
        pytest.param({"a": DEEP}, ValueError, "nested too deeply", id="deep"),
    ],
)
async def test_properties_that_cannot_be_stored_exactly_are_refused(  # noqa: PLR0917 -- the columns of a table
    transport: Transport,
    namespace: Namespace,
    full_record: EntityRecord,
    properties: Any,
    error: type[Exception],
    text: str,
) -> None:
    before = await snapshot(transport)
    with pytest.raises(error, match=text):
        await namespace.create_entity("other", SETTINGS, properties=properties)
    with pytest.raises(error, match=text):
        await namespace.update_entity(full_record, SETTINGS, properties=properties)
    assert await snapshot(transport) == before


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_partition_that_an_entity_does_not_have_is_refused(namespace: Namespace) -> None:
    record = await namespace.create_entity("q", SETTINGS)
    elsewhere = (record.partitions[0] + 1) % 4
    with pytest.raises(ValueError, match=f"'q' is not in partition {elsewhere}"):
        namespace.partition(record, elsewhere)


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_no_entity_is_made_in_a_deleted_namespace(transport: Transport, namespace: Namespace) -> None:
    record = await namespace.create_entity("q", SETTINGS)
    for key in (HEAD, BUCKET):
        await transport.command("DEL", key, key=key)
    before = await snapshot(transport)
    for done in (
        namespace.get_entity("q"),
        namespace.list_entities(),
        namespace.delete_entity("q"),
        namespace.update_entity(record, SETTINGS),
    ):
        with pytest.raises(MessagingEntityNotFoundError, match="There is no namespace 'ns'"):
            await done
    assert await snapshot(transport) == before


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_creating_an_entity_recreates_a_lost_namespace(transport: Transport, namespace: Namespace) -> None:
    """A namespace is lost when its servers restart empty."""
    for key in (HEAD, BUCKET):
        await transport.command("DEL", key, key=key)
    assert await namespace.create_entity("q", SETTINGS) == await namespace.get_entity("q")
    assert (await Namespace.open(transport, "ns")).slots == namespace.slots


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_namespace_made_meanwhile_with_other_partitions_is_not_changed(
    transport: Transport, namespace: Namespace
) -> None:
    for key in (HEAD, BUCKET):
        await transport.command("DEL", key, key=key)
    await Namespace.open(transport, "ns", namespace.slots + 1)
    with pytest.raises(NamespaceSlotsError):
        await namespace.create_entity("q", SETTINGS)


# -- changing ----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_change_is_written_to_the_registry_and_to_every_partition(
    transport: Transport, namespace: Namespace
) -> None:
    record = await namespace.create_entity("q", SETTINGS, partitioned=True, properties={"a": 1})
    changed = await namespace.update_entity(record, PartitionSettings(quota=3))
    assert (changed.version, changed.settings.quota, changed.properties) == (2, 3, {"a": 1})
    assert changed.updated_at >= record.updated_at
    assert await namespace.get_entity("q") == changed
    for number in changed.partitions:
        await perform(transport, namespace.partition(changed, number).count())
        with pytest.raises(SettingsStaleError):
            await perform(transport, namespace.partition(record, number).count(NO_CALL_ID))
    again = await namespace.update_entity(changed, changed.settings, properties={})
    assert (again.version, again.properties) == (3, {})


async def test_a_deleted_entity_is_not_changed_even_if_its_name_was_reused(
    transport: Transport, namespace: Namespace
) -> None:
    record = await namespace.create_entity("q", SETTINGS)
    await namespace.delete_entity("q")
    for _ in range(2):
        before = await snapshot(transport)
        with pytest.raises(MessagingEntityNotFoundError, match="no entity 'q'"):
            await namespace.update_entity(record, SETTINGS)
        assert await snapshot(transport) == before
        with pytest.raises(MessagingEntityNotFoundError):
            await namespace.delete_entity("nothing")
        if await namespace.list_entities() == ():
            await namespace.create_entity("q", SETTINGS)


@pytest.mark.parametrize(
    "settings",
    [
        PartitionSettings(clock="test"),
        PartitionSettings(shared=True),
        PartitionSettings(duplicate_window=5),
        PartitionSettings(sessions=True),
        PartitionSettings(topic=True),
    ],
    ids=["clock", "shared", "duplicates", "sessions", "topic"],
)
async def test_a_fixed_property_is_refused_before_the_registry_is_written(
    transport: Transport, namespace: Namespace, settings: PartitionSettings
) -> None:
    record = await namespace.create_entity("q", SETTINGS)
    before = await snapshot(transport)
    with pytest.raises(
        ValueError, match=r"'q' cannot be changed in this way: .* was fixed when the entity was created"
    ):
        await namespace.update_entity(record, settings)
    assert await snapshot(transport) == before


@pytest.mark.parametrize("state", ["creating", "deleting"])
async def test_a_half_made_or_half_deleted_entity_is_not_changed(
    transport: Transport, namespace: Namespace, state: Any
) -> None:
    record = replace(await namespace.create_entity("q", SETTINGS), state=state)
    before = await snapshot(transport)
    with pytest.raises(EntityChangedError, match=f"it was {state} when it was read; get_entity finishes that"):
        await namespace.update_entity(record, SETTINGS)
    assert await snapshot(transport) == before


async def test_the_window_of_duplicate_detection_may_change(namespace: Namespace) -> None:
    record = await namespace.create_entity("q", PartitionSettings(duplicate_window=5))
    changed = await namespace.update_entity(record, PartitionSettings(duplicate_window=6))
    assert changed.settings.duplicate_window == 6


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.parametrize("way", ["restored", "updated"])
async def test_a_lost_partition_is_recreated_and_the_others_are_kept(
    transport: Transport, namespace: Namespace, way: str
) -> None:
    """A failover may lose a new partition, although the registry still has the record of its entity."""
    record = await namespace.create_entity("q", SETTINGS, partitioned=True)
    kept, lost = namespace.partition(record, 0), namespace.partition(record, 2)
    await perform(transport, kept.send(CallId("lane", 1), [Outgoing(b"kept")]))
    for key in lost.keys:
        await transport.command("DEL", key, key=key)
    with pytest.raises(MessagingEntityNotFoundError):
        await perform(transport, lost.count())
    if way == "restored":
        found = await namespace.restore_entity(record)
        assert (found.state, found.version) == ("active", record.version)
    else:
        found = await namespace.update_entity(record, replace(SETTINGS, lock_duration=5_000))
        assert (await namespace.get_entity("q")).settings.lock_duration == 5_000
    assert (await perform(transport, namespace.partition(found, 2).count())).active == 0
    assert (await perform(transport, namespace.partition(found, 0).count())).active == 1


async def test_a_deleted_entity_is_not_restored(transport: Transport, namespace: Namespace) -> None:
    """Another entity with the same name is not changed either."""
    record = await namespace.create_entity("q", SETTINGS)
    await namespace.delete_entity("q")
    with pytest.raises(MessagingEntityNotFoundError):
        await namespace.restore_entity(record)
    assert await partition_keys_in(transport) == []
    await namespace.create_entity("q", SETTINGS)
    before = await snapshot(transport)
    with pytest.raises(MessagingEntityNotFoundError):
        await namespace.restore_entity(record)
    assert await snapshot(transport) == before


# -- deleting ----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.both_shapes
async def test_a_deleted_queue_leaves_no_keys_and_its_name_is_free(
    transport: Transport, namespace: Namespace, *, partitioned: bool
) -> None:
    empty = settled(await snapshot(transport), "ns")
    old = await namespace.create_entity("q", SETTINGS, partitioned=partitioned)
    for number in old.partitions:
        messages = [Outgoing(b"x" * 100, message_id=b"m", due=9_000_000_000_000 * place) for place in (0, 1)]
        await perform(transport, namespace.partition(old, number).send(CallId("lane", 1), messages))
    await namespace.delete_entity("Q")
    assert settled(await snapshot(transport), "ns") == empty
    new = await namespace.create_entity("q", SETTINGS, partitioned=partitioned)
    assert bucket_of_id(old.id, 4) == bucket_of_id(new.id, 4)
    assert int(old.id, 36) < int(new.id, 36)
    with pytest.raises(MessagingEntityNotFoundError):
        await perform(transport, namespace.partition(old, old.partitions[0]).count())


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_deleting_a_partition_takes_as_many_steps_as_it_needs(transport: Transport, namespace: Namespace) -> None:
    await namespace.create_entity("q", SETTINGS)
    recorder = RecordingTransport(transport, again=2)
    await Namespace(recorder, "ns", 4, 0).delete_entity("q")
    scripts = [name for name, _ in recorder.calls]
    assert scripts == ["read_entity", "revise_entity", "destroy", "destroy", "destroy", "unregister_entity"]
    assert await partition_keys_in(transport) == []


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_deletion_spares_a_partition_of_another_incarnation(transport: Transport, namespace: Namespace) -> None:
    record = await namespace.create_entity("q", SETTINGS)
    state = namespace.partition(record, record.partitions[0]).keys[0]
    held = await transport.command("HGET", state, "settings", key=state)
    await transport.command("HSET", state, "settings", with_settings(held, {"incarnation": "another"}), key=state)
    before = await snapshot(transport)
    await namespace.delete_entity("q")
    assert await namespace.list_entities() == ()
    after = await snapshot(transport)
    kept = [key for key in before if key not in (HEAD, *REGISTRY)]
    assert len(kept) == 4
    assert [after[key] for key in kept] == [before[key] for key in kept]


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_partition_that_missed_a_change_reports_it_and_can_catch_up(
    transport: Transport, namespace: Namespace
) -> None:
    """A client that knows the change gets an error from the partition, and can then send it the change."""
    record = await namespace.create_entity("q", SETTINGS)
    newer = namespace.partition(replace(record, version=2), record.partitions[0])
    with pytest.raises(SettingsBehindError):
        await perform(transport, newer.count())
    assert await perform(transport, newer.configure()) == 2
    await perform(transport, newer.count())
