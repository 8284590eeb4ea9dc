"""Peeking shows every message once, in every state, and changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.model import ServiceBusMessageState, ServiceBusReceivedMessage
from tests.aio.queues import Calls, HandClock, Queue, bodies, both, in_memory, queue_at, receive_exactly


async def all_of(receiver: ServiceBusReceiver, page: int) -> list[ServiceBusReceivedMessage]:
    """Peek page by page until a page is empty, and return the messages."""
    found: list[ServiceBusReceivedMessage] = []
    while messages := await receiver.peek_messages(page):
        assert len(messages) <= page
        found += messages
    return found


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
@pytest.mark.parametrize("page", [1, 4, 1000])
async def test_repeated_peeks_show_every_message_once_and_end(queue: Queue, page: int) -> None:
    numbers = await queue.send(*"abcdefghij")
    before = await queue.stored()
    receiver = queue.receiver()
    found = await all_of(receiver, page)
    assert sorted(bodies(found)) == list("abcdefghij")
    assert [message.sequence_number for message in found] == sorted(numbers)
    assert await receiver.peek_messages(page) == []
    assert await queue.stored() == before
    (late,) = await queue.send("k", at=0)
    assert [message.sequence_number for message in await receiver.peek_messages(page)] == [late]


@both
async def test_peeking_shows_messages_in_every_state(queue: Queue, clock: HandClock) -> None:
    await queue.send("locked", "delayed", "deferred", "active", "dead", at=-1)
    await queue.send("scheduled", at=-1, due=clock.told() + 60_000)
    other = queue.receiver()
    messages = {str(message): message for message in await receive_exactly(other, 5)}
    await other.abandon_message(messages["delayed"], delay=60)
    await other.defer_message(messages["deferred"])
    await other.abandon_message(messages["active"])
    await other.dead_letter_message(messages["dead"])
    shown = {str(message): message for message in await all_of(queue.receiver(), 2)}
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
    assert bodies(await all_of(queue.receiver(sub_queue="deadletter"), 2)) == ["dead"]


@both
async def test_a_peek_starts_at_the_given_number_and_the_next_peek_continues_after_it(queue: Queue) -> None:
    numbers = sorted(await queue.send(*"abcdefghijkl"))
    receiver = queue.receiver()
    for start in (0, 3, 7, 11, 5):
        first = await receiver.peek_messages(2, sequence_number=numbers[start])
        assert [message.sequence_number for message in first] == numbers[start : start + 2]
        rest = await all_of(receiver, 4)
        assert [message.sequence_number for message in rest] == numbers[start + 2 :]
    between = await receiver.peek_messages(1, sequence_number=1)
    assert between[0].sequence_number == numbers[0]
    for beyond in (numbers[-1] + 1, 99 << 48, 1 << 62):
        assert await receiver.peek_messages(5, sequence_number=beyond) == []


@both
async def test_a_peek_continues_after_the_messages_that_were_received(queue: Queue) -> None:
    """These are messages that the same receiver received. A peek never shows an earlier message again."""
    numbers = await queue.send(*"abcdef", at=-1)
    receiver = queue.receiver()
    await receive_exactly(receiver, 2)
    (third,) = await receiver.peek_messages(1)
    assert third.sequence_number == numbers[2]
    rest = await receiver.peek_messages(2)
    assert [message.sequence_number for message in rest] == numbers[3:5]
    await receiver.receive_messages(1, 60)
    assert [message.sequence_number for message in await all_of(receiver, 1)] == numbers[5:]
    assert bodies(await queue.receiver().peek_messages(10)) == list("abcdef")


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_concurrent_peeks_of_one_receiver_show_each_message_once(queue: Queue) -> None:
    await queue.send(*"abcdefghijkl")
    receiver = queue.receiver()
    pages = await asyncio.gather(*(receiver.peek_messages(3) for _ in range(5)))
    assert sorted(text for page in pages for text in bodies(page)) == list("abcdefghijkl")


@in_memory
async def test_a_closed_receiver_can_neither_peek_nor_purge(queue: Queue) -> None:
    receiver: ServiceBusReceiver = queue.receiver()
    await receiver.close()
    for call in (receiver.peek_messages, receiver.purge_messages):
        with pytest.raises(ValueError, match="receiver is closed"):
            await call()


@pytest.mark.slow
@in_memory
async def test_peeking_many_empty_partitions_takes_one_call_each(url: str) -> None:
    queue: Queue
    async with queue_at(url, partitioned=True, partitions=16) as queue:
        with Calls(queue.transport) as calls:
            assert await queue.receiver().peek_messages(10) == []
        del calls.by_script["touch"]  # tells each partition that it is in use, at most once a minute
        assert calls.by_script == {"peek": 16}
