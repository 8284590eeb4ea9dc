"""Sending, scheduling and cancelling, as with the synchronous client of azure.servicebus."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from sbredis import (  # row: imports
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
)
from sbredis.exceptions import MessageNotFoundError, MessageSizeExceededError  # row: imports


def all_there(client: ServiceBusClient, queue_name: str) -> list[str]:
    """What can be received, until nothing more comes."""
    with client.get_queue_receiver(
        queue_name, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=0.5
    ) as receiver:
        return [str(message) for message in receiver]


def one_message(connection_string: str, queue_name: str) -> object:
    client = ServiceBusClient.from_connection_string(conn_str=connection_string)
    with client:
        sender = client.get_queue_sender(queue_name=queue_name)
        with sender:
            sender.send_messages(ServiceBusMessage("a teapot"))
            sender.send_messages(ServiceBusMessage(b"two teapots"), timeout=30)
        return all_there(client, queue_name)


def a_list(connection_string: str, queue_name: str) -> object:
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            sender.send_messages([ServiceBusMessage(f"cup {number}") for number in range(5)])
            sender.send_messages([])
        return all_there(client, queue_name)


def a_batch(connection_string: str, queue_name: str) -> object:
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            batch = sender.create_message_batch()
            for number in range(4):
                batch.add_message(ServiceBusMessage(f"saucer {number}"))
            sender.send_messages(batch)
            sent = len(batch), 0 < batch.size_in_bytes <= batch.max_size_in_bytes
        return sent, all_there(client, queue_name)


def full_batches(connection_string: str, queue_name: str) -> object:
    """A batch that is full is sent, and another one begun."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        batches = 0
        with client.get_queue_sender(queue_name) as sender:
            batch = sender.create_message_batch(max_size_in_bytes=1000)
            for number in range(10):
                message = ServiceBusMessage(f"{number}".rjust(300, "-"))
                try:
                    batch.add_message(message)
                except MessageSizeExceededError:  # a ValueError, too
                    sender.send_messages(batch)
                    batches += 1
                    batch = sender.create_message_batch(max_size_in_bytes=1000)
                    batch.add_message(message)
            sender.send_messages(batch)
            batches += 1
        return batches > 1, [text.lstrip("-") for text in all_there(client, queue_name)]


def mappings(connection_string: str, queue_name: str) -> object:
    """Dictionaries are taken in the place of messages."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            sender.send_messages({"body": "one", "subject": "number"})
            several: list[dict[str, Any]] = [{"body": b"two"}, {"body": "three", "message_id": "3"}]
            sender.send_messages(several)
            batch = sender.create_message_batch()
            batch.add_message({"body": "four"})
            sender.send_messages(batch)
            when = datetime.now(UTC) + timedelta(days=1)
            numbers = sender.schedule_messages({"body": "five"}, when)
            sender.cancel_scheduled_messages(numbers)
        return all_there(client, queue_name)


def many_at_once(connection_string: str, queue_name: str) -> object:
    """Threads that share a sender."""

    def send(sender: ServiceBusSender, number: int) -> None:
        sender.send_messages(ServiceBusMessage(str(number)))

    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender, ThreadPoolExecutor(max_workers=5) as pool:
            for done in [pool.submit(send, sender, number) for number in range(20)]:
                done.result()
        return sorted(int(text) for text in all_there(client, queue_name))


def one_partition(connection_string: str, queue_name: str) -> object:
    """Messages of one key are kept together in a partitioned queue."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            sender.send_messages([ServiceBusMessage(str(n), partition_key="ann") for n in range(5)])
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            got: list[ServiceBusReceivedMessage] = []
            while len(got) < 5:
                got += receiver.receive_messages(max_message_count=5)
            for message in got:
                receiver.complete_message(message)
            partitions = {message.sequence_number >> 48 for message in got}
            return [str(message) for message in got], {message.partition_key for message in got}, len(partitions)


