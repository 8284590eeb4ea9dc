"""Tests of showing the partitions of an entity one by one, and whether maintenance is done."""

# Made by tools/make_sync from tests/management/test_partitions.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import datetime

import pytest

from sbredis import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.management import PartitionRuntimeProperties, ServiceBusAdministrationClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


Admin = ServiceBusAdministrationClient


def parts(admin: Admin, path: str) -> list[PartitionRuntimeProperties]:
    return [each for each in admin.list_partitions(path)]


def test_the_oldest_message_that_can_be_received_is_shown(admin: Admin, where: str) -> None:
    admin.create_queue("q")

    def oldest() -> datetime | None:
        (found,) = parts(admin, "q")
        return found.oldest_enqueued_at_utc

    with ServiceBusClient(where) as client, client.get_queue_sender("q") as sender:
        for _ in range(2):
            sender.send_messages(ServiceBusMessage(b"x"))
        with client.get_queue_receiver("q") as receiver:
            first, second = receiver.peek_messages(2)
            assert oldest() == first.enqueued_time_utc
            (locked,) = receiver.receive_messages(1, 60)
            assert oldest() == second.enqueued_time_utc
            receiver.complete_message(locked)
            (locked,) = receiver.receive_messages(1, 60)
            assert oldest() is None
            receiver.complete_message(locked)


def test_the_sessions_of_a_queue_are_counted(admin: Admin, where: str) -> None:
    admin.create_queue("q", requires_session=True)
    with ServiceBusClient(where) as client, client.get_queue_sender("q") as sender:
        for session in "abc":
            sender.send_messages(ServiceBusMessage(b"x", session_id=session))
        with client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION) as receiver:
            assert receiver.receive_messages(1, 60)
            (found,) = parts(admin, "q")
            assert (found.waiting_session_count, found.locked_session_count) == (2, 1)
            assert (found.active_message_count, found.locked_message_count) == (2, 1)
    wait_until(lambda: freed(admin))


def freed(admin: Admin) -> bool:
    (found,) = parts(admin, "q")
    return (found.waiting_session_count, found.locked_session_count) == (3, 0)


def test_topics_and_subscriptions_have_partitions_too(admin: Admin, where: str) -> None:
    admin.create_topic("news")
    admin.create_subscription("news", "all")
    with ServiceBusClient(where) as client, client.get_topic_sender("news") as sender:
        sender.send_messages(ServiceBusMessage(b"x"))
    (topic,) = parts(admin, "news")
    (subscription,) = parts(admin, "news/subscriptions/all")
    assert (topic.active_message_count, subscription.active_message_count) == (0, 1)
    assert subscription.oldest_enqueued_at_utc is not None
    with pytest.raises(MessagingEntityNotFoundError, match="'news/subscriptions/none'"):
        parts(admin, "news/subscriptions/none")


def test_maintenance_is_seen_while_a_client_does_it(admin: Admin, where: str) -> None:
    admin.create_queue("q")
    assert not admin.has_maintenance()
    with ServiceBusClient(where, maintenance=True):
        wait_until(admin.has_maintenance)

    def ended() -> bool:
        return not admin.has_maintenance()

    wait_until(ended)
