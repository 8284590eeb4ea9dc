"""Tests of locks while handlers run: they follow the life of the worker, and not its event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.credentials import UsernamePasswordCredentialProvider

from sbredis import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from sbredis import ServiceBusClient as SyncClient
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import OperationTimeoutError, WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.servers import LocalServer
from sbredis.workers import Context, Retries, SyncContext, Worker
from tests.plugins.parts import first
from tests.waiting import eventually
from tests.workers.process_handlers import hold, hold_the_interpreter, stay_once
from tests.workers.worker_programs import has_ended, program, send

LOCK = timedelta(seconds=5)


@pytest.fixture
async def url(server: LocalServer) -> str:
    async with ServiceBusAdministrationClient(server.url) as admin:
        await admin.create_queue("orders", lock_duration=LOCK)
        await admin.create_queue("steps", lock_duration=LOCK, requires_session=True)
    return server.url


async def test_a_user_without_the_rights_for_maintenance_gets_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sbredis")
    with LocalServer() as server:
        async with ServiceBusClient(server.url) as client:
            await client.ensure_queue("orders")
            rights = ("%R~*", "~sb:default:{*}:[^r]*", "~sb:default:{*}:rules", "&*", "+@all")  # all but `roles`
            server.ask("ACL", "SETUSER", "few", "reset", "on", ">pw", *rights)
            worker = Worker(server.url.replace("://", "://few:pw@"))
            seen: list[str] = []

            @worker.queue("orders")
            async def place(text: str) -> None:
                seen.append(text)

            async with worker.running():
                await eventually(lambda: "maintenance is left to users with more rights" in caplog.text)
                await worker.send("orders", "one")
                await eventually(lambda: seen == ["one"])
    said = [record for record in caplog.records if record.name == "sbredis.maintenance"]
    assert [record.levelname for record in said] == ["INFO"]
    assert caplog.text.count("not permitted to use script hold_role") == 2  # as the transport says it, and in that line


async def empty(client: ServiceBusClient, queue: str) -> bool:
    try:
        if queue == "steps":
            return await client.accept_next_session(queue, max_wait_time=0) is None
        return not await client.get_queue_receiver(queue).peek_messages()
    except OperationTimeoutError:  # a handler has kept the interpreter meanwhile
        return False


def sleep() -> None:
    time.sleep(3 * LOCK.total_seconds())


def compute() -> None:
    end = time.monotonic() + 3 * LOCK.total_seconds()
    while time.monotonic() < end:
        sum(range(1000))


@pytest.mark.parametrize("block", first(1, [sleep, compute], "it computes for the time of three locks"))
async def test_handlers_that_block_the_event_loop_keep_their_locks(url: str, block: Callable[[], None]) -> None:
    """Each of the two workers runs in an event loop of its own, which its handler blocks for three lock durations."""

    async def handled(queue: str) -> list[int]:
        worker = Worker(url)
        attempts: list[int] = []

        @worker.queue(queue)
        async def place(context: Context) -> None:
            attempts.append(context.attempt)
            block()

        async with worker.running():
            await worker.send(queue, b"", session_id="a")
            await eventually(lambda: attempts)
        async with ServiceBusClient(url) as client:
            await eventually(lambda: empty(client, queue))
        return attempts

    def run(queue: str) -> list[int]:
        return asyncio.run(handled(queue))

    found = await asyncio.gather(asyncio.to_thread(run, "orders"), asyncio.to_thread(run, "steps"))
    assert list(found) == [[1], [1]]


async def test_a_handler_that_keeps_the_interpreter_to_itself_loses_its_lock_unless_it_has_a_process(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as administration:
        await administration.create_queue("out")
    worker = Worker(url, retries=Retries(first_delay=0))
    seconds, attempts = LOCK.total_seconds() + 1, list[int]()

    @worker.queue("orders", when=lambda message: message.subject != "process")
    async def place(context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt == 1:
            hold_the_interpreter(seconds)

    worker.queue("orders", execution="process", when=lambda message: message.subject == "process")(hold)
    async with worker.running():
        await worker.send("orders", str(seconds), subject="process")
        await eventually(lambda: empty(worker.client, "orders"))
        (out,) = await worker.client.get_queue_receiver("out").receive_messages(1, 60)
        assert str(out) == "1"
        await worker.send("orders", b"")
        await eventually(lambda: empty(worker.client, "orders"))
    assert attempts == [1, 2]


@pytest.mark.parametrize("queue", first(1, ["orders", "steps"], "a session is renewed in the same way"))
async def test_with_a_process_that_renews_a_handler_that_keeps_the_interpreter_keeps_its_lock(
    url: str, queue: str
) -> None:
    """The handler keeps the interpreter for twice the duration of the lock, from its first step on."""
    worker = Worker(url, renewal="process")
    attempts = list[int]()

    @worker.queue(queue)
    async def place(context: Context) -> None:
        attempts.append(context.attempt)
        hold_the_interpreter(2 * LOCK.total_seconds())

    async with ServiceBusClient(url) as client, client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(b"", session_id="a") for _ in range(2)])
    async with worker.running():
        await eventually(lambda: len(attempts) == 2)
        await eventually(lambda: empty(worker.client, queue))
    assert attempts == [1, 1]


@pytest.mark.long("a handler that keeps the interpreter shows it sooner")
async def test_a_slow_regular_expression_keeps_its_lock_with_a_process_that_renews(url: str) -> None:
    """Each match takes seconds, and keeps the interpreter; between two of them, other threads get little done."""
    worker = Worker(url, renewal="process")
    attempts = list[int]()

    @worker.queue("orders")
    def place(context: SyncContext) -> None:
        attempts.append(context.attempt)
        end = time.monotonic() + 2 * LOCK.total_seconds()
        while time.monotonic() < end:
            assert re.match("(a+)+b", "a" * 25) is None

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: attempts)
        await eventually(lambda: empty(worker.client, "orders"))
    assert attempts == [1]


@pytest.mark.parametrize("number", first(1, [signal.SIGSTOP, signal.SIGKILL], "silence shows it too"))
async def test_a_process_renews_nothing_for_a_worker_that_is_gone_or_silent_for_long(
    url: str, tmp_path: Path, number: signal.Signals
) -> None:
    app = f"""
        import os
        from sbredis.workers import Worker

        worker = Worker(os.environ["BUS"], renewal="process", stuck_after=6)

        @worker.queue("orders")
        async def place() -> None:
            os.kill(os.getpid(), {number})
    """
    async with ServiceBusClient(url) as client, program(url, tmp_path, app=app):
        await send(client, "")
        receiver = client.get_queue_receiver("orders")
        await eventually(lambda: delivered(client))
        (message,) = await receiver.receive_messages(1, 60)
        assert message.delivery_count == 2


async def delivered(client: ServiceBusClient) -> bool:
    return [each.delivery_count for each in await client.get_queue_receiver("orders").peek_messages()] == [1]


async def test_a_worker_does_not_start_where_no_process_can_renew(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(worker: Worker) -> None:
        worker.queue("orders")(sleep)
        async with worker.running():
            raise AssertionError

    asked = Worker(url, renewal="process", credential=UsernamePasswordCredentialProvider("default", ""))
    with pytest.raises(WorkerSetupError, match="credential provider"):
        await start(asked)
    with monkeypatch.context() as changed:
        changed.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(WorkerSetupError, match=r'renewal="process" is not possible here\. .* No such file'):
            await start(Worker(url, renewal="process"))


async def test_a_worker_that_is_stuck_renews_nothing_so_others_get_its_messages(url: str) -> None:
    worker = Worker(url, stuck_after=1)
    received: list[int] = []

    @worker.queue("orders")
    async def place() -> None:
        with SyncClient(url) as client, client.get_receiver("orders") as receiver:
            while not received:  # this blocks the event loop
                received.extend(message.delivery_count for message in receiver.receive_messages(max_wait_time=1))

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: received)
    assert received[0] == 2


async def test_a_lost_lock_cancels_a_coroutine_and_is_told_to_a_thread(url: str) -> None:
    worker = Worker(url, max_concurrent_calls=1)
    ended: list[str] = []
    begun: list[Any] = []

    @worker.queue("orders", subject="async")
    async def wait(context: Context) -> None:
        begun.append(context)
        if context.attempt == 1:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    @worker.queue("orders", subject="thread")
    def work(context: SyncContext) -> None:
        begun.append(context)
        while context.attempt == 1 and not context.lock_lost:
            time.sleep(0.01)
        if context.attempt == 1:
            ended.append("told")

    async with worker.running():
        for subject in ("async", "thread"):
            await worker.send("orders", b"", subject=subject)
            await eventually(lambda: begun)
            token = str(begun[-1].message.lock_token)
            await worker.client.get_settler("orders").abandon_message(token)  # as if the lock had ended
            await eventually(lambda subject=subject: len(ended) == 1 + (subject == "thread"))
            await eventually(lambda: empty(worker.client, "orders"))
            begun.clear()  # only now: the second attempt is noted too
        counts = worker._running().report().counts["orders"]
    assert ended == ["cancelled", "told"]
    assert counts.locks_lost == 2


async def test_a_lost_lock_kills_the_process_of_a_handler(url: str, tmp_path: Path) -> None:
    async with ServiceBusAdministrationClient(url) as administration:
        await administration.create_queue("out")
    worker, file = Worker(url), tmp_path / "process"
    received: list[ServiceBusReceivedMessage] = []

    def noting(message: ServiceBusReceivedMessage) -> bool:
        received.append(message)
        return True

    worker.queue("orders", execution="process", max_concurrent_calls=1, when=noting)(stay_once)
    async with worker.running():
        await worker.send("orders", str(file))
        await eventually(lambda: file.exists() and file.read_text())
        token = str(received[0].lock_token)
        await worker.client.get_settler("orders").abandon_message(token)  # as if the lock had ended
        await eventually(lambda: has_ended(int(file.read_text())))
        (out,) = await worker.client.get_queue_receiver("out").receive_messages(1, 60)
        assert str(out) == "2"
        await eventually(lambda: empty(worker.client, "orders"))
        counts = worker._running().report().counts["orders"]
    assert (counts.locks_lost, counts.completed) == (1, 1)


async def test_a_lock_is_given_up_after_the_longest_time_for_renewals(url: str) -> None:
    """Then the handler is told like that of any lost lock."""
    worker = Worker(url, max_concurrent_calls=2)
    attempts: list[tuple[str, int]] = []
    ended: list[str] = []

    @worker.queue("orders", max_auto_lock_renewal_duration=1)
    async def place(context: Context) -> None:
        await until_cancelled("orders", context)

    @worker.queue("steps", max_auto_lock_renewal_duration=1)
    async def step(context: Context) -> None:
        await until_cancelled("steps", context)

    async def until_cancelled(queue: str, context: Context) -> None:
        attempts.append((queue, context.attempt))
        if context.attempt == 1:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ended.append(queue)
                raise

    async with worker.running():
        await worker.send("orders", b"")
        await worker.send("steps", b"", session_id="a")
        await eventually(lambda: len(attempts) == 4)
        await eventually(lambda: len(ended) == 2)
    assert sorted(attempts) == [("orders", 1), ("orders", 2), ("steps", 1), ("steps", 2)]


SUSPENDED_IN_A_SESSION = """
    import os, signal
    from sbredis.workers import Complete, Context, Worker

    worker = Worker(os.environ["BUS"], max_concurrent_calls=1)

    @worker.queue("steps", session_idle_timeout=0.1)
    async def step(context: Context) -> None:
        with open("log", "a") as log:
            log.write(f"{context.message}\\n")
        if str(context.message) == "first":
            await context.settle(Complete())
            os.kill(os.getpid(), signal.SIGSTOP)
