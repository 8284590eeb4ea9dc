"""Describing the entity at a path."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.management import QueueProperties, SubscriptionProperties, TopicProperties
from sbredis.model import ServiceBusMessage, ServiceBusSubQueue
from tests.aio.queues import Calls

DEAD, TRANSFER = ServiceBusSubQueue.DEAD_LETTER, ServiceBusSubQueue.TRANSFER_DEAD_LETTER


async def test_describing_a_path_returns_the_kind_sub_queue_and_settings(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        await admin.create_queue("Orders", lock_duration=timedelta(seconds=20), max_message_size_in_kilobytes=2048)
        await admin.create_topic("News")
        await admin.create_subscription("News", "EU", requires_session=True, lock_duration=timedelta(seconds=40))

        queue = await client.describe_entity("orders")
        assert (queue.path, queue.kind, queue.name, queue.topic_name) == ("Orders", "queue", "Orders", None)
        assert (queue.sub_queue, queue.requires_session) == (None, False)
        assert (queue.lock_duration, queue.max_message_size_in_bytes) == (timedelta(seconds=20), 2048 * 1024)
        assert isinstance(queue.properties, QueueProperties)
        assert queue.properties.max_delivery_count == 10

        topic = await client.describe_entity("NEWS")
        assert (topic.path, topic.kind, topic.lock_duration) == ("News", "topic", None)
        assert isinstance(topic.properties, TopicProperties)

        for path, suffix, sub_queue in (
            ("news/Subscriptions/eu", "", None),
            ("news/SUBSCRIPTIONS/eu/$deadletterqueue", "/$DeadLetterQueue", DEAD),
            ("news/subscriptions/eu/$Transfer/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue", TRANSFER),
        ):
            found = await client.describe_entity(path)
            assert (found.path, found.sub_queue) == (f"News/subscriptions/EU{suffix}", sub_queue)
            assert (found.kind, found.name, found.topic_name) == ("subscription", "EU", "News")
            assert (found.requires_session, found.lock_duration) == (sub_queue is None, timedelta(seconds=40))
            assert isinstance(found.properties, SubscriptionProperties)


async def test_describing_an_entity_returns_changed_settings(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        await admin.create_queue("orders")
        assert (await client.describe_entity("orders")).lock_duration == timedelta(minutes=1)
        await admin.update_queue({"name": "orders"}, lock_duration=timedelta(seconds=30))
        assert (await client.describe_entity("orders")).lock_duration == timedelta(seconds=30)


@pytest.mark.parametrize("path", ["orders", "ORDERS/$DeadLetterQueue"])
async def test_an_entity_that_was_described_is_not_read_again_for_its_first_call(url: str, path: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        await admin.create_queue("orders")
        await client.describe_entity(path)
        with Calls(client._connection.transport) as calls:
            async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
                await sender.send_messages(ServiceBusMessage("x"))
                assert [str(each) for each in await receiver.receive_messages(1, 60)] == ["x"]
        assert calls.by_script["read_entity"] == 0


@pytest.mark.parametrize("anew", [True, False])
async def test_an_entity_that_is_deleted_after_it_was_described_is_looked_up_again(url: str, anew: bool) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        await admin.create_queue("orders")
        first = await client.describe_entity("orders")
        await admin.delete_queue("orders")
        if anew:
            await admin.create_queue("orders", lock_duration=timedelta(seconds=30))
        async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
            if anew:
                await sender.send_messages(ServiceBusMessage("x"))
                (message,) = await receiver.receive_messages(1, 60)
                await receiver.complete_message(message)
                second = await client.describe_entity("orders")
                assert (second.id != first.id, second.lock_duration) == (True, timedelta(seconds=30))
            else:
                for call in (sender.send_messages(ServiceBusMessage("x")), receiver.receive_messages(1, 60)):
                    with pytest.raises(MessagingEntityNotFoundError):
                        await call


@pytest.mark.parametrize("path", ["", "a" * 300, "orders/$Other", "news/subscriptions/"])
async def test_describing_an_invalid_path_is_refused(url: str, path: str) -> None:
    async with ServiceBusClient(url) as client:
        with pytest.raises((ValueError, MessagingEntityNotFoundError)):
            await client.describe_entity(path)


async def test_describing_a_missing_entity_raises_not_found(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        await admin.create_topic("news")
        for path in ("orders", "orders/$DeadLetterQueue", "news/subscriptions/eu", "news/$DeadLetterQueue"):
            with pytest.raises(MessagingEntityNotFoundError):
                await client.describe_entity(path)
