"""Tests of changing and deleting topics and subscriptions: at limits, by several clients, and without memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sbredis.engine import PartitionSettings
from sbredis.engine._scripts import operations
from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusQuotaExceededError,
)
from sbredis.registry import JUDGING_PROPERTY, Namespace, path_of
from sbredis.registry import _registry as registry_module
from sbredis.registry._registry import LIMITS
from sbredis.rules import Rule
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import Transport
from tests.engine.opening import open_with_scripts
from tests.engine.rights import Rights, commands_of, confined
from tests.registry.cuts import settled
from tests.registry.keys import bucket_of, snapshot
from tests.registry.refusals import refused
from tests.registry.topics import (
    ANY,
    CORRELATED,
    OF_SUBSCRIPTION,
    OF_TOPIC,
    SQL,
    kept_of,
    make_topic,
    require_whole,
    subscribe,
)
from tests.registry.turns import Cut, RecordingTransport

pytestmark = pytest.mark.everywhere("a change is sent to partitions in different slots")

ENTITIES = bucket_of("Topic", 4)[1]
SUB = path_of("Topic", "Sub")

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
shapes = pytest.mark.both_shapes


# -- limits ------------------------------------------------------------------------------------------------------------


def test_the_limits_are_those_of_azure() -> None:
    assert LIMITS == (2_000, 2_000, 100_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "rules", "text"),
    [
        ((1, 9, 9), [ANY], "The topic 'Topic' would have more than 1 subscriptions"),
        ((9, 1, 9), [ANY, SQL], "would have more than 1 rules with SQL filters"),
        ((9, 9, 1), [ANY, CORRELATED], "would have more than 1 rules with correlation filters"),
    ],
)
async def test_the_number_of_subscriptions_and_filters_of_a_topic_is_limited(  # noqa: PLR0917 -- the columns of a table
    transport: Transport, namespace: Namespace, monkeypatch: pytest.MonkeyPatch, limits: Any, rules: Any, text: str
) -> None:
    monkeypatch.setattr(registry_module, "LIMITS", limits)
    await make_topic(namespace)
    await subscribe(namespace, "first", *rules)
    await refused(transport, subscribe(namespace, "second", *rules), ServiceBusQuotaExceededError, text)
    await make_topic(namespace, "Other")
    await subscribe(namespace, "second", *rules, topic="Other")
    await namespace.delete_entity(path_of("Topic", "first"))
    await subscribe(namespace, "second", *rules)
    require_whole(await kept_of(transport), 4)


async def test_subscriptions_with_the_filter_that_is_always_true_need_no_sql_filter(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "LIMITS", (3, 0, 0))
    await make_topic(namespace)
    for number in range(3):
        await subscribe(namespace, f"s{number}", ANY)
    assert (await namespace.topic_facts("Topic"))[1:] == (3, 3, 0)


# -- changing ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_subscription_change_raises_the_topic_version_only_if_it_affects_rules(
    transport: Transport, namespace: Namespace
) -> None:
    await make_topic(namespace)
    first = await subscribe(namespace)
    before = (await namespace.get_entity("Topic")).version
    changed = await namespace.update_entity(first, PartitionSettings(shared=True, lock_duration=7))
    assert (changed.version, changed.settings.lock_duration) == (2, 7)
    changed = await namespace.update_entity(changed, changed.settings, properties={"a": 1})
    assert (await namespace.get_entity("Topic")).version == before
    changed = await namespace.update_entity(changed, changed.settings, properties={JUDGING_PROPERTY: True})
    assert (await namespace.get_entity("Topic")).version == before + 1
    changed = await namespace.update_entity(changed, changed.settings, properties={"b": 1, JUDGING_PROPERTY: True})
    assert (await namespace.get_entity("Topic")).version == before + 1
    assert (await namespace.get_entity(SUB)) == changed
    require_whole(await kept_of(transport), 4)


@pytest.mark.parametrize("lost", ["topic", "subscription"])
async def test_a_lost_partition_is_recreated_and_uses_the_newest_rules(
    transport: Transport, namespace: Namespace, lost: str
) -> None:
    topic, record = await make_topic(namespace), await subscribe(namespace)
    gone = namespace.partition(topic if lost == "topic" else record, 2)
    for key in gone.keys[:8] if lost == "subscription" else gone.keys:
        await transport.command("DEL", key, key=key)
    if lost == "topic":
        await namespace.create_rule("Topic", "Sub", SQL)
    else:
        assert await namespace.restore_entity(record) == record
    require_whole(await kept_of(transport), 4)


@pytest.mark.slow
async def test_the_next_caller_updates_partitions_that_missed_a_change(
    transport: Transport, namespace: Namespace
) -> None:
    await make_topic(namespace)
    await subscribe(namespace)
    meetings: list[Callable[[], Awaitable[object]]] = [
        lambda: namespace.get_entity("Topic"),
        lambda: namespace.get_entity(SUB),
        lambda: namespace.get_rule("Topic", "Sub", "r0"),
        lambda: namespace.routes("Topic"),
        lambda: namespace.topic_facts("Topic"),
        lambda: namespace.create_rule("Topic", "Sub", Rule("r0")),
    ]
    for number, meet in enumerate(meetings):
        cut = Namespace(Cut(transport, 3, before=True), "ns", 4, 0)
        with pytest.raises(ServiceBusCommunicationError, match="a partition may still have an older version"):
            await cut.create_rule("Topic", "Sub", Rule(f"r{number}"))
        kept = await kept_of(transport)
        assert int(kept.tallies["topic"][1]) == kept.entities["topic"].version - 1
        try:
            await meet()
        except MessagingEntityAlreadyExistsError:
            assert number == 5
        require_whole(await kept_of(transport), 4)


async def test_a_reader_does_not_fail_if_a_partition_cannot_be_updated(
    transport: Transport, namespace: Namespace
) -> None:
    await make_topic(namespace)
    record = await subscribe(namespace)
    with pytest.raises(ServiceBusCommunicationError):
        await Namespace(Cut(transport, 3, before=True), "ns", 4, 0).create_rule("Topic", "Sub", SQL)
    cut_off = Namespace(Cut(transport, 3, before=True), "ns", 4, 0)  # the third call, after two reads, is cut off
    assert await cut_off.get_entity(SUB) == record


# -- deleting ----------------------------------------------------------------------------------------------------------


@shapes
async def test_a_deleted_subscription_leaves_no_keys_and_its_name_is_free(
    transport: Transport, namespace: Namespace, *, partitioned: bool
) -> None:
    await make_topic(namespace, partitioned=partitioned)
    before = set(settled(await snapshot(transport), "ns"))
    old = await subscribe(namespace, "Sub", ANY, SQL, CORRELATED)
    await namespace.delete_entity("topic/Subscriptions/SUB")
    assert set(settled(await snapshot(transport), "ns")) == before
    require_whole(await kept_of(transport), 4)
    assert (await namespace.get_entity("Topic")).version == 3, "it was raised when it came, and when it went"
    new = await subscribe(namespace)
    assert new.id > old.id
    assert [kept.rule for kept in await namespace.list_rules("Topic", "Sub")] == [ANY]


@shapes
async def test_a_deleted_topic_leaves_no_keys_of_its_subscriptions(
    transport: Transport, namespace: Namespace, *, partitioned: bool
) -> None:
    await make_topic(namespace, "Topic/b", partitioned=partitioned)
    await subscribe(namespace, "kept", topic="Topic/b")
    before = settled(await snapshot(transport), "ns")
    await make_topic(namespace, partitioned=partitioned)
    for number in range(3):
        await subscribe(namespace, f"s{number}", ANY, SQL, CORRELATED)
    await namespace.delete_entity("TOPIC", kind="topic")
    assert settled(await snapshot(transport), "ns") == before
    await refused(transport, namespace.get_entity(path_of("Topic", "s1")), MessagingEntityNotFoundError, "There is no")


@in_memory
async def test_a_deletion_of_a_topic_begins_with_the_partitions_of_the_topic_itself(transport: Transport) -> None:
    """The first step frees all stored messages, so deleting the partitions of the subscriptions needs little work."""
    namespace = await Namespace.open(transport, "ns", 1)
    topic = await make_topic(namespace)
    record = await subscribe(namespace)
    recorder = RecordingTransport(transport)
    await Namespace(recorder, "ns", 1, 0).delete_entity("Topic")
    assert [name for name, _ in recorder.calls] == [
        *("read_entity", "list_subscriptions", "revise_entity", "destroy", "list_subscriptions"),
        *("revise_subscription", "destroy", "unregister_entity", "list_subscriptions", "unregister_entity"),
    ]
    assert topic.id < record.id


async def test_an_unreadable_subscription_stops_calls_that_need_it(transport: Transport, namespace: Namespace) -> None:
    await make_topic(namespace)
    await subscribe(namespace)
    await transport.command("HSET", ENTITIES, SUB.lower(), "3 x", key=ENTITIES)
    before = await snapshot(transport)
    for done in (
        namespace.get_entity(SUB),
        namespace.delete_entity(SUB),
        namespace.routes("Topic"),
        namespace.create_rule("Topic", "Sub", SQL),
        subscribe(namespace),
    ):
        with pytest.raises(DataLayoutError):
            await done
    assert await snapshot(transport) == before


# -- without memory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["server", "cluster"])
async def test_a_user_confined_to_a_namespace_can_run_every_operation(
    target: str, request: pytest.FixtureRequest
) -> None:
    """The user may run only the commands that the scripts contain."""
    running: LocalServer | LocalCluster = request.getfixturevalue(target)
    rights = Rights.of_namespace("ns", commands_of(operations()))
    with confined(running, "topics", rights) as url:
        async with await open_with_scripts(url) as transport:
            recorder = RecordingTransport(transport)
            namespace = await Namespace.open(recorder, "ns", 2)
            await make_topic(namespace)
            record = await subscribe(namespace)
            await namespace.create_rule("Topic", "Sub", SQL)
            await namespace.update_rule("Topic", "Sub", SQL)
            await namespace.delete_rule("Topic", "Sub", "Sql")
            await namespace.get_rule("Topic", "Sub", "$Default")
            await namespace.list_rules("Topic", "Sub")
            await namespace.list_subscriptions("Topic")
            await namespace.list_entities()
            await namespace.routes("Topic")
            await namespace.update_entity(record, record.settings, properties={JUDGING_PROPERTY: True})
            await namespace.delete_entity(SUB)
            await namespace.delete_entity("Topic")
            done = {name for name, _ in recorder.calls}
            assert done - {"configure", "destroy"} == {
                *("begin_bucket", "create_rule", "delete_rule", "list_entities", "list_rules", "list_subscriptions"),
                *("mark_told", "read_entity", "read_namespace", "read_rule"),
                *("register_entity", "register_namespace", "register_subscription"),
                *("revise_entity", "revise_subscription", "unregister_entity", "update_rule"),
            }


@in_memory
async def test_a_call_with_zero_timeout_changes_nothing(transport: Transport, namespace: Namespace) -> None:
    await make_topic(namespace)
    await subscribe(namespace)
    before = await snapshot(transport)
    for done in (
        namespace.create_subscription("Topic", "x", OF_SUBSCRIPTION, rules=[], timeout=0),
        namespace.list_subscriptions("Topic", timeout=0),
        namespace.topic_facts("Topic", timeout=0),
        namespace.routes("Topic", timeout=0),
        namespace.create_rule("Topic", "Sub", SQL, timeout=0),
        namespace.update_rule("Topic", "Sub", ANY, timeout=0),
        namespace.delete_rule("Topic", "Sub", "$Default", timeout=0),
        namespace.get_rule("Topic", "Sub", "$Default", timeout=0),
        namespace.list_rules("Topic", "Sub", timeout=0),
    ):
        with pytest.raises(OperationTimeoutError):
            await done
    assert await snapshot(transport) == before


@in_memory
async def test_all_steps_of_a_call_share_its_time_limit(transport: Transport) -> None:
    recorder = RecordingTransport(transport)
    namespace = await Namespace.open(recorder, "ns", 2, timeout=60)
    await namespace.create_entity("Topic", OF_TOPIC, kind="topic", timeout=60)
    await namespace.create_subscription("Topic", "Sub", OF_SUBSCRIPTION, rules=[ANY], timeout=60)
    await namespace.create_rule("Topic", "Sub", SQL, timeout=60)
    await namespace.routes("Topic", timeout=60)
    for path, settings in (("Topic", OF_TOPIC), (SUB, OF_SUBSCRIPTION)):
        await namespace.update_entity(await namespace.get_entity(path, timeout=60), settings, timeout=60)
    await namespace.list_entities(timeout=60)
    await namespace.delete_rule("Topic", "Sub", "Sql", timeout=60)
    await namespace.delete_entity("Topic", timeout=60)
    assert {name for name, _ in recorder.calls} >= {"mark_told", "create_rule", "list_rules", "configure", "destroy"}
    assert [(name, timeout) for name, timeout in recorder.calls if not 0 < timeout <= 60] == []
