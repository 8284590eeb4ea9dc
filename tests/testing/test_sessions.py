"""Tests of sessions on a bus: session locks, and receivers that wait for sessions, use the clock of the bus."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis import NEXT_AVAILABLE_SESSION
from sbredis.aio import ServiceBusReceiver, ServiceBusSession
from sbredis.exceptions import SessionLockLostError
from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus, SyncBus
from tests.testing.waiters import wait_for_waiters

pytestmark = pytest.mark.anyio


async def send(bus: Bus, session: str, *bodies: str) -> None:
    async with bus.client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage(body, session_id=session) for body in bodies])


def bodies(messages: list[Any]) -> list[bytes]:
    return [message.body for message in messages]


def session_of(receiver: ServiceBusReceiver | None) -> ServiceBusSession:
    assert receiver is not None
    assert receiver.session is not None
    return receiver.session


@pytest.mark.slow
@pytest.mark.both_shapes
async def test_session_messages_are_listed_like_others(bus: Bus, partitioned: bool) -> None:
    await bus.create_queue("orders", requires_session=True, enable_partitioning=partitioned)
    await send(bus, "ann", "one", "two")
    await send(bus, "bob", "three")
    assert [message.session_id for message in await bus.sent("orders")] == ["ann", "ann", "bob"]
    async with bus.client.get_queue_receiver("orders", session_id="ann") as receiver:
        (message,) = await receiver.receive_messages()
        assert bodies(await bus.locked("orders")) == [b"one"]
        assert sorted(bodies(await bus.active("orders"))) == [b"one", b"three", b"two"]
        await receiver.dead_letter_message(message)
    assert bodies(await bus.dead_lettered("orders")) == [b"one"]
    assert await bus.purge("orders") == 3
    assert await bus.messages("orders") == []


@pytest.mark.slow
@pytest.mark.both_shapes
@pytest.mark.parametrize("wanted", ["ann", NEXT_AVAILABLE_SESSION])
async def test_a_session_lock_lapses_when_the_clock_is_moved(bus: Bus, wanted: Any, partitioned: bool) -> None:
    await bus.create_queue("orders", requires_session=True, enable_partitioning=partitioned)
    await send(bus, "ann", "one", "two")
    first = bus.client.get_queue_receiver("orders", session_id="ann")
    (message,) = await first.receive_messages()
    session = session_of(first)
    bus.clock.advance(seconds=59)
    await session.renew_lock()
    bus.clock.advance(minutes=2)
    assert await bus.locked("orders") == []
    second = bus.client.get_queue_receiver("orders", session_id=wanted)
    again = await second.receive_messages(2)
    assert [(each.body, each.delivery_count) for each in again] == [(b"one", 2), (b"two", 1)]
    assert session_of(second).locked_until_utc > bus.clock.now
    with pytest.raises(SessionLockLostError):
        await session.get_state()
    with pytest.raises(SessionLockLostError):
        await first.complete_message(message)
    await second.complete_messages(again)
    assert await bus.messages("orders") == []


@pytest.mark.slow
@pytest.mark.both_shapes
async def test_a_waiting_receiver_gets_a_session_whose_lock_lapsed(bus: Bus, partitioned: bool) -> None:
    await bus.create_queue("orders", requires_session=True, enable_partitioning=partitioned)
    await send(bus, "ann", "one")
    first = bus.client.get_queue_receiver("orders", session_id="ann")
    await first.receive_messages()
    waiting = asyncio.ensure_future(bus.client.accept_next_session("orders", max_wait_time=60))
    await wait_for_waiters(bus.client, "orders")
    assert not waiting.done()
    bus.clock.advance(minutes=2)
    async with asyncio.timeout(40):
        assert session_of(await waiting).session_id == "ann"


def test_a_synchronous_session_uses_the_test_clock(sync_bus: SyncBus) -> None:
    sync_bus.create_queue("orders", requires_session=True)
    client = sync_bus.client
    with client.get_queue_receiver("orders", session_id="ann") as receiver:
        assert receiver.session is not None
        receiver.session.set_state("here")
        sync_bus.clock.advance(minutes=2)
        with pytest.raises(SessionLockLostError):
            receiver.session.get_state()
        with client.get_queue_receiver("orders", session_id="ann") as another:
            assert another.session is not None
            assert another.session.get_state() == b"here"
