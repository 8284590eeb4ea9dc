"""Deferred messages are received by their sequence numbers: either all requested messages or none."""

from __future__ import annotations

import asyncio
from itertools import repeat
from typing import Any

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.exceptions import MessageLockLostError, MessageNotFoundError, Outcome, ServiceBusError
from sbredis.model import ServiceBusMessageState, ServiceBusReceiveMode
from tests.aio.diverting import divert
from tests.aio.gates import Gate
from tests.aio.queues import Calls, HandClock, Queue, bodies, both, in_memory, queue_at, queue_with, receive_exactly
from tests.waiting import eventually

modes = pytest.mark.parametrize("mode", list(ServiceBusReceiveMode), ids=["peek-lock", "receive-and-delete"])


async def defer(queue: Queue, count: int, *, at: int | None = None, **options: Any) -> list[int]:
    """Create this number of deferred messages. Return their sequence numbers in the order of sending."""
    numbers = await queue.send(*(str(number) for number in range(count)), at=at, **options)
    async with queue.receiver() as receiver:
        messages = await receive_exactly(receiver, count)
        await asyncio.gather(*(receiver.defer_message(message) for message in messages))
    return numbers


async def check_not_found(receiver: ServiceBusReceiver, numbers: list[int], missing: list[int]) -> None:
    """Check that the call raises an error that names the missing messages, and receives none of the others."""
    with pytest.raises(MessageNotFoundError, match="No message was received") as raised:
        await receiver.receive_deferred_messages(numbers)
    assert (raised.value.outcome, raised.value.entity) == (Outcome.REFUSED, "q")
    assert all(str(number) in raised.value.message for number in missing)


async def are_deferred(queue: Queue, count: int) -> bool:
    counts = await queue.counts()
    return (counts.deferred, counts.locked, counts.active) == (count, 0, 0)


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
@modes
async def test_deferred_messages_are_returned_in_the_requested_order(queue: Queue, mode: ServiceBusReceiveMode) -> None:
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
        (again,) = await receiver.receive_deferred_messages([numbers[3]])  # an abandoned message is deferred again
        assert again.delivery_count == 3


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
@modes
async def test_no_deferred_message_is_received_if_one_is_missing(queue: Queue, mode: ServiceBusReceiveMode) -> None:
    """A number may be unknown, or belong to a missing partition. Its message may be locked, or may not be deferred."""
    numbers = await defer(queue, 6)
    (active,) = await queue.send("active")
    receiver = queue.receiver(receive_mode=mode)
    for missing in (active, numbers[-1] + 1000, 0, -1, 99 << 48, 1 << 70):
        await check_not_found(receiver, [*numbers, missing], [missing])
        await eventually(lambda: deferred_are(queue, 6))
    await check_not_found(receiver, [active, *numbers], [active])
    await eventually(lambda: deferred_are(queue, 6))
    other = queue.receiver()
    (locked,) = await other.receive_deferred_messages(numbers[2])
    await check_not_found(receiver, numbers, [numbers[2]])
    await other.complete_message(locked)
    rest = numbers[:2] + numbers[3:]
    assert {message.delivery_count for message in await receiver.receive_deferred_messages(rest)} == {2}


async def deferred_are(queue: Queue, count: int) -> bool:
    counts = await queue.counts()
    return (counts.deferred, counts.locked) == (count, 0)


@pytest.mark.slow
@in_memory
@modes
async def test_deferred_messages_beyond_the_limit_of_a_call_take_several_calls(
    queue: Queue, mode: ServiceBusReceiveMode
) -> None:
    numbers = await queue.fill(1100)
    async with queue.receiver() as receiver:
        messages = await receive_exactly(receiver, 1100)
        await asyncio.gather(*(receiver.defer_message(message) for message in messages))
    with Calls(queue.transport) as calls:
        found = await queue.receiver(receive_mode=mode).receive_deferred_messages(numbers)
    assert bodies(found) == [str(number) for number in range(1100)]
    assert calls.by_script["receive_deferred"] == 2


@in_memory
async def test_invalid_sequence_numbers_are_refused_and_an_empty_list_makes_no_call(queue: Queue) -> None:
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
async def test_a_cancelled_call_leaves_the_messages_deferred(queue: Queue, mode: ServiceBusReceiveMode) -> None:
    """At every step the messages are returned to the queue, and no delivery count is increased."""
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
            break  # the call that deletes was already under way
    else:
        messages = await receiver.receive_deferred_messages(numbers)
        assert {message.delivery_count for message in messages} == {2}


@both
async def test_a_message_received_by_number_has_the_state_deferred(queue: Queue) -> None:
    """Both the received message and a peek show this state while the message is locked."""
    numbers = await defer(queue, 2)
    await queue.send("active")
    receiver = queue.receiver()
    (message,) = await receiver.receive_deferred_messages(numbers[0])
    assert message.state is ServiceBusMessageState.DEFERRED
    (active,) = await receiver.receive_messages(1, 60)
    assert active.state is ServiceBusMessageState.ACTIVE
    shown = await queue.receiver().peek_messages(10)
    assert {str(each): each.state for each in shown} == {
        "0": ServiceBusMessageState.DEFERRED,
        "1": ServiceBusMessageState.DEFERRED,
        "active": ServiceBusMessageState.ACTIVE,
    }


