"""Tests of coroutines that go on although they were cancelled: their messages, and the end of their programs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import textwrap
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.servers import LocalServer
from sbredis.testing import Bus
from sbredis.workers import Complete, Context, Depends, Worker
from tests.children import child
from tests.plugins.parts import first
from tests.waiting import eventually
from tests.workers.looking import send_to, worker_of
from tests.workers.parts import Parts, begun_with
from tests.workers.worker_programs import program, send

QUICK = Parts(cancelling=0.05)

APP = """
    import asyncio
    import os
    from sbredis.workers import Worker
    from sbredis.workers.running import _consuming
    from sbredis.workers.supervising import _programs

    _consuming.CANCELLING = _programs.CANCELLING = float(os.environ["CANCELLING"])
    worker = Worker(os.environ["BUS"], shutdown_timeout=0)
    tasks = []

    async def go_on(what: str) -> None:
        while True:
            with open("log", "a") as log:
                log.write(f"{os.getpid()} {what}\\n")
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                what = "cancelled"

    @worker.queue("orders")
    async def place(text: str) -> None:
        if text == "task":
            tasks.append(asyncio.create_task(go_on(text)))
        else:
            await go_on(text)

    if __name__ == "__main__":
        worker.run_sync()
        print("returned")
"""
"""A worker whose handlers, or the tasks that they start, go on although they are cancelled."""


class Stubborn:
    """The body of a handler that goes on although it is cancelled, until it is let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.told: list[object] = []

    async def __call__(self, context: Context) -> None:
        self.told.append("begun")
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.told.append("cancelled")
        self.told.append(("lock lost", context.lock_lost))


@pytest.fixture
async def stubborn() -> AsyncGenerator[Stubborn]:
    made = Stubborn()
    yield made
    made.let_go.set()  # else the event loop would wait for it after a test that fails


def handled(worker: Worker, stubborn: Stubborn, batch: int | None) -> None:
    """Give a worker the handler of orders."""
    if batch is None:

        @worker.queue("orders")
        async def place(context: Context) -> None:
            await stubborn(context)
    else:

        @worker.queue("orders", batch=batch, batch_wait=20)
        async def place_all(_: list[str], context: Context) -> None:
            await stubborn(context)


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("requires_session", [False, True])
async def test_a_message_is_not_given_back_while_its_handler_goes_on(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, stubborn: Stubborn, requires_session: bool, batch: int | None
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=requires_session, shutdown_timeout=0)
    count = batch or 1
    handled(worker, stubborn, batch)
    async with begun_with(worker, QUICK) as runtime:
        await send_all(sbredis_bus, count)
        await eventually(lambda: stubborn.told)
        (consumer,) = (service.consumer for service in runtime.services)
        assert list(consumer.renewables())
    assert list(consumer.renewables()) == []
    assert stubborn.told == ["begun", "cancelled"]
    assert len(await sbredis_bus.locked("orders")) == count
    said = "place still runs although it was cancelled, and the worker ends without it: message 1 comes again when"
    if batch is not None:
        said = (
            "place_all still runs although it was cancelled, and the worker ends without it: message 1 and 2 more come"
        )
    assert said in caplog.text
    (task,) = runtime.left
    stubborn.let_go.set()
    await asyncio.wait((task,))
    assert stubborn.told[2:] == [("lock lost", True)]
    assert len(await sbredis_bus.locked("orders")) == count
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("requires_session", [False, True])
async def test_a_handler_that_goes_on_may_have_settled_its_message(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, stubborn: Stubborn, requires_session: bool
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=requires_session, shutdown_timeout=0)

    @worker.queue("orders")
    async def place(context: Context) -> None:
        await context.settle(Complete())
        await stubborn(context)

    async with begun_with(worker, QUICK) as runtime:
        await worker.send("orders", "one", session_id="a")
        await eventually(lambda: stubborn.told)
    assert "the worker ends without it: message 1 settled before" in caplog.text
    stubborn.let_go.set()
    await asyncio.wait(runtime.left)


