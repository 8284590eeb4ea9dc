"""Peeking shows every message once, in every state, and changes nothing."""

# Made by tools/make_sync from tests/aio/test_peeking.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import pytest

from sbredis import ServiceBusReceiver
from sbredis.exceptions import MessageAlreadySettled
from sbredis.model import ServiceBusMessageState, ServiceBusReceivedMessage
from tests.sync.queues import HandClock, bodies, both, in_memory, queue_at, receive_exactly

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


def all_of(receiver: ServiceBusReceiver, page: int) -> list[ServiceBusReceivedMessage]:
    """Peek page by page until a page is empty, and return the messages."""
    found: list[ServiceBusReceivedMessage] = []
    while messages := receiver.peek_messages(page):
        assert len(messages) <= page
        found += messages
    return found


@both
@pytest.mark.parametrize("page", [1, 4, 1000])
def test_repeated_peeks_show_every_message_once_and_end(url: str, partitioned: bool, page: int) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        numbers = queue.send(*"abcdefghij")
        before = queue.stored()
        receiver = queue.receiver()
        found = all_of(receiver, page)
        assert sorted(bodies(found)) == list("abcdefghij")
        assert [message.sequence_number for message in found] == sorted(numbers)
        assert receiver.peek_messages(page) == []
        assert queue.stored() == before
        (late,) = queue.send("k", at=0)
        assert [message.sequence_number for message in receiver.peek_messages(page)] == [late]


@both
def test_peeking_shows_messages_in_every_state(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock) as queue:
        queue.send("locked", "delayed", "deferred", "active", "dead", at=-1)
        queue.send("scheduled", at=-1, due=clock.told() + 60_000)
        other = queue.receiver()
        messages = {str(message): message for message in receive_exactly(other, 5)}
        other.abandon_message(messages["delayed"], delay=60)
        other.defer_message(messages["deferred"])
        other.abandon_message(messages["active"])
        other.dead_letter_message(messages["dead"])
        shown = {str(message): message for message in all_of(queue.receiver(), 2)}
        assert {text: message.state for text, message in shown.items()} == {
            "locked": ServiceBusMessageState.ACTIVE,
            "delayed": ServiceBusMessageState.ACTIVE,
            "deferred": ServiceBusMessageState.DEFERRED,
            "active": ServiceBusMessageState.ACTIVE,
            "scheduled": ServiceBusMessageState.SCHEDULED,
        }
        assert {message.lock_token for message in shown.values()} == {None}
        assert {message.locked_until_utc for message in shown.values()} == {None}
        assert shown["active"].delivery_count == 1
        assert shown["scheduled"].enqueued_time_utc == shown["scheduled"].scheduled_enqueue_time_utc
        assert bodies(all_of(queue.receiver(sub_queue="deadletter"), 2)) == ["dead"]


@both
def test_a_peek_starts_at_the_given_number_and_the_next_peek_continues_after_it(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        numbers = sorted(queue.send(*"abcdefghijkl"))
        receiver = queue.receiver()
        for start in (0, 3, 7, 11, 5):
            first = receiver.peek_messages(2, sequence_number=numbers[start])
            assert [message.sequence_number for message in first] == numbers[start : start + 2]
            rest = all_of(receiver, 4)
            assert [message.sequence_number for message in rest] == numbers[start + 2 :]
        between = receiver.peek_messages(1, sequence_number=1)
        assert between[0].sequence_number == numbers[0]
        for beyond in (numbers[-1] + 1, 99 << 48, 1 << 62):
            assert receiver.peek_messages(5, sequence_number=beyond) == []


@both
def test_a_peek_continues_after_the_messages_that_were_received(url: str, partitioned: bool) -> None:
    """These are messages that the same receiver received. A peek never shows an earlier message again."""
    with queue_at(url, partitioned=partitioned) as queue:
        numbers = queue.send(*"abcdef", at=-1)
        receiver = queue.receiver()
        receive_exactly(receiver, 2)
        (third,) = receiver.peek_messages(1)
        assert third.sequence_number == numbers[2]
        rest = receiver.peek_messages(2)
        assert [message.sequence_number for message in rest] == numbers[3:5]
        receiver.receive_messages(1, 60)
        assert [message.sequence_number for message in all_of(receiver, 1)] == numbers[5:]
        assert bodies(queue.receiver().peek_messages(10)) == list("abcdef")


@pytest.mark.slow
def test_large_messages_are_peeked_a_few_at_a_time(url: str) -> None:
    with queue_at(url) as queue:
        queue.fill(12, size=900_000)
        receiver = queue.receiver()
        sizes: list[int] = []
        while messages := receiver.peek_messages(100):
            sizes.append(len(messages))
        assert sum(sizes) == 12
        assert max(sizes) <= 9


@in_memory
def test_a_peeked_message_can_be_neither_settled_nor_renewed(url: str) -> None:
    with queue_at(url) as queue:
        queue.send("a")
        receiver = queue.receiver()
        (message,) = receiver.peek_messages()
        for done in (
            receiver.complete_message,
            receiver.abandon_message,
            receiver.defer_message,
            receiver.dead_letter_message,
            receiver.renew_message_lock,
        ):
            with pytest.raises(ValueError, match="was peeked") as raised:
                done(message)
            assert not isinstance(raised.value, MessageAlreadySettled)


@in_memory
def test_a_closed_receiver_cannot_peek(url: str) -> None:
    with queue_at(url) as queue:
        receiver: ServiceBusReceiver = queue.receiver()
        receiver.close()
        with pytest.raises(ValueError, match="receiver is closed"):
            receiver.peek_messages()
