"""Describing the entity at a path."""

# Made by tools/make_sync from tests/aio/test_entity_info.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import timedelta

import pytest

from sbredis import ServiceBusClient
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.management import QueueProperties, ServiceBusAdministrationClient, SubscriptionProperties, TopicProperties
from sbredis.model import ServiceBusSubQueue

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


DEAD, TRANSFER = ServiceBusSubQueue.DEAD_LETTER, ServiceBusSubQueue.TRANSFER_DEAD_LETTER


def test_describing_a_path_returns_the_kind_sub_queue_and_settings(url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        admin.create_queue("Orders", lock_duration=timedelta(seconds=20), max_message_size_in_kilobytes=2048)
        admin.create_topic("News")
        admin.create_subscription("News", "EU", requires_session=True, lock_duration=timedelta(seconds=40))

        queue = client.describe_entity("orders")
        assert (queue.path, queue.kind, queue.name, queue.topic_name) == ("Orders", "queue", "Orders", None)
        assert (queue.sub_queue, queue.requires_session) == (None, False)
        assert (queue.lock_duration, queue.max_message_size_in_bytes) == (timedelta(seconds=20), 2048 * 1024)
        assert isinstance(queue.properties, QueueProperties)
        assert queue.properties.max_delivery_count == 10

        topic = client.describe_entity("NEWS")
        assert (topic.path, topic.kind, topic.lock_duration) == ("News", "topic", None)
        assert isinstance(topic.properties, TopicProperties)

        for path, suffix, sub_queue in (
            ("news/Subscriptions/eu", "", None),
            ("news/SUBSCRIPTIONS/eu/$deadletterqueue", "/$DeadLetterQueue", DEAD),
            ("news/subscriptions/eu/$Transfer/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue", TRANSFER),
        ):
            found = client.describe_entity(path)
            assert (found.path, found.sub_queue) == (f"News/subscriptions/EU{suffix}", sub_queue)
            assert (found.kind, found.name, found.topic_name) == ("subscription", "EU", "News")
            assert (found.requires_session, found.lock_duration) == (sub_queue is None, timedelta(seconds=40))
            assert isinstance(found.properties, SubscriptionProperties)


def test_describing_an_entity_returns_changed_settings(url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        admin.create_queue("orders")
        assert (client.describe_entity("orders")).lock_duration == timedelta(minutes=1)
        admin.update_queue({"name": "orders"}, lock_duration=timedelta(seconds=30))
        assert (client.describe_entity("orders")).lock_duration == timedelta(seconds=30)


@pytest.mark.parametrize("path", ["", "a" * 300, "orders/$Other", "news/subscriptions/"])
def test_describing_an_invalid_path_is_refused(url: str, path: str) -> None:
    with ServiceBusClient(url) as client:
        with pytest.raises((ValueError, MessagingEntityNotFoundError)):
            client.describe_entity(path)


def test_describing_a_missing_entity_raises_not_found(url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        admin.create_topic("news")
        for path in ("orders", "orders/$DeadLetterQueue", "news/subscriptions/eu", "news/$DeadLetterQueue"):
            with pytest.raises(MessagingEntityNotFoundError):
                client.describe_entity(path)
