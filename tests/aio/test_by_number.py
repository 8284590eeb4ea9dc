"""Receiving, deleting and dead-lettering messages by their sequence numbers."""

from __future__ import annotations

import pytest

from sbredis.exceptions import MessageNotFoundError
from tests.aio.queues import HandClock, bodies, both, in_memory, queue_at


@both
async def test_messages_are_received_by_number_before_their_turn(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue:
        numbers = await queue.send(*"abcdef")
        receiver = queue.receiver()
        (delayed,) = await receiver.receive_messages_by_number(numbers[5])
        await receiver.abandon_message(delayed, delay=100)
        messages = await receiver.receive_messages_by_number([numbers[4], numbers[5]])
        assert bodies(messages) == ["e", "f"]
        assert [message.delivery_count for message in messages] == [1, 2]
        for message in messages:
            await receiver.complete_message(message)
        assert (await queue.counts()).active == 4


@both
async def test_messages_are_deleted_by_number_all_of_them_or_none(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, clock=HandClock()) as queue:
        numbers = await queue.send(*"abcd")
        receiver = queue.receiver()
        with pytest.raises(MessageNotFoundError, match="77"):
            await receiver.delete_messages_by_number([*numbers, 77])
        assert (await queue.counts()).active == 4
        await receiver.delete_messages_by_number(numbers[1:])
        assert bodies(await receiver.peek_messages(10)) == ["a"]


@both
async def test_messages_are_dead_lettered_by_number(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, clock=HandClock()) as queue:
        numbers = await queue.send(*"abc")
        receiver = queue.receiver(receive_mode="receiveanddelete")
        await receiver.dead_letter_messages_by_number(numbers[0], "Poison", "it breaks the handler")
        letters = queue.receiver(sub_queue="deadletter")
        (letter,) = await letters.peek_messages(10)
        assert (str(letter), letter.dead_letter_reason) == ("a", "Poison")
        with pytest.raises(ValueError, match="dead letters already"):
            await letters.dead_letter_messages_by_number(letter.sequence_number)
        await letters.delete_messages_by_number(letter.sequence_number)
        assert (await queue.counts()).dead_active == 0


@in_memory
async def test_a_message_that_another_receiver_holds_is_not_taken(url: str) -> None:
    async with queue_at(url, clock=HandClock()) as queue:
        numbers = await queue.send(*"ab")
        await queue.receiver().receive_messages(1, 60)
        receiver = queue.receiver()
        before = await queue.stored()
        for call in (
            receiver.receive_messages_by_number,
            receiver.delete_messages_by_number,
            receiver.dead_letter_messages_by_number,
        ):
            with pytest.raises(MessageNotFoundError, match=f"locked, or have expired: {numbers[0]}"):
                await call(numbers[0])
        after = await queue.stored()
        changed = {key.rpartition(":")[2] for key in before if before[key] != after[key]}
        assert changed <= {"ops", "state"}  # the last call of the lane, and the clocks
