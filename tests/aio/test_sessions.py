"""Sessions: the order of their messages, their locks, their state, lists of sessions, and many sessions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import in_thread
from sbredis.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from sbredis.client import Timings
from sbredis.exceptions import (
    AutoLockRenewFailed,
    MessageAlreadySettled,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from sbredis.model import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    hold_of,
)
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.aio.gates import Gate
from tests.aio.queues import (
    GATHERING,
    Calls,
    HandClock,
    bodies,
    both,
    in_memory,
    loop_time,
    queue_with,
    receive_exactly,
)
from tests.aio.scissors import Scissors
from tests.aio.session_queues import SessionQueue, session_of, session_queue_at, steps
from tests.loops import OneThreadLoop
from tests.waiting import eventually

pytestmark = queue_with(sessions=True)

Settlement = Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Awaitable[object]]
SETTLEMENTS: dict[str, Settlement] = {
    "complete": ServiceBusReceiver.complete_message,
    "abandon": ServiceBusReceiver.abandon_message,
    "defer": ServiceBusReceiver.defer_message,
    "dead_letter": ServiceBusReceiver.dead_letter_message,
    "complete many": lambda receiver, message: receiver.complete_messages([message]),
}


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
@pytest.mark.parametrize("prefetch", [0, 3], ids=["asked for", "fetched ahead"])
async def test_an_abandoned_message_is_delivered_again_before_later_messages(
    queue: SessionQueue, prefetch: int
) -> None:
    """So is one that is released, whose delivery is not counted."""
    await queue.send_to("a", *"123456")
    async with queue.session("a", prefetch_count=prefetch) as receiver:
        for text in "123456":
            message = await anext(receiver)
            assert (str(message), message.delivery_count) == (text, 1)
            again = receiver.abandon_message if text in "135" else receiver.release_message
            await again(message)
            message = await anext(receiver)
            assert (str(message), message.delivery_count) == (text, 2 if text in "135" else 1)
            await receiver.complete_message(message)


def waits_at(queue: SessionQueue) -> Callable[[], Awaitable[bool]]:
    """Return whether one receiver waits."""

    async def one_waits() -> bool:
        return await queue.waiters() == 1

    return one_waits


@both
@pytest.mark.parametrize("prefetch", [0, 10], ids=["asked for", "fetched ahead"])
async def test_an_abandoned_message_with_a_delay_blocks_its_session(url: str, partitioned: bool, prefetch: int) -> None:
    """No later message is delivered before the delayed one. A waiting receiver gets it when the delay has ended."""
    clock = HandClock()
    async with session_queue_at(url, partitioned=partitioned, clock=clock, timings=GATHERING) as queue:
        await queue.send_to("a", *"123")
        async with queue.session("a", prefetch_count=prefetch) as receiver:
            message = await anext(receiver)
            await receiver.abandon_message(message, delay=timedelta(seconds=30))
            clock.move(29)
            assert await receiver.receive_messages(3, 0) == []
            task = asyncio.create_task(receiver.receive_messages(3, 60))
            await eventually(waits_at(queue))
            clock.move(1)
            received = await task
            assert bodies(received) == list("123")
            assert [each.delivery_count for each in received] == [2, 1, 1]


@pytest.mark.slow
@both
async def test_a_cancelled_receive_keeps_the_order_of_messages(queue: SessionQueue) -> None:
    await queue.send_to("a", *"1234")
    async with queue.session("a") as receiver:
        for count in range(0, 60, 2):
            task = asyncio.create_task(receiver.receive_messages(2, 60))
            await steps(count)
            task.cancel()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(outcome, list):
                for message in reversed(outcome):
                    hold_of(message).reception.link.give_back(hold_of(message))
                await hold_of(outcome[0]).reception.link.entity.given_back()
            received = await receiver.receive_messages(4, 60)
            assert bodies(received) == list("1234"), count
            for message in received:
                hold_of(message).reception.link.give_back(hold_of(message))
            await hold_of(received[0]).reception.link.entity.given_back()


@both
@queue_with(lock_duration=300_000)
async def test_a_caller_that_waits_with_all_messages_held_that_may_be_gets_more_when_some_are_completed(
    queue: SessionQueue,
) -> None:
    async with queue.session("a") as receiver:
        await queue.send_to("a", *map(str, range(1010)))
        held = await receive_exactly(receiver, 1000)
        waiting = asyncio.create_task(receiver.receive_messages(10, 60))
        assert receiver._inbox is not None
        (driver,) = receiver._inbox.drivers
        await steps(5)
        await eventually(lambda: not driver.under_way)
        await receiver.complete_messages(held[:2])
        received = await waiting
        received += await receive_exactly(receiver, 2 - len(received))
        assert bodies(received) == ["1000", "1001"]


async def test_a_receiver_does_nothing_while_a_message_returns_for_long() -> None:
    """Its timer was set for the latest call, and fires meanwhile. It is not set again and again."""
    async with (
        session_queue_at("memory://returning", timings=replace(Timings(), late=0.01)) as queue,
        queue.session("a") as receiver,
    ):
        await queue.send_to("a", *"1234")
        message = await anext(receiver)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, OneThreadLoop)
        with Gate(queue.client, "abandon") as returning:
            returning.shut = True
            abandoning = asyncio.create_task(receiver.abandon_message(message))
            await returning.reached()
            until = loop.time() + 0.1  # the time of the timer has come then: an answer would be late before that
            await eventually(lambda: loop.time() >= until)
            before = loop.timers
            await steps(1000)
            assert loop.timers - before < 20
            returning.open()
            await abandoning
        assert str(await anext(receiver)) == "1"


@both
@queue_with(timings=GATHERING)
async def test_new_messages_do_not_overtake_messages_that_are_being_returned(queue: SessionQueue) -> None:
    """The cancelled caller has a second call under way. The answer to this call arrives only after the next caller has
    begun to wait.
    """
    async with queue.session("a") as receiver:
        await queue.send_to("a", *"123")
        with Gate(queue.client, "grant") as asking, Gate(queue.client, "abandon") as returning:
            asking.shut = returning.shut = True
            task = asyncio.create_task(receiver.receive_messages(9, 60))
            await asking.reached(1)
            asking.let_one()
            await asking.reached(2)
            await queue.send_to("a", "4")
            task.cancel()
            await returning.reached()
            following = asyncio.create_task(receiver.receive_messages(4, 60))
            await steps(5)
            asking.open()
            assert receiver._inbox is not None
            (driver,) = receiver._inbox.drivers
            await eventually(lambda: not driver.under_way)
            returning.open()
            received = await following
        assert bodies(received) == list("1234")
        assert {message.delivery_count for message in received} == {1}


@both
async def test_a_message_that_returns_is_not_overtaken_by_one_that_credit_is_open_for(queue: SessionQueue) -> None:
    """The credit of the call that has ended stays for a moment, and a new message comes meanwhile."""
    async with queue.session("a") as receiver:
        await queue.send_to("a", *"123")
        task = asyncio.create_task(receiver.receive_messages(9, 60, gather=False))
        messages = await task
        for _ in range(20):
            assert bodies(messages) == list("123")
            waiting = asyncio.create_task(receiver.receive_messages(9, 60, gather=False))
            await eventually(waits_at(queue))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await asyncio.gather(receiver.release_message(messages[0]), queue.send_to("a", "4"))
            await asyncio.gather(*map(receiver.release_message, messages[1:]))
            messages = await receive_exactly(receiver, 4)
            assert bodies(messages) == list("1234")
            await receiver.complete_message(messages.pop())
            assert {message.delivery_count for message in messages} == {1}


@in_memory
async def test_deleted_messages_of_a_session_are_not_lost_when_the_others_are_buried(queue: SessionQueue) -> None:
    await queue.send_to("a", *"12345")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with queue.session("a", receive_mode=mode, prefetch_count=3) as receiver:
        inbox = receiver._inbox
        assert inbox is not None
        await eventually(lambda: len(inbox.buffer) == 3)
        assert await session_of(receiver).dead_letter_messages() == 2
        assert bodies(await receive_exactly(receiver, 3)) == ["1", "2", "3"]


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.everywhere("a receiver listens to several nodes")
@both
@pytest.mark.parametrize("what", ["sent", "delayed", "due"])
async def test_a_waiting_receiver_of_a_session_is_woken(queue: SessionQueue, what: str) -> None:
    """Messages of other sessions do not wake the receiver."""
    mine, other = queue.sessions_in(0, 2)
    async with queue.session(mine) as receiver:
        if what == "delayed":
            await queue.send_to(mine, "x")
            await receiver.abandon_message(await anext(receiver), delay=0.5)
        task = asyncio.create_task(receiver.receive_messages(1, 60))
        await eventually(waits_at(queue))
        if what != "delayed":  # the delay may already have ended
            with Calls(queue.transport) as calls:
                await queue.send_to(other, "not mine")
                for _ in range(3):  # if there were a notice, it would arrive before the last answer
                    await queue.counts()
                assert not calls.by_script["grant"]
        begun = loop_time()
        if what == "sent":
            await queue.send_to(mine, "x")
        elif what == "due":
            await queue.send_to(mine, "x", scheduled_enqueue_time_utc=datetime.now(UTC) + timedelta(seconds=0.4))
        assert bodies(await task) == ["x"]
        assert loop_time() - begun < 20


@pytest.mark.slow
@both
async def test_a_waiting_receiver_learns_that_its_session_lock_ended(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned, lock_duration=400) as queue:
        receiver = await queue.session("a").__aenter__()
        begun = loop_time()
        with pytest.raises(SessionLockLostError):
            await receiver.receive_messages(1, 60)
        assert loop_time() - begun < 20
        with pytest.raises(SessionLockLostError):
            await session_of(receiver).renew_lock()


# -- the lock ----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
@queue_with(lock_duration=30_000)
async def test_completing_messages_of_several_sessions_fails_only_for_lost_sessions(
    queue: SessionQueue, clock: HandClock
) -> None:
    mine, other = queue.sessions_in(0, 2)
    await queue.send_to(mine, "1", "2")
    await queue.send_to(other, "1")
    lapsed, held = queue.session(mine), queue.session(other)
    messages = await lapsed.receive_messages(2, 60)
    clock.move(20)
    messages += await held.receive_messages(1, 60)
    clock.move(11)
    with pytest.raises(SessionLockLostError) as caught:
        await held.complete_messages(messages)
    assert caught.value.sequence_numbers == tuple(message.sequence_number for message in messages[:2])
    counts = await queue.counts()
    assert (counts.active, counts.locked, counts.held) == (2, 0, 0)


@both
async def test_a_message_of_a_session_has_no_separate_lock(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue, AutoLockRenewer() as renewer:
        await queue.send_to("a", "1")
        async with queue.session("a") as receiver:
            message = await anext(receiver)
            assert message.locked_until_utc is None
            assert message.lock_token is not None
            with pytest.raises(TypeError, match="Renew the lock of the session"):
                await receiver.renew_message_lock(message)
            with pytest.raises(ValueError, match="register its session"):
                renewer.register(receiver, message)
            await receiver.complete_message(message)
            with pytest.raises(MessageAlreadySettled):
                await receiver.complete_message(message)


@both
@pytest.mark.parametrize("settlement", SETTLEMENTS)
@pytest.mark.parametrize("knows", [True, False], ids=["known here", "unknown here"])
async def test_a_message_cannot_be_settled_after_its_session_lock_lapsed(
    url: str, partitioned: bool, settlement: str, knows: bool
) -> None:
    clock, theirs = HandClock(), HandClock()
    async with (
        session_queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue,
        queue.other_client(theirs) as late,
    ):
        await queue.send_to("a", "1")
        receiver = late.get_queue_receiver("q", session_id="a")
        (message,) = await receiver.receive_messages(1, 60)
        clock.move(31)
        await queue.process_due()
        if knows:
            theirs.move(31)
        else:
            late._connection.clock = _StillClock(theirs, clock)
        before = await queue.contents()
        with pytest.raises(SessionLockLostError) as caught:
            await SETTLEMENTS[settlement](receiver, message)
        unsent = knows and settlement != "complete many"
        assert caught.value.outcome is (Outcome.NEVER_SENT if unsent else Outcome.REFUSED)
        if settlement == "complete many":
            assert caught.value.sequence_numbers == (message.sequence_number,)
        after = await queue.contents()
        assert {key: held for key, held in after.items() if not key.endswith((":ops", ":state"))} == {
            key: held for key, held in before.items() if not key.endswith((":ops", ":state"))
        }
        async with queue.session("a") as next_one:
            (again,) = await next_one.receive_messages(1, 60)
            assert again.delivery_count == 2


class _StillClock(HandClock):
    """A clock that stands still for the client, but tells the partitions the right time."""

    def __init__(self, still: HandClock, right: HandClock) -> None:
        super().__init__()
        self._still, self._right = still, right

    def now(self) -> float:
        return self._still.now()

    def told(self) -> int:
        return self._right.told()


@both
@queue_with(lock_duration=30_000)
async def test_a_session_keeps_its_messages_when_it_is_renewed(queue: SessionQueue, clock: HandClock) -> None:
    await queue.send_to("a", *"12")
    async with queue.session("a") as receiver:
        session = session_of(receiver)
        message = await anext(receiver)
        for _ in range(5):
            clock.move(20)
            until = await session.renew_lock()
            assert until == session.locked_until_utc
            assert 29 < until.timestamp() - clock.utc() <= 30
        await receiver.complete_message(message)
        assert bodies(await receiver.receive_messages(5, 60)) == ["2"]
        clock.move(31)
        for call in (session.renew_lock, session.get_state, session.dead_letter_messages):
            with pytest.raises(SessionLockLostError) as caught:
                await call()
            assert caught.value.outcome is Outcome.NEVER_SENT
        with pytest.raises(SessionLockLostError):
            await receiver.receive_messages(1, 5)


@both
@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode), ids=["peek-lock", "receive-and-delete"])
@queue_with(lock_duration=30_000)
async def test_a_receive_after_the_session_lock_has_ended_makes_no_call(
    queue: SessionQueue, clock: HandClock, mode: ServiceBusReceiveMode
) -> None:
    """Messages that were deleted when they were fetched are still returned to the caller."""
    await queue.send_to("a", "1", "2", "3")
    async with queue.session("a", receive_mode=mode, prefetch_count=2) as receiver:
        inbox = receiver._inbox
        assert inbox is not None
        await eventually(lambda: len(inbox.buffer) == 2)
        clock.passed += 31  # the client gets no notice that the clock has moved
        with Calls(queue.transport) as calls:
            if mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
                assert bodies(await receiver.receive_messages(2, 60)) == ["1", "2"]
                await eventually(lambda: not calls.under_way)
                calls.by_script.clear()
            with pytest.raises(SessionLockLostError) as caught:
                await receiver.receive_messages(1, 60)
        assert caught.value.outcome is Outcome.NEVER_SENT
        assert not calls.by_script


@both
async def test_a_session_cannot_be_used_after_its_receiver_was_closed(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    receiver = await queue.session("a").__aenter__()
    session, message = session_of(receiver), await anext(receiver)
    await receiver.close()
    before = await queue.contents()
    for call in (session.renew_lock, session.get_state, session.dead_letter_messages):
        with pytest.raises(ValueError, match="given back"):
            await call()
    with pytest.raises(ValueError, match="given back"):
        await session.set_state("x")
    with pytest.raises(ValueError, match="receiver is closed"):
        await receiver.complete_message(message)
    assert session.session_id == "a"
    assert "given back" in repr(session)
    with pytest.raises(ValueError, match="no lock"):
        AutoLockRenewer().register(receiver, session)
    assert await queue.contents() == before
    async with queue.session("a") as other:
        with pytest.raises(SessionLockLostError):
            await other.complete_message(message)
        (again,) = await other.receive_messages(1, 60)
        assert again.delivery_count == 1


# -- renewers ----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode), ids=["peek-lock", "receive-and-delete"])
@queue_with(lock_duration=30_000)
async def test_a_receiver_with_a_renewer_keeps_its_session(
    queue: SessionQueue, clock: HandClock, mode: ServiceBusReceiveMode
) -> None:
    async with AutoLockRenewer() as renewer:
        await queue.send_to("a", *"12")
        async with queue.session("a", auto_lock_renewer=renewer, receive_mode=mode) as receiver:
            session = session_of(receiver)
            message = await anext(receiver)
            for _ in range(3):
                before = session.locked_until_utc
                clock.move(20)
                await eventually(lambda before=before: session.locked_until_utc == before + timedelta(seconds=20))
            if mode is ServiceBusReceiveMode.PEEK_LOCK:
                await receiver.complete_message(message)
            assert bodies(await receiver.receive_messages(1, 5)) == ["2"]
            assert session.auto_renew_error is None
        with Calls(queue.transport) as calls:
            clock.move(29)
            await queue.counts()
        assert not calls.by_script["renew_session"]
        assert not [watched for _, _, watched in renewer._renewals._due if watched.locks]


@pytest.mark.slow
@both
async def test_a_renewer_reports_a_lost_session(url: str, partitioned: bool) -> None:
    reports: list[tuple[object, Exception | None]] = []

    async def failed(renewable: Any, error: Exception | None) -> None:
        reports.append((renewable, error))

    async with session_queue_at(url, partitioned=partitioned, lock_duration=1000) as queue:  # noqa: SIM117 -- two lines are read better
        async with AutoLockRenewer(on_lock_renew_failure=failed) as renewer:
            receiver = await queue.session("a", auto_lock_renewer=renewer).__aenter__()
            session = session_of(receiver)
            for partition in queue.partitions:  # as if another receiver had taken the session
                for key in partition.keys[3:5]:
                    await queue.transport.command("DEL", key, key=key)
            await eventually(lambda: reports)
            assert reports[0][0] is session
            assert session.auto_renew_error is reports[0][1]
            assert isinstance(session.auto_renew_error, AutoLockRenewFailed)
            assert isinstance(session.auto_renew_error.__cause__, SessionLockLostError)
            with pytest.raises(SessionLockLostError):
                await session.get_state()


@both
@queue_with(lock_duration=30_000)
async def test_a_session_can_be_registered_with_a_renewer(queue: SessionQueue, clock: HandClock) -> None:
    async with AutoLockRenewer() as renewer:
        receiver = await queue.session("a").__aenter__()
        session = session_of(receiver)
        renewer.register(receiver, session, max_lock_renewal_duration=100)
        for _ in range(4):
            clock.move(22)
            await eventually(lambda: session.locked_until_utc.timestamp() - clock.utc() > 25)
        clock.move(22)
        await eventually(lambda: session.auto_renew_error)


# -- prefetching -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
@queue_with(lock_duration=30_000)
async def test_prefetched_messages_of_a_session_are_kept_almost_until_its_lock_ends(
    queue: SessionQueue, clock: HandClock
) -> None:
    """Until then no other receiver can get them. Then they are released with the same delivery count, and no more are
    fetched.
    """
    await queue.send_to("a", *(str(number) for number in range(12)))
    async with queue.session("a", prefetch_count=5) as receiver:
        inbox = receiver._inbox
        assert inbox is not None
        await eventually(lambda: len(inbox.buffer) == 5)
        clock.move(25)
        received: list[ServiceBusReceivedMessage] = []
        with Calls(queue.transport) as calls:
            for _ in range(6):
                received += await receiver.receive_messages(1, 60)
                await eventually(lambda: len(inbox.buffer) >= 3)
            assert not calls.by_script["abandon"]
            clock.move(3)
            await eventually(lambda: queue.counts_are(6, 6))
            given_back = calls.by_script["abandon"]
            received += await receiver.receive_messages(2, 60)
            assert await queue.counts_are(4, 8)
            assert calls.by_script["abandon"] == given_back
        await session_of(receiver).renew_lock()
        received += await receiver.receive_messages(1, 60)
        await eventually(lambda: len(inbox.buffer) == 3)
        assert bodies(received) == [str(number) for number in range(9)]
        assert {message.delivery_count for message in received} == {1}


@pytest.mark.slow
@both
async def test_messages_of_a_session_can_be_received_and_deleted(queue: SessionQueue) -> None:
    await queue.send_to("a", *"12345")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with queue.session("a", receive_mode=mode) as receiver:
        first = await receiver.receive_messages(2, 60)
        assert bodies(first) == ["1", "2"]
        assert first[0].lock_token is None
        with pytest.raises(ValueError, match="received and deleted"):
            await receiver.complete_message(first[0])
        with pytest.raises(SessionCannotBeLockedError):
            await queue.session("a").__aenter__()
    assert await queue.counts_are(3, 0)
    async with queue.session("a") as receiver:
        (message,) = await receiver.receive_messages(1, 60)
        await receiver.defer_message(message)
    async with queue.session("a", receive_mode=mode) as receiver:
        assert bodies(await receiver.receive_deferred_messages([message.sequence_number])) == ["3"]
        assert bodies(await receiver.receive_messages(5, 60)) == ["4", "5"]
    assert await queue.counts_are(0, 0)


# -- the state ---------------------------------------------------------------------------------------------------------


@both
async def test_a_session_state_outlives_its_messages(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned, largest_message=1000) as queue:
        await queue.send_to("a", "1")
        async with queue.session("a") as receiver:
            session = session_of(receiver)
            assert await session.get_state() is None
            for given, kept in (
                ("grün", "grün".encode()),
                (b"\x00\xff", b"\x00\xff"),
                (bytearray(b"x"), b"x"),
                ("", b""),
            ):
                await session.set_state(given)
                assert await session.get_state() == kept
            await session.set_state("kept")
            with pytest.raises(MessageSizeExceededError):
                await session.set_state(b"x" * 1001)
            wrong: Any = 5
            with pytest.raises(TypeError):
                await session.set_state(wrong)
            assert await session.get_state() == b"kept"
            await receiver.complete_message(await anext(receiver))
        async with queue.session("a") as receiver:
            assert await session_of(receiver).get_state() == b"kept"
            await session_of(receiver).set_state(None)
            assert await session_of(receiver).get_state() is None
        async with queue.session("b") as receiver:
            assert await session_of(receiver).get_state() is None
        assert [name async for name in queue.client.list_queue_sessions("q")] == []


@in_memory
@pytest.mark.parametrize("what", ["get_state", "set_state", "renew_lock"])
async def test_the_state_of_a_lost_session_can_neither_be_read_nor_changed(url: str, what: str) -> None:
    """The client believes that it still has the lock, so it makes the call."""
    async with session_queue_at(url) as queue, queue.session("a") as receiver:
        session = session_of(receiver)
        await session.set_state("kept")
        for partition in queue.partitions:
            for key in (*partition.keys[3:5], partition.keys[27]):
                await queue.transport.command("DEL", key, key=key)
        before = await queue.contents()
        with pytest.raises(SessionLockLostError) as caught:
            await getattr(session, what)(*(["other"] if what == "set_state" else []))
        assert caught.value.outcome is Outcome.REFUSED
        assert await queue.contents() == before


@both
async def test_the_state_of_a_session_is_shown_whoever_holds_it(queue: SessionQueue) -> None:
    client = queue.client
    assert await client.peek_session_state("q", "a") is None
    async with queue.session("a") as receiver:
        await session_of(receiver).set_state(b"\x00kept")
        before = await queue.contents()
        assert await client.peek_session_state("q", "a") == b"\x00kept"
        assert await client.peek_session_state("Q", "b") is None
        assert await queue.contents() == before
    assert await client.peek_session_state("q", "a") == b"\x00kept"
    await client.ensure_queue("plain")
    for path, session, error in (
        ("plain", "a", ServiceBusError),
        ("q/$DeadLetterQueue", "a", ValueError),
        ("q", "x" * 129, ValueError),
        ("missing", "a", MessagingEntityNotFoundError),
    ):
        with pytest.raises(error):
            await client.peek_session_state(path, session)


# -- peeking and deferred messages -------------------------------------------------------------------------------------


@both
async def test_a_session_receiver_peeks_only_at_messages_of_its_session(queue: SessionQueue) -> None:
    mine, other = queue.sessions_in(0, 2)
    for text in "123":
        await queue.send_to(mine, text)
        await queue.send_to(other, f"not mine {text}")
    await queue.send_to(mine, "later", scheduled_enqueue_time_utc=datetime.now(UTC) + timedelta(hours=1))
    async with queue.session(mine) as receiver:
        first = await anext(receiver)
        await receiver.defer_message(first)
        assert bodies(await receiver.peek_messages(2, sequence_number=1)) == ["1", "2"]
        assert bodies(await receiver.peek_messages(10)) == ["3", "later"]
        assert await receiver.peek_messages(10) == []
    anybody = queue.receiver()
    shown: list[str] = []
    while page := await anybody.peek_messages(3):
        shown += bodies(page)
    assert len(shown) == 7


# -- dead-lettering a whole session ------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_all_messages_of_a_session_can_be_dead_lettered_at_once(queue: SessionQueue) -> None:
    """There are over a thousand messages, with received and prefetched ones. Other sessions keep their messages."""
    mine, other = queue.sessions_in(0, 2)
    async with queue.client.get_queue_sender("q") as sender:
        for name, count in ((mine, 1300), (other, 5)):
            for start in range(0, count, 500):
                texts = range(start, min(start + 500, count))
                await sender.send_messages([ServiceBusMessage(str(text), session_id=name) for text in texts])
    async with queue.session(mine, prefetch_count=20) as receiver:
        one, two = await receiver.receive_messages(2, 60)
        await receiver.defer_message(one)
        assert await session_of(receiver).dead_letter_messages("because", "of this") == 1300
        with pytest.raises(SessionLockLostError):
            await receiver.complete_message(two)
        assert await receiver.receive_messages(5, 0.1) == []
        assert await session_of(receiver).dead_letter_messages() == 0
    async with queue.receiver(sub_queue="deadletter") as dead:
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < 1300:
            part = await dead.receive_messages(2000, 60)
            assert part, f"only {len(found)} came"
            found += part
        assert {(each.session_id, each.dead_letter_reason, each.dead_letter_error_description) for each in found} == {
            (mine, "because", "of this")
        }
        assert sorted(map(int, bodies(found))) == list(range(1300))
    async with queue.session(other) as receiver:
        assert len(await receiver.receive_messages(10, 60)) == 5


# -- sending -----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("way", ["single", "list", "batch", "stream", "schedule", "mapping"])
async def test_a_message_without_a_session_is_refused_before_any_call(url: str, partitioned: bool, way: str) -> None:
    """Concurrent sends of messages with a session id succeed."""
    async with session_queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:
        bad, good = ServiceBusMessage("bad"), ServiceBusMessage("good", session_id="a")

        async def send() -> None:
            if way == "single":
                await sender.send_messages(bad)
            elif way == "list":
                await sender.send_messages([good, bad])
            elif way == "mapping":
                await sender.send_messages({"body": "bad"})
            elif way == "schedule":
                await sender.schedule_messages(bad, datetime.now(UTC) + timedelta(hours=1))
            elif way == "stream":
                await sender.send_stream([bad])
            else:
                batch = await sender.create_message_batch()
                batch.add_message(good)
                batch.add_message(bad)
                await sender.send_messages(batch)

        outcomes = await asyncio.gather(
            *(sender.send_messages(ServiceBusMessage("other", session_id="a")) for _ in range(5)),
            send(),
            *(sender.send_messages(ServiceBusMessage("other", session_id="a")) for _ in range(5)),
            return_exceptions=True,
        )
        assert isinstance(outcomes[5], ServiceBusError)
        assert "SessionId was not set" in str(outcomes[5])
        assert outcomes[5].outcome is Outcome.NEVER_SENT
        assert outcomes[:5] + outcomes[6:] == [None] * 10
        assert sender.in_flight == 0
        counts = await queue.counts()
        assert (counts.active, counts.scheduled) == (10, 0)


@both
async def test_a_batch_keeps_the_session_id_that_a_message_had_when_it_was_added(url: str, partitioned: bool) -> None:
    """If the session id of the message changes later, the batch does not change."""
    async with session_queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:
        mine, other = queue.sessions_in(0)[0], queue.sessions_in(len(queue.partitions) - 1)[0]
        message = ServiceBusMessage("1", session_id=mine)
        batch = await sender.create_message_batch()
        batch.add_message(message)
        message.session_id = other
        batch.add_message(ServiceBusMessage("2", session_id=mine))
        await sender.send_messages(batch)
        batch = await sender.create_message_batch()
        message.session_id = mine
        batch.add_message(message)
        message.session_id = None
        await sender.send_messages(batch)
        async with queue.session(mine) as receiver:
            assert bodies(await receiver.receive_messages(3, 60)) == ["1", "2", "1"]


# -- faults ------------------------------------------------------------------------------------------------------------


async def test_a_session_is_released_when_a_server_answers_that_was_away(tmp_path: Path) -> None:
    """The server is away for longer than the closing waits, and the lock is much longer."""
    with LocalServer(directory=tmp_path, config={"appendonly": "yes", "appendfsync": "always"}) as server:
        async with session_queue_at(server.url, lock_duration=300_000) as queue:
            await queue.send_to("a", "1")
            first = queue.session("a")
            assert bodies(await first.receive_messages(1, 60)) == ["1"]
            server.kill()
            await first.close()
            server.start()
            second = await queue.client.accept_next_session("q", max_wait_time=60)
            assert second is not None
            async with second:
                assert session_of(second).session_id == "a"
                (message,) = await second.receive_messages(1, 60)
                assert message.delivery_count == 1


async def test_a_session_survives_a_reconnect(server: LocalServer) -> None:
    async with (
        session_queue_at(server.url) as queue,
        Scissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns") as client,
    ):
        await queue.send_to("a", *"123456")
        network.cut("accept_session")
        async with client.get_queue_receiver("q", session_id="a") as receiver:
            network.cut("grant")
            one, two, three = await receiver.receive_messages(3, 60)
            network.cut("complete")
            await receiver.complete_messages([one])
            network.cut("abandon")
            await receiver.abandon_message(two)
            network.cut("set_state")
            await session_of(receiver).set_state("x")
            network.cut("renew_session")
            await session_of(receiver).renew_lock()
            await receiver.complete_message(three)
            received = await receiver.receive_messages(4, 60)
            assert [(str(each), each.delivery_count) for each in received] == [("2", 2), ("4", 1), ("5", 1), ("6", 1)]
            network.cut("release_session")
        assert network.cuts == 7
        assert await queue.is_unused()
        async with queue.session("a") as receiver:
            assert await session_of(receiver).get_state() == b"x"
            assert len(await receiver.receive_messages(4, 60)) == 4


@pytest.mark.long("it waits for failovers")
async def test_the_order_of_sessions_survives_failovers(replicated_cluster: LocalCluster) -> None:  # noqa: C901 -- a story
    """The test kills masters under load. No message is lost, and the messages of each session are handled in order."""
    cluster = replicated_cluster
    names = [f"s{number}" for number in range(12)]
    handled: dict[str, list[int]] = defaultdict(list)
    stops = False
    async with (
        session_queue_at(
            f"{cluster.url}?durability=replicated", partitioned=True, partitions=6, lock_duration=5000
        ) as queue,
        queue.client.get_queue_sender("q") as sender,
    ):
        sent = dict.fromkeys(names, 0)

        async def send(name: str) -> None:
            while not stops:
                await sender.send_messages(ServiceBusMessage(str(sent[name]), session_id=name), timeout=40)
                sent[name] += 1
                await asyncio.sleep(0.02)  # the calls of twelve senders are under way when a master is killed

        def done() -> bool:
            return stops and all(handled[name] and handled[name][-1] == sent[name] - 1 for name in names)

        async def serve() -> None:
            while not done():
                try:
                    receiver = await queue.client.accept_next_session("q", max_wait_time=2)
                    if receiver is None:
                        continue
                    async with receiver:
                        name = session_of(receiver).session_id
                        for _ in range(5):
                            for message in await receiver.receive_messages(10, 0.05):
                                number = int(str(message))
                                if not handled[name] or handled[name][-1] != number:  # a message may be delivered twice
                                    handled[name].append(number)
                                await receiver.complete_message(message)
                except ServiceBusError:
                    continue

        tasks = [asyncio.create_task(send(name)) for name in names]
        tasks += [asyncio.create_task(serve()) for _ in range(5)]
        for place in (0, 3):
            before = sum(map(len, handled.values()))
            await eventually(lambda before=before: sum(map(len, handled.values())) > before + 100, timeout=200)
            master = cluster.master_of(key_slot(queue.partitions[place].keys[0]))
            await in_thread(master.kill)
            await in_thread(cluster.wait_until_ok)
            await in_thread(master.restart)
        before = sum(map(len, handled.values()))
        await eventually(lambda: sum(map(len, handled.values())) > before + 100, timeout=200)
        stops = True
        await asyncio.wait_for(asyncio.gather(*tasks), 300)
    for name in names:
        assert handled[name] == list(range(sent[name])), name


# -- many sessions -----------------------------------------------------------------------------------------------------


@pytest.mark.long("it uses thousands of sessions")
@in_memory
@both
async def test_short_lived_sessions_leave_almost_nothing_in_client_and_server(queue: SessionQueue) -> None:
    client = queue.client

    async def one(number: int) -> None:
        name = f"s{number}"
        await queue.send_to(name, "1")
        wanted = NEXT_AVAILABLE_SESSION if number % 2 else name
        async with queue.session(wanted, prefetch_count=number % 3) as receiver:
            for message in await receiver.receive_messages(1, 5):
                await receiver.complete_message(message)
            if number % 5 == 0:
                await receiver.receive_messages(1, 0.001)

    def kept() -> list[int]:
        partition_clients = queue.entity._partition_clients.values()
        return [
            len(client._children),
            len(queue.entity.watchers),
            sum(len(partition_client._calling) for partition_client in partition_clients),
            len(client._connection._seen_off),
            len(client._connection._entities),
        ]

    async def noted() -> int:
        return sum(len(held) for key, (_, held) in (await queue.contents()).items() if key.endswith(":ops"))

    # Only even numbers run at the same time. An odd number accepts the next available session, which might be that
    # of another number.
    await asyncio.gather(*map(one, range(0, 16, 2)))
    for number in range(40):
        await one(number)
    await client._connection.all_seen_off()
    before, lanes = kept(), await noted()
    tasks = len(asyncio.all_tasks())
    for number in range(60):
        await one(number)
    await client._connection.all_seen_off()
    assert all(now <= was + 8 for now, was in zip(kept(), before, strict=True)), (before, kept())
    assert await noted() <= lanes + 24
    assert len(asyncio.all_tasks()) <= tasks + 24


@in_memory
async def test_processing_a_session_takes_one_call_per_step(queue: SessionQueue) -> None:
    """Accepting, receiving, completing and closing take one call each."""
    await queue.send_to("a", *"12345")
    with Calls(queue.transport) as calls:
        async with queue.session("a") as receiver:
            await receiver.complete_messages(await receiver.receive_messages(5, 60))
    assert dict(calls.by_script) == {"accept_session": 1, "grant": 1, "complete": 1, "release_session": 1}


@in_memory
async def test_a_call_during_the_close_of_its_session_is_refused(queue: SessionQueue) -> None:
    """Therefore the call cannot affect the next holder of the session."""
    receiver = await queue.session("a").__aenter__()
    session = session_of(receiver)
    with Gate(queue.client, "release_session") as gate:
        gate.shut = True
        closing = asyncio.ensure_future(receiver.close())
        await gate.reached()
        with pytest.raises(ValueError, match="given back"):
            await session.set_state("late")
        gate.open()
        await closing
