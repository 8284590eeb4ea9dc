"""Accepting a session by name, accepting the next free one, and releasing a session that no caller wants any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from sbredis.aio import AutoLockRenewer, ServiceBusReceiver, ServiceBusSessionReceiver
from sbredis.client import Timings
from sbredis.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionCannotBeLockedError,
)
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode
from sbredis.receiving import accept_next
from tests.aio.diverting import divert
from tests.aio.gates import Gate
from tests.aio.queues import Calls, HandClock, Queue, bodies, both, in_memory, loop_time, queue_with
from tests.aio.session_queues import SessionQueue, script_of, session_of, session_queue_at, steps
from tests.waiting import eventually

pytestmark = [
    queue_with(sessions=True),
    pytest.mark.everywhere("a receiver of the next session searches partitions on several nodes"),
]

Opening = asyncio.Task[ServiceBusReceiver]


def opening(receiver: ServiceBusReceiver) -> Opening:
    """Begin to accept the session of a receiver."""
    return asyncio.ensure_future(receiver.__aenter__())


# -- by name -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
@pytest.mark.parametrize("name", ["a", "", "an odd näme ÿ/{x}:\x00", "x" * 128])
async def test_a_session_is_accepted_by_its_name(queue: SessionQueue, name: str) -> None:
    """The session may have no messages, and the empty string is a valid name."""
    async with queue.session(name) as receiver:
        assert session_of(receiver).session_id == name
        assert await receiver.receive_messages(1, 0.05) == []
        await queue.send_to(name, "1")
        await queue.send_to(f"{name[1:]}?", "of another")
        (message,) = await receiver.receive_messages(5, 60)
        assert (str(message), message.session_id) == ("1", name)
        await receiver.complete_message(message)
    await eventually(queue.is_unused)


@both
async def test_a_session_held_elsewhere_is_refused_until_it_is_released(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        receivers = [client.get_queue_receiver("q", session_id="a") for client in (queue.client, other)]
        async with queue.session("a"):
            before = await queue.contents()
            for receiver in receivers:
                begun = loop_time()
                with pytest.raises(SessionCannotBeLockedError, match="'a'") as caught:
                    await receiver.receive_messages(1, 5)
                assert loop_time() - begun < 20
                assert (caught.value.is_transient, caught.value.outcome) == (True, Outcome.REFUSED)
                assert caught.value.entity == "q"
            after = await queue.contents()
            assert without_call_records(after) == without_call_records(before)
        assert (await receivers[1].__aenter__()) is receivers[1]
        assert receivers[1].session is not None


def without_call_records(everything: dict[str, Any]) -> dict[str, Any]:
    """Return all keys except those in which partitions record calls."""
    return {key: held for key, held in everything.items() if not key.endswith((":ops", ":state"))}


@both
async def test_a_receiver_that_is_closed_may_leave_its_session_locked(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    holder, other = queue.session("a"), queue.session("a")
    assert bodies(await holder.receive_messages(1, 60)) == ["1"]
    assert isinstance(holder, ServiceBusSessionReceiver)
    await holder.close(release_session=False)
    await holder.close()
    with pytest.raises(SessionCannotBeLockedError):
        await other.receive_messages(1, 5)


@both
async def test_concurrent_calls_of_one_receiver_accept_its_session_only_once(queue: SessionQueue) -> None:
    await queue.send_to("a", *"12345")
    for name in ("a", NEXT_AVAILABLE_SESSION):
        receiver = queue.session(name)
        with Calls(queue.transport) as calls:
            received = await asyncio.gather(
                receiver.receive_messages(1, 60), receiver.receive_messages(2, 60), receiver.peek_messages(1)
            )
        assert calls.by_script["accept_session"] <= 2 + len(queue.partitions)
        assert bodies([*received[0], *received[1]]) == ["1", "2", "3"]
        await receiver.close()
        await eventually(queue.is_unused)


# -- the next session --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_the_next_session_is_the_one_that_has_been_free_longest(queue: SessionQueue, clock: HandClock) -> None:
    """This order holds within a partition. Sessions without receivable messages do not count."""
    first, second, third = queue.sessions_in(0, 3)
    for name in (second, first, third):
        await queue.send_to(name, "x")
        clock.move(1)
    async with queue.session(third) as receiver:
        await receiver.complete_message(await anext(receiver))
        await session_of(receiver).set_state(b"only a state")
    got = [await queue.client.accept_next_session("q", max_wait_time=5) for _ in range(2)]
    assert [session_of(receiver).session_id for receiver in got if receiver] == [second, first]
    assert await queue.client.accept_next_session("q", max_wait_time=0.05) is None


@pytest.mark.slow
@both
async def test_accepting_raises_a_timeout_or_returns_none_if_no_session_is_free(queue: SessionQueue) -> None:
    begun = loop_time()
    with pytest.raises(OperationTimeoutError, match="No session of 'q' became free") as caught:
        async with queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=0.1):
            pass
    assert caught.value.is_transient
    assert caught.value.entity == "q"
    assert await queue.client.accept_next_session("q", max_wait_time=0.1) is None
    assert 0.2 <= loop_time() - begun < 20
    await eventually(queue.is_unused)


@pytest.mark.slow
@both
async def test_the_wait_time_of_any_call_bounds_the_wait_for_a_session(queue: SessionQueue) -> None:
    """The call may be a receive or a peek; both accept the session."""
    receiver = queue.session(NEXT_AVAILABLE_SESSION)
    begun = loop_time()
    with pytest.raises(OperationTimeoutError):
        await receiver.receive_messages(1, 0.1)
    with pytest.raises(OperationTimeoutError):
        await receiver.peek_messages(1, timeout=0.1)
    assert loop_time() - begun < 20
    await queue.send_to("a", "1")
    assert bodies(await receiver.receive_messages(1, 60)) == ["1"]


@both
async def test_a_receiver_that_waits_for_a_session_learns_at_once_that_the_queue_was_deleted(
    queue: SessionQueue,
) -> None:
    task = asyncio.create_task(queue.client.accept_next_session("q", max_wait_time=900))
    await queue.wait_for_waiters()
    await queue.client._connection.namespace.delete_entity("q")
    with pytest.raises(MessagingEntityNotFoundError):
        await task


@in_memory
async def test_the_default_wait_for_the_next_session_is_65_seconds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    async def noted(entity: Any, seconds: float, deadline: float) -> Any:
        asked.append(seconds)
        return await accept_next(entity, 0.01, deadline)

    monkeypatch.setattr("sbredis.aio._session_receiver.accept_next", noted)
    async with session_queue_at(url) as queue:
        for options in ({}, {"max_wait_time": 7}):
            with pytest.raises(OperationTimeoutError):
                await queue.session(NEXT_AVAILABLE_SESSION, **options).__aenter__()
    assert [round(seconds, 1) for seconds in asked] == [65, 7]


@both
async def test_accept_next_session_takes_the_options_of_a_receiver(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    receiver = await queue.client.accept_next_session("q", receive_mode=mode, max_wait_time=5)
    assert receiver is not None
    assert receiver.receive_mode is mode
    assert bodies(await receiver.receive_messages(1, 60)) == ["1"]
    unfit: list[dict[str, Any]] = [{"session_id": "a"}, {"sub_queue": "deadletter"}]
    for options in unfit:
        with pytest.raises(TypeError, match="accept_next_session"):
            await queue.client.accept_next_session("q", **options)


# -- waiting for a session ---------------------------------------------------------------------------------------------


async def _sent(queue: SessionQueue, name: str, _: ServiceBusReceiver) -> None:
    await queue.send_to(name, "2")


async def _given_back(_: SessionQueue, __: str, holder: ServiceBusReceiver) -> None:
    await holder.close()


async def _abandoned(queue: SessionQueue, name: str, holder: ServiceBusReceiver) -> None:
    (message,) = await holder.receive_messages(1, 60)
    await holder.abandon_message(message)
    await holder.close()
    del queue, name


@both
@pytest.mark.parametrize("way", [_sent, _given_back, _abandoned])
async def test_a_waiting_acceptor_asks_only_when_a_session_becomes_free(
    url: str, partitioned: bool, way: Callable[[SessionQueue, str, ServiceBusReceiver], Awaitable[None]]
) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        (held, free) = queue.sessions_in(0, 2)
        await queue.send_to(held, "1")
        holder = queue.session(held)
        await holder.__aenter__()
        task = opening(queue.session(NEXT_AVAILABLE_SESSION))
        await queue.wait_for_acceptors()
        begun = loop_time()
        with Calls(queue.transport) as calls:
            await way(queue, free, holder)
            receiver = await task
        assert loop_time() - begun < 20
        assert calls.by_script["grant"] <= 1 + len(queue.partitions)  # one is asked, and all others learn of the end
        assert session_of(receiver).session_id == (free if way is _sent else held)
        await eventually(lambda: no_receiver_waits(queue))


@pytest.mark.slow
@both
@pytest.mark.parametrize("what", ["lapses", "is scheduled", "was delayed"])
async def test_a_waiting_acceptor_asks_again_at_the_next_due_time(url: str, partitioned: bool, what: str) -> None:
    async with session_queue_at(
        url, partitioned=partitioned, lock_duration=300 if what == "lapses" else 60_000
    ) as queue:
        if what == "is scheduled":
            due = datetime.now(UTC) + timedelta(seconds=0.4)
            await queue.send_to("a", "1", scheduled_enqueue_time_utc=due)
        else:
            await queue.send_to("a", "1")
            holder = queue.session("a")
            (message,) = await holder.receive_messages(1, 60)
            if what == "was delayed":
                await holder.abandon_message(message, delay=0.4)
                await holder.close()
        with Calls(queue.transport) as calls:
            begun = loop_time()
            async with queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=60) as receiver:
                assert loop_time() - begun < 20
                assert session_of(receiver).session_id == "a"
                assert bodies(await receiver.receive_messages(1, 60)) == ["1"]
        assert calls.by_script["grant"] <= 8 * len(queue.partitions)


async def no_receiver_waits(queue: Queue) -> bool:
    return await queue.waiters() == 0


@pytest.mark.slow
@in_memory
async def test_a_client_forgets_what_its_receivers_wait_with_when_nobody_waits(queue: SessionQueue) -> None:
    assert await queue.client.accept_next_session("q", max_wait_time=0) is None
    assert queue.entity.free_sessions
    watchers = len(queue.entity.watchers)
    await eventually(lambda: not queue.entity.free_sessions and len(queue.entity.watchers) == watchers - 1)
    await queue.send_to("a", "1")
    assert session_of(await opening(queue.session(NEXT_AVAILABLE_SESSION))).session_id == "a"


# -- refused receivers -------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("name", ["a", NEXT_AVAILABLE_SESSION], ids=["named", "next"])
async def test_no_session_is_accepted_when_receiving_is_disabled(url: str, partitioned: bool, name: Any) -> None:
    async with session_queue_at(url, partitioned=partitioned, status="ReceiveDisabled") as queue:
        await queue.send_to("a", "1")
        with pytest.raises(MessagingEntityDisabledError):
            await queue.session(name).__aenter__()
        await eventually(queue.is_unused)


@both
async def test_accepting_a_session_of_a_missing_queue_is_refused(queue: SessionQueue) -> None:
    for name in ("a", NEXT_AVAILABLE_SESSION):
        with pytest.raises(MessagingEntityNotFoundError):
            await queue.client.get_queue_receiver("missing", session_id=name).__aenter__()
    with pytest.raises(MessagingEntityNotFoundError):
        await queue.client.accept_next_session("missing")
    with pytest.raises(MessagingEntityNotFoundError):
        await queue.client.accept_next_session("missing", "subscription")


@in_memory
async def test_a_closed_renewer_prevents_accepting_a_session(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    renewer = AutoLockRenewer()
    await renewer.close()
    with pytest.raises(ServiceBusError, match="closed"):
        await queue.session("a", auto_lock_renewer=renewer).__aenter__()
    await eventually(queue.is_unused)


# -- cancelling and closing --------------------------------------------------------------------------------------------


@pytest.mark.slow
@in_memory
@both
@pytest.mark.parametrize("name", ["a", NEXT_AVAILABLE_SESSION], ids=["named", "next"])
async def test_cancelled_accepting_leaves_no_locked_session_and_no_waiter(
    queue: SessionQueue, partitioned: bool, name: Any
) -> None:
    await queue.send_to("a", "1")
    done = 0
    for count in range(0, 400, 3 if partitioned else 1):
        receiver = queue.session(name)
        task = opening(receiver)
        await steps(count)
        if task.done():
            done += 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await receiver.close()
        await eventually(queue.is_unused)
        if done == 3:
            break
    assert done


@pytest.mark.slow
@in_memory
@both
async def test_a_session_stays_available_when_its_acceptor_is_cancelled(queue: SessionQueue, partitioned: bool) -> None:
    done = 0
    for count in range(0, 400, 3 if partitioned else 1):
        receiver = queue.session(NEXT_AVAILABLE_SESSION)
        task = opening(receiver)
        await queue.wait_for_acceptors()
        sending = asyncio.ensure_future(queue.send_to("a", "1"))
        await steps(count)
        if task.done():
            done += 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await sending
        if not task.cancelled():
            await receiver.close()
        await eventually(queue.is_unused)
        async with queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=5) as other:
            for message in await other.receive_messages(10, 5):
                await other.complete_message(message)
        if done == 3:
            break
    assert done


@both
@pytest.mark.parametrize("name", ["a", NEXT_AVAILABLE_SESSION], ids=["named", "next"])
async def test_a_receiver_that_is_closed_while_accepting_gets_no_session(queue: SessionQueue, name: Any) -> None:
    """The call of the closed receiver raises its error immediately."""
    await queue.send_to("a", "1")
    with Gate(queue.client, script_of(name)) as gate:
        gate.shut = True
        receiver = queue.session(name)
        task = opening(receiver)
        await gate.reached()
        begun = loop_time()
        closing = asyncio.ensure_future(receiver.close())
        with pytest.raises(ValueError, match="receiver is closed"):
            await task
        assert loop_time() - begun < 20
        gate.open()
        await closing
        await eventually(queue.is_unused)
        assert receiver._session is None


@both
async def test_closing_ends_an_acceptor_that_took_the_place_of_a_cancelled_one(queue: SessionQueue) -> None:
    receiver = queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=60)
    first = asyncio.ensure_future(receiver.receive_messages(1))
    await queue.wait_for_acceptors()
    second = asyncio.ensure_future(receiver.receive_messages(1))
    await steps(5)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await queue.wait_for_acceptors()
    await receiver.close()
    with pytest.raises(ValueError, match="receiver is closed"):
        await asyncio.wait_for(second, 60)
    await eventually(queue.is_unused)
    await queue.send_to("a", "1")
    await eventually(queue.is_unused)


@both
@pytest.mark.parametrize("name", ["a", NEXT_AVAILABLE_SESSION], ids=["named", "next"])
async def test_a_client_forgets_a_receiver_after_a_cancelled_close(queue: SessionQueue, name: Any) -> None:
    """If a scope around accept_next_session is cancelled, the close inside it is cancelled too."""
    await queue.send_to("a", "1")
    receiver = queue.session(name)
    await receiver.__aenter__()
    assert receiver in queue.client._children
    closing = asyncio.ensure_future(receiver.close())
    await steps(1)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert closing.cancelled()
    await eventually(queue.is_unused)
    await eventually(lambda: receiver not in queue.client._children)


@both
async def test_closing_a_client_ends_all_its_waiting_acceptors(queue: SessionQueue) -> None:
    client = queue.other_client()
    tasks = [opening(client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION)) for _ in range(3)]
    tasks.append(asyncio.ensure_future(client.accept_next_session("q")))  # type: ignore[arg-type]
    await queue.wait_for_acceptors()
    await steps(50)
    begun = loop_time()
    await client.close()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, (ValueError, ServiceBusError))
    assert loop_time() - begun < 20
    await eventually(queue.is_unused)


@both
async def test_a_client_forgets_senders_and_receivers_that_failed_to_open(queue: SessionQueue) -> None:
    """So a client can ask for the next session for days without storing receivers that failed."""
    before = len(queue.client._children)
    for _ in range(3):
        with pytest.raises(OperationTimeoutError):
            async with queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=0.01):
                pass
        async with queue.session("a"):
            with pytest.raises(SessionCannotBeLockedError):
                async with queue.session("a"):
                    pass
        with pytest.raises(MessagingEntityNotFoundError):
            async with queue.client.get_queue_sender("missing"):
                pass
    assert len(queue.client._children) == before


# -- unreachable partitions --------------------------------------------------------------------------------------------


class UnresponsivePartitions:
    """Partitions that do not answer, or that the client cannot reach."""

    def __init__(self, queue: SessionQueue, places: set[int], *, hangs: bool) -> None:
        self._keys = {queue.partitions[place].keys[0] for place in places}
        self._hangs = hangs
        self._transport = queue.transport
        self._through = queue.transport.call
        self._let: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked = 0
        """The number of calls to these partitions."""

    def __enter__(self) -> Self:
        divert(self._transport, self._call)
        return self

    def __exit__(self, *_: object) -> None:
        divert(self._transport, self._through)
        self._let.set_result(None)

    async def _call(self, script: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
        if keys[0] in self._keys and script.name != "read":  # "read" is called by the test itself
            self.asked += 1
            if self._hangs:
                await asyncio.wait((self._let,), timeout=options.get("timeout"))
            raise ServiceBusConnectionError("Unreachable: simulated by the test.", outcome=Outcome.NEVER_SENT)
        return await self._through(script, keys, *arguments, **options)


@pytest.mark.slow
@in_memory
@pytest.mark.parametrize("hangs", [True, False])
async def test_an_unresponsive_partition_does_not_hide_sessions_of_the_others(url: str, hangs: bool) -> None:
    async with session_queue_at(url, partitioned=True, timings=Timings(late=0.05)) as queue:
        here, there = queue.sessions_in(1)[0], queue.sessions_in(2)[0]
        await queue.send_to(here, "1")
        with UnresponsivePartitions(queue, {0}, hangs=hangs):
            begun = loop_time()
            async with queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=60) as receiver:
                assert session_of(receiver).session_id == here
                task = opening(queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=60))

                async def waits_at_two() -> bool:
                    return await queue.waiters() == 2

                await eventually(waits_at_two)
                await queue.send_to(there, "1")
                assert session_of(await task).session_id == there
            assert loop_time() - begun < 20


@pytest.mark.slow
@in_memory
async def test_the_absence_of_a_free_session_is_reported_even_if_one_partition_is_unreachable(url: str) -> None:
    """The connection error is raised only if no partition can be reached."""
    async with session_queue_at(url, partitioned=True) as queue:
        with UnresponsivePartitions(queue, {0}, hangs=False):
            assert await queue.client.accept_next_session("q", max_wait_time=0.5) is None
        await eventually(queue.is_unused)  # the partitions send no news any more, so they are asked
        with (
            UnresponsivePartitions(queue, {0, 1, 2}, hangs=False),
            pytest.raises(ServiceBusConnectionError, match="simulated by the test"),
        ):
            await queue.client.accept_next_session("q", max_wait_time=0.5)


@in_memory
async def test_a_partition_is_asked_again_when_it_can_be_reached_again(url: str) -> None:
    async with session_queue_at(url, partitioned=True) as queue:
        name = queue.sessions_in(0)[0]
        await queue.send_to(name, "1")
        with UnresponsivePartitions(queue, {0}, hangs=False) as mute:
            task = opening(queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=60))
            await eventually(lambda: mute.asked)
        assert session_of(await task).session_id == name


# -- what comes with a named session -----------------------------------------------------------------------------------


async def test_a_named_session_comes_with_its_first_messages(queue: SessionQueue) -> None:
    """The receive call that accepts the session is one call to the server."""
    await queue.send_to("a", "1", "2", "3")
    receiver = queue.session("a")
    with Calls(queue.transport) as calls:
        first, second = await receiver.receive_messages(2, 60)
    assert bodies([first, second]) == ["1", "2"]
    assert {name: count for name, count in calls.by_script.items() if name != "read_entity"} == {"accept_session": 1}
    await receiver.complete_message(first)
    assert bodies(await receiver.receive_messages(5, 0)) == ["3"]
    await receiver.abandon_message(second)
    assert bodies(await receiver.receive_messages(5, 0)) == ["2"]
    await receiver.close()
    assert await queue.is_unused()


async def test_an_empty_named_session_gets_its_messages_later(queue: SessionQueue) -> None:
    receiver = queue.session("a")
    waiting = asyncio.create_task(receiver.receive_messages(2, 60, gather=False))
    await eventually(lambda: receiver._session is not None)
    await queue.send_to("a", "1")
    assert bodies(await waiting) == ["1"]
    await receiver.close()


async def test_a_session_that_is_opened_without_a_receive_call_locks_no_messages(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    async with queue.session("a") as receiver:
        assert await queue.counts_are(1, 0)
        [message] = await receiver.receive_messages_by_number(1)
        await receiver.complete_message(message)


async def test_no_message_is_deleted_with_the_acceptance_of_its_session(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    receiver = queue.session("a", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    with Gate(queue.client, "accept_session") as gate:
        gate.fates.append("is not answered")
        with suppress(ServiceBusError):
            await receiver.receive_messages(1, 60)
    assert bodies(await receiver.receive_messages(1, 60)) == ["1"]
    await receiver.close()
