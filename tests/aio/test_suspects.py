"""Suspects, and what a lapse counts, as a receiver without a worker sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.model import ServiceBusReceivedMessage, Taking, taking_of
from tests.aio.queues import HandClock, Queue, bodies, both, in_memory, queue_at, queue_with
from tests.aio.session_queues import SessionQueue
from tests.waiting import eventually

LOCK = 30


async def lapse(clock: HandClock, queue: Queue) -> None:
    """Let all locks end."""
    clock.move(LOCK + 1)
    assert await queue.client.describe_entity("q") is not None


async def counts(receiver: ServiceBusReceiver, wanted: int) -> list[int]:
    """Return the numbers of the next deliveries, by the bodies of messages."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < wanted:
        messages += await receiver.receive_messages(wanted, 60)
    return [message.delivery_count for message in sorted(messages, key=lambda message: int(bodies([message])[0]))]


@both
@queue_with(lock_duration=LOCK * 1000, max_delivery_count=10)
async def test_a_message_whose_locks_end_again_and_again_is_a_suspect(queue: Queue, clock: HandClock) -> None:
    await queue.send("a")
    async with queue.receiver() as receiver:
        seen: list[tuple[bool, int]] = []
        for _ in range(4):
            (message,) = await receiver.receive_messages(1, 60)
            seen.append((message.is_suspect, message.delivery_count))
            await lapse(clock, queue)
        assert seen == [(False, 1), (False, 2), (True, 3), (True, 4)]
        (message,) = await receiver.peek_messages(1, sequence_number=1)
        assert message.is_suspect
        (message,) = await receiver.receive_messages(1, 60)
        await receiver.abandon_message(message)
        (message,) = await receiver.receive_messages(1, 60)
        assert (message.is_suspect, message.delivery_count) == (False, 6)


@queue_with(lock_duration=LOCK * 1000, max_delivery_count=2)
async def test_a_plain_receiver_gets_a_suspect_alone(queue: Queue, clock: HandClock) -> None:
    await queue.send("a")
    async with queue.receiver() as receiver:
        assert bodies(await receiver.receive_messages(1, 60)) == ["a"]
        await lapse(clock, queue)
        await queue.fill(3, at=0)
        taken: list[ServiceBusReceivedMessage] = []
        while len(taken) < 4:
            part = await receiver.receive_messages(10, 60, gather=False)
            assert len(part) == 1 or not any(message.is_suspect for message in part)
            taken += part
        assert [message.is_suspect for message in taken].count(True) == 1


@both
@queue_with(sessions=True, lock_duration=LOCK * 1000, max_delivery_count=3)
async def test_a_plain_session_receiver_gets_a_suspect_alone_and_in_its_order(
    queue: SessionQueue, clock: HandClock
) -> None:
    await queue.send_to("s", "a", "b", "c")
    for failed in range(2):
        async with queue.session("s") as receiver:
            (first,) = await receiver.receive_messages(1, 60)
            assert (bodies([first]), first.delivery_count) == (["a"], failed + 1)
            assert not first.is_suspect
            await lapse(clock, queue)
    async with queue.session("s") as receiver:
        (first,) = await receiver.receive_messages(10, 60, gather=False)
        assert (bodies([first]), first.is_suspect, first.delivery_count) == (["a"], True, 3)
        await receiver.complete_message(first)
        rest: list[ServiceBusReceivedMessage] = []
        while len(rest) < 2:
            rest += await receiver.receive_messages(10, 60)
        assert [(bodies([each]), each.is_suspect) for each in rest] == [(["b"], False), (["c"], False)]


@asynccontextmanager
async def dying(queue: Queue, taking: Taking) -> AsyncIterator[None]:
    """Let a receiver take one of 40 messages and fetch the others ahead. At the end, it calls no more, as if killed."""
    await queue.fill(40)
    receiver = queue.receiver(prefetch_count=40)
    taking_of(receiver).hands = taking.hands
    await receiver.__aenter__()
    assert len(await receiver.receive_messages(1, 60)) == 1
    inbox = receiver._inbox
    assert inbox is not None
    await eventually(lambda: len(inbox.buffer) == 39)
    yield
    for source in inbox.drivers:
        source.leave()


@in_memory
@pytest.mark.parametrize(("hands", "counted"), [(2, 2), (None, 20)])
async def test_what_was_only_fetched_ahead_does_not_count(url: str, hands: int | None, counted: int) -> None:
    """A receiver that does not say how many messages it begins reports it when half of the stock is used up."""
    clock = HandClock()
    async with queue_at(url, clock=clock, lock_duration=LOCK * 1000, max_delivery_count=10) as queue:
        async with dying(queue, Taking(hands=hands)):
            pass
        await lapse(clock, queue)
        async with queue.receiver() as receiver:
            assert await counts(receiver, 40) == [2] * counted + [1] * (40 - counted)


@both
async def test_a_receiver_without_suspects_is_told_and_may_end_its_wait(url: str, partitioned: bool) -> None:
    clock, told = HandClock(), list[bool]()
    async with queue_at(
        url, partitioned=partitioned, clock=clock, lock_duration=LOCK * 1000, max_delivery_count=2
    ) as queue:
        await queue.send("a")
        async with queue.receiver() as other:
            assert bodies(await other.receive_messages(1, 60)) == ["a"]
        async with queue.receiver() as receiver:
            taking = taking_of(receiver)
            taking.suspects = False

            def end() -> None:
                told.append(True)
                taking.end_waits()

            taking.told = end
            clock.move(LOCK + 1)
            assert await receiver.receive_messages(1, 60) == []
            assert told
            taking.suspects = True
            (message,) = await receiver.receive_messages(1, 60)
            assert message.is_suspect
