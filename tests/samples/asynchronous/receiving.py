"""Receiving, iterating and peeking, as with the asynchronous client of azure.servicebus."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode  # row: imports
from sbredis.aio import ServiceBusClient  # row: imports


async def given(client: ServiceBusClient, queue_name: str, *texts: str) -> None:
    """Send the messages that the scenarios need."""
    async with client.get_queue_sender(queue_name) as sender:
        await sender.send_messages([ServiceBusMessage(text) for text in texts])


async def several(connection_string: str, queue_name: str) -> object:
    """Receive several messages together, and complete them one by one."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "one", "two", "three")
        receiver = client.get_queue_receiver(queue_name=queue_name)
        async with receiver:
            got = await receiver.receive_messages(max_message_count=10, max_wait_time=5)
            for message in got:
                await receiver.complete_message(message)
            left = await receiver.receive_messages(max_wait_time=0.2)
    return [str(message) for message in got], left


async def iterated(connection_string: str, queue_name: str) -> object:
    """The iteration ends if no message arrives within the wait time. A later iteration gets later messages."""
    seen: list[str] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "one", "two")
        async with client.get_queue_receiver(queue_name, max_wait_time=0.5) as receiver:
            async for message in receiver:
                seen.append(str(message))
                await receiver.complete_message(message)
            await given(client, queue_name, "three")
            async for message in receiver:
                seen.append(str(message))
                await receiver.complete_message(message)
    return seen


async def one_by_one(connection_string: str, queue_name: str) -> object:
    """Receive the next message by a call instead of a loop."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "one", "two")
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            first = await receiver.__anext__()
            await receiver.complete_message(first)
            second = await receiver.__anext__()
            await receiver.complete_message(second)
    return str(first), str(second)


async def of_a_received_message(connection_string: str, queue_name: str) -> object:
    """Read the properties that the broker adds to a message."""
    before = datetime.now(UTC) - timedelta(minutes=1)
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages(ServiceBusMessage("tea", time_to_live=timedelta(minutes=10)))
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            assert message.enqueued_time_utc is not None
            assert message.expires_at_utc is not None
            assert message.locked_until_utc is not None
            facts = {
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
            await receiver.complete_message(message)
            return facts, message.lock_token, message.locked_until_utc


async def peeked(connection_string: str, queue_name: str) -> object:
    """Peeking changes nothing. It continues after the last peeked message, or starts at a given number."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "one", "two", "three")
        async with client.get_queue_receiver(queue_name) as receiver:
            first = await receiver.peek_messages(max_message_count=2)
            rest = await receiver.peek_messages(max_message_count=5)
            again = await receiver.peek_messages(sequence_number=first[1].sequence_number, timeout=30)
            message = (await receiver.receive_messages(max_wait_time=5))[0]
            await receiver.complete_message(message)
    return [str(each) for each in first], [str(each) for each in rest], [str(each) for each in again], str(message)


async def received_and_deleted(connection_string: str, queue_name: str) -> object:
    """A message is deleted when it is received, so there is nothing to settle afterwards."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "one", "two")
        async with client.get_queue_receiver(
            queue_name, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=5
        ) as receiver:
            (message,) = await receiver.receive_messages()
            token = message.lock_token
        async with client.get_queue_receiver(
            queue_name, receive_mode="receiveanddelete", max_wait_time=0.3
        ) as receiver:
            rest = [str(each) async for each in receiver]
    return str(message), token, rest


async def prefetched(connection_string: str, queue_name: str) -> object:
    """Use a receiver with a prefetch count."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, *map(str, range(20)))
        async with client.get_queue_receiver(queue_name, prefetch_count=5, max_wait_time=0.5) as receiver:
            seen: list[str] = []
            async for message in receiver:
                seen.append(str(message))
                await receiver.complete_message(message)
    return seen


async def two_receivers(connection_string: str, queue_name: str) -> object:
    """Competing consumers: each message goes to one of them."""

    async def consume(client: ServiceBusClient) -> list[str]:
        async with client.get_queue_receiver(queue_name, max_wait_time=0.5) as receiver:
            seen: list[str] = []
            async for message in receiver:
                seen.append(str(message))
                await receiver.complete_message(message)
            return seen

    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, *map(str, range(20)))
        shares = await asyncio.gather(consume(client), consume(client))
    return sorted(int(text) for share in shares for text in share)


async def nothing_there(connection_string: str, queue_name: str) -> object:
    """Receiving from an empty queue returns an empty list after the wait."""
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue_name, max_wait_time=0.2) as receiver,
    ):
        got: list[ServiceBusReceivedMessage] = await receiver.receive_messages(max_message_count=5)
        seen = await receiver.peek_messages()
    return got, seen


async def cleared(connection_string: str, queue_name: str) -> object:
    """Delete old messages, and then all others; with Azure's client a program receives them instead."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, *map(str, range(12)))
        async with client.get_queue_receiver(queue_name) as receiver:
            until = datetime.now(UTC) + timedelta(hours=1)
            some = await receiver.delete_messages(
                max_message_count=5, before_enqueued_time_utc=until
            )  # row: delete-purge
            rest = await receiver.purge_messages(before_enqueued_time_utc=until)  # row: delete-purge
            left = await receiver.peek_messages(max_message_count=20)
    return some, rest, left
