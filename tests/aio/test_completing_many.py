"""Completing many messages in one call has the same effect as completing each message alone."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.aio import AutoLockRenewer
from sbredis.exceptions import MessageAlreadySettled, MessageLockLostError, MessagingEntityNotFoundError
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of
from tests.aio.gates import Gate
from tests.aio.queues import Calls, HandClock, both, in_memory, queue_at, receive_exactly
from tests.waiting import eventually


@pytest.mark.slow
@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_all_messages_are_completed_with_one_call_per_partition(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        await queue.send(*(f"m{number}" for number in range(60)))
        receiver = queue.receiver()
        messages = await receive_exactly(receiver, 60)
        assert len(messages) == 60
        with Calls(queue.transport) as calls:
            await receiver.complete_messages(iter(messages))
        assert calls.by_script["complete"] == len(queue.partitions)
        counts = await queue.counts()
        assert (counts.active, counts.locked, counts.bytes) == (0, 0, 0)
        assert {message.lock_token for message in messages} == {None}
        with pytest.raises(MessageAlreadySettled):
            await receiver.complete_message(messages[0])


async def test_a_message_that_was_received_again_is_completed_beside_its_lost_lock(url: str) -> None:
    """The answer of a partition names messages. So the two locks are not in one call."""
    async with queue_at(url) as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        first = await receive_exactly(receiver, 2)
        lost = first[0]
        token = str(lost.lock_token)
        await queue.client.get_settler(queue.entity.name).abandon_message(token)
        (again,) = await receive_exactly(receiver, 1)
        assert again.sequence_number == lost.sequence_number
        with pytest.raises(MessageLockLostError) as raised:
            await receiver.complete_messages([*first, again])
        assert raised.value.sequence_numbers == (lost.sequence_number,)
        assert hold_of(again).settled
        assert not hold_of(lost).settled
        counts = await queue.counts()
        assert (counts.active, counts.locked, counts.bytes) == (0, 0, 0)


async def test_the_error_names_messages_with_a_lost_lock_and_completes_the_others(url: str) -> None:
    async with queue_at(url) as queue:
        await queue.send("a", "b", "c")
        receiver = queue.receiver()
        messages = await receiver.receive_messages(3, 60)
        other = queue.other_client()
        async with other:
            # The second message gets a wrong token, as if its lock had ended and another receiver had locked the
            # message.
            stolen = messages[1]
            token = hold_of(stolen).lease
            assert token is not None
            await receiver.renew_message_lock(stolen)  # now the message has its own lease
            before = hold_of(stolen).lease
            assert before is not None
            mine, hold_of(stolen).lease = hold_of(stolen).lease, type(before)("x" * 11, before.until, before.until_utc)
            with pytest.raises(MessageLockLostError) as raised:
                await receiver.complete_messages(messages)
            assert raised.value.sequence_numbers == (stolen.sequence_number,)
            assert raised.value.entity == queue.entity.name
            hold_of(stolen).lease = mine
        counts = await queue.counts()
        assert (counts.active, counts.locked) == (0, 1)
        await receiver.complete_message(stolen)
        assert (await queue.counts()).locked == 0


@in_memory
async def test_a_lock_that_lapsed_by_the_client_clock_is_reported_without_a_call(url: str) -> None:
    clock = HandClock()
    async with queue_at(url, clock=clock) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        messages = await receiver.receive_messages(1, 60)
        clock.move(3600)
        with Calls(queue.transport) as calls, pytest.raises(MessageLockLostError) as raised:
            await receiver.complete_messages(messages)
        assert raised.value.sequence_numbers == (messages[0].sequence_number,)
        assert "complete" not in calls.by_script


async def test_messages_that_cannot_be_completed_are_refused_before_any_call(url: str) -> None:
    async with queue_at(url) as queue:
        await queue.send("a", "b", "c")
        receiver = queue.receiver()
        first, second = await receiver.receive_messages(2, 60)
        deleted = queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        (gone,) = await deleted.receive_messages(1, 60)
        (peeked, *_) = await receiver.peek_messages(1, sequence_number=1)
        await receiver.complete_message(second)
        unfit: list[tuple[list[ServiceBusReceivedMessage], type[Exception]]] = [
            ([first, peeked], ValueError),
            ([first, gone], ValueError),
            ([first, second], MessageAlreadySettled),
            ([first, first], MessageAlreadySettled),
        ]
        for listed, error in unfit:
            with Calls(queue.transport) as calls, pytest.raises(error):
                await receiver.complete_messages(listed)
            assert not calls.by_script
        await receiver.complete_messages([])
        await receiver.close()
        with pytest.raises(ValueError, match="closed"):
            await receiver.complete_messages([first])
        assert (await queue.counts()).locked == 1


async def test_a_message_of_another_queue_is_refused(url: str) -> None:
    async with queue_at(url) as queue:
        await queue.send("a")
        await queue.client.ensure_queue("elsewhere")
        (message,) = await queue.receiver().receive_messages(1, 60)
        with pytest.raises(ValueError, match="elsewhere"):
            await queue.client.get_queue_receiver("elsewhere").complete_messages([message])
        assert (await queue.counts()).locked == 1


async def test_a_failed_call_leaves_all_messages_unsettled(url: str) -> None:
    async with queue_at(url) as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        messages = await receiver.receive_messages(2, 60)
        await queue.client._connection.namespace.delete_entity(queue.entity.name)
        with pytest.raises(MessagingEntityNotFoundError):
            await receiver.complete_messages(messages)
        assert not any(hold_of(message).settled for message in messages)


async def test_cancelled_completing_still_completes_all_messages(url: str) -> None:
    async with queue_at(url) as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        messages = await receiver.receive_messages(2, 60)
        with Gate(queue.client, "complete") as gate:
            gate.shut = True
            completing = asyncio.ensure_future(receiver.complete_messages(messages))
            await gate.reached()
            completing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await completing
            gate.open()
            await eventually(lambda: all(hold_of(message).settled for message in messages) and not gate.waiting)
            await eventually(
                lambda: not queue.entity.partition_client(queue.entity.numbers[0]).settling("complete")._all()[0][0]
            )
        assert (await queue.counts()).locked == 0


async def test_the_renewer_forgets_completed_messages(url: str) -> None:
    async with queue_at(url) as queue, AutoLockRenewer() as renewer:
        await queue.send("a", "b")
        receiver = queue.receiver(auto_lock_renewer=renewer)
        messages = await receiver.receive_messages(2, 60)
        await receiver.complete_messages(messages)
        assert not any(watched.locks for _, _, watched in renewer._renewals._due)
