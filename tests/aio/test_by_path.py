"""Opening senders and receivers by path."""

from __future__ import annotations

from typing import Any

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusSessionReceiver
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.model import ServiceBusMessage


async def test_a_path_opens_queues_topics_subscriptions_and_dead_letter_queues(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        await admin.create_queue("a/Orders")
        await admin.create_topic("News")
        await admin.create_subscription("News", "All")
        for path in ("a/orders", "NEWS"):
            async with client.get_sender(path, max_in_flight=5) as sender:
                await sender.send_messages(ServiceBusMessage(path))

        for path in ("a/orders", "news/Subscriptions/ALL"):
            async with client.get_receiver(path, max_wait_time=60) as receiver:
                message = await receiver.__anext__()
                await receiver.dead_letter_message(message, "why")
            async with client.get_receiver(f"{path}/$deadletterqueue", max_wait_time=60) as letters:
                letter = await letters.__anext__()
                assert (letter.sequence_number, letter.dead_letter_reason) == (message.sequence_number, "why")
                await letters.complete_message(letter)
            async with client.get_receiver(path, sub_queue="deadletter") as letters:
                assert letters.entity_path.endswith("/$DeadLetterQueue")
                assert await letters.peek_messages() == []


async def test_a_session_is_accepted_by_path(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        await admin.create_topic("news")
        await admin.create_subscription("news", "all", requires_session=True)
        async with client.get_receiver("news/subscriptions/all", session_id="ann") as receiver:
            assert isinstance(receiver, ServiceBusSessionReceiver)
            assert receiver.session.session_id == "ann"


@pytest.mark.parametrize("path", ["orders/$DeadLetterQueue", "news/Subscriptions/all", "", "a" * 300])
async def test_a_sender_is_refused_for_other_paths_than_queues_and_topics(url: str, path: str) -> None:
    async with ServiceBusClient(url) as client:
        with pytest.raises(ValueError, match=r"not a queue or a topic|name"):
            client.get_sender(path)
        assert not client._children


@pytest.mark.parametrize(("path", "options"), [("news/subscriptions/", {}), ("q/$DeadLetterQueue", {"session_id": ""})])
async def test_a_receiver_is_refused_for_an_invalid_path_or_option(
    url: str, path: str, options: dict[str, Any]
) -> None:
    async with ServiceBusClient(url) as client:
        with pytest.raises(ValueError, match=r"."):
            client.get_receiver(path, **options)
        assert not client._children


async def test_opening_a_path_does_not_create_the_entity(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        with pytest.raises(MessagingEntityNotFoundError):
            await client.get_receiver("orders").receive_messages(1, 1)
        with pytest.raises(MessagingEntityNotFoundError):
            await client.get_sender("orders").send_messages(ServiceBusMessage("a"))
        assert not await admin.queue_exists("orders")
