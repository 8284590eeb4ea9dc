"""Tests of topics and subscriptions for users of a namespace: creating, finding, listing, changing and deleting."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sbredis.engine import PartitionSettings, perform
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.registry import EntityRecord, Namespace, path_of
from sbredis.rules import Rule
from sbredis.transport import Transport
from tests.registry.keys import snapshot
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

SUB = path_of("Topic", "Sub")

shapes = pytest.mark.both_shapes


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@shapes
async def test_a_topic_gets_partitions_like_a_queue(
    transport: Transport, namespace: Namespace, *, partitioned: bool
) -> None:
    topic = await make_topic(namespace, partitioned=partitioned)
    queue = await namespace.create_entity("q", PartitionSettings(), colocate_with=None if partitioned else "topic")
    assert (topic.kind, topic.state, topic.settings, topic.store) == ("topic", "active", OF_TOPIC, None)
    assert len(topic.partitions) == (4 if partitioned else 1)
    assert partitioned or queue.partitions == topic.partitions
    assert await namespace.get_entity("TOPIC") == topic
    assert await namespace.get_entity("topic", kind="topic") == topic
    assert [record.name for record in await namespace.list_entities()] == ["q", "Topic"]
    assert await namespace.topic_facts("Topic") == (topic, 0, 0, 0)
    require_whole(await kept_of(transport), 4)


@pytest.mark.parametrize(
    ("name", "kind", "settings", "text"),
    [
        ("a b", "queue", PartitionSettings(), "entity name 'a b'"),
        ("q", "queue", PartitionSettings(shared=True), "stores its messages itself"),
        ("t", "topic", PartitionSettings(), "the settings of the topic 't' are settings for a queue"),
        ("t", "queue", OF_TOPIC, "the settings of the queue 't' are settings for a topic"),
        ("t", "topic", OF_SUBSCRIPTION, "stores its messages itself"),
        ("t", "subscription", OF_SUBSCRIPTION, "must be a queue or a topic, not 'subscription'"),
        ("t/subscriptions/s", "topic", OF_TOPIC, "reserved"),
        ("t/Subscriptions/s", "queue", PartitionSettings(), "reserved"),
    ],
)
async def test_an_invalid_queue_or_topic_is_not_created(  # noqa: PLR0917 -- the columns of a table
    transport: Transport, namespace: Namespace, name: str, kind: Any, settings: PartitionSettings, text: str
) -> None:
    await refused(transport, namespace.create_entity(name, settings, kind=kind), ValueError, text)


@pytest.mark.slow
async def test_an_entity_of_another_kind_is_refused(transport: Transport, namespace: Namespace) -> None:
    await make_topic(namespace)
    await namespace.create_entity("q", PartitionSettings())
    await subscribe(namespace)
    wrong = [
        (namespace.get_entity("topic", kind="queue"), "'Topic' in namespace 'ns' is a topic, not a q"),
        (namespace.delete_entity("topic", kind="queue"), "'Topic' in namespace .* is a topic, not a queue"),
        (
            namespace.delete_entity("Q", kind=("topic", "subscription")),
            "'q' in namespace .* is a queue, not a topic or a subscription",
        ),
        (namespace.delete_entity(SUB, kind=["queue", "topic"]), "is a subscription, not a queue or a topic"),
        (subscribe(namespace, topic="q"), "'q' in namespace 'ns' is a queue, not a topic"),
        (namespace.routes("q"), "'q' in namespace 'ns' is a queue"),
        (namespace.topic_facts("q"), "'q' in namespace 'ns' is a queue"),
        (namespace.list_subscriptions("q"), "'q' in namespace 'ns' is a queue"),
    ]
    for done, text in wrong:
        await refused(transport, done, MessagingEntityNotFoundError, text)
    with pytest.raises(ValueError, match="kind must be one or several of queue, topic, subscription"):
        await namespace.get_entity("q", kind="stream")  # type: ignore[arg-type]
    await namespace.delete_entity("q", kind="queue")
    await namespace.delete_entity(SUB, kind="subscription")
    await namespace.delete_entity("topic", kind=("topic", "queue"))
    assert await namespace.list_entities() == ()


# -- subscriptions -----------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@shapes
async def test_a_subscription_lives_in_the_partitions_of_its_topic_and_stores_its_messages_there(
    transport: Transport, namespace: Namespace, *, partitioned: bool
) -> None:
    topic = await make_topic(namespace, "Billing/Events", partitioned=partitioned)
    record = await namespace.create_subscription(
        "billing/EVENTS", "Audit", OF_SUBSCRIPTION, properties={"user_metadata": "ours"}, rules=[ANY, SQL]
    )
    assert (record.path, record.kind, record.parent) == (
        "Billing/Events/subscriptions/Audit",
        "subscription",
        "Billing/Events",
    )
    assert (record.state, record.version, record.store) == ("active", 1, topic.id)
    assert (record.partitions, record.partitioned) == (topic.partitions, topic.partitioned)
    assert (record.settings, record.properties) == (OF_SUBSCRIPTION, {"user_metadata": "ours"})
    assert await namespace.get_entity("billing/events/SUBSCRIPTIONS/audit") == record
    of_topic, own = namespace.partition(topic, topic.partitions[0]), namespace.partition(record, record.partitions[0])
    assert own.keys[8:26] == of_topic.keys[8:26]
    assert not set(own.keys[:8]) & set(of_topic.keys)
    await perform(transport, own.count())
    kept = await kept_of(transport)
    require_whole(kept, 4)
    assert kept.entities["billing/events"].version == topic.version + 1, "its messages are judged by something else"


async def test_listing_queues_and_topics_skips_subscriptions(namespace: Namespace) -> None:
    await make_topic(namespace)
    await subscribe(namespace)
    assert [record.path for record in await namespace.list_entities(limit=1)] == ["Topic"]
    assert await namespace.list_entities("topic") == ()


@pytest.mark.slow
async def test_subscriptions_are_listed_by_name_and_topic(namespace: Namespace) -> None:
    for topic in ("T", "T-2", "t/subs", "T2"):
        await make_topic(namespace, topic, partitioned=False)
    made = {name: await subscribe(namespace, name, topic="T") for name in ("b", "A", "a-1", "a.2", "B2", "0")}
    for topic in ("T-2", "t/subs"):
        await subscribe(namespace, "other", topic=topic)
    expected = ["0", "A", "a-1", "a.2", "b", "B2"]
    assert [record.name for record in await namespace.list_subscriptions("t")] == expected
    assert [record.name for record in await namespace.list_subscriptions("T-2")] == ["other"]
    assert await namespace.list_subscriptions("T2") == ()
    for limit in (1, 2, 5, 6, 1000):
        listed: list[EntityRecord] = []
        while page := await namespace.list_subscriptions("T", listed[-1].name if listed else "", limit):
            assert len(page) <= limit
            listed += page
        assert listed == [made[name] for name in expected]
    assert [record.name for record in await namespace.list_subscriptions("T", "Aa", 1)] == ["b"], "also after no name"
    assert await namespace.list_subscriptions("T", "zzz~\U0010ffff") == ()


@pytest.mark.slow
async def test_a_page_has_fewer_subscriptions_if_they_are_large(namespace: Namespace) -> None:
    await make_topic(namespace, partitioned=False)
    for number in range(20):
        await namespace.create_subscription(
            "Topic", f"s{number:02}", OF_SUBSCRIPTION, properties={"a": "x" * 64_000}, rules=[]
        )
    first = await namespace.list_subscriptions("Topic")
    assert len(first) == 16
    assert len(await namespace.list_subscriptions("Topic", first[-1].name)) == 4
    assert len((await namespace.routes("Topic")).subscriptions) == 20


@pytest.mark.parametrize("after", [None, b"a", "a\ud800"])
async def test_a_list_with_an_invalid_start_is_refused(namespace: Namespace, after: Any) -> None:
    await make_topic(namespace)
    await subscribe(namespace)
    lists: list[Any] = [
        namespace.list_entities,
        partial(namespace.list_subscriptions, "Topic"),
        partial(namespace.list_rules, "Topic", "Sub"),
    ]
    for listed in lists:
        with pytest.raises((TypeError, ValueError), match=r"after (must be|has)"):
            await listed(after)
        for limit in (0, 1001):
            with pytest.raises(ValueError, match="limit must be a whole number from 1 to 1000"):
                await listed(limit=limit)


@pytest.mark.parametrize(
    ("topic", "name", "settings", "rules", "error"),
    [
        ("T//x", "s", OF_SUBSCRIPTION, [], ValueError),
        ("Topic", "a/b", OF_SUBSCRIPTION, [], ValueError),
        ("Topic", "x" * 51, OF_SUBSCRIPTION, [], ValueError),
        ("Topic", None, OF_SUBSCRIPTION, [], TypeError),
        ("Topic", "s", PartitionSettings(), [], ValueError),
        ("Topic", "s", OF_SUBSCRIPTION, [SQL, Rule("SQL")], ValueError),
        ("Topic", "s", OF_SUBSCRIPTION, [Rule("a b")], ValueError),
        ("Topic", "s", OF_SUBSCRIPTION, [Rule(f"r{number}") for number in range(1001)], ValueError),
        ("Topic", "s", OF_SUBSCRIPTION, ["rule"], TypeError),
        ("Topic", "s", OF_SUBSCRIPTION, [Rule(5)], TypeError),  # type: ignore[arg-type]
        ("Topic", "s", OF_SUBSCRIPTION, [Rule("r", "a = 1")], TypeError),  # type: ignore[arg-type]
    ],
)
async def test_an_invalid_subscription_is_not_created(  # noqa: PLR0917 -- the columns of a table
    transport: Transport, namespace: Namespace, topic: str, name: Any, settings: Any, rules: Any, error: Any
) -> None:
    await make_topic(namespace)
    before = await snapshot(transport)
    with pytest.raises(error):
        await namespace.create_subscription(topic, name, settings, rules=rules)
    with pytest.raises(ValueError, match="are stored"):
        await namespace.create_subscription("Topic", "s", OF_SUBSCRIPTION, rules=[], properties={"a": "x" * 70_000})
    assert await snapshot(transport) == before


async def test_a_deleted_subscription_and_its_rules_count_no_more(namespace: Namespace) -> None:
    """A subscription may be created without a rule."""
    await make_topic(namespace, partitioned=False)
    await subscribe(namespace, "some", ANY, SQL, CORRELATED)
    await namespace.create_subscription("Topic", "none", OF_SUBSCRIPTION, rules=[])
    assert (await namespace.topic_facts("Topic"))[1:] == (2, 2, 1)
    await namespace.delete_entity(path_of("Topic", "some"))
    assert (await namespace.topic_facts("Topic"))[1:] == (1, 0, 0)
