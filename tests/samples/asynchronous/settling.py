"""Completing, abandoning, deferring, dead-lettering, as with the asynchronous client of azure.servicebus."""

from __future__ import annotations

from datetime import timedelta

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue  # row: imports
from sbredis.aio import ServiceBusClient, ServiceBusReceiver  # row: imports


async def given(client: ServiceBusClient, queue_name: str, *texts: str) -> None:
    """Send the messages that the scenarios need."""
    async with client.get_queue_sender(queue_name) as sender:
        await sender.send_messages([ServiceBusMessage(text, subject=text) for text in texts])


async def every_way(connection_string: str, queue_name: str) -> object:
    """Settle a message in each way."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "completed", "abandoned", "deferred", "dead")
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            for message in await all_four(receiver):
                if message.subject == "completed":
                    await receiver.complete_message(message)
                elif message.subject == "abandoned":
                    await receiver.abandon_message(message)
                elif message.subject == "deferred":
                    await receiver.defer_message(message)
                else:
                    await receiver.dead_letter_message(message)
            found = {str(each): each.state.name for each in await receiver.peek_messages(10, sequence_number=1)}
            again = (await receiver.receive_messages())[0]
            count = again.delivery_count - 1  # row: delivery-count
            await receiver.complete_message(again)
        async with client.get_queue_receiver(queue_name, sub_queue="deadletter", max_wait_time=5) as dead:
            letter = (await dead.receive_messages())[0]
            await dead.complete_message(letter)
    return found, str(again), count, str(letter)


async def all_four(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """Receive four messages, in as many calls as needed."""
    got: list[ServiceBusReceivedMessage] = []
    while len(got) < 4:
        got += await receiver.receive_messages(max_message_count=4 - len(got))
    return got


async def deferred(connection_string: str, queue_name: str) -> object:
    """Defer messages, and receive one and several by their sequence numbers."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "one", "two", "three", "four")
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            numbers: list[int] = []
            for message in await all_four(receiver):
                numbers.append(message.sequence_number)
                await receiver.defer_message(message)
            first = await receiver.receive_deferred_messages(sequence_numbers=numbers[0])
            rest = await receiver.receive_deferred_messages(numbers[1:], timeout=30)
            for message in first + rest:
                await receiver.complete_message(message)
            left = await receiver.peek_messages(sequence_number=1)
    return [str(message) for message in first], [str(message) for message in rest], left


async def dead_lettered(connection_string: str, queue_name: str) -> object:
    """Dead-letter a message with a reason and a description, and read both from the dead letter."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "unreadable")
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            for message in await receiver.receive_messages():
                await receiver.dead_letter_message(message, reason="Unreadable", error_description="It is not JSON.")
        async with client.get_queue_receiver(
            queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5
        ) as dead:
            (letter,) = await dead.receive_messages(max_message_count=10)
            reasons = letter.dead_letter_reason, letter.dead_letter_error_description, letter.dead_letter_source
            assert letter.application_properties is not None
            kept = letter.application_properties["DeadLetterReason"]  # row: property-keys
            await dead.complete_message(letter)
    return str(letter), reasons, kept


async def failed_too_often(connection_string: str, queue_name: str) -> object:
    """Abandon a message until the queue dead-letters it, as Azure's samples do."""
    counts: list[int] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "fails")
        async with client.get_queue_receiver(queue_name) as receiver:
            while messages := await receiver.receive_messages(max_wait_time=0.5):
                for message in messages:
                    counts.append(message.delivery_count - 1)  # row: delivery-count
                    await receiver.abandon_message(message)
        async with client.get_queue_receiver(queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (letter,) = await dead.receive_messages(max_message_count=10, max_wait_time=5)
            await dead.complete_message(letter)
    return counts, str(letter), letter.dead_letter_reason


async def mended(connection_string: str, queue_name: str) -> object:
    """Read dead letters, correct them, and send them again."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_queue_sender(queue_name)
        receiver = client.get_queue_receiver(queue_name, max_wait_time=0.5)
        dead = client.get_queue_receiver(queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=0.5)
        async with sender, receiver, dead:
            await sender.send_messages(
                [ServiceBusMessage(f"letter {n}", subject="Good" if n % 2 else "Bad") for n in range(4)]
            )
            async for message in receiver:
                if message.subject == "Good":
                    await receiver.complete_message(message)
                else:
                    await receiver.dead_letter_message(message, "ProcessingError", "Nobody knows what to do with it.")
            copies: list[ServiceBusMessage] = []
            async for letter in dead:
                copies.append(ServiceBusMessage(letter.body, subject="Good"))  # row: body
                await dead.complete_message(letter)
            await sender.send_messages(copies)
            seen: list[str] = []
            async for message in receiver:
                seen.append(f"{message.subject}: {message}")
                await receiver.complete_message(message)
    return seen


async def sent_on(connection_string: str, queue_name: str) -> object:
    """Send a received message again, unchanged."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_queue_sender(queue_name)
        receiver = client.get_queue_receiver(queue_name, max_wait_time=5)
        async with sender, receiver:
            await sender.send_messages(ServiceBusMessage("round", application_properties={"lap": 1}))
            message = (await receiver.receive_messages())[0]
            await sender.send_messages(message)
            await receiver.complete_message(message)
            again = (await receiver.receive_messages())[0]
            await receiver.complete_message(again)
    assert again.application_properties is not None
    lap = again.application_properties["lap"]  # row: property-keys
    return str(again), lap, again.sequence_number > message.sequence_number, again.message_id == message.message_id


async def through_another_receiver(connection_string: str, queue_name: str) -> object:
    """A message outlives its receiver: another receiver can settle it."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "tea")
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
        async with client.get_queue_receiver(queue_name, max_wait_time=0.2) as another:
            await another.complete_message(message)
            return await another.receive_messages()


async def expired(connection_string: str, queue_name: str) -> object:
    """An expired message goes to the dead-letter queue if the queue is configured that way."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages(ServiceBusMessage("milk", time_to_live=timedelta(milliseconds=100)))
        async with client.get_queue_receiver(queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (letter,) = await dead.receive_messages(max_wait_time=30)
            await dead.complete_message(letter)
    return str(letter), letter.dead_letter_reason
