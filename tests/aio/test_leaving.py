"""Leaving ``async with receiver``: which errors count as a failed delivery, and for which messages."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AbstractContextManager

import pytest

from sbredis.aio import AutoLockRenewer, ServiceBusReceiver
from sbredis.exceptions import MessageLockLostError, ServiceBusConnectionError, ServiceBusError, SessionLockLostError
from sbredis.model import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
)
from sbredis.receiving import Inbox, is_failed_delivery
from tests.aio.gates import Gate
from tests.aio.queues import HandClock, Queue, bodies, both, in_memory, queue_at, queue_with, receive_exactly
from tests.aio.session_queues import SessionQueue, session_queue_at, steps
from tests.waiting import eventually


class HandlerError(Exception):
    """An error that a message handler raises."""


COUNTS: list[BaseException] = [
    HandlerError(),
    ValueError(),
    TimeoutError(),
    ServiceBusConnectionError("gone"),
    ExceptionGroup("several", [HandlerError(), HandlerError()]),
    BaseExceptionGroup("several", [asyncio.CancelledError(), HandlerError()]),
    BaseExceptionGroup("several", [KeyboardInterrupt(), ExceptionGroup("inner", [HandlerError()])]),
    ExceptionGroup("several", [SessionLockLostError("lost"), HandlerError()]),
]
COUNTS_NOTHING: list[BaseException] = [
    asyncio.CancelledError(),
    KeyboardInterrupt(),
    SystemExit(),
    GeneratorExit(),
    SessionLockLostError("lost"),
    MessageLockLostError("lost"),
    BaseExceptionGroup("several", [asyncio.CancelledError(), asyncio.CancelledError()]),
    ExceptionGroup("several", [SessionLockLostError("lost"), ExceptionGroup("inner", [MessageLockLostError("lost")])]),
]


@pytest.mark.parametrize("error", COUNTS, ids=repr)
def test_an_exception_of_the_handler_counts_as_a_failed_delivery(error: BaseException) -> None:
    assert is_failed_delivery(error)


@pytest.mark.parametrize("error", COUNTS_NOTHING, ids=repr)
def test_a_cancellation_interrupt_or_lost_lock_does_not_count_as_a_failed_delivery(error: BaseException) -> None:
    assert not is_failed_delivery(error)


def test_leaving_without_an_error_does_not_count_as_a_failed_delivery() -> None:
    assert not is_failed_delivery(None)


def leaving_by(kind: type[Exception]) -> AbstractContextManager[object, bool]:
    """Return a context that expects an error of this kind to leave the block."""
    return pytest.raises(kind)


@both
@pytest.mark.parametrize("prefetch", [0, 5], ids=["asked for", "fetched ahead"])
async def test_an_error_raises_the_delivery_count_of_every_unsettled_message_in_hand(
    url: str, partitioned: bool, prefetch: int
) -> None:
    number: int | None = None
    async with session_queue_at(url, partitioned=partitioned) as queue:
        await queue.send_to("a", *"12345678")
        with leaving_by(ExceptionGroup):
            async with queue.session("a", prefetch_count=prefetch) as receiver:
                deferred, completed, released, *_ = await receiver.receive_messages(5, 60)
                number = deferred.sequence_number
                await receiver.defer_message(deferred)
                await receiver.complete_message(completed)
                await receiver.release_message(released)
                await receiver.receive_deferred_messages(number)
                raise ExceptionGroup("handlers", [HandlerError(), HandlerError()])
        async with queue.session("a") as receiver:
            counts = {str(each): each.delivery_count for each in await receiver.receive_messages(9, 60)}
            assert counts == {"3": 1, "4": 2, "5": 2, "6": 1, "7": 1, "8": 1}
            assert number is not None
            (again,) = await receiver.receive_deferred_messages(number)
            assert again.delivery_count == 3


@both
@pytest.mark.parametrize("error", COUNTS_NOTHING, ids=repr)
async def test_leaving_by_cancellation_interrupt_or_lost_lock_does_not_raise_delivery_counts(
    url: str, partitioned: bool, error: BaseException
) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        await queue.send_to("a", "1", "2")
        receiver = queue.session("a")
        await receiver.__aenter__()
        await receiver.receive_messages(2, 60)
        await receiver.__aexit__(type(error), error, None)
        assert await queue.counts_are(2, 0)
        async with queue.session("a") as receiver:
            assert [each.delivery_count for each in await receiver.receive_messages(2, 60)] == [1, 1]


@both
async def test_closing_a_receiver_in_its_block_does_not_raise_the_delivery_count(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        await queue.send_to("a", "1")
        with leaving_by(HandlerError):
            async with queue.session("a") as receiver:
                await anext(receiver)
                await receiver.close()
                raise HandlerError
        async with queue.session("a") as receiver:
            assert (await anext(receiver)).delivery_count == 1


@both
@queue_with(sessions=True, lock_duration=30_000)
async def test_a_lapsed_session_lock_raises_the_delivery_count_only_once(queue: SessionQueue, clock: HandClock) -> None:
    """The end of the lock has already raised the delivery count, so the handler's error does not."""
    await queue.send_to("a", "1")
    with leaving_by(HandlerError):
        async with queue.session("a") as receiver:
            await anext(receiver)
            clock.move(31)
            raise HandlerError
    async with queue.session("a") as receiver:
        assert (await anext(receiver)).delivery_count == 2


