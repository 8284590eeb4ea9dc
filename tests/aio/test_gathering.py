"""Gathering more messages for a short time, and closing a receiver without leaving tasks or locks behind."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.model import ServiceBusReceiveMode, hold_of
from tests.aio.queues import Calls, both, queue_at
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("a receiver gathers from several nodes")


@pytest.mark.slow
@both
async def test_gathering_ends_before_the_first_lock_lapses(url: str, partitioned: bool) -> None:
    """In this test messages keep arriving for longer than a lock lasts."""
    async with queue_at(url, partitioned=partitioned, lock_duration=8_000) as queue:
        receiver = queue.receiver()
        sent = 0

        async def trickle() -> None:
            nonlocal sent
            while True:
                await queue.send("a")
                sent += 1
                await asyncio.sleep(0.02)

        trickling = asyncio.ensure_future(trickle())
        try:
            for _ in range(2):
                messages = await receiver.receive_messages(1000, 60)
                numbers = [message.sequence_number for message in messages]
                assert 0 < len(numbers) == len(set(numbers))
                now = queue.client._connection.clock.now()
                assert not any(hold_of(message).lock_expired(now) for message in messages)
                assert {message.delivery_count for message in messages} == {1}
                await receiver.complete_messages(messages)
        finally:
            trickling.cancel()


@pytest.mark.slow
async def test_a_receiver_closed_while_it_subscribes_leaves_nothing_behind(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue:
        for turns in range(0, 60, 3):
            receiver = queue.receiver()
            receiving = asyncio.ensure_future(receiver.receive_messages(1, 60))
            for _ in range(turns):
                await asyncio.sleep(0)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            await receiver.close()
        listening = queue.transport._listening
        await eventually(lambda: not listening._channels)


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
async def test_a_receive_with_gather_false_fetches_no_further_messages(url: str, mode: ServiceBusReceiveMode) -> None:
    """In the receive-and-delete mode, messages that are fetched without a waiting caller would be lost."""
    async with queue_at(url, partitioned=True) as queue:
        for place in range(len(queue.partitions)):
            await queue.send(*"abcde", at=place)
        receiver = queue.receiver(receive_mode=mode)
        sent, received = 5 * len(queue.partitions), 0
        for _ in range(3):
            if received == sent:
                break  # the first call can get all messages, and another would wait in vain
            with Calls(queue.transport) as calls:
                received += len(await receiver.receive_messages(50, 20, gather=False))
                await asyncio.sleep(0)
            # one look at each partition before and after the client listens, and one receive call
            assert calls.by_script["grant"] - 2 * len(queue.partitions) <= 1
        await receiver.close()
        counts = await queue.counts()
        locked = received if mode is ServiceBusReceiveMode.PEEK_LOCK else 0
        assert (counts.active + received, counts.locked) == (sent, locked)