"""
"""A worker that is suspended when the first message of a session is completed, and the second was received too."""
SUSPENDED_IN_A_BATCH = """
    import os, signal
    from sbredis.model import ServiceBusReceivedMessage
    from sbredis.workers import Worker

    worker = Worker(os.environ["BUS"], max_concurrent_calls=1)

    @worker.queue("orders", subject="first", batch=10)
    async def first(messages: list[ServiceBusReceivedMessage]) -> None:
        note(messages)
        os.kill(os.getpid(), signal.SIGSTOP)

    @worker.queue("orders", subject="second", batch=10)
    async def second(messages: list[ServiceBusReceivedMessage]) -> None:
        note(messages)

    def note(messages: list[ServiceBusReceivedMessage]) -> None:
        with open("log", "a") as log:
            log.writelines(f"{message}\\n" for message in messages)
"""
"""A worker that is suspended while a call for messages of the same batch waits for its turn."""
SUSPENDED_AMONG_OTHERS = """
    import os, signal
    from sbredis.workers import Worker

    worker = Worker(os.environ["BUS"])

    @worker.queue("orders")
    async def place(text: str) -> None:
        with open("log", "a") as log:
            log.write(f"{text}\\n")
        if text == "first":
            os.kill(os.getpid(), signal.SIGSTOP)