@both
async def test_a_receiver_is_closed_even_if_the_delivery_cannot_be_counted(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        await queue.send_to("a", "1")
        with Gate(queue.client, "abandon") as gate, leaving_by(HandlerError):
            gate.fates.extend("is lost" for _ in range(100))
            async with queue.session("a") as receiver:
                await anext(receiver)
                raise HandlerError
        assert await queue.is_unused()
        async with queue.session("a") as receiver:
            assert (await anext(receiver)).delivery_count == 1


@both
async def test_a_receiver_without_a_session_does_not_release_its_messages(queue: Queue) -> None:
    """A task that still works on these messages can settle them through another receiver."""
    await queue.send("1", "2")
    held: list[ServiceBusReceivedMessage] = []
    with leaving_by(HandlerError):
        async with queue.receiver() as receiver:
            held += await receive_exactly(receiver, 2)
            raise HandlerError
    assert await queue.counts_are(0, 2)
    await queue.receiver().complete_message(held[0])
    await queue.receiver().abandon_message(held[1])
    (again,) = await queue.receiver().receive_messages(1, 60)
    assert (str(again), again.delivery_count) == (str(held[1]), 2)


@both
async def test_a_message_that_was_received_and_deleted_is_not_abandoned(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        await queue.send_to("a", "1", "2")
        with leaving_by(HandlerError):
            async with queue.session("a", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
                assert str(await anext(receiver)) == "1"
                raise HandlerError
        async with queue.session("a") as receiver:
            assert str(await anext(receiver)) == "2"


@both
async def test_a_receiver_does_not_keep_references_to_settled_messages(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue, AutoLockRenewer() as renewer:
        await queue.send_to("a", *"123456")
        async with queue.session("a", auto_lock_renewer=renewer) as receiver:
            one, two, three, four, *rest = await receiver.receive_messages(6, 60)
            assert len(receiver._handed_out) == 6
            await receiver.complete_message(one)
            await receiver.defer_message(two)
            await receiver.dead_letter_message(three)
            await receiver.release_message(four)
            await receiver.complete_messages(rest)
            assert not receiver._handed_out


# -- releasing a message -----------------------------------------------------------------------------------------------


@both
async def test_a_released_message_is_delivered_again_with_the_same_delivery_count(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, max_delivery_count=2) as queue, queue.receiver() as receiver:
        await queue.send("1", at=-1)
        for _ in range(5):
            (message,) = await receiver.receive_messages(1, 60)
            assert message.delivery_count == 1
            await receiver.release_message(message)
            assert message.lock_token is None
            assert await queue.counts_are(1, 0)
            with pytest.raises(ValueError, match="settled"):
                await receiver.release_message(message)
        (message,) = await receiver.receive_messages(1, 60)
        await receiver.complete_message(message)
        assert await queue.counts_are(0, 0)


@both
async def test_a_dead_letter_and_a_deferred_message_can_be_released(queue: Queue, receiver: ServiceBusReceiver) -> None:
    first, _ = await queue.send("1", "2", at=-1)
    one, two = await receive_exactly(receiver, 2)
    await receiver.defer_message(one)
    await receiver.dead_letter_message(two, "bad")
    (one,) = await receiver.receive_deferred_messages(first)
    await receiver.release_message(one)
    (again,) = await receiver.receive_deferred_messages(first)
    assert again.delivery_count == one.delivery_count
    await receiver.complete_message(again)
    async with queue.receiver(sub_queue="deadletter") as dead:
        (two,) = await dead.receive_messages(1, 60)
        await dead.release_message(two)
        (again,) = await dead.receive_messages(1, 60)
        assert (bodies([again]), again.delivery_count) == (["2"], two.delivery_count)


@both
async def test_a_closed_receiver_does_not_wait_for_the_collector_of_cycles(url: str, partitioned: bool) -> None:
    """Workers open and close receivers of sessions by the thousand."""

    def inboxes() -> int:
        return sum(isinstance(each, Inbox) for each in gc.get_objects())

    async with session_queue_at(url, partitioned=partitioned) as queue:
        await queue.send_to("a", "1")
        gc.collect()
        gc.disable()
        try:
            before = inboxes()
            async with queue.session("a") as receiver:
                [message] = await receive_exactly(receiver, 1)
                assert inboxes() == before + 1
                await receiver.complete_message(message)
            del receiver, message
            await eventually(lambda: inboxes() == before)
        finally:
            gc.enable()


@in_memory
@pytest.mark.parametrize("name", ["a", NEXT_AVAILABLE_SESSION], ids=["named", "next"])
async def test_a_receiver_that_is_closed_while_it_accepts_its_session_says_so(
    url: str, name: str | ServiceBusSessionFilter
) -> None:
    """It is closed after each number of steps of the event loop."""
    async with session_queue_at(url) as queue:
        await queue.send_to("a", "1")
        count, received = 0, False
        while not received:
            receiver = queue.session(name)
            call = asyncio.ensure_future(receiver.receive_messages(1, 60))
            await steps(count)
            received = call.done()
            await receiver.close()
            await asyncio.wait((call,))
            if (error := call.exception()) is not None:
                assert "closed" in str(error)
                assert isinstance(error, (ValueError, ServiceBusError))
            count += 1
        await eventually(queue.is_unused)


@in_memory
async def test_a_call_whose_messages_come_too_late_does_not_ask_again_at_a_closed_receiver(url: str) -> None:
    """The lock ends, and the receiver is closed, between the arrival of a message and the end of the call."""
    clock = HandClock()
    async with session_queue_at(url, clock=clock, lock_duration=30_000) as queue, queue.session("a") as receiver:
        call = asyncio.ensure_future(receiver.receive_messages(1, 900))
        await eventually(lambda: receiver._inbox is not None and receiver._inbox.callers)
        assert receiver._inbox is not None
        (waiting,) = receiver._inbox.callers
        sending = asyncio.ensure_future(queue.send_to("a", "1"))
        while not waiting.got:  # noqa: ASYNC110 -- it looks after each turn of the loop
            await asyncio.sleep(0)
        assert not call.done()
        clock.move(31)
        await receiver.close()
        with pytest.raises(ServiceBusError, match="The receiver was closed"):
            await asyncio.wait_for(call, 60)
        await sending
