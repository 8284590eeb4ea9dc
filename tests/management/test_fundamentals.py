"""Fundamental tests of administration, in the order of a tutorial. Each test shows one promise to users.

They go from the first queue to topics, subscriptions and rules, and every test runs on every target. The other files of
this folder test the details: queues (test_queues.py), topics (test_topics.py), subscriptions (test_subscriptions.py),
rules (test_rules.py), counts (test_counting.py), and the values of each property.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError
from sbredis.management import (
    CorrelationRuleFilter,
    QueueProperties,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    SubscriptionProperties,
    TopicProperties,
    TrueRuleFilter,
)
from sbredis.model import ServiceBusMessage

pytestmark = pytest.mark.conformance

Admin = ServiceBusAdministrationClient

# -- queues ------------------------------------------------------------------------------------------------------------


async def test_a_queue_is_created_with_azures_defaults(admin: Admin) -> None:
    """A queue keeps the case of its name, and lookups ignore the case."""
    created = await admin.create_queue("Billing/Orders")
    assert created == QueueProperties("Billing/Orders")
    assert (created.lock_duration, created.max_delivery_count) == (timedelta(minutes=1), 10)
    assert await admin.get_queue("BILLING/orders") == created


async def test_a_queue_is_created_with_properties(admin: Admin) -> None:
    """A property is a keyword; a duration is a timedelta, or text as Azure writes it."""
    created = await admin.create_queue("orders", lock_duration="PT30S", max_delivery_count=3, requires_session=True)
    assert (created.lock_duration, created.max_delivery_count) == (timedelta(seconds=30), 3)
    assert created.requires_session
    assert await admin.get_queue("orders") == created


async def test_a_name_can_be_used_only_once(admin: Admin) -> None:
    """Queues and topics share one set of names."""
    await admin.create_queue("orders")
    with pytest.raises(MessagingEntityAlreadyExistsError):
        await admin.create_queue("ORDERS")
    with pytest.raises(MessagingEntityAlreadyExistsError):
        await admin.create_topic("orders")


async def test_a_missing_queue_is_not_found(admin: Admin) -> None:
    """The error names the queue. ``queue_exists`` returns False instead of raising an error."""
    with pytest.raises(MessagingEntityNotFoundError, match="orders"):
        await admin.get_queue("orders")
    assert not await admin.queue_exists("orders")
    await admin.create_queue("orders")
    assert await admin.queue_exists("orders")


async def test_ensure_queue_creates_only_a_missing_queue(admin: Admin) -> None:
    """``ensure_queue`` creates a missing queue, and leaves an existing one unchanged."""
    made = await admin.ensure_queue("orders", max_delivery_count=3)
    assert await admin.ensure_queue("orders") == made


async def test_a_queue_is_changed(admin: Admin) -> None:
    """The program reads the properties, changes them, and writes them back."""
    queue = await admin.create_queue("orders")
    queue.max_delivery_count = 3
    await admin.update_queue(queue, lock_duration=timedelta(seconds=30))
    found = await admin.get_queue("orders")
    assert (found.max_delivery_count, found.lock_duration) == (3, timedelta(seconds=30))


async def test_some_properties_cannot_be_changed(admin: Admin) -> None:
    """The error names the property, and nothing changes."""
    await admin.create_queue("orders")
    with pytest.raises(ValueError, match="RequiresSession"):
        await admin.update_queue({"name": "orders"}, requires_session=True, max_delivery_count=3)
    assert await admin.get_queue("orders") == QueueProperties("orders")


async def test_queues_are_listed_by_name(admin: Admin) -> None:
    """A program can iterate over a list, or read it page by page."""
    for name in ("c", "a", "b"):
        await admin.create_queue(name)
    assert [queue.name async for queue in admin.list_queues()] == ["a", "b", "c"]
    pages = [[queue.name async for queue in page] async for page in admin.list_queues().by_page()]
    assert pages == [["a", "b", "c"]]


async def test_a_queue_is_deleted_with_its_messages(admin: Admin, where: str) -> None:
    """A queue that is created later under the same name is a new, empty queue."""
    await admin.create_queue("orders")
    async with ServiceBusClient(where) as client:
        await client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
        assert (await admin.get_queue_runtime_properties("orders")).total_message_count == 1
        await admin.delete_queue("orders")
        assert not await admin.queue_exists("orders")
        await admin.create_queue("orders")
        assert (await admin.get_queue_runtime_properties("orders")).total_message_count == 0


# -- counts ------------------------------------------------------------------------------------------------------------


async def test_messages_are_counted_by_state(admin: Admin, where: str) -> None:
    """The runtime properties of a queue give the number of active, scheduled and dead-lettered messages."""
    await admin.create_queue("orders", enable_partitioning=True)
    async with ServiceBusClient(where) as client:
        sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        await sender.send_messages([ServiceBusMessage(text) for text in "abc"])
        await sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
        (message,) = await receiver.receive_messages(max_wait_time=20)
        await receiver.dead_letter_message(message, "Unreadable")
        found = await admin.get_queue_runtime_properties("orders")
    assert (found.active_message_count, found.scheduled_message_count) == (2, 1)
    assert (found.dead_letter_message_count, found.total_message_count) == (1, 4)
    assert found.size_in_bytes > 0


# -- topics and subscriptions ------------------------------------------------------------------------------------------


async def test_a_topic_is_created_with_azures_defaults(admin: Admin) -> None:
    """A topic is not listed as a queue, and a queue is not listed as a topic."""
    created = await admin.create_topic("news")
    assert created == TopicProperties("news")
    assert await admin.get_topic("NEWS") == created
    assert [topic.name async for topic in admin.list_topics()] == ["news"]
    assert [queue async for queue in admin.list_queues()] == []


async def test_a_subscription_is_created_with_a_rule_that_takes_everything(admin: Admin) -> None:
    """A subscription belongs to its topic, and starts with one rule, ``$Default``."""
    await admin.create_topic("news")
    created = await admin.create_subscription("news", "kitchen")
    assert created == SubscriptionProperties("kitchen")
    assert await admin.get_subscription("news", "kitchen") == created
    (rule,) = [rule async for rule in admin.list_rules("news", "kitchen")]
    assert (rule.name, rule.filter) == ("$Default", TrueRuleFilter())


async def test_a_subscription_is_changed_and_deleted(admin: Admin) -> None:
    """A subscription is changed like a queue, and its topic counts the remaining subscriptions."""
    await admin.create_topic("news")
    for name in ("kitchen", "office"):
        subscription = await admin.create_subscription("news", name)
        subscription.max_delivery_count = 3
        await admin.update_subscription("news", subscription)
    assert [each.max_delivery_count async for each in admin.list_subscriptions("news")] == [3, 3]
    await admin.delete_subscription("news", "kitchen")
    assert [each.name async for each in admin.list_subscriptions("news")] == ["office"]
    assert (await admin.get_topic_runtime_properties("news")).subscription_count == 1


async def test_a_topic_is_deleted_with_its_subscriptions(admin: Admin) -> None:
    """A topic that is created later under the same name has no subscriptions."""
    await admin.create_topic("news")
    await admin.create_subscription("news", "kitchen")
    await admin.delete_topic("news")
    with pytest.raises(MessagingEntityNotFoundError):
        await admin.get_subscription("news", "kitchen")
    await admin.create_topic("news")
    assert [each async for each in admin.list_subscriptions("news")] == []


# -- rules -------------------------------------------------------------------------------------------------------------


async def test_rules_are_created_changed_and_deleted(admin: Admin) -> None:
    """A rule has a filter, and may have an action; a subscription has any number of them."""
    await admin.create_topic("news")
    await admin.create_subscription("news", "dear", rules=[])
    rule = await admin.create_rule(
        "news", "dear", "price", filter=SqlRuleFilter("price > 100"), action=SqlRuleAction("SET dear = TRUE")
    )
    await admin.create_rule("news", "dear", "red", filter=CorrelationRuleFilter(properties={"colour": "red"}))
    assert [each.name async for each in admin.list_rules("news", "dear")] == ["price", "red"]
    rule.filter = SqlRuleFilter("price > 1000")
    await admin.update_rule("news", "dear", rule)
    assert (await admin.get_rule("news", "dear", "price")).filter == SqlRuleFilter("price > 1000")
    await admin.delete_rule("news", "dear", "price")
    assert not await admin.rule_exists("news", "dear", "price")


async def test_an_invalid_filter_is_refused_when_the_rule_is_created(admin: Admin) -> None:
    """The error gives the position of the mistake in the text, and no rule is created."""
    await admin.create_topic("news")
    await admin.create_subscription("news", "dear", rules=[])
    with pytest.raises(ValueError, match="line 1, column 8"):
        await admin.create_rule("news", "dear", "wrong", filter=SqlRuleFilter("price >"))
    assert [each async for each in admin.list_rules("news", "dear")] == []


async def test_a_subscription_can_begin_with_other_rules(admin: Admin, where: str) -> None:
    """With rules of its own from the start, the subscription takes no message through ``$Default``."""
    await admin.create_topic("news")
    rules = [RuleProperties("red", filter=CorrelationRuleFilter(label="red"))]
    await admin.create_subscription("news", "red", rules=rules)
    async with ServiceBusClient(where) as client:
        sender = client.get_topic_sender("news")
        await sender.send_messages([ServiceBusMessage(text, subject=text) for text in ("red", "blue")])
        peeked = await client.get_subscription_receiver("news", "red").peek_messages(10)
    assert [message.subject for message in peeked] == ["red"]


# -- the namespace -----------------------------------------------------------------------------------------------------


async def test_a_namespace_reports_its_name_and_its_partitions(admin: Admin) -> None:
    """A namespace is created when it is first used, and keeps its number of partitions."""
    found = await admin.get_namespace_properties()
    assert (found.name, found.slot_count) == ("ns", 4)


async def test_a_closed_client_refuses_calls(where: str) -> None:
    """The context manager closes an administration client. Closing it a second time is no error."""
    async with ServiceBusAdministrationClient.from_connection_string(where, slot_count=4) as admin:
        await admin.create_queue("orders")
    await admin.close()
    with pytest.raises(ValueError, match="closed"):
        await admin.get_queue("orders")
