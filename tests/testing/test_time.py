"""Tests of moving the clock: due events happen and receivers notice them immediately, without waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TypeVar

import pytest

from sbredis.aio import AutoLockRenewer, BackgroundLockRenewer, ServiceBusClient
from sbredis.exceptions import AutoLockRenewFailed, MessageLockLostError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.testing._clock import movable
from tests.aio.queues import Queue
from tests.testing.waiters import wait_for_waiters
from tests.waiting import eventually

T = TypeVar("T")
QUICK = 50.0
"""A busy machine may take this long. The clock of the bus is moved by longer times, so no call can have waited for
them.
"""


@pytest.fixture(autouse=True)
def _no_time_passes() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < QUICK


async def underway(bus: Bus, waiting: Awaitable[T], queue: str = "orders", receivers: int = 1) -> asyncio.Future[T]:
    """Start to receive, and return when the partitions count one more waiting receiver."""
    task = asyncio.ensure_future(waiting)
    await wait_for_waiters(bus.client, queue, receivers)
    assert not task.done()
    return task


async def send(bus: Bus, *bodies: str, queue: str = "orders") -> None:
    async with bus.client.get_queue_sender(queue) as sender:
        for body in bodies:
            await sender.send_messages(ServiceBusMessage(body))


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]


@pytest.mark.slow
async def test_a_waiting_receiver_gets_a_message_whose_lock_lapsed(bus: Bus) -> None:
    await bus.create_queue("orders")
    await send(bus, "one")
    first = bus.client.get_queue_receiver("orders")
    second = bus.client.get_queue_receiver("orders")
    (message,) = await first.receive_messages()
    waiting = await underway(bus, second.receive_messages(max_wait_time=60))
    bus.clock.advance(seconds=59)
    await wait_for_waiters(bus.client, "orders")
    assert not waiting.done()
    bus.clock.advance(seconds=2)
    (again,) = await waiting
    assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 2)
    assert again.locked_until_utc is not None
    assert again.locked_until_utc > bus.clock.now + timedelta(seconds=50)
    with pytest.raises(MessageLockLostError):
        await first.complete_message(message)
    await second.complete_message(again)
    assert await bus.messages("orders") == []


async def test_a_receiver_gets_a_message_although_the_clock_overtakes_its_call(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test moves the clock while a call is under way. So the lock in the reply has already ended for the client.

    The receiver gives the message back without counting a delivery, and receives it again.
    """
    await bus.create_queue("orders")
    await send(bus, "one")
    receiver = bus.client.get_queue_receiver("orders")
    for _ in range(2):  # the first opens everything that the receiver needs, and also notes that the queue is used
        await receiver.peek_messages()
    clock = bus.clock._clock
    with monkeypatch.context() as patched:

        def told() -> int:
            patched.undo()
            bus.clock.advance(minutes=2)
            return clock.told()

        patched.setattr(clock, "told", told)
        message = await anext(receiver)
        assert clock.told != told
    assert (message.body, message.delivery_count) == (b"one", 1)
    await receiver.complete_message(message)


async def test_a_message_scheduled_relative_to_the_current_time_of_the_clock_is_delivered_when_due(bus: Bus) -> None:
    """The code computes the due time a little later than the start of the bus.

    If the clock of the bus stood still between its steps, a step of the same length would not reach this time.
    """
    await bus.create_queue("orders")
    began = bus.clock.now
    await eventually(lambda: bus.clock.now > began)
    when = bus.clock.now + timedelta(minutes=5)
    async with bus.client.get_queue_sender("orders") as sender:
        await sender.schedule_messages(ServiceBusMessage("later"), when)
    bus.clock.advance(minutes=5)
    assert bodies(await bus.active("orders")) == [b"later"]


async def test_expired_messages_reach_a_receiver_waiting_for_dead_letters(bus: Bus) -> None:
    await bus.create_queue(
        "orders", default_message_time_to_live=timedelta(minutes=1), dead_lettering_on_message_expiration=True
    )
    await send(bus, "one")
    receiver = bus.client.get_queue_receiver("orders", sub_queue="deadletter")
    waiting = await underway(bus, receiver.receive_messages(max_wait_time=60))
    bus.clock.advance(minutes=2)
    (message,) = await waiting
    assert message.dead_letter_reason == "TTLExpiredException"
    assert bodies(await bus.dead_lettered("orders")) == [b"one"]
    assert await bus.messages("orders") == []


