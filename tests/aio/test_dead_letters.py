"""The dead-letter queue: which messages it gets and why, and how a program receives them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis.exceptions import MessageAlreadySettled, MessageNotFoundError
from sbredis.model import ServiceBusSubQueue
from tests.aio.queues import Calls, HandClock, Queue, bodies, both, in_memory, queue_with, receive_exactly

PATHS = ("q/$DeadLetterQueue", "q/$deadletterqueue", "Q/$DEADLETTERQUEUE")


@both
@queue_with(dead_letter_expired=True, max_delivery_count=1)
async def test_a_dead_letter_keeps_the_number_that_it_had(queue: Queue, clock: HandClock) -> None:
    """However it died: by its receiver, by its delivery limit, or by its expiry, also if that is not done yet."""
    await queue.send("settled", at=-1)  # so that numbers of messages and of dead letters differ
    async with queue.receiver() as receiver:
        (settled,) = await receiver.receive_messages(1, 60)
        await receiver.complete_message(settled)
    numbers = [
        *await queue.send("buried", "failed", at=-1),
        *await queue.send("expired", at=-1, time_to_live=10_000),
    ]
    async with queue.receiver() as receiver:
        buried, failed = await receive_exactly(receiver, 2)
        assert buried.dead_letter_source_sequence_number is None
        await receiver.dead_letter_message(buried)
        await receiver.abandon_message(failed)
    letters = queue.receiver(sub_queue="deadletter")
    clock.move(11)
    for found in (await letters.peek_messages(10), await receive_exactly(letters, 3)):
        assert bodies(found) == ["buried", "failed", "expired"]
        assert [each.dead_letter_source_sequence_number for each in found] == numbers
        assert [each.enqueued_sequence_number for each in found] == numbers
        assert all(each.sequence_number != number for each, number in zip(found, numbers, strict=True))
    await letters.abandon_message(found[0], properties_to_modify={"seen": True})
    (again,) = await letters.receive_messages(1, 60)
    assert again.dead_letter_source_sequence_number == numbers[0]


@both
async def test_the_dead_letter_queue_is_opened_by_option_and_by_path(queue: Queue) -> None:
    await queue.send(*"abcdef", at=-1)
    async with queue.receiver() as receiver:
        for message in await receive_exactly(receiver, 6):
            await receiver.dead_letter_message(message, reason=str(message), error_description="…")
    receivers = [
        queue.receiver(sub_queue="deadletter"),
        queue.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER),
        *(queue.client.get_queue_receiver(path) for path in PATHS),
        queue.client.get_queue_receiver(PATHS[0], sub_queue="deadletter"),
    ]
    for receiver in receivers:
        (letter,) = await receiver.receive_messages(1, 60)
        assert receiver.entity_path.lower() == "q/$deadletterqueue"
        assert letter.dead_letter_reason == str(letter)
        assert letter.dead_letter_error_description == "…"
        assert letter.delivery_count == 1
        await receiver.complete_message(letter)
    assert (await queue.counts()).bytes == 0


@both
async def test_dead_letters_are_settled_like_other_messages_but_never_dead_lettered_again(queue: Queue) -> None:
    await queue.send("a", at=-1)
    receiver, letters = queue.receiver(), queue.receiver(sub_queue="deadletter")
    (message,) = await receiver.receive_messages(1, 60)
    await receiver.dead_letter_message(message)
    (letter,) = await letters.receive_messages(1, 60)
    for by in (letters, receiver):
        with Calls(queue.transport) as calls, pytest.raises(ValueError, match="on the dead-letter queue already"):
            await by.dead_letter_message(letter)
        assert not calls.by_script
    await letters.renew_message_lock(letter)
    await letters.abandon_message(letter, properties_to_modify={"seen": 1})
    (letter,) = await letters.receive_messages(1, 60)
    assert letter.application_properties == {"seen": 1}
    assert letter.delivery_count == 1
    await letters.complete_message(letter)
    with pytest.raises(MessageAlreadySettled):
        await letters.dead_letter_message(letter)


@both
async def test_dead_letters_can_be_iterated_with_receive_and_delete(queue: Queue) -> None:
    await queue.fill(10, at=-1)
    async with queue.receiver() as receiver:
        messages = await receive_exactly(receiver, 10)
        await asyncio.gather(*(receiver.dead_letter_message(message) for message in messages))
    async with queue.receiver(sub_queue="deadletter", receive_mode="receiveanddelete") as letters:
        assert [int(str(await anext(letters))) for _ in range(10)] == list(range(10))
    assert (await queue.counts()).bytes == 0


@in_memory
@pytest.mark.parametrize("mode", ["peeklock", "receiveanddelete"])
async def test_a_transfer_dead_letter_queue_without_messages_changes_nothing(queue: Queue, mode: str) -> None:
    await queue.send("a", "b")
    async with queue.receiver() as receiver:
        (message,) = await receiver.receive_messages(1, 60)
        await receiver.defer_message(message)
    before = await queue.contents()
    for transfer in (
        queue.receiver(sub_queue="transferdeadletter", receive_mode=mode),
        queue.client.get_queue_receiver("q/$Transfer/$DeadLetterQueue", receive_mode=mode),
    ):
        assert transfer.entity_path == "q/$Transfer/$DeadLetterQueue"
        assert await transfer.receive_messages(1, 0.05) == []
        assert await transfer.peek_messages(5) == []
        assert await transfer.purge_messages() == 0
        assert await transfer.delete_messages(5) == 0
        with pytest.raises(MessageNotFoundError, match="No message was received"):
            await transfer.receive_deferred_messages(message.sequence_number)
        await transfer.close()
    assert stored_messages(await queue.contents()) == stored_messages(before)


def stored_messages(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that store messages and their locks, without those that record calls."""
    calls = (":ops", ":state", ":words", ":grants", ":kept")
    return {name: held for name, held in contents.items() if not name.endswith(calls)}


@in_memory
async def test_a_path_that_contradicts_the_option_is_refused(queue: Queue) -> None:
    with pytest.raises(ValueError, match="another sub-queue"):
        queue.client.get_queue_receiver(PATHS[0], sub_queue="transferdeadletter")