@pytest.mark.parametrize("requires_session", [False, True])
async def test_a_handler_that_is_left_is_not_waited_for_again_after_a_second_cancellation(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, stubborn: Stubborn, requires_session: bool
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=requires_session, shutdown_timeout=0)
    handled(worker, stubborn, None)
    async with begun_with(worker, QUICK) as runtime:
        await worker.send("orders", "one", session_id="a")
        await eventually(lambda: stubborn.told)
        (consumer,) = (service.consumer for service in runtime.services)
        await consumer.finish(0, QUICK.cancelling)
    assert caplog.text.count("still runs although it was cancelled") == 1
    stubborn.let_go.set()
    await asyncio.wait(runtime.left)


async def test_the_clean_up_of_a_session_that_goes_on_is_not_waited_for(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=True, shutdown_timeout=0)
    let_go, told = asyncio.Event(), list[str]()

    async def connection() -> AsyncGenerator[int]:
        yield 1
        while not let_go.is_set():
            told.append("cleaning up")
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                told.append("cancelled")

    @worker.queue("orders", session_idle_timeout=0.05)
    async def place(_: Annotated[int, Depends(connection, scope="session")]) -> None: ...

    async with begun_with(worker, QUICK) as runtime:
        await worker.send("orders", "one", session_id="a")
        await eventually(lambda: told)
    assert told == ["cleaning up", "cancelled", "cleaning up"]
    assert "orders: the end of a session, or the clean-up of its dependencies, goes on" in caplog.text
    let_go.set()
    await asyncio.wait(runtime.left)


async def send_all(bus: Bus, count: int) -> None:
    await send_to(bus, "orders", [ServiceBusMessage(f"message {number}", session_id="a") for number in range(count)])


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", first(1, [(), ("--processes", "1")], "it starts a group of processes"))
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("handler", "place still runs although it was cancelled"),
        ("task", "the task go_on still runs although it was cancelled"),
    ],
)
async def test_a_program_ends_without_a_coroutine_that_goes_on(
    server: LocalServer, tmp_path: Path, text: str, said: str, arguments: tuple[str, ...]
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, text)
        async with program(server.url, tmp_path, *arguments, app=APP, env={"CANCELLING": "0.2"}) as worker:
            await eventually(worker.lines)
            worker.process.send_signal(signal.SIGTERM)
            code, told = await worker.end()
        assert (code, told.count(said)) == (0, 1), told
        assert "Traceback" not in told
        assert "destroyed" not in told
        receiver = client.get_queue_receiver("orders")
        again = await receiver.receive_messages(1, max_wait_time=60) if text == "handler" else []
        assert [message.delivery_count for message in again] == [2] * len(again)


@pytest.mark.long("it starts a process and interrupts it")
@pytest.mark.parametrize("text", ["handler", "task"])
async def test_a_second_signal_ends_a_program_that_waits_for_a_cancelled_coroutine(
    server: LocalServer, tmp_path: Path, text: str
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, text)
        async with program(server.url, tmp_path, app=APP, env={"CANCELLING": "3600"}) as worker:
            await eventually(worker.lines)
            worker.process.send_signal(signal.SIGTERM)
            await eventually(lambda: "cancelled" in [what for _, what in worker.lines()])
            heard = time.monotonic()
            await eventually(lambda: time.monotonic() > heard + 0.5)  # before that, it would be the same request
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.process.wait() == 128 + signal.SIGTERM


async def test_the_application_goes_on_after_a_program_that_ends_without_a_coroutine(
    server: LocalServer, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(textwrap.dedent(APP))
    async with ServiceBusClient(server.url) as client:
        await send(client, "handler")
    given = {"BUS": server.url, "CANCELLING": "0.2"}
    async with child("app.py", cwd=tmp_path, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        await eventually((tmp_path / "log").exists)
        process.send_signal(signal.SIGTERM)
        said, told = await process.communicate()
        assert (process.returncode, said) == (0, b"returned\n")
        assert told.endswith(
            b"place still runs although it was cancelled, and the worker ends without it: "
            b"message 1 comes again when its lock ends\n"
        )
