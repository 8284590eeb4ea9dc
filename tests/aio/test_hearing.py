"""A receiver that waits hears of messages at once, wherever they are, and does not need its next search.

The tests run in an event loop whose time passes only by jumps (tests/workers/virtual.py), so they measure exactly.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.engine import MOST_SEATS, PartitionSettings
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.receiving import MessageInbox
from tests.aio.gates import Gate
from tests.aio.queues import Calls, Queue, bodies, in_memory, queue_at
from tests.aio.test_many_partitions import PARTITIONS, wide_queue
from tests.waiting import eventually
from tests.workers.virtual import VirtualLoop

pytestmark = [pytest.mark.anyio, in_memory]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


def inbox_of(receiver: ServiceBusReceiver) -> MessageInbox:
    inbox = receiver._inbox
    assert isinstance(inbox, MessageInbox)
    return inbox


def waiting(receiver: ServiceBusReceiver) -> asyncio.Task[list[ServiceBusReceivedMessage]]:
    return asyncio.create_task(receiver.receive_messages(1, 300))


async def settle_in(receiver: ServiceBusReceiver) -> None:
    """Wait until a receiver is at as many partitions as it may, hears the calls of all, and has no search under way."""

    def is_there() -> bool:
        search = receiver._inbox is not None and inbox_of(receiver)._seats.search
        if not search or not search._search.hears or search.under_way:
            return False
        drivers = inbox_of(receiver).drivers
        return len(drivers) == MOST_SEATS and all(each.calls and not each.under_way for each in drivers)

    await eventually(is_there, 10)


async def send_away(queue: Queue, receiver: ServiceBusReceiver, text: str) -> None:
    """Send a message to the first partition that a receiver is not at."""
    seats = inbox_of(receiver)._seats.rotation.seats
    await queue.send(text, at=next(place for place in range(PARTITIONS) if place not in seats))


async def slowest(queue: Queue, receiver: ServiceBusReceiver, count: int) -> float:
    """Send messages, each where the receiver is not, when the last one has come. Return the longest wait for one."""
    loop, longest = asyncio.get_running_loop(), 0.0
    assert isinstance(loop, VirtualLoop)
    task = waiting(receiver)
    await settle_in(receiver)
    with loop.jumping(lambda _: None):
        await asyncio.sleep(1.5)  # the next search is far away
        for number in range(count):
            began = loop.time()
            await send_away(queue, receiver, str(number))
            assert bodies(await task) == [str(number)]
            longest = max(longest, loop.time() - began)
            task = waiting(receiver)
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    return longest


@pytest.mark.parametrize("mode", ["peeklock", "receiveanddelete"])
async def test_a_seat_is_free_a_moment_after_the_message_of_its_partition(url: str, mode: str) -> None:
    async with (
        wide_queue(url) as queue,
        queue.receiver(receive_mode=mode) as receiver,
    ):
        assert await slowest(queue, receiver, 3 * MOST_SEATS) < 0.5


async def test_the_calls_of_a_queue_are_heard_that_was_deleted_and_created_again(url: str) -> None:
    async with wide_queue(url) as queue, queue.receiver() as receiver:
        task = waiting(receiver)
        await settle_in(receiver)
        task.cancel()
        await asyncio.wait((task,))
        namespace, before = queue.client._connection.namespace, queue.entity.record.id
        await namespace.delete_entity("q")
        await namespace.create_entity("q", PartitionSettings(), partitioned=True, partitions=PARTITIONS)
        with suppress(MessagingEntityNotFoundError):  # the client notices it now
            await receiver.receive_messages(1, 0)
        await eventually(lambda: queue.entity.record.id != before, 10)
        assert await slowest(queue, receiver, 3) < 0.5


async def test_a_call_for_what_is_there_does_not_wait_for_a_partition_that_its_receiver_has_left(url: str) -> None:
    """Seats that have been at partitions with messages for a second go on."""
    async with wide_queue(url, lock_duration=300_000) as queue, queue.receiver() as receiver:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        assert await receiver.receive_messages(1, 0) == []
        with loop.jumping(lambda _: None):
            assert await receiver.receive_messages(1, 1.3) == []
            for place in range(PARTITIONS):
                await queue.fill(150 if place % 2 else 1, at=place)
            there = 151 * PARTITIONS // 2 - len(await receiver.receive_messages(5, 1, gather=False))
            await asyncio.sleep(1.1)
            began = loop.time()
            assert len(await receiver.receive_messages(there + 1, 0)) == there
            assert loop.time() - began < 1


async def test_a_receiver_that_is_closed_while_a_seat_moves_leaves_nothing_behind(url: str) -> None:
    async with wide_queue(url) as queue:
        receiver = queue.receiver(receive_mode="receiveanddelete")
        task = waiting(receiver)
        await settle_in(receiver)
        with Gate(queue.client, "grant") as gate:
            gate.shut = True
            await send_away(queue, receiver, "a")
            await eventually(lambda: inbox_of(receiver)._seats.departing, 10)
            (leaver,) = inbox_of(receiver)._seats.departing
            gate.open()
            task.cancel()
            await receiver.close()
        assert leaver._left
        assert leaver._member is None
        assert await queue.waiters() == 0


async def test_a_partition_that_a_receiver_leaves_in_trouble_gets_its_credit_back(url: str) -> None:
    """Otherwise nobody else would get what comes there, as long as the credit lasts."""
    async with wide_queue(url) as queue, queue.receiver() as receiver:
        task = waiting(receiver)
        await settle_in(receiver)
        with Gate(queue.client, "grant") as gate:
            gate.fates.extend("never arrives" for _ in range(6))
            await send_away(queue, receiver, "a")
            assert bodies(await task) == ["a"]
            assert not gate.fates
        task = waiting(receiver)

        async def is_at_its_seats_only() -> bool:
            return not inbox_of(receiver)._seats.departing and await queue.waiters() == MOST_SEATS

        await eventually(is_at_its_seats_only, 10)
        task.cancel()
        await asyncio.wait((task,))


async def test_a_receiver_that_is_closed_in_trouble_gives_back_what_it_was_given(url: str) -> None:
    """The answer with the message is lost, and the first call of the closing fails."""
    async with queue_at(url) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        with Gate(queue.client, "grant") as gate:
            gate.fates.extend(["is not answered", "never arrives"])
            task = waiting(receiver)
            await eventually(lambda: queue.counts_are(0, 1), 10)
            await receiver.close()
            assert not gate.fates
        assert await queue.counts_are(1, 0)
        with pytest.raises(ServiceBusError, match="closed"):
            await task


@pytest.mark.parametrize("mode", ["peeklock", "receiveanddelete"])
async def test_a_receiver_is_closed_in_time_if_a_partition_does_not_answer(
    url: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log tells of it."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with queue_at(url) as queue:
        receiver = queue.receiver(receive_mode=mode)
        with Gate(queue.client, "grant") as gate:
            gate.shut = True
            task = waiting(receiver)
            await gate.reached(1)
            with loop.jumping(lambda _: None):
                began = loop.time()
                await receiver.close()
                assert 4 < loop.time() - began < 6
            with pytest.raises(ServiceBusError, match="closed"):
                await task
    assert "a receiver was closed without it" in caplog.text


async def test_receivers_that_wait_search_together_now_and_then(url: str) -> None:
    async with wide_queue(url) as queue:
        receivers = [queue.receiver() for _ in range(30)]
        tasks = [waiting(receiver) for receiver in receivers]
        for receiver in receivers:
            await settle_in(receiver)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        with loop.jumping(lambda _: None):
            await asyncio.sleep(10.5)  # the first search of each has begun at another time
            with Calls(queue.transport) as calls:
                await asyncio.sleep(30)
            assert 2 * PARTITIONS <= calls.by_script["find_ready"] <= 4 * PARTITIONS
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
