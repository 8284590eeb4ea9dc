"""Waiting for the loss of a session lock, and closing a renewer whose renewals or callbacks hang."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis.aio import AutoLockRenewer, ServiceBusSession
from sbredis.exceptions import SessionLockLostError
from tests.aio.gates import Gate
from tests.aio.queues import HandClock, both, in_memory, queue_at
from tests.aio.session_queues import SessionQueue, session_queue_at, steps
from tests.waiting import eventually


async def waits(session: ServiceBusSession, count: int = 1) -> None:
    await eventually(lambda: len(session._held._waiting) == count)


def is_locked(session: ServiceBusSession) -> bool:
    """Read the property in a function, because a type checker assumes that the value of a property does not change."""
    return session.locked


async def take(queue: SessionQueue) -> None:
    """Delete all locks without the client's knowledge."""
    for partition in queue.partitions:
        for key in partition.keys[3:5]:
            await queue.transport.command("DEL", key, key=key)


@both
async def test_wait_lock_lost_returns_true_when_the_lock_time_has_passed(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with session_queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue:
        async with queue.session("a") as receiver:
            session = receiver.session
            waiting = [asyncio.create_task(session.wait_lock_lost()) for _ in range(2)]
            await waits(session, 2)
            clock.move(20)
            await session.renew_lock()
            clock.move(20)
            await steps(5)
            assert is_locked(session)
            assert not any(task.done() for task in waiting)
            clock.move(11)
            assert await asyncio.gather(*waiting) == [True, True]
            assert not is_locked(session)
            assert await session.wait_lock_lost()
        assert await session.wait_lock_lost()


@pytest.mark.slow
@in_memory
async def test_wait_lock_lost_returns_when_the_lock_ends_in_real_time(url: str) -> None:
    async with session_queue_at(url, lock_duration=300) as queue, queue.session("a") as receiver:
        assert await receiver.session.wait_lock_lost()
        assert not is_locked(receiver.session)


@both
@pytest.mark.parametrize("call", ["state", "receive"])
async def test_wait_lock_lost_returns_when_a_call_reports_a_lost_lock(url: str, partitioned: bool, call: str) -> None:
    """The lock would have lasted longer than the test waits."""
    async with (
        session_queue_at(url, partitioned=partitioned, lock_duration=300_000) as queue,
        queue.session("a") as receiver,
    ):
        session = receiver.session
        waiting = asyncio.create_task(session.wait_lock_lost())
        await waits(session)
        await take(queue)
        with pytest.raises(SessionLockLostError):
            await (session.get_state() if call == "state" else receiver.receive_messages(1, 60))
        await eventually(waiting.done)
        assert await waiting
        assert not is_locked(session)


@both
async def test_closing_a_session_is_not_reported_as_a_lost_lock(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        async with queue.session("a") as receiver:
            session = receiver.session
            waiting = asyncio.create_task(session.wait_lock_lost())
            await waits(session)
            assert is_locked(session)
        assert not await waiting
        assert not is_locked(session)
        assert not await session.wait_lock_lost()
        assert not session._held._waiting


@in_memory
async def test_wait_lock_lost_can_time_out_or_be_cancelled(url: str) -> None:
    clock = HandClock()
    async with session_queue_at(url, clock=clock) as queue, queue.session("a") as receiver:
        session = receiver.session
        assert not await session.wait_lock_lost(timeout=0.05)
        assert is_locked(session)
        waiting = asyncio.create_task(session.wait_lock_lost())
        await waits(session)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not session._held._waiting
        with pytest.raises(ValueError, match="timeout"):
            await session.wait_lock_lost(timeout=0)


# -- closing a renewer -------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("what", ["message", "session"])
async def test_a_renewal_that_hangs_does_not_delay_the_close_of_its_renewer(
    url: str, partitioned: bool, what: str
) -> None:
    clock = HandClock()
    at = session_queue_at if what == "session" else queue_at
    async with at(url, partitioned=partitioned, clock=clock) as queue:
        renewer = AutoLockRenewer()
        receiver = queue.receiver(auto_lock_renewer=renewer, session_id="a" if what == "session" else None)
        if what == "session":
            await receiver.__aenter__()
        else:
            await queue.send("1", at=-1)
            await receiver.receive_messages(1, 60)
        with Gate(queue.client, "renew" if what == "message" else "renew_session") as gate:
            gate.shut = True
            clock.move(45)
            await gate.reached()
            before = asyncio.get_running_loop().time()
            await renewer.close()
            assert asyncio.get_running_loop().time() - before < 4
            await eventually(lambda: not renewer._renewals._renewals)
            assert gate.waiting  # the renewal has still got no answer


@in_memory
async def test_a_callback_that_hangs_is_cancelled_when_its_renewer_closes(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sbredis.renewing._renewals._CLOSING", 0.05)
    called: list[Any] = []
    ended = asyncio.Event()

    async def hangs(renewable: Any, error: Exception | None) -> None:
        called.append((renewable, error))
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    clock = HandClock()
    async with queue_at(url, clock=clock) as queue:
        await queue.send("1")
        renewer = AutoLockRenewer(on_lock_renew_failure=hangs)
        await queue.receiver(auto_lock_renewer=renewer).receive_messages(1, 60)
        clock.move(61)
        await eventually(lambda: called)
        await renewer.close()
        await ended.wait()
        assert "had not ended" in caplog.text