"""
"""A worker that is suspended while messages that were received together wait for their turns."""


@pytest.mark.long("it waits for the end of a lock")
async def test_no_message_of_a_session_is_begun_if_its_lock_ended_while_the_worker_was_suspended(
    url: str, tmp_path: Path
) -> None:
    async with ServiceBusClient(url) as client, client.get_queue_sender("steps") as sender:
        await sender.send_messages([ServiceBusMessage(text, session_id="a") for text in ("first", "second")])
        async with program(url, tmp_path, app=SUSPENDED_IN_A_SESSION) as worker:
            await eventually(worker.lines)
            async with client.get_queue_receiver("steps", session_id=NEXT_AVAILABLE_SESSION) as receiver:
                assert [str(each) for each in await receiver.receive_messages(1, 60)] == ["second"]
                os.kill(worker.process.pid, signal.SIGCONT)
                await worker.says("ended before the message")
                assert worker.lines() == [["first"]]
            await eventually(lambda: worker.lines() == [["first"], ["second"]])


@pytest.mark.parametrize("app", [SUSPENDED_IN_A_BATCH, SUSPENDED_AMONG_OTHERS])
@pytest.mark.long("it waits for the end of a lock")
async def test_no_message_is_begun_if_its_lock_ended_while_the_worker_was_suspended(
    url: str, tmp_path: Path, app: str
) -> None:
    async with ServiceBusClient(url) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage(text, subject=text) for text in ("first", "second")])
        async with program(url, tmp_path, app=app) as worker:
            await eventually(worker.lines)
            receiver = client.get_queue_receiver("orders")
            held: list[str] = []
            while "second" not in held:
                held += map(str, await receiver.receive_messages(2, 60))
            os.kill(worker.process.pid, signal.SIGCONT)
            await worker.says("a lock ended before") if app is SUSPENDED_AMONG_OTHERS else None
            await sender.send_messages(ServiceBusMessage("third", subject="second"))
            await eventually(lambda: ["third"] in worker.lines())
            assert worker.lines() == [["first"], ["third"]]
