"""Completing many messages in one call has the same effect as completing each message alone."""

from __future__ import annotations

import pytest

from sbredis.exceptions import MessageAlreadySettled, MessageLockLostError, MessagingEntityNotFoundError
from sbredis.model import hold_of
from tests.aio.queues import Calls, Queue, both, receive_exactly


@pytest.mark.slow
@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_all_messages_are_completed_with_one_call_per_partition(queue: Queue) -> None:
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


async def test_a_message_that_was_received_again_is_completed_beside_its_lost_lock(queue: Queue) -> None:
    """The answer of a partition names messages. So the two locks are not in one call."""
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


async def test_the_error_names_messages_with_a_lost_lock_and_completes_the_others(queue: Queue) -> None:
    await queue.send("a", "b", "c")
    receiver = queue.receiver()
    messages = await receiver.receive_messages(3, 60)
    await queue.lose(messages[1])
    await queue.take()
    with pytest.raises(MessageLockLostError) as raised:
        await receiver.complete_messages(messages)
    assert raised.value.sequence_numbers == (messages[1].sequence_number,)
    assert raised.value.entity == queue.entity.name
    assert await queue.counts_are(0, 1)


async def test_messages_that_cannot_be_completed_are_refused_before_any_call(queue: Queue) -> None:
    await queue.send("a", "b", "c")
    receiver = queue.receiver()
    first, second = await receiver.receive_messages(2, 60)
    (peeked,) = await receiver.peek_messages(1, sequence_number=1)
    await receiver.complete_message(second)
    for unfit, error in ((peeked, ValueError), (second, MessageAlreadySettled), (first, MessageAlreadySettled)):
        with Calls(queue.transport) as calls, pytest.raises(error):
            await receiver.complete_messages([first, unfit])
        assert not calls.by_script
    await receiver.complete_messages([])
    assert (await queue.counts()).locked == 1


async def test_a_failed_call_leaves_all_messages_unsettled(queue: Queue) -> None:
    await queue.send("a", "b")
    receiver = queue.receiver()
    messages = await receiver.receive_messages(2, 60)
    await queue.client._connection.namespace.delete_entity(queue.entity.name)
    with pytest.raises(MessagingEntityNotFoundError):
        await receiver.complete_messages(messages)
    assert not any(hold_of(message).settled for message in messages)
