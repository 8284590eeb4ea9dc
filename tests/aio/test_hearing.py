"""A receiver that waits hears of messages at once, wherever they are, and does not need its next search.

The tests run in an event loop whose time passes only by jumps (tests/workers/virtual.py), so they measure exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.engine import MOST_SEATS, PartitionSettings
from sbredis.exceptions import MessagingEntityDisabledError, MessagingEntityNotFoundError, ServiceBusError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.receiving import MessageInbox
from tests.aio.gates import Fate, Gate
from tests.aio.queues import Calls, Queue, Waiting, bodies, in_memory, queue_at
from tests.aio.test_many_partitions import PARTITIONS, wide_queue
from tests.waiting import eventually
from tests.workers.virtual import VirtualLoop

pytestmark = in_memory


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


def inbox_of(receiver: ServiceBusReceiver) -> MessageInbox:
    inbox = receiver._inbox
    assert isinstance(inbox, MessageInbox)
    return inbox


def seats_of(receiver: ServiceBusReceiver) -> list[int]:
    """Return the indexes of the partitions that a receiver is at."""
    search = inbox_of(receiver)._seats.search
    assert search is not None
    return search.rotation.seats


def waiting(receiver: ServiceBusReceiver) -> asyncio.Task[list[ServiceBusReceivedMessage]]:
    return asyncio.create_task(receiver.receive_messages(1, 300))


async def settle_in(receiver: ServiceBusReceiver) -> None:
    """Wait until a receiver is at as many partitions as it may, hears the calls of all, and has no search under way."""

    def is_there() -> bool:
        search = receiver._inbox is not None and inbox_of(receiver)._seats.search
        if not search or not search.shared.hears or search.under_way:
            return False
        drivers = inbox_of(receiver).drivers
        return len(drivers) == MOST_SEATS and all(each.calls and not each.under_way for each in drivers)

    await eventually(is_there)


async def send_away(queue: Queue, receiver: ServiceBusReceiver, text: str) -> None:
    """Send a message to the first partition that a receiver is not at."""
    seats = seats_of(receiver)
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
    async with wide_queue(url) as queue, queue.receiver(receive_mode=mode) as receiver:
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
        await eventually(lambda: queue.entity.record.id != before)
        assert await slowest(queue, receiver, 3) < 0.5


@pytest.mark.parametrize("partitions", [1, 3, PARTITIONS])
@pytest.mark.parametrize("change", ["deleted", "disabled", "made anew"])
async def test_an_idle_receiver_learns_within_two_seconds_that_its_queue_has_changed(
    url: str, partitions: int, change: str
) -> None:
    """It has waited for long, and another client changes the queue."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with (
        queue_at(url, partitioned=partitions > 1, partitions=partitions) as queue,
        queue.other_client() as other,
        other.get_queue_sender("q") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("before"))
        receiver, namespace = queue.receiver(), other._connection.namespace
        await receiver.complete_messages(await receiver.receive_messages(1, 60))
        record = await namespace.get_entity("q")
        task = waiting(receiver)
        with loop.jumping(lambda _: None):
            await asyncio.sleep(150)
            began = loop.time()
            if change == "disabled":
                await namespace.update_entity(record, PartitionSettings(status="ReceiveDisabled"))
            else:
                await namespace.delete_entity("q")
            if change == "made anew":
                await namespace.create_entity("q", PartitionSettings(), partitioned=partitions > 1)
                await sender.send_messages(ServiceBusMessage("after"))
                assert bodies(await task) == ["after"]
            else:
                with pytest.raises(
                    MessagingEntityNotFoundError if change == "deleted" else MessagingEntityDisabledError
                ):
                    await task
            assert loop.time() - began < 2


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
            await eventually(lambda: inbox_of(receiver)._seats.departing)
            (leaver,) = inbox_of(receiver)._seats.departing
            gate.open()
            task.cancel()
            await receiver.close()
        assert leaver.has_left
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

        await eventually(is_at_its_seats_only)
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
            await eventually(lambda: queue.counts_are(0, 1))
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


