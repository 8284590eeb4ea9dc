"""The renewer: it renews locks together, for the requested duration, and reports each lost lock."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from sbredis.aio import AutoLockRenewer
from sbredis.client import RenewJob
from sbredis.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout, MessageLockLostError, ServiceBusError
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of
from tests.aio.diverting import divert
from tests.aio.queues import Calls, HandClock, Queue, both, in_memory, one, queue_at, receive_exactly
from tests.waiting import eventually

Reports = list[tuple[ServiceBusReceivedMessage, Exception | None]]


async def renewal(queue: Queue, clock: HandClock) -> None:
    """Move the clock to the time of the next renewal, and wait until it has happened."""
    with Calls(queue.transport) as calls:
        clock.move(41)
        await eventually(lambda: calls.by_script["renew"] and not calls.under_way)
        await asyncio.sleep(0)


@both
async def test_a_lock_is_renewed_until_its_message_is_settled(queue: Queue, clock: HandClock) -> None:
    async with AutoLockRenewer() as renewer:
        await queue.send("a", at=-1)
        receiver = queue.receiver(auto_lock_renewer=renewer)
        message = await one(receiver)
        token, until = message.lock_token, message.locked_until_utc
        for _ in range(4):
            await renewal(queue, clock)
        assert message.lock_token == token
        assert until is not None
        assert message.locked_until_utc is not None
        assert (message.locked_until_utc - until).total_seconds() == 4 * 41
        assert message.auto_renew_error is None
        await receiver.complete_message(message)
        assert (await queue.counts()).bytes == 0
        with Calls(queue.transport) as calls:
            clock.move(41)
            await eventually(lambda: not renewer._renewals._due)
            assert not calls.by_script["renew"]


@pytest.mark.slow
@pytest.mark.conformance
@both
@pytest.mark.parametrize("prefetch", [0, 20])
async def test_messages_are_renewed_together(queue: Queue, clock: HandClock, prefetch: int) -> None:
    """This also holds for messages that were received one by one."""
    async with AutoLockRenewer() as renewer:
        await queue.fill(40, at=-1)
        async with queue.receiver(auto_lock_renewer=renewer, prefetch_count=prefetch) as receiver:
            messages = await receive_exactly(receiver, 20)
            messages += [await one(receiver) for _ in range(20)]
            with Calls(queue.transport) as calls:
                clock.move(41)
                holds = [hold_of(message) for message in messages]
                await eventually(lambda: all(hold.lease.until > 1070 for hold in holds if hold.lease))
                assert calls.by_script["renew"] <= 4
            await asyncio.gather(*(receiver.complete_message(message) for message in messages))
        assert await queue.locked() == 0


@pytest.mark.slow
@in_memory
async def test_messages_registered_close_together_share_entries_of_the_renewer(url: str) -> None:
    async with queue_at(url, clock=HandClock()) as queue, AutoLockRenewer() as renewer:
        await queue.fill(50)
        receiver = queue.receiver()
        messages = [await one(receiver) for _ in range(50)]
        for message in messages:
            renewer.register(receiver, message)
        assert len(renewer._renewals._due) < 25
        await receiver.close()


@both
async def test_a_lock_is_renewed_no_longer_than_requested(queue: Queue, clock: HandClock) -> None:
    reports: Reports = []

    async def failed(message: ServiceBusReceivedMessage, error: Exception | None) -> None:
        await asyncio.sleep(0)
        reports.append((message, error))

    await queue.send("a", at=-1)
    async with AutoLockRenewer(max_lock_renewal_duration=100, on_lock_renew_failure=failed) as renewer:
        receiver = queue.receiver(auto_lock_renewer=renewer)
        message = await one(receiver)
        for _ in range(2):
            await renewal(queue, clock)
        clock.move(17.5)
        assert reports == []
        clock.move(0.5)
        await eventually(lambda: reports)
        assert reports == [(message, message.auto_renew_error)]
        assert isinstance(message.auto_renew_error, AutoLockRenewTimeout)
        assert not hold_of(message).lock_expired(clock.now())
        with Calls(queue.transport) as calls:
            clock.move(60)
            assert hold_of(message).lock_expired(clock.now())
            await queue.process_due()
            assert not calls.by_script["renew"]


@in_memory
async def test_a_renewal_duration_that_is_shorter_than_the_lock_is_respected(url: str) -> None:
    reports: Reports = []
    async with queue_at(url) as queue, AutoLockRenewer(300, lambda *said: reports.append(said)) as renewer:
        await queue.send("a")
        receiver = queue.receiver()
        message = await one(receiver)
        renewer.register(receiver, message, max_lock_renewal_duration=0.05)
        await eventually(lambda: reports)
        assert isinstance(message.auto_renew_error, AutoLockRenewTimeout)
        await receiver.complete_message(message)


@both
async def test_a_lost_lock_is_reported_and_the_other_locks_are_still_renewed(queue: Queue, clock: HandClock) -> None:
    reports: Reports = []
    async with AutoLockRenewer() as renewer:
        await queue.fill(5, at=-1)
        receiver = queue.receiver()
        messages = await receive_exactly(receiver, 5)
        for message in messages:
            renewer.register(receiver, message, 600, lambda *said: reports.append(said))
        await queue.lose(messages[2])
        await renewal(queue, clock)
        await eventually(lambda: reports)
        assert reports == [(messages[2], messages[2].auto_renew_error)]
        error = messages[2].auto_renew_error
        assert isinstance(error, AutoLockRenewFailed)
        assert isinstance(error.__cause__, MessageLockLostError)
        for _ in range(3):
            await renewal(queue, clock)
        others = messages[:2] + messages[3:]
        await asyncio.gather(*(receiver.complete_message(message) for message in others))
        assert len(reports) == 1


@both
async def test_a_renewal_that_comes_too_late_reports_a_failure(queue: Queue, clock: HandClock) -> None:
    """This happens, for example, after the machine slept or the process was stopped."""
    reports: Reports = []
    await queue.send("a", at=-1)
    async with AutoLockRenewer(300, lambda *said: reports.append(said)) as renewer:
        message = await one(queue.receiver(auto_lock_renewer=renewer))
        clock.move(61)
        await eventually(lambda: reports)
        assert isinstance(message.auto_renew_error, AutoLockRenewFailed)


def _ends_soon(message: ServiceBusReceivedMessage, clock: HandClock) -> bool:
    lease = hold_of(message).lease
    return lease is None or lease.until < clock.now() + 50


@pytest.mark.slow
@both
async def test_messages_can_be_settled_at_any_moment_of_their_renewal(queue: Queue, clock: HandClock) -> None:
    """Some messages of one receive call are settled while the others are being renewed."""
    reports: Reports = []
    async with AutoLockRenewer(10_000, lambda *said: reports.append(said)) as renewer:
        await queue.fill(60, at=-1)
        async with queue.receiver(auto_lock_renewer=renewer, prefetch_count=60) as receiver:
            # so that a renewal covers only a part of the messages of a lease
            messages = [await one(receiver) for _ in range(40)]
            for turns, message in enumerate(messages):
                clock.move(41)
                for _ in range(turns // 2):
                    await asyncio.sleep(0)
                await receiver.complete_message(message)
                await eventually(lambda: hold_of(messages[-1]).settled or not _ends_soon(messages[-1], clock))
        assert reports == []
        assert await queue.locked() == 0


@in_memory
async def test_the_renewer_forgets_a_settled_message(url: str) -> None:
    """It does so long before the next renewal."""
    async with queue_at(url) as queue, AutoLockRenewer() as renewer:
        await queue.fill(5)
        receiver = queue.receiver(auto_lock_renewer=renewer)
        messages = await receiver.receive_messages(5, 60)
        kept = [lock.subject for _, _, watched in renewer._renewals._due for lock in watched.locks.values()]
        assert len(kept) == 5
        del kept
        for settle in (
            lambda message: receiver.complete_messages([message]),
            receiver.complete_message,
            receiver.abandon_message,
            receiver.defer_message,
            receiver.dead_letter_message,
        ):
            await settle(messages.pop())
        gc.collect()
        received = [each for each in gc.get_objects() if type(each) is ServiceBusReceivedMessage]
        links = [link for message in received if (link := hold_of(message).reception.link) is not None]
        assert [link for link in links if link.entity is queue.entity] == []
        assert not any(watched.locks for _, _, watched in renewer._renewals._due)


@in_memory
async def test_a_closed_renewer_renews_nothing_and_calls_no_callback(queue: Queue, clock: HandClock) -> None:
    reports: Reports = []
    await queue.send("a", "b")
    renewer = AutoLockRenewer(300, lambda *said: reports.append(said))
    receiver = queue.receiver(auto_lock_renewer=renewer)
    message = await one(receiver)
    await renewal(queue, clock)
    await renewer.close()
    await renewer.close()
    with Calls(queue.transport) as calls:
        clock.move(41)
        clock.move(41)
        await queue.process_due()
        assert not calls.by_script["renew"]
    assert reports == []
    assert message.auto_renew_error is None
    with pytest.raises(ServiceBusError, match="cannot be used again"):
        renewer.register(receiver, message)
    with pytest.raises(ServiceBusError, match="cannot be used again"):
        await renewer.__aenter__()
    with pytest.raises(ServiceBusError, match="cannot be used again"):
        await receiver.receive_messages(1, 60)
    assert await queue.locked() == 0


@in_memory
async def test_closing_a_renewer_while_its_receiver_waits_loses_no_message(queue: Queue) -> None:
    renewer = AutoLockRenewer()
    receiver = queue.receiver(auto_lock_renewer=renewer)
    task = asyncio.create_task(receiver.receive_messages(1, 60))
    await queue.wait_for_waiters()
    await renewer.close()
    await queue.send("a")
    (message,) = await task
    await receiver.complete_message(message)


@in_memory
async def test_the_renewer_can_be_closed_by_its_callback(queue: Queue) -> None:
    await queue.send("a")
    closed = asyncio.Event()

    async def failed(*_: Any) -> None:
        await renewer.close()
        closed.set()

    renewer = AutoLockRenewer(0.05, failed)
    await one(queue.receiver(auto_lock_renewer=renewer))
    await asyncio.wait_for(closed.wait(), 60)


@in_memory
async def test_a_failing_callback_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def failed(*_: Any) -> None:
        raise RuntimeError("mine")

    async with queue_at(url) as queue, AutoLockRenewer(0.05, failed) as renewer:
        await queue.send("a")
        await one(queue.receiver(auto_lock_renewer=renewer))
        await eventually(lambda: "on_lock_renew_failure failed" in caplog.text)
        assert "mine" in caplog.text


@pytest.mark.slow
@in_memory
async def test_a_renewal_that_fails_transiently_is_retried(queue: Queue, clock: HandClock) -> None:
    async with AutoLockRenewer() as renewer:
        await queue.send("a")
        receiver = queue.receiver(auto_lock_renewer=renewer)
        message = await one(receiver)
        lane = queue.entity.partition_client(queue.entity.numbers[0]).renewing
        submit, failures = lane.submit, 0

        def flaky(job: RenewJob) -> asyncio.Future[None]:
            nonlocal failures
            if failures == 2:
                return submit(job)
            failures += 1
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_exception(ServiceBusError("for a moment", is_transient=True))
            return future

        lane.submit = flaky  # type: ignore[method-assign]
        await renewal(queue, clock)
        assert failures == 2
        assert message.auto_renew_error is None
        await receiver.complete_message(message)


@in_memory
async def test_only_messages_with_a_lock_can_be_registered(url: str) -> None:
    async with queue_at(url) as queue, AutoLockRenewer() as renewer:
        await queue.send("a", "b", "c")
        receiver = queue.receiver()
        deleting = queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        deleted = await one(deleting)
        settled = await one(receiver)
        await receiver.complete_message(settled)
        (peeked,) = await receiver.peek_messages()
        for without in (deleted, settled, peeked):
            with pytest.raises(ValueError, match="no lock that could be renewed"):
                renewer.register(receiver, without)
        with pytest.raises(TypeError, match="not str"):
            renewer.register(receiver, "message")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="max_lock_renewal_duration"):
            renewer.register(receiver, await one(receiver), max_lock_renewal_duration=0)
        with pytest.raises(ValueError, match="leave out auto_lock_renewer"):
            queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, auto_lock_renewer=renewer)
        with pytest.raises(ValueError, match="max_lock_renewal_duration"):
            AutoLockRenewer(-1)


@in_memory
async def test_locks_are_renewed_after_their_receiver_closes_until_the_client_closes(url: str) -> None:
    clock = HandClock()
    async with queue_at(url, clock=clock) as queue, AutoLockRenewer() as renewer:
        await queue.send("a")
        async with queue.receiver(auto_lock_renewer=renewer) as receiver:
            message = await one(receiver)
        for _ in range(2):
            await renewal(queue, clock)
        await queue.client.close()
        clock.move(41)
        await eventually(lambda: not renewer._renewals._due)
        assert message.auto_renew_error is None


@in_memory
async def test_closing_the_client_during_a_renewal_is_not_reported_as_a_failed_renewal(url: str) -> None:
    reports: Reports = []
    clock = HandClock()
    async with queue_at(url, clock=clock) as queue, AutoLockRenewer(300, lambda *said: reports.append(said)) as renewer:
        await queue.send("a")
        message = await one(queue.receiver(auto_lock_renewer=renewer))
        call, under_way = queue.transport.call, asyncio.Event()

        async def stuck(script: Any, *arguments: Any, **options: Any) -> Any:
            if script.name == "renew":
                under_way.set()
                await asyncio.Event().wait()
            return await call(script, *arguments, **options)

        divert(queue.transport, stuck)
        clock.move(41)
        await under_way.wait()
        divert(queue.transport, call)
        await queue.client.close()
        await eventually(lambda: not hold_of(message).watchers)
        assert (reports, message.auto_renew_error) == ([], None)


@both
async def test_a_message_that_is_being_settled_is_not_renewed(queue: Queue, clock: HandClock) -> None:
    """The settlement uses the current lock, and a renewal would replace this lock."""
    async with AutoLockRenewer() as renewer:
        await queue.fill(3, at=-1)
        receiver = queue.receiver()
        messages = await receive_exactly(receiver, 3)
        for message in messages[1:]:
            renewer.register(receiver, message)
        call, held, released = queue.transport.call, asyncio.Event(), asyncio.Event()

        async def slow(script: Any, *arguments: Any, **options: Any) -> Any:
            if script.name == "complete":
                held.set()
                await released.wait()
            return await call(script, *arguments, **options)

        divert(queue.transport, slow)
        settled = asyncio.create_task(receiver.complete_message(messages[1]))
        await held.wait()
        clock.move(41)
        last = hold_of(messages[2])
        await eventually(lambda: last.lease is not None and last.lease.until > clock.now() + 50)
        divert(queue.transport, call)
        released.set()
        await settled
        await receiver.complete_message(messages[2])
