"""The dead-letter queue: which messages it gets and why, and how a program receives them."""

# Made by tools/make_sync from tests/aio/test_dead_letters.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from typing import Any

import pytest

from sbredis.exceptions import MessageNotFoundError
from sbredis.model import ServiceBusSubQueue
from tests.sync.queues import HandClock, bodies, both, in_memory, queue_at, receive_exactly

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


PATHS = ("q/$DeadLetterQueue", "q/$deadletterqueue", "Q/$DEADLETTERQUEUE")


@both
def test_a_dead_letter_keeps_the_number_that_it_had(url: str, partitioned: bool) -> None:
    """However it died: by its receiver, by its delivery limit, or by its expiry, also if that is not done yet."""
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock, dead_letter_expired=True, max_delivery_count=1) as queue:
        queue.send("settled", at=-1)  # so that numbers of messages and of dead letters differ
        with queue.receiver() as receiver:
            (settled,) = receiver.receive_messages(1, 60)
            receiver.complete_message(settled)
        numbers = [
            *queue.send("buried", "failed", at=-1),
            *queue.send("expired", at=-1, time_to_live=10_000),
        ]
        with queue.receiver() as receiver:
            buried, failed = receive_exactly(receiver, 2)
            assert buried.dead_letter_source_sequence_number is None
            receiver.dead_letter_message(buried)
            receiver.abandon_message(failed)
        letters = queue.receiver(sub_queue="deadletter")
        clock.move(11)
        for found in (letters.peek_messages(10), receive_exactly(letters, 3)):
            assert bodies(found) == ["buried", "failed", "expired"]
            assert [each.dead_letter_source_sequence_number for each in found] == numbers
            assert [each.enqueued_sequence_number for each in found] == numbers
            assert all(each.sequence_number != number for each, number in zip(found, numbers, strict=True))
        letters.abandon_message(found[0], properties_to_modify={"seen": True})
        (again,) = letters.receive_messages(1, 60)
        assert again.dead_letter_source_sequence_number == numbers[0]


@both
def test_the_dead_letter_queue_is_opened_by_option_and_by_path(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send(*"abcdef", at=-1)
        with queue.receiver() as receiver:
            for message in receive_exactly(receiver, 6):
                receiver.dead_letter_message(message, reason=str(message), error_description="…")
        receivers = [
            queue.receiver(sub_queue="deadletter"),
            queue.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER),
            *(queue.client.get_queue_receiver(path) for path in PATHS),
            queue.client.get_queue_receiver(PATHS[0], sub_queue="deadletter"),
        ]
        for receiver in receivers:
            (letter,) = receiver.receive_messages(1, 60)
            assert receiver.entity_path.lower() == "q/$deadletterqueue"
            assert letter.dead_letter_reason == str(letter)
            assert letter.dead_letter_error_description == "…"
            assert letter.delivery_count == 1
            receiver.complete_message(letter)
        assert (queue.counts()).bytes == 0


@in_memory
@pytest.mark.parametrize("mode", ["peeklock", "receiveanddelete"])
def test_a_transfer_dead_letter_queue_without_messages_changes_nothing(url: str, mode: str) -> None:
    with queue_at(url) as queue:
        queue.send("a", "b")
        with queue.receiver() as receiver:
            (message,) = receiver.receive_messages(1, 60)
            receiver.defer_message(message)
        before = queue.contents()
        for transfer in (
            queue.receiver(sub_queue="transferdeadletter", receive_mode=mode),
            queue.client.get_queue_receiver("q/$Transfer/$DeadLetterQueue", receive_mode=mode),
        ):
            assert transfer.entity_path == "q/$Transfer/$DeadLetterQueue"
            assert transfer.receive_messages(1, 0.05) == []
            assert transfer.peek_messages(5) == []
            assert transfer.purge_messages() == 0
            assert transfer.delete_messages(5) == 0
            with pytest.raises(MessageNotFoundError, match="No message was received"):
                transfer.receive_deferred_messages(message.sequence_number)
            transfer.close()
        assert stored_messages(queue.contents()) == stored_messages(before)


def stored_messages(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that store messages and their locks, without those that record calls."""
    calls = (":ops", ":state", ":words", ":grants", ":kept")
    return {name: held for name, held in contents.items() if not name.endswith(calls)}


@in_memory
def test_a_path_that_contradicts_the_option_is_refused(url: str) -> None:
    with queue_at(url) as queue:
        with pytest.raises(ValueError, match="another sub-queue"):
            queue.client.get_queue_receiver(PATHS[0], sub_queue="transferdeadletter")
