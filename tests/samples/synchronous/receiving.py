"""Receiving, iterating and peeking, as with the synchronous client of azure.servicebus."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from sbredis import (  # row: imports
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)


def given(client: ServiceBusClient, queue_name: str, *texts: str) -> None:
    """What the scenarios begin with."""
    with client.get_queue_sender(queue_name) as sender:
        sender.send_messages([ServiceBusMessage(text) for text in texts])


def several(connection_string: str, queue_name: str) -> object:
    """Received together, completed one by one."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "one", "two", "three")
        receiver = client.get_queue_receiver(queue_name=queue_name)
        with receiver:
            got = receiver.receive_messages(max_message_count=10, max_wait_time=5)
            for message in got:
                receiver.complete_message(message)
            left = receiver.receive_messages(max_wait_time=0.2)
    return [str(message) for message in got], left


def iterated(connection_string: str, queue_name: str) -> object:
    """The iteration ends when nothing has come for the receiver's time; a later one goes on."""
    seen: list[str] = []
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "one", "two")
        with client.get_queue_receiver(queue_name, max_wait_time=0.5) as receiver:
            for message in receiver:
                seen.append(str(message))
                receiver.complete_message(message)
            given(client, queue_name, "three")
            for message in receiver:
                seen.append(str(message))
                receiver.complete_message(message)
    return seen


def one_by_one(connection_string: str, queue_name: str) -> object:
    """The next message, without a loop."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "one", "two")
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            first = receiver.next()
            receiver.complete_message(first)
            second = receiver.next()
            receiver.complete_message(second)
    return str(first), str(second)


def of_a_received_message(connection_string: str, queue_name: str) -> object:
    """What the broker says of a message."""
    before = datetime.now(UTC) - timedelta(minutes=1)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            sender.send_messages(ServiceBusMessage("tea", time_to_live=timedelta(minutes=10)))
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (receiver.receive_messages())[0]
            assert message.enqueued_time_utc is not None
            assert message.expires_at_utc is not None
            assert message.locked_until_utc is not None
            told = {
                "numbered": message.sequence_number > 0,
                "as it was sent": message.enqueued_sequence_number == message.sequence_number,
                "enqueued": message.enqueued_time_utc > before,
                "lives for": message.expires_at_utc - message.enqueued_time_utc,
                "locked": message.locked_until_utc > message.enqueued_time_utc,
                "has a lock token": message.lock_token is not None,
                "deliveries": message.delivery_count - 1,  # row: delivery-count
                "state": message.state.name,
                "dead letter": (
                    message.dead_letter_reason,
                    message.dead_letter_error_description,
                    message.dead_letter_source,
                ),
                "renewal": message.auto_renew_error,
            }
            receiver.complete_message(message)
            return told, message.lock_token, message.locked_until_utc


def peeked(connection_string: str, queue_name: str) -> object:
    """Peeking changes nothing, goes on where it was, and begins elsewhere if told to."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "one", "two", "three")
        with client.get_queue_receiver(queue_name) as receiver:
            first = receiver.peek_messages(max_message_count=2)
            rest = receiver.peek_messages(max_message_count=5)
            again = receiver.peek_messages(sequence_number=first[1].sequence_number, timeout=30)
            message = (receiver.receive_messages(max_wait_time=5))[0]
            receiver.complete_message(message)
    return [str(each) for each in first], [str(each) for each in rest], [str(each) for each in again], str(message)


def received_and_deleted(connection_string: str, queue_name: str) -> object:
    """Gone when it is received; there is nothing to settle."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "one", "two")
        with client.get_queue_receiver(
            queue_name, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=5
        ) as receiver:
            (message,) = receiver.receive_messages()
            token = message.lock_token
        with client.get_queue_receiver(queue_name, receive_mode="receiveanddelete", max_wait_time=0.3) as receiver:
            rest = [str(each) for each in receiver]
    return str(message), token, rest


def prefetched(connection_string: str, queue_name: str) -> object:
    """A receiver that fetches ahead."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, *map(str, range(20)))
        with client.get_queue_receiver(queue_name, prefetch_count=5, max_wait_time=0.5) as receiver:
            seen: list[str] = []
            for message in receiver:
                seen.append(str(message))
                receiver.complete_message(message)
    return seen


def two_receivers(connection_string: str, queue_name: str) -> object:
    """Competing consumers: each message goes to one of them."""

    def consume(client: ServiceBusClient) -> list[str]:
        with client.get_queue_receiver(queue_name, max_wait_time=0.5) as receiver:
            seen: list[str] = []
            for message in receiver:
                seen.append(str(message))
                receiver.complete_message(message)
            return seen

    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, *map(str, range(20)))
        with ThreadPoolExecutor() as pool:
            shares = list(pool.map(consume, [client, client]))
    return sorted(int(text) for share in shares for text in share)


def nothing_there(connection_string: str, queue_name: str) -> object:
    """An empty queue is an empty list, after the time that was given."""
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue_name, max_wait_time=0.2) as receiver,
    ):
        got: list[ServiceBusReceivedMessage] = receiver.receive_messages(max_message_count=5)
        seen = receiver.peek_messages()
    return got, seen


def cleared(connection_string: str, queue_name: str) -> object:
    """Old messages deleted, and then all that is left: what Azure's client does by receiving."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, *map(str, range(12)))
        with client.get_queue_receiver(queue_name) as receiver:
            until = datetime.now(UTC) + timedelta(hours=1)
            some = receiver.delete_messages(max_message_count=5, before_enqueued_time_utc=until)  # row: delete-purge
            rest = receiver.purge_messages(before_enqueued_time_utc=until)  # row: delete-purge
            left = receiver.peek_messages(max_message_count=20)
    return some, rest, left
