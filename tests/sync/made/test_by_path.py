"""Opening senders and receivers by path."""

# Made by tools/make_sync from tests/aio/test_by_path.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import pytest

from sbredis import ServiceBusClient, ServiceBusSessionReceiver
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


def test_a_path_opens_queues_topics_subscriptions_and_dead_letter_queues(url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        admin.create_queue("a/Orders")
        admin.create_topic("News")
        admin.create_subscription("News", "All")
        for path in ("a/orders", "NEWS"):
            with client.get_sender(path, max_in_flight=5) as sender:
                sender.send_messages(ServiceBusMessage(path))

        for path in ("a/orders", "news/Subscriptions/ALL"):
            with client.get_receiver(path, max_wait_time=60) as receiver:
                message = receiver.__next__()
                receiver.dead_letter_message(message, "why")
            with client.get_receiver(f"{path}/$deadletterqueue", max_wait_time=60) as letters:
                letter = letters.__next__()
                assert (letter.sequence_number, letter.dead_letter_reason) == (message.sequence_number, "why")
                letters.complete_message(letter)
            with client.get_receiver(path, sub_queue="deadletter") as letters:
                assert letters.entity_path.endswith("/$DeadLetterQueue")
                assert letters.peek_messages() == []


def test_a_session_is_accepted_by_path(url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        admin.create_topic("news")
        admin.create_subscription("news", "all", requires_session=True)
        with client.get_receiver("news/subscriptions/all", session_id="ann") as receiver:
            assert isinstance(receiver, ServiceBusSessionReceiver)
            assert receiver.session.session_id == "ann"


def test_opening_a_path_does_not_create_the_entity(url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        with pytest.raises(MessagingEntityNotFoundError):
            client.get_receiver("orders").receive_messages(1, 1)
        with pytest.raises(MessagingEntityNotFoundError):
            client.get_sender("orders").send_messages(ServiceBusMessage("a"))
        assert not admin.queue_exists("orders")
