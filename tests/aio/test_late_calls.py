"""Calls that wait for a connection, are repeated, or are answered late: no lock is lost that nobody knows of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest

from sbredis import NEXT_AVAILABLE_SESSION
from sbredis.aio import ServiceBusClient, ServiceBusSessionReceiver
from sbredis.client import Clock
from sbredis.exceptions import Outcome, ServiceBusError, SessionCannotBeLockedError
from sbredis.model import ServiceBusReceiveMode
from sbredis.servers import LocalServer
from tests.aio.diverting import divert
from tests.aio.gates import Gate
from tests.aio.queues import Queue, bodies, both, in_memory, queue_at
from tests.aio.scissors import Scissors
from tests.aio.session_queues import SessionQueue, script_of, session_of, session_queue_at
from tests.waiting import eventually

modes = pytest.mark.parametrize("mode", list(ServiceBusReceiveMode), ids=["peek-lock", "receive-and-delete"])
acceptances = pytest.mark.parametrize("wanted", ["a", NEXT_AVAILABLE_SESSION], ids=["named", "next"])
HOUR = 3600.0
"""Much longer than a lock."""


class LeapingClock(Clock):
    """The clock of a client that passes hours without a wait. The clocks of the servers go on as usual."""

    def __init__(self) -> None:
        self._passed = 0.0

    def now(self) -> float:
        return time.monotonic() + self._passed

    def utc(self) -> float:
        return time.time() + self._passed

    def leap(self, seconds: float = HOUR) -> None:
        self._passed += seconds

    async def leaping(self) -> None:
        self.leap()


class LateAnswer:
    """The next answer to a script comes an hour after the script has run."""

    def __init__(self, queue: Queue, script: str, clock: LeapingClock) -> None:
        self._transport, self._through = queue.transport, queue.transport.call
        self._script, self._clock = script, clock
        self.late = False

    def __enter__(self) -> Self:
        divert(self._transport, self._call)
        return self

    def __exit__(self, *_: object) -> None:
        divert(self._transport, self._through)

    async def _call(self, script: Any, *arguments: Any, **options: Any) -> Any:
        reply = await self._through(script, *arguments, **options)
        if script.name == self._script and not self.late and self._locks(reply):
            self.late = True
            self._clock.leap()
        return reply

    def _locks(self, reply: Any) -> bool:
        """Return whether the reply brings a lock: a gift, or a session that was taken."""
        return len(reply[1][1]) > 1 if self._script == "grant" else reply[3] not in (b"", b"none", b"found")


@asynccontextmanager
async def behind_scissors(
    server: LocalServer, clock: Clock, *, sessions: bool = False
) -> AsyncIterator[tuple[SessionQueue, Scissors]]:
    """Create a queue, and a client with a clock of its own behind a network that a test can cut."""
    async with (
        queue_at(server.url, sessions=sessions) as queue,
        Scissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns", _clock=clock) as client,
    ):
        entity = await client._connection.entity("q", asyncio.get_running_loop().time() + 60)
        yield SessionQueue(client, entity, queue.url, clock), network


async def late(gate: Gate, clock: LeapingClock, call: Coroutine[Any, Any, Any]) -> Any:
    """Hold a call for an hour before it is written to a connection. Return its result."""
    gate.shut = True
    task = asyncio.create_task(call)
    await gate.reached()
    clock.leap()
    gate.open()
    return await task


# -- messages ----------------------------------------------------------------------------------------------------------


@both
@modes
@in_memory
async def test_a_receive_that_waited_for_a_connection_brings_its_messages(
    url: str, mode: ServiceBusReceiveMode, partitioned: bool
) -> None:
    clock = LeapingClock()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue:
        await queue.send("a")
        receiver = queue.receiver(receive_mode=mode)
        with Gate(queue.client, "grant") as gate:
            (message,) = await late(gate, clock, receiver.receive_messages(1, 60))
        assert (str(message), message.delivery_count) == ("a", 1)
        if mode is ServiceBusReceiveMode.PEEK_LOCK:
            await receiver.complete_message(message)
        await receiver.close()
        assert not (await queue.counts()).active


@modes
async def test_a_receive_that_was_lost_on_the_way_brings_its_messages(
    server: LocalServer, mode: ServiceBusReceiveMode
) -> None:
    clock = LeapingClock()
    async with behind_scissors(server, clock) as (queue, network), queue.receiver(receive_mode=mode) as receiver:
        await queue.send("a", "b")
        network.cut("grant", on_the_way=True, then=clock.leaping)
        messages = await receiver.receive_messages(2, 60)
        assert network.cuts == 1
        assert [(str(message), message.delivery_count) for message in messages] == [("a", 1), ("b", 1)]


async def test_a_receive_whose_answer_was_lost_brings_its_messages(server: LocalServer) -> None:
    """The repeated call is answered with the time that is left of the lock, counted from the repetition."""
    clock = LeapingClock()
    async with behind_scissors(server, clock) as (queue, network), queue.receiver() as receiver:
        await queue.send("a", "b")
        network.cut("grant", then=clock.leaping)
        messages = await receiver.receive_messages(2, 60)
        assert network.cuts == 1
        assert [(str(message), message.delivery_count) for message in messages] == [("a", 1), ("b", 1)]
        for message in messages:
            await receiver.complete_message(message)


@in_memory
async def test_messages_whose_answer_came_too_late_are_released_uncounted(url: str) -> None:
    clock = LeapingClock()
    async with queue_at(url, clock=clock) as queue, queue.receiver() as receiver:
        await queue.send("a", "b")
        with LateAnswer(queue, "grant", clock) as answer:
            messages = await receiver.receive_messages(2, 60)
        assert answer.late
        assert [message.delivery_count for message in messages] == [1, 1]


@in_memory
async def test_messages_that_come_too_late_for_a_closed_receiver_are_released_uncounted(url: str) -> None:
    clock = LeapingClock()
    async with queue_at(url, clock=clock) as queue:
        await queue.send("a")
        with Gate(queue.client, "grant") as gate:
            gate.shut = True
            receiver = queue.receiver()
            task = asyncio.create_task(receiver.receive_messages(1, 60))
            await gate.reached()
            closing = asyncio.create_task(receiver.close())
            with pytest.raises(ServiceBusError):
                await task
            clock.leap()
            gate.open()
            await closing
        async with queue.receiver() as other:
            (message,) = await other.receive_messages(1, 60)
            assert message.delivery_count == 1


@in_memory
async def test_a_lock_that_was_renewed_after_a_wait_holds(url: str) -> None:
    clock = LeapingClock()
    async with queue_at(url, clock=clock, lock_duration=60_000) as queue, queue.receiver() as receiver:
        await queue.send("a")
        (message,) = await receiver.receive_messages(1, 60)
        with Gate(queue.client, "renew") as gate:
            await late(gate, clock, receiver.renew_message_lock(message))
        await receiver.complete_message(message)


# -- sessions ----------------------------------------------------------------------------------------------------------


async def opened(queue: SessionQueue, wanted: Any) -> ServiceBusSessionReceiver:
    """Accept a session."""
    receiver = queue.session(wanted, max_wait_time=60)
    await receiver.__aenter__()
    return receiver


async def check_works(receiver: ServiceBusSessionReceiver) -> None:
    """Check that the lock of the session ``a`` holds, and that its message was not delivered before."""
    assert session_of(receiver).session_id == "a"
    (message,) = await receiver.receive_messages(1, 60)
    assert (bodies([message]), message.delivery_count) == (["1"], 1)
    await receiver.complete_message(message)
    await receiver.close()


@both
@acceptances
@in_memory
async def test_a_session_that_was_accepted_after_a_wait_is_locked(url: str, wanted: Any, partitioned: bool) -> None:
    clock = LeapingClock()
    async with session_queue_at(url, partitioned=partitioned, clock=clock) as queue:
        await queue.send_to("a", "1")
        with Gate(queue.client, script_of(wanted)) as gate:
            receiver = await late(gate, clock, opened(queue, wanted))
        await check_works(receiver)


@acceptances
@pytest.mark.parametrize("on_the_way", [True, False], ids=["lost call", "lost answer"])
async def test_a_session_that_was_accepted_by_a_repeated_call_is_locked(
    server: LocalServer, wanted: Any, on_the_way: bool
) -> None:
    clock = LeapingClock()
    async with behind_scissors(server, clock, sessions=True) as (queue, network):
        await queue.send_to("a", "1")
        network.cut(script_of(wanted), on_the_way=on_the_way, then=clock.leaping)
        await check_works(await opened(queue, wanted))
        assert network.cuts == 1


@acceptances
@in_memory
async def test_a_session_whose_answer_came_too_late_is_released_and_accepted_again(url: str, wanted: Any) -> None:
    clock = LeapingClock()
    async with session_queue_at(url, clock=clock) as queue:
        await queue.send_to("a", "1")
        with LateAnswer(queue, script_of(wanted), clock) as answer:
            await check_works(await opened(queue, wanted))
        assert answer.late


@in_memory
async def test_a_session_lock_that_was_renewed_after_a_wait_holds(url: str) -> None:
    clock = LeapingClock()
    async with session_queue_at(url, clock=clock) as queue:
        await queue.send_to("a", "1")
        receiver = await opened(queue, "a")
        with Gate(queue.client, "renew_session") as gate:
            await late(gate, clock, session_of(receiver).renew_lock())
        await check_works(receiver)


@in_memory
async def test_a_session_that_may_have_been_accepted_for_nobody_is_released(url: str) -> None:
    async with session_queue_at(url, lock_duration=300_000) as queue:
        with Gate(queue.client, "accept_session") as gate:
            gate.fates.append("is not answered")
            with pytest.raises(ServiceBusError) as caught:
                await opened(queue, "a")
        assert caught.value.outcome is Outcome.UNKNOWN

        async def is_free() -> bool:
            try:
                receiver = await opened(queue, "a")
            except SessionCannotBeLockedError:
                return False
            await receiver.close()
            return True

        await eventually(is_free)