def scheduled(connection_string: str, queue_name: str) -> object:
    """Scheduled, seen, and received when they are due."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            soon = datetime.now(UTC) + timedelta(seconds=0.4)  # row: naive-time
            numbers = sender.schedule_messages(ServiceBusMessage("tea"), soon)
            numbers += sender.schedule_messages([ServiceBusMessage("milk"), ServiceBusMessage("sugar")], soon)
            sender.send_messages(ServiceBusMessage("cake", scheduled_enqueue_time_utc=soon))
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            waiting = peeked(receiver)
            got: list[str] = []
            while len(got) < 4:
                for message in receiver.receive_messages(max_message_count=4):
                    assert message.enqueued_time_utc is not None
                    assert message.enqueued_time_utc >= soon.replace(microsecond=0)
                    got.append(str(message))
                    receiver.complete_message(message)
        return len(set(numbers)), waiting, sorted(got)


def peeked(receiver: ServiceBusReceiver) -> dict[str, str]:
    """What waits, and in which state."""
    return {str(message): message.state.name for message in receiver.peek_messages(max_message_count=10)}


def cancelled(connection_string: str, queue_name: str) -> object:
    """One is cancelled, then two; one that is gone is not found."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            tomorrow = datetime.now(UTC) + timedelta(days=1)
            messages = [ServiceBusMessage("tea"), ServiceBusMessage("milk"), ServiceBusMessage("sugar")]
            numbers = sender.schedule_messages(messages, tomorrow, timeout=30)
            sender.cancel_scheduled_messages(numbers[0])
            sender.cancel_scheduled_messages(numbers[1:], timeout=30)
            try:
                sender.cancel_scheduled_messages(numbers[0])
            except MessageNotFoundError:
                again = "not found"
            else:
                again = "cancelled twice"
        with client.get_queue_receiver(queue_name) as receiver:
            return again, receiver.peek_messages(max_message_count=10)


def duplicates(connection_string: str, queue_name: str) -> object:
    """A queue that detects duplicates takes a message id once."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            for text in ("first", "again", "once more"):
                sender.send_messages(ServiceBusMessage(text, message_id="order 7"))
            sender.send_messages(ServiceBusMessage("another", message_id="order 8"))
        return all_there(client, queue_name)


def everything_set(connection_string: str, queue_name: str) -> object:
    """Each property of a message, as its sender gave it and as its receiver sees it."""
    properties: dict[Any, Any] = {"colour": "brown", "cups": 6, "warm": True, "price": 12.5, "raw": b"\x00\xff"}
    message = ServiceBusMessage(
        "a teapot",
        application_properties=properties,
        session_id="ann",
        message_id="7",
        time_to_live=timedelta(minutes=5),  # row: time-to-live
        content_type="text/plain",
        correlation_id="order 12",
        subject="order",
        partition_key="ann",
        to="kitchen",
        reply_to="answers",
        reply_to_session_id="bob",
    )
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            sender.send_messages(message)
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            got = (receiver.receive_messages())[0]
            receiver.complete_message(got)
    body = got.body  # row: body
    assert got.application_properties is not None
    colour = got.application_properties["colour"]  # row: property-keys
    raw = got.application_properties["raw"]  # row: property-keys
    return {
        "body": body,
        "text": str(got),
        "colour": colour,
        "raw": raw,
        "number of properties": len(got.application_properties),
        "session_id": got.session_id,
        "message_id": got.message_id,
        "time_to_live": got.time_to_live,
        "content_type": got.content_type,
        "correlation_id": got.correlation_id,
        "subject": got.subject,
        "partition_key": got.partition_key,
        "to": got.to,
        "reply_to": got.reply_to,
        "reply_to_session_id": got.reply_to_session_id,
    }


def set_afterwards(connection_string: str, queue_name: str) -> object:
    """Properties that are assigned, changed and taken away again before sending."""
    message = ServiceBusMessage("a teapot", subject="draft")
    message.subject = "order"
    message.message_id = "7"
    message.correlation_id = "order 12"
    message.correlation_id = None
    message.application_properties = {"cups": 5}
    properties = message.application_properties
    assert properties is not None
    properties["cups"] = 6
    message.time_to_live = timedelta(hours=1)
    message.scheduled_enqueue_time_utc = datetime.now(UTC)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            sender.send_messages(message)
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            got = (receiver.receive_messages())[0]
            receiver.complete_message(got)
    assert got.application_properties is not None
    cups = got.application_properties["cups"]  # row: property-keys
    return got.subject, got.message_id, got.correlation_id, cups, got.time_to_live