@pytest.mark.slow
@pytest.mark.both_shapes
async def test_waiting_receivers_of_every_client_notice_a_moved_clock(bus: Bus, partitioned: bool) -> None:
    await bus.create_queue("orders", enable_partitioning=partitioned)
    async with ServiceBusClient(bus.url) as other:
        receivers = [client.get_queue_receiver("orders") for client in (bus.client, other)]
        waiting = [
            await underway(bus, receiver.receive_messages(max_wait_time=60), receivers=count)
            for count, receiver in enumerate(receivers, 1)
        ]
        async with other.get_queue_sender("orders") as sender:
            for body in ("one", "two"):
                await sender.schedule_messages(ServiceBusMessage(body), bus.clock.now + timedelta(days=1))
        bus.clock.advance(days=1)
        got = [body for task in waiting for body in bodies(await task)]
        assert sorted(got) == [b"one", b"two"]


@pytest.mark.slow
async def test_clock_steps_shorter_than_a_lock_leave_the_renewer_time_to_renew(bus: Bus) -> None:
    await bus.create_queue("orders")
    await send(bus, "one")
    async with AutoLockRenewer(max_lock_renewal_duration=3600) as renewer:
        receiver = bus.client.get_queue_receiver("orders", auto_lock_renewer=renewer)
        (message,) = await receiver.receive_messages()
        for _ in range(20):
            before = message.locked_until_utc
            bus.clock.advance(seconds=45)
            await eventually(lambda before=before: message.locked_until_utc != before)
        await receiver.complete_message(message)
        assert message.auto_renew_error is None
    assert await bus.messages("orders") == []


async def test_a_clock_step_longer_than_a_lock_loses_it_and_the_renewer_reports_the_loss(bus: Bus) -> None:
    """The effect is the same as if the process had been stopped for this time."""
    await bus.create_queue("orders")
    await send(bus, "one", "two")
    told: list[Exception | None] = []
    async with AutoLockRenewer(300, lambda _, error: told.append(error)) as renewer:
        receiver = bus.client.get_queue_receiver("orders", auto_lock_renewer=renewer)
        messages = await receiver.receive_messages(2)
        bus.clock.advance(minutes=2)
        await eventually(lambda: len(told) == 2)
        assert {type(message.auto_renew_error) for message in messages} == {AutoLockRenewFailed}
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(messages[0])
        assert bodies(await receiver.receive_messages(2)) == [b"one", b"two"]


async def test_a_closed_renewer_is_no_longer_woken(bus: Bus) -> None:
    await bus.create_queue("orders")
    await send(bus, "one")
    receiver = bus.client.get_queue_receiver("orders")
    before = set(bus.clock._clock._watchers)
    async with AutoLockRenewer() as renewer:
        (message,) = await receiver.receive_messages()
        renewer.register(receiver, message)
    bus.clock.advance(minutes=5)
    await receiver.close()
    assert set(bus.clock._clock._watchers) == before
    assert message.auto_renew_error is None


async def test_expired_messages_are_dead_lettered_without_any_call(bus: Bus) -> None:
    """Every client of a bus lets due events happen.

    The test reads the keys directly, because a call would itself let these events happen.
    """
    await bus.create_queue(
        "orders", default_message_time_to_live=timedelta(minutes=1), dead_lettering_on_message_expiration=True
    )
    await send(bus, "one", "two")
    entity = await bus.client._connection.entity("orders", asyncio.get_running_loop().time() + 20)
    queue = Queue(bus.client, entity, bus.url, None)

    async def dead() -> int:
        found = await queue.contents()
        return sum(name[:1] == b"d" for key, (_, held) in found.items() if key.endswith(":order") for name in held)

    bus.clock.advance(seconds=59)
    assert await dead() == 0
    bus.clock.advance(seconds=2)

    async def both_are() -> bool:
        return await dead() == 2

    await eventually(both_are)


async def test_a_background_renewer_works_when_the_clock_moves_or_runs_again_but_not_after_its_end(bus: Bus) -> None:
    """Its thread starts in its event loop, which may be busy when another thread moves the clock."""
    clock = movable(bus.clock)

    def renewer(looked: threading.Event) -> BackgroundLockRenewer:
        def held() -> Sequence[ServiceBusReceivedMessage]:
            looked.set()
            return ()

        return BackgroundLockRenewer(bus.client, held)

    moved, runs, over = (threading.Event() for _ in range(3))
    with clock.held():
        async with renewer(moved):
            bus.clock.advance(seconds=1)
            await eventually(moved.is_set)
    async with AsyncExitStack() as running:
        with clock.held():
            await running.enter_async_context(renewer(runs))
        await eventually(runs.is_set)
    with clock.held():
        async with renewer(over):
            moving = threading.Thread(target=lambda: bus.clock.advance(seconds=1))
            moving.start()
            moving.join()
        await asyncio.sleep(0)  # what the move has asked for is done
        name = f"sbredis lock renewal {bus.url.replace('://', ' ')}"
        assert name not in {thread.name for thread in threading.enumerate()}
    assert not over.is_set()
