"""Tests of topics for an administrator: creating, finding, changing, listing and deleting them.

A refused call changes nothing.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.aio.management import _calls as calls
from sbredis.engine import PartitionSettings, partition_for_name
from sbredis.entities._definitions import TOPICS, topic_creation
from sbredis.exceptions import (
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
)
from sbredis.management import EntityStatus, QueueProperties, TopicProperties
from tests.management.conftest import held
from tests.management.refusals import refused
from tests.management.test_topic_and_subscription_properties import TOPIC_KEPT
from tests.stored_settings import settings_of

pytestmark = pytest.mark.anyio

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
every_kept_property = pytest.mark.parametrize("name", TOPIC_KEPT)
Admin = ServiceBusAdministrationClient


async def test_a_new_topic_has_azures_defaults(admin: Admin) -> None:
    created = await admin.create_topic("Billing/News")
    assert created == TopicProperties("Billing/News")
    assert await admin.get_topic("BILLING/news") == created
    assert [topic async for topic in admin.list_topics()] == [created]
    assert [each async for each in admin.list_subscriptions("billing/news")] == []


@every_kept_property
async def test_a_property_is_read_back_as_given(admin: Admin, name: str) -> None:
    value = TOPIC_KEPT[name].value
    expected = TopicProperties("t", **{name: value})
    assert await admin.create_topic("t", **{name: value}) == expected
    assert await admin.get_topic("t") == expected


@in_memory
@every_kept_property
async def test_every_property_except_the_fixed_ones_can_be_changed_and_reset(admin: Admin, name: str) -> None:
    topic = await admin.create_topic("t")
    setattr(topic, name, TOPIC_KEPT[name].value)
    if name == "requires_duplicate_detection":
        text = "The value for the RequiresDuplicateDetection property of an existing Topic cannot be changed"
        await refused(admin, admin.update_topic(topic), ValueError, text)
        return
    await admin.update_topic(topic)
    assert await admin.get_topic("t") == topic
    await admin.update_topic(topic, **{name: None})
    assert await admin.get_topic("t") == TopicProperties("t")


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.both_shapes
async def test_the_settings_of_a_topic_reach_its_partitions(admin: Admin, *, partitioned: bool) -> None:
    await admin.create_topic("t", enable_partitioning=partitioned, max_size_in_megabytes=2)
    await admin.update_topic({"name": "t"}, status="SendDisabled", default_message_time_to_live="PT30S")
    namespace = admin._connection.namespace
    record = await namespace.get_entity("t")
    assert record.settings == PartitionSettings(
        topic=True, quota=2 * 1024 * 1024, status="SendDisabled", time_to_live=30_000
    )
    assert len(record.partitions) == (4 if partitioned else 1)
    for number in record.partitions:
        state = namespace.partition(record, number).keys[0]
        stored = settings_of(await admin._connection.transport.command("HGET", state, "settings", key=state))
        assert (stored["topic"], stored["status"], stored["ttl"]) == (b"1", b"SendDisabled", b"30000")


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_topic_can_be_colocated_with_another_entity(admin: Admin) -> None:
    await admin.create_queue("first")
    place = partition_for_name("first", 4)
    other = next(name for name in "abcdef" if partition_for_name(name, 4) != place)
    assert (await admin.create_topic(other, colocate_with="FIRST")).colocate_with == "first"
    assert (await admin._connection.namespace.get_entity(other)).partitions == (place,)
    await refused(admin, admin.create_topic("t", colocate_with="x"), MessagingEntityNotFoundError, "no entity 'x'")


async def test_a_name_that_is_taken_is_refused(admin: Admin) -> None:
    await admin.create_topic("News")
    await admin.create_queue("Orders")
    text = "There is already an entity '{}' in namespace 'ns'"
    await refused(admin, admin.create_topic("news"), MessagingEntityAlreadyExistsError, text.format("News"))
    text = f"{text.format('Orders')}, and it is a queue, not a topic; .* Delete it first, or choose another name"
    await refused(admin, admin.create_topic("orders"), MessagingEntityAlreadyExistsError, text)
    text = "an entity 'News' in namespace 'ns', and it is a topic, not a queue"
    await refused(admin, admin.create_queue("news"), MessagingEntityAlreadyExistsError, text)


@pytest.mark.slow
async def test_an_entity_of_another_kind_is_not_found_as_a_topic(admin: Admin) -> None:
    await admin.create_queue("Orders")
    text = "'Orders' in namespace 'ns' is a queue, not a topic"
    for done in (
        admin.get_topic("orders"),
        admin.get_topic_runtime_properties("orders"),
        admin.update_topic({"name": "orders"}, user_metadata="ours"),
        admin.delete_topic("orders"),
        admin.create_subscription("orders", "all"),
        admin.ensure_subscription("orders", "all"),
        anext(admin.list_subscriptions("orders")),
        anext(admin.list_subscriptions_runtime_properties("orders")),
    ):
        await refused(admin, done, MessagingEntityNotFoundError, text)
    text = "'Orders' already exists, and is a queue, not a topic"
    await refused(admin, admin.ensure_topic("orders"), MessagingEntityAlreadyExistsError, text)


async def test_the_error_for_a_missing_entity_suggests_a_remedy(admin: Admin) -> None:
    for done in (
        admin.get_topic("News"),
        admin.get_topic_runtime_properties("News"),
        admin.update_topic({"name": "News"}),
        admin.delete_topic("News"),
    ):
        await refused(admin, done, MessagingEntityNotFoundError, r"create_topic\('News'\)")


async def test_topic_exists_reports_whether_a_topic_exists(admin: Admin) -> None:
    await admin.create_topic("News")
    await admin.create_queue("orders")
    before = await held(admin)
    assert [await admin.topic_exists(name) for name in ("news", "other", "orders")] == [True, False, False]
    assert await held(admin) == before


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"default_message_time_to_live": "PT0.9S"}, ValueError, "default_message_time_to_live must be 0:00:01 or longer"),
    ({"duplicate_detection_history_time_window": "P8D"}, ValueError, "must be 7 days, 0:00:00 or shorter"),
    ({"max_size_in_megabytes": 0}, ValueError, "max_size_in_megabytes must be from 1 to"),
    ({"max_message_size_in_kilobytes": 102_401}, ValueError, "from 1 to 102400, not 102401"),
    ({"size_in_bytes": -1}, ValueError, "size_in_bytes must be from 0 to"),
    ({"user_metadata": "x" * 1025}, ValueError, "user_metadata has 1025 characters; at most 1024 are allowed"),
    ({"status": "Deleting"}, ValueError, "status can be set to Active, Disabled, .*, not to 'Deleting'"),
    ({"auto_delete_on_idle": "PT4M"}, ValueError, "auto_delete_on_idle must be 0:05:00 or longer"),
    ({"support_ordering": "yes"}, TypeError, "support_ordering must be True or False, not str"),
    ({"lock_duration": "PT30S"}, TypeError, "lock_duration"),
    ({"forward_to": "other"}, TypeError, "forward_to"),
    ({"authorization_rules": [{"key_name": "k" * 70_000}]}, ValueError, "at most 65536 are stored"),
]


@in_memory
@pytest.mark.parametrize(("properties", "error", "text"), WRONG)
async def test_wrong_properties_neither_create_nor_change_a_topic(
    admin: Admin, properties: dict[str, Any], error: type[Exception], text: str
) -> None:
    await refused(admin, admin.ensure_topic("t", **properties), error, text)
    with pytest.raises(error, match=text):
        await admin.create_topic("t", **properties)
    assert [topic async for topic in admin.list_topics()] == []
    await admin.create_topic("t")
    await refused(admin, admin.ensure_topic("t", **properties), error, text)
    await refused(admin, admin.update_topic({"name": "t", **properties}), error, text)
    await refused(admin, admin.update_topic(TopicProperties("t"), **properties), error, text)


@in_memory
async def test_wrong_arguments_are_refused_before_connecting(where: str) -> None:
    admin = Admin(where)
    for name in ("a b", "a" * 261, "t/subscriptions/s", ""):
        for done in (
            admin.create_topic(name),
            admin.ensure_topic(name),
            admin.get_topic(name),
            admin.topic_exists(name),
            admin.get_topic_runtime_properties(name),
            admin.update_topic({"name": name}),
            admin.delete_topic(name),
        ):
            with pytest.raises(ValueError, match="entity name"):
                await done
    for wrong, error in (
        ("t", TypeError),
        ({}, ValueError),
        ({"name": 5}, TypeError),
        ({"name": "t", "a": 1}, TypeError),
    ):
        with pytest.raises(error):
            await admin.update_topic(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="update_topic takes TopicProperties or a mapping of them, not QueueProp"):
        await admin.update_topic(QueueProperties("t"))  # type: ignore[arg-type]
    assert not admin._connection._opened
    await admin.close()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("requires_duplicate_detection", True, "RequiresDuplicateDetection"),
        ("enable_partitioning", True, "EnablePartitioning"),
        ("colocate_with", "other", "ColocateWith"),
    ],
)
async def test_fixed_properties_cannot_be_changed(admin: Admin, name: str, value: Any, words: str) -> None:
    topic = await admin.create_topic("t")
    setattr(topic, name, value)
    topic.user_metadata = "ours"
    text = f"^The value for the {words} property of an existing Topic cannot be changed: it is (False|None)$"
    await refused(admin, admin.update_topic(topic), ValueError, text)
    differs = f"'t' already exists with other properties, which cannot be changed: {name} is"
    await refused(admin, admin.ensure_topic("t", **{name: value}), ValueError, differs)


@pytest.mark.slow
@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_concurrent_changes_of_a_topic_and_its_subscriptions_all_succeed(admin: Admin) -> None:
    await admin.create_topic("t", enable_partitioning=True)
    await asyncio.gather(
        admin.update_topic({"name": "t"}, default_message_time_to_live="PT30S"),
        admin.update_topic({"name": "t"}, user_metadata="ours"),
        admin.create_subscription("t", "all"),
        admin.create_subscription("t", "other"),
    )
    assert await admin.get_topic("t") == TopicProperties(
        "t", enable_partitioning=True, default_message_time_to_live="PT30S", user_metadata="ours"
    )
    assert [each.name async for each in admin.list_subscriptions("t")] == ["all", "other"]


# -- ensuring ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_ensure_creates_missing_entities_and_leaves_existing_ones(admin: Admin, where: str) -> None:
    made = await admin.ensure_topic("News", default_message_time_to_live="PT30S", enable_partitioning=True)
    assert made.default_message_time_to_live == timedelta(seconds=30)
    before = await held(admin)
    assert await admin.ensure_topic("news", default_message_time_to_live="PT10S") == made
    assert await held(admin) == before
    async with Admin(where) as another:
        found = await asyncio.gather(
            *(client.ensure_topic("t", user_metadata=str(number)) for number, client in enumerate((admin, another) * 8))
        )
    assert len({topic.user_metadata for topic in found}) == 1


@in_memory
async def test_create_if_missing_creates_a_missing_topic(admin: Admin) -> None:
    """Senders that are opened with ``create_if_missing`` create their topic in this way."""
    connection = admin._connection
    until = asyncio.get_running_loop().time() + 60
    creation = topic_creation(user_metadata="ours", enable_partitioning=True)
    record = await connection.record("t", until, creation)
    assert (record.kind, record.settings.topic, record.partitioned) == ("topic", True, True)
    assert await connection.record("T", until, creation) == record
    assert TOPICS.described(record, reachable=True).user_metadata == "ours"
    assert (await TOPICS.create_or_get(connection.namespace, "u", 60, {}, clock="test")).settings.clock == "test"
    with pytest.raises(TypeError, match="create_if_missing does not take 'lock_duration'"):
        topic_creation(lock_duration="PT30S")  # type: ignore[call-arg]


# -- listing and deleting ----------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_topics_and_queues_are_listed_separately_over_several_pages(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "PAGE", 3)
    for name in "abcd":
        await admin.create_queue(f"{name}-queue")
        await admin.create_topic(f"{name}-topic")
        await admin.create_subscription(f"{name}-topic", "all")
    for kind, listed in (
        ("topic", [each.name async for each in admin.list_topics()]),
        ("topic", [each.name async for each in admin.list_topics_runtime_properties()]),
        ("queue", [each.name async for each in admin.list_queues()]),
        ("queue", [each.name async for each in admin.list_queues_runtime_properties()]),
    ):
        assert listed == [f"{name}-{kind}" for name in "abcd"]
    pages = admin.list_topics().by_page()
    assert [[each.name async for each in page] async for page in pages] == [
        ["a-topic", "b-topic", "c-topic"],
        ["d-topic"],
    ]


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.both_shapes
async def test_a_deleted_topic_leaves_no_keys_and_its_name_is_free(admin: Admin, *, partitioned: bool) -> None:
    before = set(await held(admin))
    await admin.create_topic("t", enable_partitioning=partitioned)
    await admin.create_subscription("t", "all")
    await admin.delete_topic("T")
    assert {key for key in set(await held(admin)) - before if b"{fjl}" not in key} == set()
    assert not await admin.topic_exists("t")
    assert not await admin.subscription_exists("t", "all")
    await admin.create_topic("t", enable_partitioning=not partitioned)
    assert [each async for each in admin.list_subscriptions("t")] == []


@in_memory
async def test_a_disabled_topic_is_shown_with_the_status_disabled(admin: Admin) -> None:
    topic = await admin.create_topic("t", status=EntityStatus.DISABLED)
    assert topic.status is EntityStatus.DISABLED
    topic.status = EntityStatus.ACTIVE
    await admin.update_topic(topic)
    assert (await admin.get_topic("t")).status is EntityStatus.ACTIVE


@in_memory
async def test_a_call_with_a_timeout_of_zero_changes_nothing(admin: Admin) -> None:
    await admin.create_topic("t")
    for done in (
        admin.create_topic("other", timeout=1e-9),
        admin.ensure_topic("other", timeout=1e-9),
        admin.get_topic("t", timeout=1e-9),
        admin.topic_exists("t", timeout=1e-9),
        admin.get_topic_runtime_properties("t", timeout=1e-9),
        admin.update_topic({"name": "t"}, user_metadata="ours", timeout=1e-9),
        admin.delete_topic("t", timeout=1e-9),
        anext(admin.list_topics(timeout=1e-9)),
        anext(admin.list_topics_runtime_properties(timeout=1e-9)),
    ):
        await refused(admin, done, OperationTimeoutError, ".")
