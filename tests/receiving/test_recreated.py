"""Receiving from a queue that was deleted and created again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import pytest

from sbredis.engine import SessionIdMissingError
from sbredis.exceptions import MessageLockLostError, MessagingEntityNotFoundError, ServiceBusError, SessionLockLostError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage, hold_of
from tests.aio.gates import Gate
from tests.aio.queues import PATIENT, Queue, bodies, both, exists, in_memory, queue_at
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("a receiver follows its queue to partitions on other nodes")


@pytest.mark.slow
@both
async def test_a_receiver_continues_to_receive_from_the_recreated_queue(queue: Queue, partitioned: bool) -> None:
    receiver, sender = queue.receiver(), queue.client.get_queue_sender(queue.entity.name)
    await queue.send("before")
    (message,) = await receiver.receive_messages(1, 60)
    await receiver.complete_message(message)
    namespace = queue.client._connection.namespace
    await namespace.delete_entity(queue.entity.name)
    await queue.client.ensure_queue(queue.entity.name, enable_partitioning=not partitioned)
    with pytest.raises(
        ServiceBusError, match="for the new entity again"
    ) as raised:  # this message is on its way to the deleted partitions
        await sender.send_messages(ServiceBusMessage("old"))
    assert raised.value.is_transient
    await sender.send_messages(ServiceBusMessage("new"))
    (message,) = await receiver.receive_messages(1, 60)
    assert message.body == b"new"
    await receiver.complete_message(message)
    assert await receiver.receive_messages(1, 0.1) == []


@in_memory
@both
async def test_messages_that_were_fetched_from_a_deleted_queue_are_given_to_nobody(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        await queue.send("old", at=0)
        receiver, before = queue.receiver(prefetch_count=5), queue.entity.record.id
        await receiver.__aenter__()
        await eventually(lambda: receiver._inbox and receiver._inbox.buffer)
        await queue.client._connection.namespace.delete_entity(queue.entity.name)
        async with queue.other_client() as other:
            await other.ensure_queue(queue.entity.name, enable_partitioning=partitioned)
            await other.get_queue_sender(queue.entity.name).send_messages(ServiceBusMessage("new"))
        await eventually(lambda: queue.entity.record.id != before)
        assert bodies(await receiver.receive_messages(1, 60)) == ["new"]


@in_memory
@pytest.mark.parametrize("sub_queue", [None, "deadletter"])
async def test_a_receiver_learns_that_a_topic_has_replaced_its_queue(url: str, sub_queue: str | None) -> None:
    """A topic keeps no messages, so the receiver would wait in vain."""
    async with queue_at(url) as queue, queue.other_client() as other:
        receiver = queue.receiver(sub_queue=sub_queue)
        waiting = asyncio.create_task(receiver.receive_messages(1, 60))
        await eventually(queue.waiters)
        await queue.client._connection.namespace.delete_entity(queue.entity.name)
        async with other.get_topic_sender(queue.entity.name, create_if_missing=True):
            pass
        with pytest.raises(MessagingEntityNotFoundError, match="is a topic"):
            await waiting
        with pytest.raises(MessagingEntityNotFoundError, match="is a topic"):
            await receiver.receive_messages(1, 60)


@both
async def test_create_if_missing_recreates_the_queue_of_a_receiver(queue: Queue, partitioned: bool) -> None:
    receiver = queue.receiver(create_if_missing={"enable_partitioning": not partitioned})
    other = queue.receiver()
    assert await receiver.receive_messages(1, 0) == []
    await queue.client._connection.namespace.delete_entity(queue.entity.name)
    with pytest.raises(MessagingEntityNotFoundError):
        await other.receive_messages(1, 60)
    receiving = asyncio.create_task(receiver.receive_messages(1, 60))
    await eventually(lambda: exists(queue.client, queue.entity.name))
    await queue.client.get_queue_sender(queue.entity.name).send_messages(ServiceBusMessage("new"))
    assert [message.body for message in await receiving] == [b"new"]


@in_memory
@pytest.mark.parametrize("partitioned", [False, True])
async def test_a_message_is_settled_only_in_the_partition_that_it_came_from(queue: Queue, partitioned: bool) -> None:
    receiver, sender = queue.receiver(), queue.client.get_queue_sender(queue.entity.name)
    for _ in range(20):
        await queue.send("old")
    first, *others = await receiver.receive_messages(20, 60)
    await queue.client._connection.namespace.delete_entity(queue.entity.name)
    await queue.client.ensure_queue(queue.entity.name, enable_partitioning=not partitioned)
    with pytest.raises(MessagingEntityNotFoundError, match="that were received from the old entity are gone"):
        await receiver.complete_message(first)  # this call finds the new queue
    for message in others:
        same = hold_of(message).reception.link.number in queue.entity.numbers
        number = f"The lock on message {message.sequence_number} has ended"
        with pytest.raises(
            MessageLockLostError if same else MessagingEntityNotFoundError, match=number if same else "are gone"
        ):
            await receiver.complete_message(message)
    await sender.send_messages(ServiceBusMessage("new"))
    (message,) = await receiver.receive_messages(1, 60)
    assert message.body == b"new"
    await receiver.complete_message(message)


@pytest.mark.parametrize("partitioned", [False, True])
async def test_a_session_is_lost_with_its_partition(url: str, partitioned: bool) -> None:
    """Calls that wait in held sessions end, and other callers get the sessions of the new queue."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with queue_at(url, sessions=True, partitioned=partitioned) as queue, AsyncExitStack() as stack:
        client, name = queue.client, queue.entity.name
        sender, waiting = client.get_queue_sender(name), list[asyncio.Task[list[ServiceBusReceivedMessage]]]()
        for each in range(3):
            receiver = await stack.enter_async_context(client.get_queue_receiver(name, session_id=f"s{each}"))
            waiting.append(asyncio.create_task(receiver.receive_messages(1, 60)))
        accepting = asyncio.create_task(client.accept_next_session(name, max_wait_time=60))
        await eventually(lambda: bool(queue.entity.free_sessions))
        await client._connection.namespace.delete_entity(name)
        await client.ensure_queue(name, enable_partitioning=not partitioned, requires_session=True)
        try:
            await sender.send_messages(ServiceBusMessage("new", session_id="new"))
        except ServiceBusError:  # until now the client had not noticed the change
            await sender.send_messages(ServiceBusMessage("new", session_id="new"))
        for ended in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(ended, SessionLockLostError | MessagingEntityNotFoundError)
        try:
            session = await accepting
        except MessagingEntityNotFoundError:  # it may look before there is a new queue
            session = await client.accept_next_session(name, max_wait_time=60)
        assert session is not None
        assert [message.body for message in await session.receive_messages(1, 60)] == [b"new"]
        await session.close()
    assert not errors


