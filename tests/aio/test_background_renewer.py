"""The background renewer: it keeps locks while code blocks the event loop, and reports each lost lock once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sbredis.aio import BackgroundLockRenewer, ServiceBusClient, ServiceBusSession
from sbredis.exceptions import (
    AutoLockRenewFailed,
    AutoLockRenewTimeout,
    MessageLockLostError,
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage, hold_of
from sbredis.renewing import RenewalThread
from sbredis.servers import LocalServer
from tests.aio.diverting import divert
from tests.aio.queues import PATIENT, HandClock, Queue, at_rest, both, in_memory, queue_at, receive_exactly
from tests.waiting import eventually

LOCK = 2
"""The seconds of a short lock."""
Held = dict[int, ServiceBusReceivedMessage | ServiceBusSession]


class Holding:
    """The messages and sessions that a test holds, and the losses that were reported to it."""

    def __init__(self) -> None:
        self.held: Held = {}
        self.lost: list[tuple[Any, Exception]] = []
        self.looks = 0
        self.asked = 0
        self.alive = True

    def __call__(self) -> list[Any]:
        self.looks += 1
        return list(self.held.values())

    def is_alive(self) -> bool:
        self.asked += 1
        return self.alive

    def hold(self, *those: ServiceBusReceivedMessage | ServiceBusSession) -> None:
        self.held.update({id(one): one for one in those})

    def renewer(self, client: ServiceBusClient, **options: Any) -> BackgroundLockRenewer:
        report = lambda *loss: self.lost.append(loss)  # noqa: E731
        return BackgroundLockRenewer(client, self, on_lost=report, while_alive=self.is_alive, **options)

    async def look(self) -> None:
        """Wait until the thread has looked at the locks twice."""
        before = self.looks
        await eventually(lambda: self.looks >= before + 2)


async def receive(queue: Queue, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
    await queue.send(*map(str, range(count)), at=-1)
    receiver = queue.receiver(**options)
    return await receive_exactly(receiver, count)


def thread_of(renewer: BackgroundLockRenewer) -> RenewalThread:
    assert renewer._thread is not None
    return renewer._thread


def until(message: Any) -> float:
    lease = hold_of(message).lease
    assert lease is not None
    return lease.until


@pytest.mark.slow
@both
async def test_code_that_blocks_the_event_loop_for_three_lock_durations_keeps_its_locks(
    url: str, partitioned: bool
) -> None:
    """The shortest lock of an entity lasts 5 seconds. The test is faster, so the thread must look more often."""
    timings = replace(PATIENT, checking_renewals=0.2)
    holding = Holding()
    async with (
        queue_at(url, partitioned=partitioned, lock_duration=LOCK * 1000, timings=timings) as queue,
        holding.renewer(queue.client) as renewer,
    ):
        await eventually(lambda: thread_of(renewer)._own._opened)
        messages = await receive(queue, 6)
        tokens = [message.lock_token for message in messages]
        holding.hold(*messages)
        receiver = queue.receiver()
        time.sleep(3 * LOCK)  # noqa: ASYNC251  # this is what the test is about
        assert [message.lock_token for message in messages] == tokens
        await receiver.complete_messages(messages)
        assert holding.lost == []
        assert await receiver.receive_messages(1, 0) == []


@both
async def test_locks_are_renewed_from_a_third_of_their_duration(url: str, partitioned: bool) -> None:
    clock, holding = HandClock(), Holding()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue, holding.renewer(queue.client):
        messages = await receive(queue, 4)
        holding.hold(*messages)
        before = max(map(until, messages))
        clock.move(19)
        await holding.look()
        assert max(map(until, messages)) == before
        for _ in range(5):
            clock.move(39)
            await eventually(lambda: min(map(until, messages)) > clock.now() + 50)
        await queue.receiver().complete_messages(messages)
        assert holding.lost == []


@in_memory
async def test_a_session_and_its_messages_are_renewed(url: str) -> None:
    """The clock moves while the receiver makes no call. If its call told an earlier time than a renewal before it, the
    partition would take this for a clock that was set back, and the locks would end earlier.
    """
    clock, holding = HandClock(), Holding()
    async with queue_at(url, clock=clock, sessions=True) as queue, holding.renewer(queue.client):
        async with queue.client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("a", session_id="s"))
        async with queue.client.get_queue_receiver("q", session_id="s") as receiver:
            (message,) = await receiver.receive_messages(1, 60)
            session = receiver.session
            holding.hold(message, session)
            for _ in range(4):
                await at_rest(receiver)
                clock.move(41)
                await eventually(lambda: until(message) > clock.now() + 50)
            assert session.locked
            await receiver.complete_message(message)
            await at_rest(receiver)
            clock.move(61)
            await eventually(lambda: bool(holding.lost))
            ((lost, error),) = holding.lost
            assert lost is session
            assert isinstance(error, SessionLockLostError)
            assert session.auto_renew_error is error


@both
async def test_a_message_can_be_settled_while_its_lease_is_renewed(url: str, partitioned: bool) -> None:
    clock, holding = HandClock(), Holding()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue, holding.renewer(queue.client):
        messages = await receive(queue, 20)
        holding.hold(*messages)
        receiver = queue.receiver()
        for message in messages:
            clock.move(21)  # wakes the thread, which renews while this loop settles
            await receiver.complete_message(message)
            await eventually(lambda: all(until(one) > clock.now() + 50 for one in messages if not hold_of(one).settled))
        assert holding.lost == []
        assert await receiver.receive_messages(1, 0) == []


@in_memory
async def test_a_lost_lock_is_reported_once_in_the_event_loop(url: str) -> None:
    clock, holding = HandClock(), Holding()
    loops: list[Any] = []

    def lost(*loss: Any) -> None:
        holding.lost.append((loss[0], loss[1]))
        loops.append(asyncio.get_running_loop())

    async with queue_at(url, clock=clock) as queue:
        one, two = await receive(queue, 2)
        renewer = BackgroundLockRenewer(queue.client, holding, on_lost=lost)
        async with renewer:
            lease = hold_of(one).lease
            assert lease is not None
            await queue.receiver().complete_message(two)
            lease.token = "x" * 11  # so that the partition does not know the lease
            holding.hold(one, two)
            clock.move(21)
            await eventually(lambda: bool(holding.lost))
            await holding.look()
        ((which, error),) = holding.lost
        assert which is one
        assert isinstance(error, MessageLockLostError)
        assert one.auto_renew_error is error
        assert loops == [asyncio.get_running_loop()]
        with pytest.raises(MessageLockLostError):
            await queue.receiver().complete_message(one)


@in_memory
async def test_locks_of_an_entity_that_was_deleted_are_lost(url: str) -> None:
    clock, holding = HandClock(), Holding()
    async with queue_at(url, clock=clock) as queue, holding.renewer(queue.client):
        holding.hold(*await receive(queue, 2))
        await queue.client._connection.namespace.delete_entity("q")
        clock.move(21)
        await eventually(lambda: len(holding.lost) == 2)
        assert isinstance(holding.lost[0][1].__cause__, MessagingEntityNotFoundError)


@in_memory
async def test_failing_calls_are_made_again_until_the_locks_have_ended(url: str) -> None:
    clock, holding = HandClock(), Holding()
    async with queue_at(url, clock=clock) as queue, holding.renewer(queue.client) as renewer:
        (message,) = await receive(queue, 1)
        holding.hold(message)
        await eventually(lambda: thread_of(renewer)._own._opened)
        transport, attempts = thread_of(renewer)._own.transport, 0
        through = transport.call

        async def unreachable(*_: object, **__: object) -> Any:
            nonlocal attempts
            attempts += 1
            raise ServiceBusConnectionError("cut", is_transient=True)

        divert(transport, unreachable)
        clock.move(41)
        await eventually(lambda: attempts >= 2)
        assert holding.lost == []
        divert(transport, through)
        await eventually(lambda: until(message) > clock.now() + 50)
        divert(transport, unreachable)
        before = attempts
        clock.move(41)
        await eventually(lambda: attempts > before)
        clock.move(19.9)
        await eventually(lambda: bool(holding.lost))
        ((which, error),) = holding.lost
        assert which is message
        assert isinstance(error, MessageLockLostError)
        assert isinstance(error.__cause__, ServiceBusConnectionError)


@in_memory
async def test_no_lock_is_renewed_while_the_program_is_not_alive(url: str) -> None:
    clock, holding = HandClock(), Holding()
    async with queue_at(url, clock=clock) as queue, holding.renewer(queue.client):
        (message,) = await receive(queue, 1)
        holding.alive = False
        holding.hold(message)
        before = until(message)
        clock.move(41)
        before_asking = holding.asked
        await eventually(lambda: holding.asked >= before_asking + 2)
        assert until(message) == before
        holding.alive = True
        await eventually(lambda: until(message) > before)
        assert holding.lost == []


@in_memory
async def test_renewals_end_after_the_longest_duration(url: str) -> None:
    clock, holding = HandClock(), Holding()
    async with queue_at(url, clock=clock) as queue, holding.renewer(queue.client, max_lock_renewal_duration=60):
        (message,) = await receive(queue, 1)
        holding.hold(message)
        await holding.look()
        clock.move(41)
        await eventually(lambda: until(message) > clock.now() + 50)
        clock.move(41)
        await holding.look()
        assert holding.lost == []
        clock.move(20)
        await eventually(lambda: bool(holding.lost))
        assert isinstance(holding.lost[0][1], AutoLockRenewTimeout)


@in_memory
async def test_a_failing_function_does_not_end_the_renewals(url: str, caplog: pytest.LogCaptureFixture) -> None:
    clock, failing = HandClock(), [True]
    held: list[ServiceBusReceivedMessage] = []

    def those() -> list[ServiceBusReceivedMessage]:
        if failing:
            raise ValueError("not now")
        return held

    async with queue_at(url, clock=clock) as queue, BackgroundLockRenewer(queue.client, those):
        held += await receive(queue, 1)
        await eventually(lambda: "not now" in caplog.text)
        failing.clear()
        clock.move(41)
        await eventually(lambda: until(held[0]) > clock.now() + 50)


@in_memory
async def test_the_thread_ends_with_the_renewer(queue: Queue) -> None:
    holding = Holding()
    renewer = holding.renewer(queue.client)
    async with renewer:
        thread = thread_of(renewer)
        await holding.look()
    assert not thread.is_alive()
    assert renewer.closed
    await renewer.close()
    with pytest.raises(ServiceBusError, match="closed"):
        await renewer.__aenter__()


@in_memory
async def test_the_thread_ends_when_the_client_is_closed_first(queue: Queue) -> None:
    holding = Holding()
    renewer = await holding.renewer(queue.client).__aenter__()
    thread = thread_of(renewer)
    holding.hold(*await receive(queue, 1))
    await holding.look()
    await queue.client.close()
    await eventually(lambda: not thread.is_alive())
    assert holding.lost == []
    await renewer.close()


@in_memory
async def test_a_renewer_that_is_dropped_ends_with_a_warning(queue: Queue) -> None:
    renewer = await BackgroundLockRenewer(queue.client, list).__aenter__()
    thread = thread_of(renewer)
    with pytest.warns(ResourceWarning, match="BackgroundLockRenewer was not closed"):
        del renewer
    await eventually(lambda: not thread.is_alive())


_UNCLOSED = """
import asyncio, sys
from sbredis.aio import BackgroundLockRenewer, ServiceBusClient

