"""Receiving, deleting and dead-lettering messages by their sequence numbers."""

# Made by tools/make_sync from tests/aio/test_by_number.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import pytest

from sbredis.exceptions import MessageNotFoundError
from tests.sync.queues import HandClock, bodies, both, in_memory, queue_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


@both
def test_messages_are_received_by_number_before_their_turn(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock) as queue:
        numbers = queue.send(*"abcdef")
        receiver = queue.receiver()
        (delayed,) = receiver.receive_messages_by_number(numbers[5])
        receiver.abandon_message(delayed, delay=100)
        messages = receiver.receive_messages_by_number([numbers[4], numbers[5]])
        assert bodies(messages) == ["e", "f"]
        assert [message.delivery_count for message in messages] == [1, 2]
        for message in messages:
            receiver.complete_message(message)
        assert (queue.counts()).active == 4


@both
def test_messages_are_deleted_by_number_all_of_them_or_none(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned, clock=HandClock()) as queue:
        numbers = queue.send(*"abcd")
        receiver = queue.receiver()
        with pytest.raises(MessageNotFoundError, match="77"):
            receiver.delete_messages_by_number([*numbers, 77])
        assert (queue.counts()).active == 4
        receiver.delete_messages_by_number(numbers[1:])
        assert bodies(receiver.peek_messages(10)) == ["a"]


@both
def test_messages_are_dead_lettered_by_number(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned, clock=HandClock()) as queue:
        numbers = queue.send(*"abc")
        receiver = queue.receiver(receive_mode="receiveanddelete")
        receiver.dead_letter_messages_by_number(numbers[0], "Poison", "it breaks the handler")
        letters = queue.receiver(sub_queue="deadletter")
        (letter,) = letters.peek_messages(10)
        assert (str(letter), letter.dead_letter_reason) == ("a", "Poison")
        with pytest.raises(ValueError, match="dead letters already"):
            letters.dead_letter_messages_by_number(letter.sequence_number)
        letters.delete_messages_by_number(letter.sequence_number)
        assert (queue.counts()).dead_active == 0


@in_memory
def test_a_message_that_another_receiver_holds_is_not_taken(url: str) -> None:
    with queue_at(url, clock=HandClock()) as queue:
        numbers = queue.send(*"ab")
        queue.receiver().receive_messages(1, 60)
        receiver = queue.receiver()
        before = queue.stored()
        for call in (
            receiver.receive_messages_by_number,
            receiver.delete_messages_by_number,
            receiver.dead_letter_messages_by_number,
        ):
            with pytest.raises(MessageNotFoundError, match=f"locked, or have expired: {numbers[0]}"):
                call(numbers[0])
        after = queue.stored()
        changed = {key.rpartition(":")[2] for key in before if before[key] != after[key]}
        assert changed <= {"ops", "state"}  # the last call of the lane, and the clocks