@in_memory
async def test_a_message_without_a_session_fails_alone_when_its_queue_has_sessions_now(queue: Queue) -> None:
    """The client does not know yet that the queue was created again with sessions, so one call has all messages."""
    await queue.send("before")
    name = queue.entity.name
    await queue.client._connection.namespace.delete_entity(name)
    async with queue.other_client() as other:
        await other.ensure_queue(name, requires_session=True)
    sender = queue.client.get_queue_sender(name)
    sessions = ["a", None, "a", "b"]
    sends = [sender.send_messages(ServiceBusMessage("x", session_id=session)) for session in sessions]
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), SessionIdMissingError, type(None), type(None)]
    async with queue.client.get_queue_receiver(name, session_id="a") as receiver:
        assert len(await receiver.receive_messages(2, 60)) == 2


@in_memory
@pytest.mark.parametrize("seconds", [0, 0.05])
@pytest.mark.parametrize("partitions", [1, 4, 40])
async def test_a_short_call_learns_that_its_queue_is_gone(url: str, seconds: float, partitions: int) -> None:
    """It ends before the client has looked for a new queue."""
    async with queue_at(url, partitioned=True, partitions=partitions, timings=replace(PATIENT, missing=900.0)) as queue:
        receiver = queue.receiver()
        assert await receiver.receive_messages(1, 0.01) == []
        await queue.client._connection.namespace.delete_entity("q")
        with pytest.raises(MessagingEntityNotFoundError):
            await receiver.receive_messages(1, seconds)
        assert queue.entity._looking


class BrokenReceiver:
    """A receiver that cannot go on with a new entity, because of a defect."""

    source = ""

    def __init__(self) -> None:
        self.errors: list[ServiceBusError] = []

    def entity_changed(self) -> None:
        raise ZeroDivisionError("planted by the test")

    def telling(self, error: ServiceBusError) -> Callable[[], None]:
        return partial(self.errors.append, error)


@in_memory
async def test_a_receiver_with_a_defect_does_not_keep_others_from_the_new_queue(url: str) -> None:
    async with queue_at(url, timings=replace(PATIENT, missing=900.0)) as queue:
        broken = [BrokenReceiver() for _ in range(8)]
        queue.entity.watchers.update(broken)
        waiting = [asyncio.create_task(queue.receiver().receive_messages(1, 900)) for _ in range(8)]
        await queue.wait_for_waiters(8)
        await queue.client._connection.namespace.delete_entity("q")
        await queue.client.ensure_queue("q", enable_partitioning=True)
        await eventually(lambda: not queue.entity.gone and queue.entity.partitioned)
        for place in range(8):
            await queue.send(str(place))
        assert sorted(str(message) for messages in await asyncio.gather(*waiting) for message in messages) == [
            str(place) for place in range(8)
        ]
        for each in broken:
            (error,) = each.errors
            assert isinstance(error, ServiceBusError)
            assert "planted by the test" in str(error)
            queue.entity.watchers.remove(each)


@in_memory
async def test_an_answer_that_arrives_while_the_receiver_leaves_a_partition_causes_no_error(url: str) -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with queue_at(url) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        with Gate(queue.client, "grant") as gate:
            gate.shut = True
            waiting = asyncio.create_task(receiver.receive_messages(1, 60))
            await gate.reached()
            assert receiver._inbox is not None
            (driver,) = receiver._inbox.drivers
            driver.leave()
            await asyncio.sleep(0)  # the cancellation arrives in this turn of the event loop
            assert not driver.under_way
            gate.open()
            waiting.cancel()
        await eventually(lambda: queue.counts_are(1, 0))
    assert errors == []
