"""The end of a lock as the client computes it: never later than in the partition, even if the answer arrives late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.exceptions import MessageLockLostError, Outcome, SessionLockLostError
from sbredis.model import ServiceBusReceivedMessage, hold_of
from tests.aio.gates import Gate
from tests.aio.queues import Calls, HandClock, Queue, both, queue_with, receive_exactly
from tests.aio.session_queues import SessionQueue, session_of
from tests.transport.hand import turns

LOCK, DELAY = 30.0, 7.0
BEGUN = HandClock().now()


async def reaches(gate: Gate, key: bytes) -> None:
    """Wait for a call that locks in the partition with this key. Let looks and calls to other partitions pass."""
    count = 1
    while True:
        await gate.reached(count)
        came = gate.arrived[count - 1]
        if came.key == key and (came.arguments[2] or grants_credit(came.arguments[-1])):  # a look belongs to no lane
            return
        gate.let_one()
        count += 1


def grants_credit(grant: Any) -> bool:
    """Return whether a grant has a higher limit than the number of messages that its receiver has counted."""
    words = str(grant).split(" ")
    return len(words) > 11 and int(words[11]) > int(words[6])


@both
@pytest.mark.parametrize("what", ["received", "deferred", "renewed"])
@queue_with(lock_duration=30_000)
async def test_the_client_counts_the_time_of_a_message_lock_from_the_start_of_the_call(
    queue: Queue, clock: HandClock, what: str
) -> None:
    """The partition sets the lock when the script runs. An answer that arrives seven seconds later does not extend the
    lock.
    """
    async with queue.receiver() as r:
        (number,) = await queue.send("a", at=-1)
        message: ServiceBusReceivedMessage | None = None
        if what != "received":
            (message,) = await r.receive_messages(1, 60)
        if what == "deferred":
            assert message is not None
            await r.defer_message(message)

        async def lock() -> ServiceBusReceivedMessage:
            if what == "received":
                return (await r.receive_messages(1, 60))[0]
            if what == "deferred":
                return (await r.receive_deferred_messages(number))[0]
            assert message is not None
            await r.renew_message_lock(message)
            return message

        begun = clock.now()
        with Gate(
            queue.client, {"received": "grant", "deferred": "receive_deferred", "renewed": "renew"}[what]
        ) as gate:
            gate.shut = True
            call = asyncio.create_task(lock())
            await reaches(gate, queue.partitions[-1].keys[0])
            clock.passed += DELAY
            gate.open()
            message = await call
        lease = hold_of(message).lease
        assert lease is not None
        assert begun + LOCK - 0.1 < lease.until <= begun + LOCK
        assert message.locked_until_utc is not None
        assert message.locked_until_utc.timestamp() <= clock.utc() - DELAY + LOCK
        clock.passed += LOCK - DELAY
        with Calls(queue.transport) as calls, pytest.raises(MessageLockLostError) as caught:
            await r.complete_message(message)
        assert caught.value.outcome is Outcome.NEVER_SENT
        assert not calls.by_script


@both
@queue_with(lock_duration=30_000)
async def test_the_client_counts_the_time_of_a_lock_from_the_moment_when_a_waiting_call_is_sent(
    queue: Queue, receiver: ServiceBusReceiver, clock: HandClock
) -> None:
    """The clock moves while a call waits for its turn. The client must not treat the lock as ended before it began."""
    await queue.send("a", "b", at=-1)
    first, second = await receive_exactly(receiver, 2)
    with Gate(queue.client, "renew") as gate:
        gate.shut = True
        renewals = [asyncio.ensure_future(receiver.renew_message_lock(first))]
        await gate.reached()
        renewals.append(asyncio.ensure_future(receiver.renew_message_lock(second)))
        await turns(10)
        clock.passed += DELAY
        gate.open()
        await asyncio.gather(*renewals)
        assert len(gate.arrived) == 2
    for message, made in ((first, BEGUN), (second, BEGUN + DELAY)):
        lease = hold_of(message).lease
        assert lease is not None
        assert made + LOCK - 0.1 < lease.until <= made + LOCK


@both
@pytest.mark.parametrize("what", ["accepted", "renewed"])
@queue_with(sessions=True, lock_duration=30_000)
async def test_the_client_counts_the_time_of_a_session_lock_from_the_start_of_the_call(
    queue: SessionQueue, clock: HandClock, what: str
) -> None:
    await queue.send_to("a", "1")
    receiver = queue.session("a")
    if what == "renewed":
        await receiver.__aenter__()
    with Gate(queue.client, "accept_session" if what == "accepted" else "renew_session") as gate:
        gate.shut = True
        call = asyncio.ensure_future(receiver.__aenter__() if what == "accepted" else session_of(receiver).renew_lock())
        await gate.reached()
        clock.passed += DELAY
        gate.open()
        await call
    session = session_of(receiver)
    assert BEGUN + LOCK - 0.1 < session._held.lease.until <= BEGUN + LOCK
    assert session.locked_until_utc.timestamp() <= clock.utc() - DELAY + LOCK
    clock.passed += LOCK - DELAY
    with Calls(queue.transport) as calls, pytest.raises(SessionLockLostError) as caught:
        await session.get_state()
    assert caught.value.outcome is Outcome.NEVER_SENT
    assert not calls.by_script
    await receiver.close()
