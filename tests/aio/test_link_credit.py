"""The credit that an application gives to a receiver, as AMQP's link credit: it brings messages without a call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceiveMode
from tests.aio.queues import Calls, Queue, bodies, queue_at
from tests.waiting import eventually


def kept(receiver: ServiceBusReceiver) -> int:
    """Return the number of messages that wait in a receiver."""
    return 0 if receiver._inbox is None else len(receiver._inbox.buffer)


async def test_credit_brings_messages_without_a_call_and_no_more_than_it_says(queue: Queue) -> None:
    receiver = queue.receiver()
    await receiver.add_credit(3)
    for body in "abcde":
        await queue.send(body)
    await eventually(lambda: kept(receiver) == 3)
    assert await queue.counts_are(2, 3)
    assert bodies(await receiver.receive_messages(3, gather=False)) == ["a", "b", "c"]


async def test_credit_is_what_is_left_and_none_is_a_pause(queue: Queue) -> None:
    """A second grant replaces what the first one has left."""
    receiver = queue.receiver()
    await receiver.add_credit(5)
    await receiver.add_credit(1)
    await receiver.drain()
    await queue.send("a", "b", "c")
    assert await receiver.drain() == 0
    await receiver.add_credit(1)
    await receiver.add_credit(1)
    await eventually(lambda: kept(receiver) == 1)
    assert await receiver.drain() == 1
    await receiver.add_credit(0)
    assert await queue.counts_are(2, 1)
    await receiver.add_credit(2)
    await eventually(lambda: kept(receiver) == 3)


async def test_a_drain_withdraws_credit_from_all_partitions_and_what_came_stays(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue:
        receiver, count = queue.receiver(), len(queue.partitions)
        await receiver.add_credit(4 * count)
        for place in range(count):
            await queue.send("a", at=place)
        await eventually(lambda: kept(receiver) == count)
        assert await receiver.drain() == count
        for place in range(count):
            await queue.send("b", at=place)
        assert await receiver.drain() == count
        assert bodies(await receiver.receive_messages(count, gather=False)) == ["a"] * count
        assert await queue.counts_are(count, count)
        assert [*await asyncio.gather(receiver.drain(), receiver.drain())] == [0, 0]


async def test_a_drain_brings_what_is_ready_up_to_the_credit(url: str) -> None:
    """A credit that was given a moment ago is used, although no partition has heard of it."""
    async with queue_at(url, partitioned=True) as queue:
        for place in range(len(queue.partitions)):
            await queue.send("a", "b", at=place)
        receiver, stored = queue.receiver(), 2 * len(queue.partitions)
        await receiver.add_credit(2)
        assert await receiver.drain() == 2
        assert await queue.counts_are(stored - 2, 2)
        await receiver.add_credit(stored)
        assert await receiver.drain() == stored
        assert await queue.counts_are(0, stored)
        assert len(await receiver.receive_messages(stored, gather=False)) == stored


async def test_callers_work_beside_credit(queue: Queue) -> None:
    """They get messages without credit, and a message that comes for one of them uses credit if there is some."""
    receiver = queue.receiver()
    await receiver.add_credit(0)
    waiting = asyncio.create_task(receiver.receive_messages(1, 60))
    await queue.send("a")
    assert bodies(await waiting) == ["a"]
    await receiver.add_credit(2)
    waiting = asyncio.create_task(receiver.receive_messages(1, 60))
    await queue.send("b", "c", "d")
    assert bodies(await waiting) == ["b"]
    await eventually(lambda: kept(receiver) == 1)
    assert await receiver.drain() == 1
    assert bodies(await receiver.receive_messages(1, 60)) == ["c"]
    assert await queue.counts_are(1, 3)


async def test_credit_brings_messages_that_are_deleted_when_they_are_received(queue: Queue) -> None:
    receiver = queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    await receiver.add_credit(2)
    await queue.send("a", "b", "c")
    await eventually(lambda: kept(receiver) == 2)
    assert await receiver.drain() == 2
    assert await queue.counts_are(1, 0)


@pytest.mark.parametrize(
    ("count", "error"), [(-1, ValueError), (50_001, ValueError), (1.5, TypeError), ("1", TypeError)]
)
async def test_wrong_credit_is_refused_before_anything_is_sent(url: str, count: Any, error: type[Exception]) -> None:
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        await receiver.add_credit(1)
        await receiver.drain()
        with Calls(queue.transport) as calls:
            with pytest.raises(error, match="count"):
                await receiver.add_credit(count)
            assert not calls.by_script
        await queue.send("a")
        assert await receiver.drain() == 0


async def test_a_closed_receiver_takes_no_credit_and_cannot_be_drained(queue: Queue) -> None:
    receiver = queue.receiver()
    await receiver.add_credit(1)
    await receiver.close()
    for call in (receiver.add_credit(1), receiver.drain()):
        with pytest.raises(ValueError, match="closed"):
            await call
    await queue.send("a")
    assert await queue.counts_are(1, 0)


async def test_a_drain_fails_when_its_receiver_is_closed(queue: Queue) -> None:
    receiver = queue.receiver()
    await receiver.add_credit(1)
    draining = asyncio.create_task(receiver.drain())
    await asyncio.sleep(0)  # the drain has begun
    await receiver.close()
    try:
        assert await draining == 0  # the partition has answered before
    except ServiceBusError as error:
        assert "closed" in str(error)  # noqa: PT017 -- either may be first


async def test_the_receiver_of_a_session_takes_no_credit(url: str) -> None:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("with-sessions", requires_session=True)
        async with client.get_queue_receiver("with-sessions", session_id="s") as receiver:
            for call in (receiver.add_credit(1), receiver.drain()):
                with pytest.raises(ValueError, match="session"):
                    await call
