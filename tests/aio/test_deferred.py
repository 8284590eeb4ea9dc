"""Deferred messages: received by their numbers, all that were named or none."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.exceptions import MessageNotFoundError, Outcome
from sbredis.model import ServiceBusReceiveMode
from tests.aio.standing import Calls, HandClock, Queue, bodies, both, in_memory, queue_at
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

modes = pytest.mark.parametrize("mode", list(ServiceBusReceiveMode), ids=["peek-lock", "receive-and-delete"])


async def defer(queue: Queue, count: int, *, at: int | None = None) -> list[int]:
    """So many deferred messages; their numbers, in the order in which they were sent."""
    numbers = await queue.send(*(str(number) for number in range(count)), at=at)
    async with queue.receiver() as receiver:
        messages = await receiver.receive_messages(count, 20)
        await asyncio.gather(*(receiver.defer_message(message) for message in messages))
    return numbers


async def missed(receiver: ServiceBusReceiver, numbers: list[int], missing: list[int]) -> None:
    """None is received, as these are not there."""
    with pytest.raises(MessageNotFoundError, match="None was received") as raised:
        await receiver.receive_deferred_messages(numbers)
    assert (raised.value.outcome, raised.value.entity) == (Outcome.REFUSED, "q")
    assert all(str(number) in raised.value.message for number in missing)


async def are_deferred(queue: Queue, count: int) -> bool:
    counts = await queue.counts()
    return (counts.deferred, counts.locked, counts.active) == (count, 0, 0)


@both
@modes
async def test_deferred_messages_are_received_by_number_in_the_order_in_which_they_were_named(
    url: str, partitioned: bool, mode: ServiceBusReceiveMode
) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        numbers = await defer(queue, 7)
        receiver = queue.receiver(receive_mode=mode)
        (one,) = await receiver.receive_deferred_messages(numbers[3])
        named = [numbers[place] for place in (5, 0, 6, 1, 5)]
        messages = await receiver.receive_deferred_messages(named)
        assert bodies([one, *messages]) == ["3", "5", "0", "6", "1"]
        assert [message.sequence_number for message in messages] == named[:4]
        assert {message.delivery_count for message in messages} == {2}
        counts = await queue.counts()
        if mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            assert (counts.deferred, counts.locked) == (2, 0)
            assert all(message.lock_token is None for message in messages)
            with pytest.raises(ValueError, match="received and deleted"):
                await receiver.complete_message(messages[0])
        else:
            assert (counts.deferred, counts.locked) == (2, 5)
            await asyncio.gather(*(receiver.complete_message(message) for message in messages))
            await receiver.abandon_message(one)
            (again,) = await receiver.receive_deferred_messages([numbers[3]])  # back to where it was
            assert again.delivery_count == 3


@both
@modes
async def test_nothing_is_received_if_one_is_missing(url: str, partitioned: bool, mode: ServiceBusReceiveMode) -> None:
    """Unknown, or not deferred, or locked, or of a partition that does not exist."""
    async with queue_at(url, partitioned=partitioned) as queue:
        numbers = await defer(queue, 6)
        (active,) = await queue.send("active")
        receiver = queue.receiver(receive_mode=mode)
        for missing in (active, numbers[-1] + 1000, 0, -1, 99 << 48, 1 << 70):
            await missed(receiver, [*numbers, missing], [missing])
            await eventually(lambda: deferred_are(queue, 6))
        await missed(receiver, [active, *numbers], [active])
        await eventually(lambda: deferred_are(queue, 6))
        other = queue.receiver()
        (locked,) = await other.receive_deferred_messages(numbers[2])
        await missed(receiver, numbers, [numbers[2]])
        await other.complete_message(locked)
        rest = numbers[:2] + numbers[3:]
        assert {message.delivery_count for message in await receiver.receive_deferred_messages(rest)} == {2}


async def deferred_are(queue: Queue, count: int) -> bool:
    counts = await queue.counts()
    return (counts.deferred, counts.locked) == (count, 0)


@in_memory
@modes
async def test_more_than_a_call_carries_are_received(url: str, mode: ServiceBusReceiveMode) -> None:
    async with queue_at(url) as queue:
        numbers = await queue.fill(1100)
        async with queue.receiver() as receiver:
            messages = await receiver.receive_messages(1100, 20)
            await asyncio.gather(*(receiver.defer_message(message) for message in messages))
        with Calls(queue.transport) as calls:
            found = await queue.receiver(receive_mode=mode).receive_deferred_messages(numbers)
        assert bodies(found) == [str(number) for number in range(1100)]
        assert calls.by_script["receive_deferred"] == 2


@both
async def test_a_deferred_message_whose_lock_lapsed_is_deferred_again(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue:
        (number,) = await defer(queue, 1)
        receiver = queue.receiver()
        await receiver.receive_deferred_messages(number)
        clock.move(31)
        assert await receiver.receive_messages(1, 0.05) == []
        (message,) = await receiver.receive_deferred_messages(number)
        assert message.delivery_count == 3


@both
async def test_a_dead_letter_can_be_deferred_as_well(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        await queue.send("a", at=-1)
        async with queue.receiver() as receiver:
            (message,) = await receiver.receive_messages(1, 20)
            await receiver.dead_letter_message(message, "why")
        letters = queue.receiver(sub_queue="deadletter")
        (letter,) = await letters.receive_messages(1, 20)
        await letters.defer_message(letter)
        assert await letters.receive_messages(1, 0.05) == []
        (again,) = await letters.receive_deferred_messages([letter.sequence_number])
        assert again.dead_letter_reason == "why"
        await letters.complete_message(again)
        await missed(letters, [letter.sequence_number], [letter.sequence_number])


@in_memory
async def test_none_is_asked_for_where_none_is_named_and_nonsense_is_refused(url: str) -> None:
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        with Calls(queue.transport) as calls:
            assert await receiver.receive_deferred_messages([]) == []
            for nonsense in ("1", b"1", 1.0, None, [1, "2"], [True], {1}):
                with pytest.raises(TypeError):
                    await receiver.receive_deferred_messages(nonsense)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="timeout"):
                await receiver.receive_deferred_messages(1, timeout=-1)
        assert not calls.by_script


@both
@modes
async def test_a_caller_that_goes_away_leaves_them_deferred(
    url: str, partitioned: bool, mode: ServiceBusReceiveMode
) -> None:
    """Whenever it goes: what it would have got is given back, and no delivery counted."""
    async with queue_at(url, partitioned=partitioned) as queue:
        numbers = await defer(queue, 3)
        receiver = queue.receiver(receive_mode=mode)
        for turns in range(0, 30, 2):
            task = asyncio.create_task(receiver.receive_deferred_messages(numbers))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            (got,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(got, list):
                assert len(got) == 3
                break
            if mode is ServiceBusReceiveMode.PEEK_LOCK:
                await eventually(lambda: are_deferred(queue, 3))
            elif not await are_deferred(queue, 3):
                break  # it was on its way already
        else:
            messages = await receiver.receive_deferred_messages(numbers)
            assert {message.delivery_count for message in messages} == {2}