async def test_a_closed_receiver_gives_back_what_it_was_given_when_the_partition_answers_again(url: str) -> None:
    """The answer with the message is lost, and then no call arrives for longer than the closing waits.

    The client gives the message back when a call arrives again, long before its lock ends.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        with Gate(queue.client, "grant") as gate, loop.jumping(lambda _: None):
            gate.fates.append("is not answered")
            never: list[Fate] = ["never arrives"]
            gate.fates.extend(never * 100_000)
            task = waiting(receiver)
            await eventually(lambda: queue.counts_are(0, 1))
            began = loop.time()
            await receiver.close()
            assert 4 < loop.time() - began < 6
            assert await queue.counts_are(0, 1)
            gate.fates.clear()
            await eventually(lambda: queue.counts_are(1, 0))
            assert loop.time() - began < 30
        with pytest.raises(ServiceBusError, match="closed"):
            await task


async def test_a_receiver_is_closed_in_time_if_no_partition_takes_back_its_stock(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for all partitions and all calls together, and the client goes on as long as the locks hold."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with queue_at(url, partitioned=True, partitions=4, lock_duration=300_000) as queue:
        for at in range(4):
            await queue.fill(3, at=at)
        receiver = queue.receiver(prefetch_count=12)
        assert len(await receiver.receive_messages(1, 60, gather=False)) == 1
        await eventually(lambda: queue.counts_are(0, 12))
        with Gate(queue.client, "abandon") as releases, Gate(queue.client, "grant") as grants:
            releases.shut = grants.shut = True
            with loop.jumping(lambda _: None):
                began = loop.time()
                await receiver.close()
                assert 4 < loop.time() - began < 6
            assert await queue.counts_are(0, 12)
        await eventually(lambda: queue.counts_are(11, 1))
    assert "are not released yet" in caplog.text


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


@asynccontextmanager
async def crowd(url: str) -> AsyncIterator[tuple[Queue, list[ServiceBusReceiver], list[Waiting], int]]:
    """Let some receivers of a client wait again after a pause, and find a partition that none of them was at.

    Meanwhile time passes by jumps.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with wide_queue(url, partitions=120) as queue:
        receivers = [queue.receiver() for _ in range(5)]
        tasks = [waiting(receiver) for receiver in receivers]
        for receiver in receivers:
            await settle_in(receiver)
        taken = {place for receiver in receivers for place in seats_of(receiver)}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        with loop.jumping(lambda _: None):
            tasks = [waiting(receiver) for receiver in receivers]
            await asyncio.sleep(1.5)
            yield queue, receivers, tasks, next(place for place in range(120) if place not in taken)


async def test_a_call_of_a_partition_moves_only_two_of_many_receivers(url: str) -> None:
    async with crowd(url) as (queue, receivers, tasks, away):
        began = asyncio.get_running_loop().time()
        await queue.send("a", at=away)
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [bodies(task.result()) for task in done] == [["a"]]
        assert asyncio.get_running_loop().time() - began < 0.5
        await asyncio.sleep(0.5)
        assert sum(away in seats_of(receiver) for receiver in receivers) <= 2
        for task in rest:
            task.cancel()
        await asyncio.wait(rest)


async def test_as_many_receivers_go_to_a_partition_as_it_has_messages_for(url: str) -> None:
    async with crowd(url) as (queue, _, tasks, away):
        began = asyncio.get_running_loop().time()
        await queue.fill(len(tasks), at=away)
        assert [len(messages) for messages in await asyncio.gather(*tasks)] == [1] * len(tasks)
        assert asyncio.get_running_loop().time() - began < 0.5


async def settled(
    receivers: list[ServiceBusReceiver], partitions: int
) -> tuple[list[asyncio.Task[list[ServiceBusReceivedMessage]]], list[int]]:
    """Return a waiting call of each receiver, and the partitions at which none of them has a seat."""
    tasks = [waiting(receiver) for receiver in receivers]
    for receiver in receivers:
        await settle_in(receiver)
    taken = {place for receiver in receivers for place in seats_of(receiver)}
    return tasks, [place for place in range(partitions) if place not in taken]


async def test_a_call_of_a_partition_reaches_the_receiver_that_waits_among_many_that_do_not(url: str) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with wide_queue(url, partitions=256) as queue:
        receivers = [queue.receiver() for _ in range(36)]
        (*tasks, last), free = await settled(receivers, 256)
        with loop.jumping(lambda _: None):
            await asyncio.sleep(1.5)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.sleep(0.1)
            began = loop.time()
            await queue.send("a", at=free[0])
            assert bodies(await last) == ["a"]
            assert loop.time() - began < 0.5


async def test_others_are_told_of_a_partition_if_those_that_were_told_want_nothing_any_more(url: str) -> None:
    """Two receivers are told, and leave before they ask. The third one goes there, although it waits only later."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with wide_queue(url, partitions=256) as queue:
        receivers = [queue.receiver() for _ in range(3)]
        (*tasks, last), free = await settled(receivers, 256)
        away, further = free[:2]
        [(source, search)] = queue.entity.searches.items()
        seats = seats_of(receivers[2])
        with loop.jumping(lambda _: None):
            await asyncio.sleep(1.5)
            for task in tasks:
                task.cancel()
            search.called(away, frozenset({source}))  # they do not know yet that they are cancelled
            assert away not in seats
            await eventually(lambda: away in seats)
            last.cancel()
            await asyncio.wait([*tasks, last])
            search.called(further, frozenset({source}))
            last = waiting(receivers[2])
            await eventually(lambda: further in seats)
        last.cancel()
        await asyncio.wait((last,))
