"""The effect of every method of the synchronous administration client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from sbredis import ServiceBusClient, ServiceBusMessage
from sbredis.aio import ServiceBusClient as AsyncClient
from sbredis.bulk import BulkWriter, reserve
from sbredis.engine import Outbound
from sbredis.exceptions import (
    EntityReservedError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    RuleSyntaxError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sbredis.management import NamespaceProperties, ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter


@pytest.fixture
def admin(url: str) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient(url, partition_count=2) as admin:
        yield admin


def test_reservations_are_listed_and_released(url: str, admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders")

    async def reserve_orders() -> None:
        async with AsyncClient(url) as client:
            await reserve(client, "orders", consumer="capture")

    asyncio.run(reserve_orders())
    assert [each.consumer for each in admin.list_reservations(stale_after=60)] == ["capture"]
    assert [each.consumer for each in admin.list_reservations(entity_path="orders")] == ["capture"]
    with pytest.raises(EntityReservedError, match="for the consumer 'capture'"):
        admin.delete_queue("orders")
    assert admin.release_reservation("orders", consumer="capture")
    assert not admin.release_reservation("orders")
    assert list(admin.list_reservations()) == []


def test_skip_and_top_select_a_part_of_a_list(admin: ServiceBusAdministrationClient) -> None:
    for name in ("a", "b", "c", "d"):
        admin.create_queue(name, enable_partitioning=True)
    assert [queue.name for queue in admin.list_queues(skip=1, top=2)] == ["b", "c"]
    assert [queue.name for queue in admin.list_queues_runtime_properties(skip=3, top=2)] == ["d"]
    assert len(list(admin.list_partitions("a", top=1))) == 1
    for refused in (lambda: admin.list_queues(skip=-1), lambda: admin.list_rules("t", "s", top=0)):
        with pytest.raises(ValueError, match="or more, not"):
            refused()


def test_a_bulk_writer_is_forgotten(url: str, admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders")

    async def write() -> int:
        async with AsyncClient(url) as client, BulkWriter(client, "orders", writer="w", batch=1, task=0) as writer:
            await writer.write(Outbound([b"row"]))
            return (await writer.finish()).stored

    assert [asyncio.run(write()) for _ in range(2)] == [1, 0]
    assert admin.forget_writer("Orders", "w") == 1
    assert admin.forget_writer("orders", "w") == 0
    assert asyncio.run(write()) == 1
    with pytest.raises(ValueError, match="writer 'a b' must have"):
        admin.forget_writer("orders", "a b")
    with pytest.raises(MessagingEntityNotFoundError):
        admin.forget_writer("missing", "w")


def test_a_queue_is_created_changed_and_deleted(admin: ServiceBusAdministrationClient) -> None:
    made = admin.create_queue("orders", lock_duration=timedelta(seconds=30), user_metadata="theirs")
    assert (made.lock_duration, made.user_metadata) == (timedelta(seconds=30), "theirs")
    with pytest.raises(MessagingEntityAlreadyExistsError):
        admin.create_queue("Orders")
    made.max_delivery_count = 3
    admin.update_queue(made)
    admin.update_queue({"name": "orders"}, user_metadata="ours")
    found = admin.get_queue("orders")
    assert (found.max_delivery_count, found.user_metadata) == (3, "ours")
    admin.delete_queue("orders")
    with pytest.raises(MessagingEntityNotFoundError):
        admin.get_queue("orders")


def test_ensure_queue_creates_only_a_missing_queue(admin: ServiceBusAdministrationClient) -> None:
    assert admin.ensure_queue("orders", max_delivery_count=3).max_delivery_count == 3
    assert admin.ensure_queue("orders").max_delivery_count == 3


def test_messages_are_counted(admin: ServiceBusAdministrationClient, url: str) -> None:
    admin.create_queue("orders", enable_partitioning=True)
    with ServiceBusClient(url) as client, client.get_queue_sender("orders") as sender:
        sender.send_stream(ServiceBusMessage("a") for _ in range(5)).count()
    assert admin.get_queue_runtime_properties("orders").active_message_count == 5
    assert [found.active_message_count for found in admin.list_queues_runtime_properties()] == [5]


@pytest.mark.slow
def test_queues_are_listed_page_by_page(admin: ServiceBusAdministrationClient) -> None:
    assert list(admin.list_queues()) == []
    names = [f"q{number:03}" for number in range(103)]
    for name in names:
        admin.create_queue(name)
    paged = admin.list_queues()
    assert next(paged).name == "q000"
    assert [queue.name for queue in paged] == names[1:]
    pages = admin.list_queues().by_page()
    assert len(list(next(pages))) == 100
    assert pages.continuation_token is not None
    rest = admin.list_queues().by_page(pages.continuation_token)
    assert [queue.name for page in rest for queue in page] == names[100:]
    assert rest.continuation_token is None
    with pytest.raises(StopIteration):
        rest.next_page()


def test_destinations_of_forwarding_are_set_and_checked(admin: ServiceBusAdministrationClient, url: str) -> None:
    admin.create_queue("all")
    made = admin.create_queue("orders", forward_to="sb://x/ALL", auto_delete_on_idle="PT1H")
    assert (made.forward_to, made.auto_delete_on_idle) == ("ALL", timedelta(hours=1))
    admin.create_topic("news")
    subscription = admin.ensure_subscription("news", "s", forward_dead_lettered_messages_to="all")
    assert admin.get_subscription("news", "s") == subscription
    with pytest.raises(MessagingEntityNotFoundError, match="was to forward messages to 'nothing'"):
        admin.update_queue(made, forward_dead_lettered_messages_to="nothing")
    with pytest.raises(ValueError, match="circle: all > orders > ALL"):
        admin.update_queue({"name": "all"}, forward_to="orders")
    with pytest.raises(ValueError, match="auto-forwarding policy to itself"):
        admin.ensure_queue("new", forward_to="new")
    assert [queue.name for queue in admin.list_queues()] == ["all", "orders"]
    with ServiceBusClient(url) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("a"))
        with pytest.raises(ServiceBusError, match="Cannot create a message receiver on an entity with auto-forwarding"):
            client.get_queue_receiver("orders").receive_messages(1, 60)
    found = admin.get_queue_runtime_properties("orders")
    assert (found.active_message_count, found.transfer_message_count) == (0, 1)


def test_a_topic_is_created_changed_and_deleted(admin: ServiceBusAdministrationClient) -> None:
    made = admin.create_topic("news", default_message_time_to_live="PT30S")
    assert made.default_message_time_to_live == timedelta(seconds=30)
    made.user_metadata = "ours"
    admin.update_topic(made)
    assert admin.get_topic("NEWS") == made == admin.ensure_topic("news")
    assert [topic.name for topic in admin.list_topics()] == ["news"]
    assert [found.subscription_count for found in admin.list_topics_runtime_properties()] == [0]
    assert admin.get_topic_runtime_properties("news").scheduled_message_count == 0
    assert (admin.topic_exists("news"), admin.queue_exists("news")) == (True, False)
    admin.delete_topic("news")
    assert not admin.topic_exists("news")


def test_a_subscription_and_its_rules_are_created_changed_and_deleted(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("news")
    made = admin.create_subscription("news", "all", lock_duration="PT30S")
    made.max_delivery_count = 3
    admin.update_subscription("news", made)
    assert admin.get_subscription("news", "ALL") == made == admin.ensure_subscription("news", "all")
    assert [found.name for found in admin.list_subscriptions("news")] == ["all"]
    assert [found.total_message_count for found in admin.list_subscriptions_runtime_properties("news")] == [0]
    assert admin.get_subscription_runtime_properties("news", "all").active_message_count == 0
    rule = admin.create_rule("news", "all", "red", filter=SqlRuleFilter("colour = 'red'"))
    rule.action = SqlRuleAction("SET seen = true")
    admin.update_rule("news", "all", rule)
    assert admin.get_rule("news", "all", "red") == rule
    assert [found.name for found in admin.list_rules("news", "all")] == ["$Default", "red"]
    admin.delete_rule("news", "all", "$Default")
    assert (admin.rule_exists("news", "all", "$Default"), admin.rule_exists("news", "all", "red")) == (False, True)
    admin.delete_subscription("news", "all")
    assert not admin.subscription_exists("news", "all")


def test_the_synchronous_client_refuses_wrong_arguments_too(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("news")
    admin.create_subscription("news", "all", rules=[])
    with pytest.raises(RuleSyntaxError, match="line 1, column 10"):
        admin.create_rule("news", "all", "red", filter=SqlRuleFilter("colour = "))
    with pytest.raises(ValueError, match="rule name"):
        admin.create_rule("news", "all", "a b")
    assert list(admin.list_rules("news", "all")) == []
    with pytest.raises(MessagingEntityNotFoundError, match=r"'news' in namespace .* is a topic"):
        admin.get_queue("news")


def test_the_properties_of_the_namespace_are_returned(admin: ServiceBusAdministrationClient) -> None:
    found = admin.get_namespace_properties()
    assert isinstance(found, NamespaceProperties)
    assert (found.name, found.partition_count) == ("default", 2)


def test_the_namespace_is_limited(admin: ServiceBusAdministrationClient) -> None:
    found = admin.set_namespace_limits(max_entities=0, max_size_in_megabytes=None)
    assert (found.max_entities, found.max_size_in_megabytes) == (0, None)
    with pytest.raises(ServiceBusQuotaExceededError, match="more than 0 entities"):
        admin.create_queue("q")


def test_a_client_can_be_made_with_from_connection_string(url: str) -> None:
    with ServiceBusAdministrationClient.from_connection_string(url, partition_count=1) as admin:
        assert admin.get_namespace_properties().partition_count == 1


def test_a_closed_client_cannot_be_used(url: str) -> None:
    unused = ServiceBusAdministrationClient(url)
    unused.close()
    with ServiceBusAdministrationClient(url) as used:
        used.ensure_queue("orders")
        queues = used.list_queues()
    for use in (lambda: unused.get_queue("orders"), lambda: used.get_queue("orders"), lambda: list(queues)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_an_option_of_azures_library_causes_a_warning_at_the_callers_line() -> None:
    with pytest.warns(UserWarning, match="ignores keywords of Azure's library: retry_total") as seen:
        ServiceBusAdministrationClient("memory://unused", retry_total=3)  # type: ignore[call-arg]
    assert [warning.filename for warning in seen] == [__file__]
