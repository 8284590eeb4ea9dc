"""Tests of topics and subscriptions for an administrator, beside what is the same for queues (test_entities.py).

A refused call changes nothing.
"""

from __future__ import annotations

import asyncio

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.entities import SUBSCRIPTIONS, TOPICS, subscription_creation, topic_creation
from sbredis.exceptions import MessagingEntityNotFoundError, RuleSyntaxError
from sbredis.management import CorrelationRuleFilter, RuleProperties, SqlRuleFilter
from tests.management.refusals import refused

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient


@pytest.fixture
async def admin(admin: Admin) -> Admin:
    """The client, with a topic."""
    await admin.create_topic("News")
    return admin


async def rules(admin: Admin, subscription: str) -> list[str]:
    return [rule.name async for rule in admin.list_rules("news", subscription)]


# -- creating and finding ----------------------------------------------------------------------------------------------


async def test_a_subscription_may_be_created_with_other_rules(admin: Admin) -> None:
    """Then no ``$Default`` rule exists that could take messages before a program deletes it."""
    given = [
        RuleProperties("red", filter=CorrelationRuleFilter(label="red")),
        RuleProperties("blue", filter=SqlRuleFilter("colour = 'blue'")),
    ]
    await admin.create_subscription("news", "some", rules=given)
    assert await rules(admin, "some") == ["blue", "red"]
    assert (await admin.get_rule("news", "some", "red")).filter == given[0].filter
    await admin.create_subscription("news", "none", rules=[])
    assert await rules(admin, "none") == []
    await admin.ensure_subscription("news", "ensured", rules=given)
    await admin.ensure_subscription("news", "ensured")
    assert await rules(admin, "ensured") == ["blue", "red"]


@pytest.mark.slow
async def test_a_subscription_is_not_created_with_wrong_rules(admin: Admin) -> None:
    wrong = RuleProperties("r", filter=SqlRuleFilter("a ="))
    twice = [RuleProperties("r"), RuleProperties("R")]
    for make in (admin.create_subscription, admin.ensure_subscription):
        await refused(admin, make("news", "s", rules=[wrong]), RuleSyntaxError, "line 1, column 4")
        await refused(admin, make("news", "s", rules=[{"name": "r"}]), TypeError, "list of RuleProperties, not of dict")  # type: ignore[list-item]
        await refused(admin, make("news", "s", rules=iter(twice)), TypeError, "rules must be a list of RuleProp")  # type: ignore[arg-type]
        await refused(admin, make("news", "s", rules=RuleProperties("r")), TypeError, "not RuleProperties")  # type: ignore[arg-type]
        await refused(admin, make("news", "s", rules=twice), ValueError, "two rules have the name 'R'")
        await refused(admin, make("news", "s", rules=[RuleProperties("a b")]), ValueError, "rule name 'a b'")


@pytest.mark.slow
async def test_the_error_of_a_subscription_names_the_missing_topic(admin: Admin) -> None:
    await admin.create_queue("Queue")
    for topic, text in (
        ("nothing", "of a topic 'nothing' in namespace 'ns', because there is no such topic.*create_topic.'nothing'"),
        ("Queue", "of a topic 'Queue' in namespace 'ns', because 'Queue' is a queue, which has no subscriptions"),
        ("news", "of a topic 'news' in namespace 'ns'. Create it with .*create_subscription"),
    ):
        for done in (
            admin.get_subscription(topic, "s"),
            admin.delete_subscription(topic, "s"),
            admin.create_rule(topic, "s", "r"),
            anext(admin.list_rules(topic, "s")),
        ):
            await refused(admin, done, MessagingEntityNotFoundError, f"There is no subscription 's' {text}")
    for topic, text in (("nothing", "There is no topic 'nothing'"), ("queue", "'Queue' in .* is a queue, not a topic")):
        for call in (
            admin.create_subscription(topic, "s"),
            admin.ensure_subscription(topic, "s"),
            anext(admin.list_subscriptions(topic)),
            anext(admin.list_subscriptions_runtime_properties(topic)),
        ):
            await refused(admin, call, MessagingEntityNotFoundError, text)


# -- ensuring ----------------------------------------------------------------------------------------------------------


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


@in_memory
async def test_create_if_missing_creates_a_missing_subscription(admin: Admin) -> None:
    """Receivers that are opened with ``create_if_missing`` create their subscription in this way."""
    connection = admin._connection
    until = asyncio.get_running_loop().time() + 60
    creation = subscription_creation(lock_duration="PT30S", rules=[RuleProperties("red")])
    record = await connection.record("news/subscriptions/s", until, creation)
    assert (record.kind, record.settings.lock_duration, record.settings.shared) == ("subscription", 30_000, True)
    assert await connection.record("NEWS/Subscriptions/S", until, creation) == record
    assert SUBSCRIPTIONS.described(record, reachable=True).name == "s"
    assert await rules(admin, "s") == ["red"]
    with pytest.raises(MessagingEntityNotFoundError, match="There is no topic 'nothing'"):
        await connection.record("nothing/subscriptions/s", until, creation)
    with pytest.raises(ValueError, match="'news' is not the path of a subscription"):
        await creation(connection.namespace, "news", 60)
    with pytest.raises(TypeError, match="create_if_missing does not take 'colour'"):
        subscription_creation(colour="red")  # type: ignore[call-arg]
    with pytest.raises(RuleSyntaxError):
        subscription_creation(rules=[RuleProperties("r", filter=SqlRuleFilter("a ="))])
