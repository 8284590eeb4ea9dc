"""A worker whose client is closed, by a defect or by the application: it says so, and ends with an error."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.exceptions import ServiceBusConnectionError
from sbredis.servers import LocalServer
from sbredis.testing import Bus
from sbredis.workers import Worker
from sbredis.workers._worker import begun, setup_of
from sbredis.workers.running._runtime import Parts
from tests.waiting import eventually
from tests.workers.looking import worker_of
from tests.workers.worker_programs import APP, program, send


async def closed_by_the_application(worker: Worker) -> None:
    await worker.client.close()


async def closed_by_a_defect(worker: Worker) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    worker.client._connection.start(broken())


async def closed_by_its_transport(worker: Worker) -> None:
    await worker.client._connection.transport.aclose()


causes = pytest.mark.parametrize("close", [closed_by_the_application, closed_by_a_defect, closed_by_its_transport])
Close = Callable[[Worker], Awaitable[None]]


def answer(url: str) -> int:
    try:
        with urllib.request.urlopen(url) as answered:  # noqa: S310 -- a fixed scheme
            status: int = answered.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


@causes
async def test_a_worker_whose_client_is_closed_is_not_live_and_ends_with_an_error(
    sbredis_bus: Bus, close: Close, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sbredis.worker")
    begun, go_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: Worker) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await go_on.wait()  # the end takes some time

    worker = await worker_of(sbredis_bus, "orders", http="127.0.0.1:0", lifespan=lifespan)

    @worker.queue("orders")
    async def place() -> None:
        begun.set()

    await sbredis_bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    running = asyncio.create_task(worker.run())
    await begun.wait()
    line = next(each for each in caplog.messages if each.startswith("health and metrics at "))
    address = line.partition(" at ")[2].partition("/live")[0]

    async def answers(path: str, status: int) -> bool:
        return await asyncio.to_thread(answer, f"{address}{path}") == status

    assert await answers("/live", 200)
    await close(worker)
    await eventually(lambda: answers("/live", 503))
    assert await answers("/ready", 503)
    assert not running.done()
    go_on.set()
    with pytest.raises(ServiceBusConnectionError, match="The client of the worker was closed") as caught:
        await running
    assert not caught.value.is_transient
    assert "the client of the worker was closed, so the worker ends" in caplog.messages


@causes
async def test_a_block_of_a_worker_whose_client_was_closed_ends_with_an_error(sbredis_bus: Bus, close: Close) -> None:
    worker = await worker_of(sbredis_bus, "orders")

    @worker.queue("orders")
    async def place() -> None: ...

    async def lose() -> None:
        async with worker.running():
            await close(worker)
            await worker.client.wait_closed()

    with pytest.raises(ServiceBusConnectionError, match="The client of the worker was closed"):
        await lose()
    again = Worker(sbredis_bus.url)
    again.queue("orders")(place)
    async with again.running():  # a worker that is stopped in time raises nothing
        assert not await again.client.wait_closed(timeout=0)


LOSES_ITS_CLIENT = (
    APP
    + """
        if text == "close" and context.attempt == 1:
            asyncio.get_running_loop().create_task(worker.client.close())
"""
)


async def test_a_program_whose_client_is_closed_ends_with_an_exit_code(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "close")
        async with program(server.url, tmp_path, app=LOSES_ITS_CLIENT) as worker:
            code, said = await worker.end()
    assert code == 1
    assert said.splitlines()[-1].startswith("sbredis: The client of the worker was closed")


@pytest.mark.long("it starts a group of processes")
async def test_a_supervisor_starts_a_process_again_whose_client_was_closed(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "close")
        async with program(server.url, tmp_path, "--processes", "1", app=LOSES_ITS_CLIENT) as worker:
            await worker.says("process 1 ended with the exit code 1; it starts again in")
            await send(client, "one")
            await eventually(lambda: {line[1] for line in worker.lines()} == {"close", "one"})
            assert len({line[0] for line in worker.lines()}) == 2


async def test_a_report_names_the_server_in_the_same_way_when_the_client_is_closed(sbredis_bus: Bus) -> None:
    worker = Worker(sbredis_bus.url)

    @worker.queue("orders", create_if_missing=True)
    async def place() -> None: ...

    titles: list[str] = []

    async def lose() -> None:
        async with begun(worker, setup_of(worker), Parts()) as runtime:
            titles.append(runtime.report().title)
            await worker.client.close()
            titles.append(runtime.report().title)
            await runtime.stopped.wait()

    with pytest.raises(ServiceBusConnectionError):
        await lose()
    assert titles[0] == titles[1]
