"""Prefetching: the buffer is refilled, the locks of its messages run, and unclaimed messages are returned to the queue
in time.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode
from sbredis.receiving._fetching import Buffer, InboxState, Stock
from tests.aio.queues import (
    GATHERING,
    PARTITIONS,
    Calls,
    HandClock,
    Queue,
    bodies,
    both,
    in_memory,
    queue_at,
    queue_with,
    receive_exactly,
)
from tests.waiting import eventually


def buffer_of(receiver: ServiceBusReceiver) -> Buffer[ServiceBusReceivedMessage]:
    assert receiver._inbox is not None
    return receiver._inbox.buffer


async def filled(receiver: ServiceBusReceiver, count: int) -> None:
    await eventually(lambda: len(buffer_of(receiver)) == count)


@both
async def test_prefetched_messages_are_returned_to_callers_without_a_call(queue: Queue) -> None:
    await queue.fill(30, at=-1)
    async with queue.receiver(prefetch_count=10) as receiver:
        await filled(receiver, 10)
        assert await queue.counts_are(20, 10)
        with Calls(queue.transport) as calls:
            messages = await receiver.receive_messages(4, 60)
            await asyncio.sleep(0)
            assert not calls.by_script
            # less than half of the buffer is left, so it is refilled
            messages += await receiver.receive_messages(4, 60)
            await filled(receiver, 10)
            assert calls.by_script["grant"] <= 2 * len(queue.partitions)
        messages += await receive_exactly(receiver, 22)
        assert bodies(messages) == [str(number) for number in range(30)]
        assert {message.delivery_count for message in messages} == {1}
        assert await queue.counts_are(0, 30)


@both
async def test_prefetching_can_be_changed_while_the_receiver_is_open(queue: Queue) -> None:
    """Messages that are too many are released, without an increase of their delivery counts."""
    await queue.fill(30, at=-1)
    async with queue.receiver() as receiver:
        (message,) = await receiver.receive_messages(1, 60)
        assert receiver.prefetch_count == 0
        assert await queue.counts_are(29, 1)
        receiver.prefetch_count = 10
        await filled(receiver, 10)
        receiver.prefetch_count = 4
        assert len(buffer_of(receiver)) == 4
        await eventually(lambda: queue.counts_are(25, 5))
        receiver.prefetch_count = 0
        assert len(buffer_of(receiver)) == 0
        await eventually(lambda: queue.counts_are(29, 1))
        messages = await receive_exactly(receiver, 29)
        assert sorted(bodies([message, *messages]), key=int) == [str(number) for number in range(30)]
        assert {message.delivery_count for message in messages} == {1}
        for wrong in (-1, 50_001):
            with pytest.raises(ValueError, match="prefetch_count"):
                receiver.prefetch_count = wrong
        assert receiver.prefetch_count == 0
    with pytest.raises(ValueError, match="closed"):
        receiver.prefetch_count = 1


@in_memory
async def test_a_buffer_that_was_filled_keeps_the_news_of_more_messages_for_a_moment(url: str) -> None:
    """Callers mostly go on. To decline the news, and to ask for it again, would cost two calls."""
    async with queue_at(url, partitioned=True) as queue:
        for place in range(PARTITIONS):
            await queue.fill(20, at=place)
        async with queue.receiver(prefetch_count=10) as receiver:
            await filled(receiver, 10)
            inbox = receiver._inbox
            assert inbox is not None
            await eventually(lambda: inbox.lingering.state is InboxState.HEARING)
            await receiver.receive_messages(6, 60)
            await eventually(lambda: inbox.lingering.state is InboxState.LINGERING)
            await filled(receiver, 10)
            await eventually(lambda: inbox.lingering.state is InboxState.HEARING)


@in_memory
async def test_prefetching_that_is_switched_on_before_the_first_receive_begins_with_it(queue: Queue) -> None:
    await queue.fill(10, at=-1)
    async with queue.receiver(adaptive_prefetch=True, prefetch_count=1) as receiver:
        receiver.prefetch_count = 5
        await receiver.receive_messages(1, 60)
        await filled(receiver, 5)


@in_memory
async def test_messages_that_are_deleted_already_are_not_lost_when_prefetching_ends(queue: Queue) -> None:
    await queue.fill(5, at=-1)
    async with queue.receiver(prefetch_count=5, receive_mode="receiveanddelete") as receiver:
        await filled(receiver, 5)
        receiver.prefetch_count = 0
        assert len(await receiver.receive_messages(5, 60)) == 5


@both
async def test_prefetched_messages_are_released_when_the_receiver_closes(queue: Queue) -> None:
    await queue.send(*"abcdefgh")
    async with queue.receiver(prefetch_count=6) as receiver:
        (message,) = await receiver.receive_messages(1, 60)
        await eventually(lambda: len(buffer_of(receiver)) >= 4)
    assert await queue.counts_are(7, 1)
    async with queue.receiver() as receiver:
        again = await receive_exactly(receiver, 7)
        assert {message.delivery_count for message in again} == {1}
        await receiver.complete_message(message)


@pytest.mark.everywhere("a receiver listens to several nodes")
@both
async def test_an_idle_prefetching_receiver_fetches_messages_that_are_sent_later(url: str, partitioned: bool) -> None:
    """The receiver waits for as many messages as its buffer can hold, and is woken for them."""
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver(prefetch_count=5) as receiver:
        await queue.wait_for_waiters()
        await queue.fill(8, at=-1)
        await filled(receiver, 5)
        assert await queue.counts_are(3, 5)


@both
async def test_unclaimed_prefetched_messages_are_released_before_their_lock_ends(url: str, partitioned: bool) -> None:
    """Their delivery count does not increase. The receiver fetches them again only when a caller asks."""
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue:
        await queue.fill(8, at=-1)
        async with queue.receiver(prefetch_count=5) as receiver:
            await filled(receiver, 5)
            clock.move(14)
            assert await queue.counts_are(3, 5)
            clock.move(2)
            await eventually(lambda: queue.counts_are(8, 0))
            with Calls(queue.transport) as calls:
                for _ in range(50):
                    await asyncio.sleep(0)
                await queue.fill(2, at=-1, start=8)
                clock.move(60)
                await eventually(lambda: not any(one.under_way for one in receiver._inbox.drivers))  # type: ignore[union-attr]
                assert calls.by_script["grant"] <= len(queue.partitions)  # the moved clock causes one look
            assert await queue.counts_are(10, 0)
            messages = await receiver.receive_messages(1, 60)
            await filled(receiver, 5)
            messages += await receive_exactly(receiver, 9)
            assert bodies(messages) == [str(number) for number in range(10)]
            assert {message.delivery_count for message in messages} == {1}


@both
async def test_a_prefetched_message_with_an_ended_lock_is_not_returned_to_a_caller(url: str, partitioned: bool) -> None:
    """This holds even if the message could not be released in time."""
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue:
        await queue.fill(3, at=-1)
        async with queue.receiver(prefetch_count=5) as receiver:
            await filled(receiver, 3)
            clock.passed += 31  # the receiver gets no notice that the clock has moved
            await queue.process_due()
            messages = await receive_exactly(receiver, 3)
            assert {message.delivery_count for message in messages} == {2}
            for message in messages:
                await receiver.complete_message(message)
        assert await queue.counts_are(0, 0)


@in_memory
async def test_a_timer_releases_prefetched_messages(url: str) -> None:
    """In this test real time passes, and a timer releases messages with short locks."""
    async with queue_at(url, lock_duration=2_000) as queue:
        await queue.fill(3)
        async with queue.receiver(prefetch_count=5) as receiver:
            await filled(receiver, 3)
            await eventually(lambda: queue.counts_are(3, 0))
            assert {message.delivery_count for message in await receive_exactly(receiver, 3)} == {1}


@in_memory
async def test_messages_of_a_cancelled_caller_go_to_the_next_caller_first(queue: Queue) -> None:
    await queue.fill(2)
    async with queue.receiver(prefetch_count=4) as receiver:
        await filled(receiver, 2)
        task = asyncio.create_task(receiver.receive_messages(4, 60))
        await eventually(lambda: len(buffer_of(receiver)) == 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await queue.fill(1, start=2)
        assert bodies(await receive_exactly(receiver, 3)) == ["0", "1", "2"]


@pytest.mark.slow
@in_memory
async def test_messages_that_arrive_during_a_cancellation_keep_their_order(queue: Queue) -> None:
    for steps in range(30):
        await queue.fill(5)
        async with queue.receiver(prefetch_count=10) as receiver:
            task = asyncio.create_task(receiver.receive_messages(3, 60))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            taken = [] if task.cancelled() else task.result()
            rest = await receive_exactly(receiver, 5 - len(taken))
            assert bodies([*taken, *rest]) == ["0", "1", "2", "3", "4"]
            await asyncio.gather(*(receiver.complete_message(message) for message in (*taken, *rest)))


@in_memory
async def test_messages_whose_lock_ends_first_are_returned_first(queue: Queue, clock: HandClock) -> None:
    await queue.fill(4)
    receiver = queue.receiver()
    old = await receiver.receive_messages(2, 60)
    clock.passed += 5
    new = await receiver.receive_messages(2, 60)
    buffer = buffer_of(receiver)
    buffer.put(new)
    buffer.put(old)
    assert bodies(buffer.take(4, clock.now())) == ["0", "1", "2", "3"]
    buffer.put(old)
    buffer.put(new, first=True)
    assert bodies(buffer.empty()) == ["0", "1", "2", "3"]


@both
async def test_deleted_messages_that_are_lost_in_the_buffer_at_close_are_logged(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.fill(8, at=-1)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with caplog.at_level(logging.WARNING, "sbredis.client"):
        async with queue.receiver(prefetch_count=5, receive_mode=mode) as receiver:
            await filled(receiver, 5)
            assert bodies(await receiver.receive_messages(1, 60)) == ["0"]
    assert "4 messages are lost: they were received and deleted" in caplog.text
    assert await queue.counts_are(3, 0)


@in_memory
async def test_the_default_message_count_is_the_prefetch_count(queue: Queue) -> None:
    await queue.fill(10)
    async with queue.receiver(prefetch_count=4) as receiver:
        assert len(await receiver.receive_messages(None, 60)) == 4
    async with queue.receiver() as receiver:
        assert len(await receiver.receive_messages(None, 60)) == 1


@in_memory
async def test_each_consumed_message_is_counted_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message counts once, whether it is taken from the buffer or comes directly from the queue."""
    await queue.fill(30)
    async with queue.receiver(prefetch_count=10, adaptive_prefetch=True) as receiver:
        await filled(receiver, 10)
        counted: list[int] = []
        buffer, consumed = buffer_of(receiver), Stock.took

        def noted(self: Stock, count: int) -> None:
            counted.append(count)
            consumed(self, count)

        monkeypatch.setattr(Stock, "took", noted)
        assert len(await receive_exactly(receiver, 25)) == 25
        assert sum(counted) == 25
        assert buffer is buffer_of(receiver)


@both
@queue_with(timings=GATHERING)
async def test_concurrent_callers_get_messages_from_the_buffer_in_the_order_of_their_calls(queue: Queue) -> None:
    await queue.fill(20, at=-1)
    async with queue.receiver(prefetch_count=8) as receiver:
        calls = (receiver.receive_messages(wanted, 60) for wanted in (5, 5, 5, 5))
        received = [bodies(messages) for messages in await asyncio.gather(*calls)]
        assert [text for texts in received for text in texts] == [str(number) for number in range(20)]
