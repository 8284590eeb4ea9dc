"""Settling: only the holder of the lock can complete, abandon, defer or dead-letter a message, and only once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
    OperationTimeoutError,
    Outcome,
)
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of
from tests.aio.diverting import divert
from tests.aio.gates import Gate
from tests.aio.queues import Calls, HandClock, Queue, at_rest, bodies, both, in_memory, one, queue_at, receive_exactly

Settle = Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Awaitable[Any]]
WAYS: dict[str, Settle] = {
    "complete": lambda receiver, message: receiver.complete_message(message),
    "abandon": lambda receiver, message: receiver.abandon_message(message),
    "defer": lambda receiver, message: receiver.defer_message(message),
    "dead-letter": lambda receiver, message: receiver.dead_letter_message(message),
}
SETTLEMENTS = WAYS | {
    "complete many": lambda receiver, message: receiver.complete_messages([message]),
    "renew": lambda receiver, message: receiver.renew_message_lock(message),
}


async def refused(queue: Queue, done: Awaitable[Any], error: type[Exception], text: str = "") -> Exception:
    """Check that a call is refused with this error, makes no call to the server and changes nothing."""
    before = await queue.stored()
    with Calls(queue.transport) as calls, pytest.raises(error, match=text or None) as raised:
        await done
    assert not calls.by_script.keys() - {"grant"}  # a receiver reports what it has seen
    assert await queue.stored() == before
    return raised.value


@in_memory
async def test_a_message_can_be_settled_if_the_caller_of_its_settlement_went_before_the_call(url: str) -> None:
    """Two calls are under way, so the settlement waits for the next one."""
    async with queue_at(url) as queue, queue.receiver() as receiver:
        await queue.fill(3)
        *others, message = await receive_exactly(receiver, 3)
        with Gate(queue.client, "complete") as gate:
            gate.shut = True
            settling: list[asyncio.Task[None]] = []
            for other in others:
                settling.append(asyncio.create_task(receiver.complete_message(other)))
                await gate.reached(len(settling))
            forsaken = asyncio.create_task(receiver.complete_message(message))
            await asyncio.sleep(0)
            assert hold_of(message).settled
            forsaken.cancel()
            await asyncio.wait((forsaken,))
            settling.append(asyncio.create_task(receiver.complete_message(message)))
            await asyncio.sleep(0)
            gate.open()
            await asyncio.gather(*settling)
        assert await queue.counts_are(0, 0)


# -- the four ways to settle -------------------------------------------------------------------------------------------


@both
async def test_an_abandoned_message_is_delivered_again_with_changed_properties(queue: Queue) -> None:
    await queue.send("a", at=-1, properties={"colour": "red", "size": 1})
    receiver = queue.receiver()
    await receiver.abandon_message(await one(receiver), properties_to_modify={"size": 2, "shape": "round"})
    message = await one(receiver)
    assert message.delivery_count == 2
    assert message.application_properties == {"colour": "red", "size": 2, "shape": "round"}
    await receiver.abandon_message(message, properties_to_modify={"colour": "blue"})
    message = await one(receiver)
    await receiver.abandon_message(message)
    message = await one(receiver)
    assert message.delivery_count == 4
    assert message.application_properties == {"colour": "blue", "size": 2, "shape": "round"}
    await receiver.dead_letter_message(message, "why", "because", properties_to_modify={"size": 3})
    letter = await one(queue.receiver(sub_queue="deadletter"))
    assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("why", "because")
    assert letter.application_properties == {
        "colour": "blue",
        "size": 3,
        "shape": "round",
        "DeadLetterReason": "why",
        "DeadLetterErrorDescription": "because",
    }
    assert bodies([letter]) == ["a"]


# -- refusals, in Azure's order ----------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_settlements_are_checked_in_azures_order_and_refusals_change_nothing(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue:
        await queue.send("a", "b", "c", "d", at=-1)
        closed, receiver, deleting = (
            queue.receiver(),
            queue.receiver(),
            queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE),
        )
        deleted, message, settled = await one(deleting), await one(receiver), await one(receiver)
        (peeked,) = await receiver.peek_messages(1)
        await receiver.complete_message(settled)
        await receiver.complete_message(await one(receiver))
        await closed.close()
        clock.move(31)
        await at_rest(receiver, deleting)
        for settle in SETTLEMENTS.values():
            for by in (closed, receiver):
                await refused(queue, settle(by, peeked), ValueError, "was peeked")
                await refused(queue, settle(by, deleted), ValueError, "received and deleted")
                await refused(queue, settle(by, settled), MessageAlreadySettled, "settled already")
            await refused(queue, settle(closed, message), ValueError, "receiver is closed")
            error = await refused(queue, settle(receiver, message), MessageLockLostError, r"ha(s|ve) ended")
            assert isinstance(error, MessageLockLostError)
            many = settle is SETTLEMENTS["complete many"]
            assert (error.outcome, error.entity) == (Outcome.REFUSED if many else Outcome.NEVER_SENT, "q")
            nonsense: Any = "a message"
            with pytest.raises(TypeError, match="not str"):
                await settle(receiver, nonsense)


@pytest.mark.slow
@both
async def test_a_message_can_be_settled_only_once(queue: Queue) -> None:
    """This also holds if another receiver settles it at the same time."""
    for settle in WAYS.values():
        await queue.send("a", at=-1)
        async with queue.receiver() as receiver:
            message = await one(receiver)
            settling = (settle(by, message) for by in (receiver, queue.receiver(), receiver))
            results = await asyncio.gather(*settling, return_exceptions=True)
            assert [type(each) for each in results] == [type(None), MessageAlreadySettled, MessageAlreadySettled]
            for again in SETTLEMENTS.values():
                await refused(queue, again(receiver, message), MessageAlreadySettled, "settled already")
        await queue.clear()


@both
async def test_a_lock_is_lost_if_another_receiver_has_locked_the_message(queue: Queue) -> None:
    """The server refuses the settlement, although the lock has not ended by the local clock."""
    await queue.send("a", at=-1)
    receiver = queue.receiver()
    message = await one(receiver)
    await queue.lose(message)
    (other,) = await queue.take(at=-1)
    for settle in SETTLEMENTS.values():  # the refusal does not settle the message, so a program can try again
        with pytest.raises(MessageLockLostError, match=r"ended, or the messages? (is|are) gone") as raised:
            await settle(receiver, message)
        assert (raised.value.outcome, raised.value.entity) == (Outcome.REFUSED, "q")
    assert await queue.locked() == 1
    await queue.abandon([other], at=-1)


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_a_message_can_be_settled_through_another_receiver(queue: Queue) -> None:
    for settle in SETTLEMENTS.values():
        await queue.send("a", at=-1)
        async with queue.receiver() as receiver:
            message = await one(receiver)
        await settle(queue.receiver(), message)
        await queue.clear()


@both
async def test_a_message_of_another_queue_or_client_is_refused(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        await other.ensure_queue("p")
        await queue.send("a", at=-1)
        message = await one(queue.receiver())
        for receiver in (queue.client.get_queue_receiver("p"), other.get_queue_receiver("q")):
            await receiver.__aenter__()
            for settle in SETTLEMENTS.values():
                await refused(queue, settle(receiver, message), ValueError, "was not received from")
        await queue.receiver().complete_message(message)


@in_memory
@pytest.mark.parametrize(
    ("settle", "error"),
    [
        (lambda receiver, message: receiver.abandon_message(message, delay=-1), ValueError),
        (lambda receiver, message: receiver.abandon_message(message, delay=True), TypeError),
        (lambda receiver, message: receiver.abandon_message(message, delay=float("nan")), ValueError),
        (lambda receiver, message: receiver.abandon_message(message, delay="1"), TypeError),
        (lambda receiver, message: receiver.abandon_message(message, properties_to_modify=[1]), TypeError),
        (lambda receiver, message: receiver.abandon_message(message, properties_to_modify={"a": object()}), TypeError),
        (lambda receiver, message: receiver.abandon_message(message, properties_to_modify={"a": {"b": 1}}), TypeError),
        (lambda receiver, message: receiver.defer_message(message, properties_to_modify={"a": [1]}), TypeError),
        (lambda receiver, message: receiver.abandon_message(message, properties_to_modify={1: 1}), TypeError),
        (
            lambda receiver, message: receiver.defer_message(message, properties_to_modify={"a": "x" * 70_000}),
            ValueError,
        ),
        (lambda receiver, message: receiver.dead_letter_message(message, 1), TypeError),
        (lambda receiver, message: receiver.dead_letter_message(message, "x" * 4097), ValueError),
        (lambda receiver, message: receiver.dead_letter_message(message, None, b""), TypeError),
        (lambda receiver, message: receiver.complete_message(message, timeout=0), ValueError),
    ],
)
async def test_invalid_settlement_arguments_leave_the_message_settleable(
    queue: Queue, settle: Settle, error: type[Exception]
) -> None:
    await queue.send("a")
    receiver = queue.receiver()
    message = await one(receiver)
    raised = await refused(queue, settle(receiver, message), error)
    assert error is not ValueError or isinstance(raised, ValueError | MessageSizeExceededError)
    await receiver.complete_message(message)


@pytest.mark.slow
@in_memory
async def test_a_settlement_without_an_answer_has_an_unknown_outcome(queue: Queue) -> None:
    await queue.send("a")
    receiver = queue.receiver()
    message = await one(receiver)
    call, answer = queue.transport.call, asyncio.Event()

    async def slow(*arguments: Any, **options: Any) -> Any:
        reply = await call(*arguments, **options)
        await answer.wait()
        return reply

    divert(queue.transport, slow)
    with pytest.raises(OperationTimeoutError) as raised:
        await receiver.complete_message(message, timeout=3)
    assert raised.value.outcome is Outcome.UNKNOWN
    divert(queue.transport, call)
    answer.set()
    assert (await queue.counts()).locked == 0


@both
async def test_concurrent_completions_of_a_message_settle_it_only_once(queue: Queue) -> None:
    await queue.send("a", "b", at=-1)
    receiver = queue.receiver()
    messages = await receive_exactly(receiver, 2)
    results = await asyncio.gather(
        receiver.complete_messages(messages),
        receiver.complete_message(messages[0]),
        receiver.complete_messages(messages[1:]),
        receiver.renew_message_lock(messages[0]),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), *[MessageAlreadySettled] * 3]
    assert [hold_of(message).settled for message in messages] == [True, True]
    assert await queue.locked() == 0


# -- concurrent calls --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_concurrent_settlements_share_calls(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, partitions=2) as queue:
        for settle in SETTLEMENTS.values():
            for place in range(len(queue.partitions)):
                await queue.fill(120 // len(queue.partitions), at=place)
            async with queue.receiver() as receiver:
                messages = await receive_exactly(receiver, 120)
                with Calls(queue.transport) as calls:
                    await asyncio.gather(*(settle(receiver, message) for message in messages))
                assert sum(calls.by_script.values()) <= 4 * len(queue.partitions)
            await queue.clear()


@pytest.mark.slow
@both
async def test_a_lost_lock_causes_an_error_only_for_its_own_caller(queue: Queue) -> None:
    for settle in SETTLEMENTS.values():
        await queue.fill(20, at=-1)
        async with queue.receiver() as receiver:
            messages = await receive_exactly(receiver, 20)
            await queue.lose(messages[7])
            settled = (settle(receiver, message) for message in messages)
            results = await asyncio.gather(*settled, return_exceptions=True)
            assert [place for place, result in enumerate(results) if isinstance(result, Exception)] == [7]
            assert isinstance(results[7], MessageLockLostError)
            assert f" {messages[7].sequence_number}" in str(results[7])
        await queue.clear()


@pytest.mark.slow
@both
async def test_a_message_can_be_settled_while_its_lock_is_being_renewed(queue: Queue) -> None:
    """A renewal may give the message another token, so the settlement waits for the renewal."""
    await queue.fill(20, at=-1)
    receiver = queue.receiver()
    messages = await receive_exactly(receiver, 20)
    for turns, message in enumerate(messages):
        settle = list(WAYS.values())[turns % len(WAYS)]
        renewal = asyncio.create_task(receiver.renew_message_lock(message))
        for _ in range(turns // 2):
            await asyncio.sleep(0)
        await settle(receiver, message)
        await asyncio.gather(renewal, return_exceptions=True)
    assert await queue.locked() == 0


@both
async def test_concurrent_renewals_of_one_message_all_succeed(queue: Queue) -> None:
    await queue.fill(10, at=-1)
    receiver = queue.receiver()
    messages = await receive_exactly(receiver, 10)
    token = messages[0].lock_token
    await asyncio.gather(*(receiver.renew_message_lock(messages[0]) for _ in range(5)))
    await asyncio.gather(*(receiver.renew_message_lock(message) for message in messages[:3] * 2))
    assert messages[0].lock_token == token
    await asyncio.gather(*(receiver.complete_message(message) for message in messages))
    assert await queue.locked() == 0
