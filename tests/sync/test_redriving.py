"""Moving dead letters back from threads."""

from __future__ import annotations

import pytest

from sbredis import RedriveBudget, ServiceBusClient, ServiceBusMessage
from sbredis.exceptions import MessageNotFoundError


def test_dead_letters_are_counted_and_moved_back(client: ServiceBusClient) -> None:
    with client.get_queue_sender("q", create_if_missing=True) as sender:
        sender.send_messages([ServiceBusMessage(text) for text in "abc"])
    with (
        client.get_queue_receiver("q") as receiver,
        client.get_queue_receiver("q", sub_queue="deadletter") as letters,
    ):
        for message in receiver.receive_messages(3, 60):
            receiver.dead_letter_message(message, "Timeout", f"{message} took 7 s")
        found = letters.redrive_messages(dry_run=True)
        assert (found.matched, found.moved, found.by_reason) == (3, 0, {"Timeout": 3})
        with pytest.raises(MessageNotFoundError):
            letters.redrive_messages(sequence_numbers=77)
        result = letters.redrive_messages(
            matching="sys.DeadLetterReason = 'Timeout'", cursor=found.cursor, rate=1000, budget=RedriveBudget(share=0)
        )
        assert (result.moved, result.died_again, result.completed) == (3, 0, True)
        assert sorted(map(str, receiver.receive_messages(3, 60))) == ["a", "b", "c"]
        assert letters.peek_messages() == []


def test_messages_are_taken_by_number(client: ServiceBusClient) -> None:
    with client.get_queue_sender("q", create_if_missing=True) as sender:
        sender.send_messages([ServiceBusMessage(text) for text in "abc"])
    with client.get_queue_receiver("q") as receiver:
        one, two, three = (message.sequence_number for message in receiver.peek_messages(3))
        receiver.delete_messages_by_number(two)
        receiver.dead_letter_messages_by_number(one, "Poison")
        (message,) = receiver.receive_messages_by_number(three)
        receiver.complete_message(message)
        assert receiver.peek_messages() == []
    with client.get_queue_receiver("q", sub_queue="deadletter") as letters:
        assert [letter.dead_letter_reason for letter in letters.peek_messages(3)] == ["Poison"]