async def main():
    client = await ServiceBusClient("memory://unclosed").__aenter__()
    renewer = await BackgroundLockRenewer(client, list).__aenter__()
    return client, renewer

kept = asyncio.run(main())
"""


def test_a_renewer_that_was_not_closed_does_not_hold_up_the_interpreter() -> None:
    done = subprocess.run([sys.executable, "-c", _UNCLOSED], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@in_memory
async def test_bad_arguments_are_refused(queue: Queue) -> None:
    for wrong, text in (
        ((object(), list), "A client of sbredis.aio is needed, not object"),
        ((queue.client, None), "held must be a function, not NoneType"),
    ):
        with pytest.raises(TypeError, match=text):
            BackgroundLockRenewer(*cast("Any", wrong))
    with pytest.raises(TypeError, match="on_lost must be a function"):
        BackgroundLockRenewer(queue.client, list, on_lost=cast("Any", 1))
    with pytest.raises(ValueError, match="max_lock_renewal_duration"):
        BackgroundLockRenewer(queue.client, list, max_lock_renewal_duration=-1)


def stand_in_of(renewer: BackgroundLockRenewer) -> subprocess.Popen[bytes] | None:
    stand_in = thread_of(renewer)._stand_in
    return None if stand_in is None else stand_in._process


async def test_a_process_that_is_killed_is_started_again_and_ends_with_the_renewer(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with ServiceBusClient(server.url) as client:
        renewer = BackgroundLockRenewer(client, list, stand_in=60)
        async with renewer:
            first = stand_in_of(renewer)
            assert first is not None
            first.kill()
            await eventually(lambda: stand_in_of(renewer) is not first)
            second = stand_in_of(renewer)
            assert second is not None
            assert second.poll() is None
            assert "the process that renews locks" in caplog.text
        assert second.poll() == 0


async def test_a_process_that_cannot_reach_the_servers_is_refused_and_nothing_is_started() -> None:
    threads = threading.active_count()
    async with ServiceBusClient("memory://alone") as client:
        renewer = BackgroundLockRenewer(client, list, stand_in=60)
        with pytest.raises(ValueError, match=r"memory:// is in this process alone"):
            await renewer.__aenter__()
        await renewer.close()
        with pytest.raises(ValueError, match="stand_in"):
            BackgroundLockRenewer(client, list, stand_in=-1)
    assert threading.active_count() == threads


async def test_a_process_that_does_not_begin_is_refused(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ServiceBusClient(server.url) as client:
        renewer = BackgroundLockRenewer(client, list, stand_in=60)
        for executable, said in (
            ("", "is empty"),
            ("/nowhere", "No such file"),
            ("/bin/false", "ended at once, with 1"),
        ):
            monkeypatch.setattr(sys, "executable", executable)
            with pytest.raises(AutoLockRenewFailed, match=f"No process can be started that renews locks. .*{said}"):
                await renewer.__aenter__()
        monkeypatch.undo()
        async with renewer:
            assert stand_in_of(renewer) is not None


async def test_what_other_modules_of_the_process_print_ends_neither_it_nor_the_renewals(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    says = "again = lambda: print('again', flush=True) or threading.Timer(1, again).start()"
    (tmp_path / "sitecustomize.py").write_text(f"import threading\n{says}\nagain()\n")  # before it is ready, and after
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with queue_at(server.url) as queue, BackgroundLockRenewer(queue.client, list, stand_in=60) as renewer:
        first = stand_in_of(renewer)
        assert first is not None
        await eventually(lambda: first.poll() is not None)  # it is replaced: nobody knows what it would say next
        assert "said something else" in caplog.text
        assert thread_of(renewer).is_alive()


async def test_a_lock_that_the_process_renews_while_the_thread_looks_is_not_lost(server: LocalServer) -> None:
    """The first look has begun before the lock, so it misses it. The next one lasts longer than the lock did."""
    waits = [threading.Event() for _ in range(2)]
    looks: list[object] = []
    messages: list[ServiceBusReceivedMessage] = []
    lost: list[object] = []

    def held() -> list[ServiceBusReceivedMessage]:
        found = list(messages)
        looks.append(None)
        if len(looks) <= len(waits):
            waits[len(looks) - 1].wait()
        return found

    async with (
        queue_at(server.url, lock_duration=5 * LOCK * 1000) as queue,
        BackgroundLockRenewer(queue.client, held, stand_in=60, on_lost=lambda *each: lost.append(each)) as renewer,
    ):
        try:
            await eventually(lambda: len(looks) == 1)
            messages += await receive(queue, 1)  # its lock begins when the process is there
            first = until(messages[0])
            renewer.cover(messages[0])
            waits[0].set()
            await eventually(lambda: time.monotonic() > first)
            waits[1].set()
            await eventually(lambda: len(looks) > 2 or lost, timeout=120)
            assert not lost
            await queue.receiver().complete_message(messages[0])
        finally:
            for each in waits:
                each.set()


@pytest.mark.long("it receives a thousand messages one by one")
async def test_a_process_covers_many_locks_at_once(server: LocalServer) -> None:
    name = "q" * 200
    async with queue_at(server.url, name=name) as queue:
        messages = [message for _ in range(1000) for message in await receive(queue, 1)]
        async with BackgroundLockRenewer(queue.client, lambda: messages, stand_in=60) as renewer:
            process = stand_in_of(renewer)
            stand_in = thread_of(renewer)._stand_in
            assert process is not None
            assert stand_in is not None
            await eventually(lambda: len(stand_in._told) == 1000 and not stand_in._unsent)
            assert process.poll() is None
        with pytest.raises(TypeError, match="covers received messages and sessions, not list"):
            renewer.cover(messages)  # type: ignore[arg-type]