async def large(queue: Queue, count: int) -> list[int]:
    """Create this number of deferred messages of 300 KB in one partition."""
    numbers = await queue.fill(count, size=300_000)
    async with queue.receiver() as receiver:
        messages = await receive_exactly(receiver, count)
        await asyncio.gather(*(receiver.defer_message(message) for message in messages))
    return numbers


@pytest.mark.slow
@in_memory
@modes
async def test_many_large_deferred_messages_take_several_calls(queue: Queue, mode: ServiceBusReceiveMode) -> None:
    numbers = await large(queue, 20)
    with Gate(queue.client, "receive_deferred") as gate:
        found = await queue.receiver(receive_mode=mode).receive_deferred_messages(numbers)
    assert [message.sequence_number for message in found] == numbers
    assert [int(str(message)) for message in found] == list(range(20))
    # A call returns 1 MB, which is three messages. In the receive-and-delete mode the first call tries to delete
    # all messages.
    deleting = mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
    assert len(gate.arrived) == 7 + deleting
    counts = await queue.counts()
    assert (counts.deferred, counts.locked) == (0, 0 if deleting else 20)


@in_memory
@modes
async def test_a_message_missing_between_two_calls_leaves_all_deferred(url: str, mode: ServiceBusReceiveMode) -> None:
    """The messages that earlier calls have locked are returned, and no delivery count is increased."""
    async with queue_at(url) as queue:
        numbers = await large(queue, 10)
        receiver = queue.receiver(receive_mode=mode)
        with Gate(queue.client, "receive_deferred") as gate:
            gate.shut = True
            task = asyncio.create_task(receiver.receive_deferred_messages(numbers))
            calls = 2 + (mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE)
            for call in range(1, calls):
                await gate.reached(call)
                gate.let_one()
            await eventually(lambda: reached(gate, calls))
            async with queue.other_client() as between:
                (taken,) = await between.get_queue_receiver("q").receive_deferred_messages(numbers[-1])
                gate.open()
                with pytest.raises(MessageNotFoundError, match=str(numbers[-1])):
                    await task
                await eventually(lambda: locked_are(queue, 1))
                await between.get_queue_receiver("q").complete_message(taken)
        (one,) = await receiver.receive_deferred_messages(numbers[0])
        assert one.delivery_count == 2


async def reached(gate: Gate, count: int) -> bool:
    return len(gate.arrived) == count


async def locked_are(queue: Queue, count: int) -> bool:
    return await queue.locked() == count


class Late:
    """Moves the clock while the answers to receive_deferred are on their way."""

    def __init__(self, queue: Queue, clock: HandClock, seconds: list[float]) -> None:
        self.seconds = seconds
        transport = queue.transport
        call = transport.call

        async def slowly(script: Any, *arguments: Any, **options: Any) -> Any:
            reply = await call(script, *arguments, **options)
            if script.name == "receive_deferred" and self.seconds:
                clock.move(self.seconds.pop(0))
            return reply

        divert(transport, slowly)


@pytest.mark.parametrize(("partitioned", "deletes"), [(False, False), (True, False), (True, True)])
@queue_with(lock_duration=30_000)
async def test_a_deferred_message_with_an_ended_lock_is_requested_again(
    queue: Queue, clock: HandClock, deletes: bool
) -> None:
    """The second call gets a lock that lasts long enough. If deleting takes several calls, the messages are locked
    first.
    """
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE if deletes else ServiceBusReceiveMode.PEEK_LOCK
    numbers = await defer(queue, 3)
    receiver = queue.receiver(receive_mode=mode)
    Late(queue, clock, [31])
    found = await receiver.receive_deferred_messages(numbers)
    assert bodies(found) == ["0", "1", "2"]
    if not deletes:
        await receiver.complete_messages(found)
    assert (await queue.counts()).bytes == 0


@both
@queue_with(lock_duration=30_000)
async def test_deferred_messages_whose_locks_end_too_soon_raise_an_error(queue: Queue, clock: HandClock) -> None:
    """The messages stay deferred."""
    numbers = await defer(queue, 2)
    Late(queue, clock, [31.0] * 20)
    with pytest.raises(MessageLockLostError, match="fewer messages at once") as raised:
        await queue.receiver().receive_deferred_messages(numbers)
    assert (raised.value.entity, raised.value.outcome) == ("q", Outcome.REFUSED)
    await eventually(lambda: deferred_are(queue, 2))


@in_memory
async def test_messages_locked_by_an_unanswered_call_are_given_back(queue: Queue) -> None:
    """They are returned without waiting for the end of their locks, and no delivery count is increased."""
    numbers = await defer(queue, 2)
    receiver = queue.receiver()
    with Gate(queue.client, "receive_deferred") as gate:
        gate.fates.extend(repeat("is not answered", 1000))
        with pytest.raises(ServiceBusError) as raised:
            await receiver.receive_deferred_messages(numbers, timeout=3)
    assert raised.value.outcome is Outcome.UNKNOWN
    await eventually(lambda: deferred_are(queue, 2))
    assert {message.delivery_count for message in await receiver.receive_deferred_messages(numbers)} == {2}
