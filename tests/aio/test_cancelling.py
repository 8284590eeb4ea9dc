"""Calls that are cancelled at any step: no message is lost or stays locked, and no delivery count is increased."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from sbredis.aio import AutoLockRenewer, ServiceBusReceiver
from sbredis.exceptions import MessageAlreadySettled
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of
from tests.aio.queues import Queue, bodies, both, in_memory, queue_at, receive_exactly
from tests.waiting import eventually

STEPS = range(41)


async def after(steps: int, done: Awaitable[Any]) -> Any:
    """Cancel a call after a number of turns of the event loop. Return its result, or None if it was cancelled."""
    task = asyncio.ensure_future(done)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    return None if task.cancelled() else task.result()


@pytest.mark.slow
@pytest.mark.everywhere("the partitions lie on several nodes")
@both
@pytest.mark.parametrize("prefetch", [0, 2])
async def test_a_message_survives_a_cancelled_receive(queue: Queue, prefetch: int) -> None:
    """Either the caller has the message, or another receiver can receive it immediately."""
    await queue.send("a", at=-1)
    messages: list[ServiceBusReceivedMessage] = []
    for steps in STEPS[:: 2 + prefetch]:
        async with queue.receiver(prefetch_count=prefetch) as receiver:
            messages = await after(steps, receiver.receive_messages(3, 60)) or []
            if messages:
                await receiver.abandon_message(messages[0])
                break
            if not prefetch:
                await eventually(lambda: queue.counts_are(1, 0))
        assert await queue.counts_are(1, 0)
        (lock,) = await queue.take(at=-1)
        await queue.abandon([lock], at=-1, counted=False)
    async with queue.receiver() as receiver:
        (message,) = await receiver.receive_messages(1, 60)
        assert message.delivery_count == 1 + bool(messages)


@pytest.mark.slow
@both
async def test_the_next_call_of_a_receiver_gets_the_messages_of_a_cancelled_one(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        await queue.fill(60, at=-1)
        seen: list[str] = []
        for steps in STEPS:
            seen += bodies(await after(steps, receiver.receive_messages(1, 60)) or [])
        await eventually(lambda: queue.counts_are(60 - len(seen), len(seen)))
        rest = await receive_exactly(receiver, 60 - len(seen))
        assert sorted([*seen, *bodies(rest)], key=int) == [str(number) for number in range(60)]
        assert {message.delivery_count for message in rest} == {1}


@pytest.mark.slow
@both
async def test_a_cancelled_receive_and_delete_keeps_its_messages_for_the_next_call(queue: Queue) -> None:
    """A deleted message cannot be returned to the queue, so the receiver keeps it for its next call."""
    async with queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        await queue.fill(60, at=-1)
        seen: list[str] = []
        for steps in STEPS:
            seen += bodies(await after(steps, receiver.receive_messages(1, 60)) or [])
        seen += bodies(await receive_exactly(receiver, 60 - len(seen)))
        assert sorted(seen, key=int) == [str(number) for number in range(60)]
        assert (await queue.counts()).bytes == 0


@pytest.mark.slow
@both
async def test_messages_of_a_cancelled_call_go_to_the_next_waiting_call(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        for steps in STEPS[::4]:
            first = asyncio.create_task(receiver.receive_messages(1, 60))
            second = asyncio.create_task(receiver.receive_messages(1, 60))
            await asyncio.sleep(0)
            await queue.send("a", at=-1)
            for _ in range(steps):
                await asyncio.sleep(0)
            first.cancel()
            (got,) = await asyncio.gather(first, return_exceptions=True)
            if isinstance(got, list):
                await receiver.complete_message(got[0])
                second.cancel()
                await asyncio.gather(second, return_exceptions=True)
            else:
                (message,) = await second
                assert message.delivery_count == 1
                await receiver.complete_message(message)
            await eventually(lambda: queue.counts_are(0, 0))


@pytest.mark.slow
@both
@pytest.mark.parametrize("what", ["complete", "abandon", "defer", "dead-letter"])
async def test_a_message_stays_settleable_when_settling_is_cancelled(url: str, partitioned: bool, what: str) -> None:
    """The message is either settled or can still be settled."""
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        ways = {
            "complete": receiver.complete_message,
            "abandon": receiver.abandon_message,
            "defer": receiver.defer_message,
            "dead-letter": receiver.dead_letter_message,
        }
        await queue.fill(len(STEPS), at=-1)
        messages = await receive_exactly(receiver, len(STEPS))
        for steps, message in zip(STEPS, messages, strict=True):
            await after(steps, ways[what](message))
        await eventually(lambda: _is_idle(receiver))
        for message in messages:
            if hold_of(message).settled:
                with pytest.raises(MessageAlreadySettled):
                    await receiver.complete_message(message)
            else:
                await ways[what](message)
        assert await queue.locked() == 0
        counts = await queue.counts()
        left = {"complete": 0, "abandon": counts.active, "defer": counts.deferred, "dead-letter": counts.dead_active}
        assert left[what] == (0 if what == "complete" else len(STEPS))


@pytest.mark.slow
@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_cancelled_completing_settles_all_messages_or_none(queue: Queue, receiver: ServiceBusReceiver) -> None:
    for steps in STEPS[::3]:
        await queue.fill(4, at=-1)
        messages = await receive_exactly(receiver, 4)
        renewals = [asyncio.create_task(receiver.renew_message_lock(message)) for message in messages[: steps % 3]]
        for _ in range(steps % 5):
            await asyncio.sleep(0)
        await after(steps, receiver.complete_messages(messages))
        await asyncio.gather(*renewals, return_exceptions=True)
        await eventually(lambda: _is_idle(receiver))
        assert len({hold_of(message).settled for message in messages}) == 1
        if not hold_of(messages[0]).settled:
            await receiver.complete_messages(messages)
        assert (await queue.counts()).bytes == 0


def _is_idle(receiver: ServiceBusReceiver) -> bool:
    entity = receiver._lookup.found
    assert entity is not None
    partition_clients = [entity.partition_client(number) for number in entity.numbers]
    waiting: list[Any] = []
    for each in partition_clients:
        waiting += (jobs for lane in each._settling.values() for jobs, _ in lane._all())
        waiting += (jobs for lane in each._calling.values() for jobs, _ in lane._all())
    return not any(waiting)


@pytest.mark.slow
@both
async def test_a_message_stays_settleable_when_renewing_is_cancelled(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        await queue.fill(len(STEPS), at=-1)
        messages = await receive_exactly(receiver, len(STEPS))
        for steps, message in zip(STEPS, messages, strict=True):
            await after(steps, receiver.renew_message_lock(message))
            if steps % 2:
                await receiver.complete_message(message)
        await asyncio.gather(*(receiver.complete_message(message) for message in messages[::2]))
        assert (await queue.counts()).bytes == 0


@both
async def test_cancelled_peeking_and_purging_leave_a_consistent_queue(url: str, partitioned: bool) -> None:
    """Later peeks show no message twice, and deleted messages are not restored."""
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        await queue.fill(10, at=-1)
        for steps in STEPS[::5]:
            await after(steps, receiver.peek_messages(1))
        shown = await receiver.peek_messages(10)
        assert bodies(shown) == sorted(bodies(shown), key=int)
        for steps in STEPS[::5]:
            await after(steps, receiver.purge_messages())
        await receiver.purge_messages()
        assert (await queue.counts()).bytes == 0


@pytest.mark.slow
@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_a_cancelled_close_continues_in_the_background(queue: Queue) -> None:
    """A second close waits until the cancelled one has ended."""
    await queue.fill(5, at=-1)
    for steps in STEPS[::6]:
        receiver = queue.receiver(prefetch_count=5)
        await receiver.__aenter__()
        await eventually(lambda: queue.counts_are(0, 5))
        task = asyncio.create_task(receiver.receive_messages(7, 60))
        await asyncio.sleep(0)
        await after(steps, receiver.close())
        await receiver.close()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and task.exception() is None:
            for message in task.result():
                queue.entity.partition_client(queue.entity.numbers[-1]).give_back(hold_of(message))
        await eventually(lambda: queue.counts_are(5, 0))
        assert await queue.waiters() == 0


@pytest.mark.slow
@in_memory
async def test_closing_the_client_leaves_no_task_at_any_step(url: str) -> None:
    """This holds at any step of receiving and renewing. ``queue_at`` checks that no task is left."""
    for steps in STEPS[::3]:
        async with queue_at(f"{url}-{steps}", partitioned=True) as queue:
            await queue.fill(5, at=-1)
            renewer = AutoLockRenewer()
            receiver = queue.receiver(prefetch_count=3, auto_lock_renewer=renewer)
            task = asyncio.create_task(receiver.receive_messages(2, 60))
            waiting = asyncio.create_task(queue.receiver().receive_messages(9, 60))
            for _ in range(steps):
                await asyncio.sleep(0)
            await queue.client.close()
            results = await asyncio.gather(task, waiting, return_exceptions=True)
            assert not any(isinstance(result, asyncio.CancelledError) for result in results)
            await renewer.close()


@both
async def test_a_timeout_of_the_caller_cancels_a_receive_without_loss(url: str, partitioned: bool) -> None:
    """``asyncio.timeout`` around a receive is a cancellation like any other."""
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await receiver.receive_messages(1, 60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(receiver), 0.02)
        await queue.send("a", at=-1)
        (message,) = await receiver.receive_messages(1, 60)
        assert message.delivery_count == 1
