"""Sending, scheduling and cancelling, as with the asynchronous client of azure.servicebus."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode  # row: imports
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender  # row: imports
from sbredis.exceptions import MessageNotFoundError, MessageSizeExceededError  # row: imports


async def all_there(client: ServiceBusClient, queue_name: str) -> list[str]:
    """Return all messages that can be received."""
    async with client.get_queue_receiver(
        queue_name, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=0.5
    ) as receiver:
        return [str(message) async for message in receiver]


async def one_message(connection_string: str, queue_name: str) -> object:
    client = ServiceBusClient.from_connection_string(conn_str=connection_string)
    async with client:
        sender = client.get_queue_sender(queue_name=queue_name)
        async with sender:
            await sender.send_messages(ServiceBusMessage("a teapot"))
            await sender.send_messages(ServiceBusMessage(b"two teapots"), timeout=30)
        return await all_there(client, queue_name)


async def a_list(connection_string: str, queue_name: str) -> object:
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages([ServiceBusMessage(f"cup {number}") for number in range(5)])
            await sender.send_messages([])
        return await all_there(client, queue_name)


async def a_batch(connection_string: str, queue_name: str) -> object:
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            batch = await sender.create_message_batch()
            for number in range(4):
                batch.add_message(ServiceBusMessage(f"saucer {number}"))
            await sender.send_messages(batch)
            sent = len(batch), 0 < batch.size_in_bytes <= batch.max_size_in_bytes
        return sent, await all_there(client, queue_name)


async def full_batches(connection_string: str, queue_name: str) -> object:
    """Send each full batch, and start another one."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        batches = 0
        async with client.get_queue_sender(queue_name) as sender:
            batch = await sender.create_message_batch(max_size_in_bytes=1000)
            for number in range(10):
                message = ServiceBusMessage(f"{number}".rjust(300, "-"))
                try:
                    batch.add_message(message)
                except MessageSizeExceededError:  # ServiceBusError and ValueError at the same time
                    await sender.send_messages(batch)
                    batches += 1
                    batch = await sender.create_message_batch(max_size_in_bytes=1000)
                    batch.add_message(message)
            await sender.send_messages(batch)
            batches += 1
        return batches > 1, [text.lstrip("-") for text in await all_there(client, queue_name)]


async def mappings(connection_string: str, queue_name: str) -> object:
    """Pass dictionaries instead of messages."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages({"body": "one", "subject": "number"})
            several: list[dict[str, Any]] = [{"body": b"two"}, {"body": "three", "message_id": "3"}]
            await sender.send_messages(several)
            batch = await sender.create_message_batch()
            batch.add_message({"body": "four"})
            await sender.send_messages(batch)
            when = datetime.now(UTC) + timedelta(days=1)
            numbers = await sender.schedule_messages({"body": "five"}, when)
            await sender.cancel_scheduled_messages(numbers)
        return await all_there(client, queue_name)


async def many_at_once(connection_string: str, queue_name: str) -> object:
    """Let coroutines share a sender."""

    async def send(sender: ServiceBusSender, number: int) -> None:
        await sender.send_messages(ServiceBusMessage(str(number)))

    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await asyncio.gather(*(send(sender, number) for number in range(20)))
        return sorted(int(text) for text in await all_there(client, queue_name))


async def one_partition(connection_string: str, queue_name: str) -> object:
    """A partitioned queue keeps messages of one key together."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages([ServiceBusMessage(str(n), partition_key="ann") for n in range(5)])
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            got: list[ServiceBusReceivedMessage] = []
            while len(got) < 5:
                got += await receiver.receive_messages(max_message_count=5)
            for message in got:
                await receiver.complete_message(message)
            partitions = {message.sequence_number >> 48 for message in got}
            return [str(message) for message in got], {message.partition_key for message in got}, len(partitions)


async def scheduled(connection_string: str, queue_name: str) -> object:
    """Schedule messages, peek at them, and receive them when they are due."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            soon = datetime.now(UTC) + timedelta(seconds=0.4)  # row: naive-time
            numbers = await sender.schedule_messages(ServiceBusMessage("tea"), soon)
            numbers += await sender.schedule_messages([ServiceBusMessage("milk"), ServiceBusMessage("sugar")], soon)
            await sender.send_messages(ServiceBusMessage("cake", scheduled_enqueue_time_utc=soon))
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            waiting = await peeked(receiver)
            got: list[str] = []
            while len(got) < 4:
                for message in await receiver.receive_messages(max_message_count=4):
                    assert message.enqueued_time_utc is not None
                    assert message.enqueued_time_utc >= soon.replace(microsecond=0)
                    got.append(str(message))
                    await receiver.complete_message(message)
        return len(set(numbers)), waiting, sorted(got)


async def peeked(receiver: ServiceBusReceiver) -> dict[str, str]:
    """Return the waiting messages with their states."""
    return {str(message): message.state.name for message in await receiver.peek_messages(max_message_count=10)}


async def cancelled(connection_string: str, queue_name: str) -> object:
    """Cancel one message, and then two messages. A message that does not exist is not found."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            tomorrow = datetime.now(UTC) + timedelta(days=1)
            messages = [ServiceBusMessage("tea"), ServiceBusMessage("milk"), ServiceBusMessage("sugar")]
            numbers = await sender.schedule_messages(messages, tomorrow, timeout=30)
            await sender.cancel_scheduled_messages(numbers[0])
            await sender.cancel_scheduled_messages(numbers[1:], timeout=30)
            try:
                await sender.cancel_scheduled_messages(numbers[0])
            except MessageNotFoundError:
                again = "not found"
            else:
                again = "cancelled twice"
        async with client.get_queue_receiver(queue_name) as receiver:
            return again, await receiver.peek_messages(max_message_count=10)


async def duplicates(connection_string: str, queue_name: str) -> object:
    """A queue with duplicate detection accepts a message id once."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            for text in ("first", "again", "once more"):
                await sender.send_messages(ServiceBusMessage(text, message_id="order 7"))
            await sender.send_messages(ServiceBusMessage("another", message_id="order 8"))
        return await all_there(client, queue_name)


async def everything_set(connection_string: str, queue_name: str) -> object:
    """Set each property of a message, and read it from the received message."""
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
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages(message)
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            got = (await receiver.receive_messages())[0]
            await receiver.complete_message(got)
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


async def set_afterwards(connection_string: str, queue_name: str) -> object:
    """Assign, change and remove properties before sending."""
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
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages(message)
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            got = (await receiver.receive_messages())[0]
            await receiver.complete_message(got)
    assert got.application_properties is not None
    cups = got.application_properties["cups"]  # row: property-keys
    return got.subject, got.message_id, got.correlation_id, cups, got.time_to_live
