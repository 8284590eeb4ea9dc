"""Completing, abandoning, deferring, dead-lettering, as with the synchronous client of azure.servicebus."""

from __future__ import annotations

from datetime import timedelta

from sbredis import (  # row: imports
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)


def given(client: ServiceBusClient, queue_name: str, *texts: str) -> None:
    """What the scenarios begin with."""
    with client.get_queue_sender(queue_name) as sender:
        sender.send_messages([ServiceBusMessage(text, subject=text) for text in texts])


def every_way(connection_string: str, queue_name: str) -> object:
    """Each way to settle a message, and what becomes of it."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "completed", "abandoned", "deferred", "dead")
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            for message in all_four(receiver):
                if message.subject == "completed":
                    receiver.complete_message(message)
                elif message.subject == "abandoned":
                    receiver.abandon_message(message)
                elif message.subject == "deferred":
                    receiver.defer_message(message)
                else:
                    receiver.dead_letter_message(message)
            found = {str(each): each.state.name for each in receiver.peek_messages(10, sequence_number=1)}
            again = (receiver.receive_messages())[0]
            count = again.delivery_count - 1  # row: delivery-count
            receiver.complete_message(again)
        with client.get_queue_receiver(queue_name, sub_queue="deadletter", max_wait_time=5) as dead:
            letter = (dead.receive_messages())[0]
            dead.complete_message(letter)
    return found, str(again), count, str(letter)


def all_four(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """Four messages, however many calls that takes."""
    got: list[ServiceBusReceivedMessage] = []
    while len(got) < 4:
        got += receiver.receive_messages(max_message_count=4 - len(got))
    return got


def deferred(connection_string: str, queue_name: str) -> object:
    """Set aside, and got back by their sequence numbers, one and several."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "one", "two", "three", "four")
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            numbers: list[int] = []
            for message in all_four(receiver):
                numbers.append(message.sequence_number)
                receiver.defer_message(message)
            first = receiver.receive_deferred_messages(sequence_numbers=numbers[0])
            rest = receiver.receive_deferred_messages(numbers[1:], timeout=30)
            for message in first + rest:
                receiver.complete_message(message)
            left = receiver.peek_messages(sequence_number=1)
    return [str(message) for message in first], [str(message) for message in rest], left


def dead_lettered(connection_string: str, queue_name: str) -> object:
    """With a reason and a description, which the dead letter tells."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "unreadable")
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            for message in receiver.receive_messages():
                receiver.dead_letter_message(message, reason="Unreadable", error_description="It is not JSON.")
        with client.get_queue_receiver(queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5) as dead:
            (letter,) = dead.receive_messages(max_message_count=10)
            told = letter.dead_letter_reason, letter.dead_letter_error_description, letter.dead_letter_source
            assert letter.application_properties is not None
            kept = letter.application_properties["DeadLetterReason"]  # row: property-keys
            dead.complete_message(letter)
    return str(letter), told, kept


def failed_too_often(connection_string: str, queue_name: str) -> object:
    """Abandoned until the queue gives it up: the samples' way to the dead-letter queue."""
    counts: list[int] = []
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "fails")
        with client.get_queue_receiver(queue_name) as receiver:
            while messages := receiver.receive_messages(max_wait_time=0.5):
                for message in messages:
                    counts.append(message.delivery_count - 1)  # row: delivery-count
                    receiver.abandon_message(message)
        with client.get_queue_receiver(queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (letter,) = dead.receive_messages(max_message_count=10, max_wait_time=5)
            dead.complete_message(letter)
    return counts, str(letter), letter.dead_letter_reason


def mended(connection_string: str, queue_name: str) -> object:
    """Dead letters read, mended and sent again."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_queue_sender(queue_name)
        receiver = client.get_queue_receiver(queue_name, max_wait_time=0.5)
        dead = client.get_queue_receiver(queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=0.5)
        with sender, receiver, dead:
            sender.send_messages(
                [ServiceBusMessage(f"letter {n}", subject="Good" if n % 2 else "Bad") for n in range(4)]
            )
            for message in receiver:
                if message.subject == "Good":
                    receiver.complete_message(message)
                else:
                    receiver.dead_letter_message(message, "ProcessingError", "Nobody knows what to do with it.")
            copies: list[ServiceBusMessage] = []
            for letter in dead:
                copies.append(ServiceBusMessage(letter.body, subject="Good"))  # row: body
                dead.complete_message(letter)
            sender.send_messages(copies)
            seen: list[str] = []
            for message in receiver:
                seen.append(f"{message.subject}: {message}")
                receiver.complete_message(message)
    return seen


def sent_on(connection_string: str, queue_name: str) -> object:
    """A received message sent once more as it is."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_queue_sender(queue_name)
        receiver = client.get_queue_receiver(queue_name, max_wait_time=5)
        with sender, receiver:
            sender.send_messages(ServiceBusMessage("round", application_properties={"lap": 1}))
            message = (receiver.receive_messages())[0]
            sender.send_messages(message)
            receiver.complete_message(message)
            again = (receiver.receive_messages())[0]
            receiver.complete_message(again)
    assert again.application_properties is not None
    lap = again.application_properties["lap"]  # row: property-keys
    return str(again), lap, again.sequence_number > message.sequence_number, again.message_id == message.message_id


def through_another_receiver(connection_string: str, queue_name: str) -> object:
    """A message outlives its receiver: another one settles it."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "tea")
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (receiver.receive_messages())[0]
        with client.get_queue_receiver(queue_name, max_wait_time=0.2) as another:
            another.complete_message(message)
            return another.receive_messages()


def expired(connection_string: str, queue_name: str) -> object:
    """A message that nobody received in time goes to the dead-letter queue, if the queue is set up so."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            sender.send_messages(ServiceBusMessage("milk", time_to_live=timedelta(milliseconds=100)))
        with client.get_queue_receiver(queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (letter,) = dead.receive_messages(max_wait_time=30)
            dead.complete_message(letter)
    return str(letter), letter.dead_letter_reason
