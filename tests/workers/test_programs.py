"""Tests of workers as programs: real processes over a real server, signals, and processes that end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.servers import LocalServer
from sbredis.workers.__main__ import main
from tests.plugins.parts import first
from tests.waiting import eventually
from tests.workers.worker_programs import APP, get, has_ended, program, send

pytestmark = pytest.mark.slow

COMPUTING = """
    import os, pathlib, time
    from sbredis.workers import Worker

    worker = Worker(os.environ["BUS"])

    @worker.queue("orders", execution="process", max_concurrent_calls=1)
    def compute(text: str) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text} 1\\n")
        time.sleep(3600)
"""


async def test_a_signal_lets_the_handlers_finish(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "wait", "wait", "one")
        async with program(server.url, tmp_path) as worker:
            await eventually(lambda: len(worker.lines()) == 3)
            worker.process.send_signal(signal.SIGTERM)
            (tmp_path / "go").touch()
            assert await worker.process.wait() == 0
        receiver = client.get_queue_receiver("orders")
        assert await receiver.receive_messages(5, max_wait_time=0) == []


@pytest.mark.long("it starts a group of processes")
@pytest.mark.parametrize(("arguments", "ended_by"), [((), signal.SIGINT), (("--processes", "2"), signal.SIGKILL)])
async def test_a_second_signal_ends_it_at_once(
    server: LocalServer, tmp_path: Path, arguments: tuple[str, ...], ended_by: signal.Signals
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "wait")
        async with program(server.url, tmp_path, *arguments) as worker:
            await eventually(lambda: len(worker.lines()) == 1)
            worker.process.send_signal(signal.SIGTERM)
            await worker.says("finishing")
            heard = time.monotonic()
            await eventually(lambda: time.monotonic() > heard + 0.5)  # before that, it would be the same request
            worker.process.send_signal(signal.SIGINT)
            assert await worker.process.wait() == 128 + ended_by


@pytest.mark.parametrize("prefetch", [0, 3])
async def test_a_killed_worker_counts_a_delivery_of_what_it_had_fetched_ahead(
    server: LocalServer, tmp_path: Path, prefetch: int
) -> None:
    app = APP.replace("max_concurrent_calls=4", f"max_concurrent_calls=4, prefetch={prefetch}")
    async with ServiceBusClient(server.url) as client:
        await send(client, *["wait"] * 10)
        async with (
            program(server.url, tmp_path, app=app) as worker,
            ServiceBusAdministrationClient(server.url) as admin,
        ):
            await eventually(lambda: len(worker.lines()) == 4)

            async def fetched() -> bool:
                return [each.locked_message_count async for each in admin.list_partitions("orders")] == [4 + prefetch]

            await eventually(fetched)
            worker.process.kill()
            await worker.process.wait()
        receiver, found = client.get_queue_receiver("orders"), list[int]()
        while len(found) < 10:
            messages = await receiver.receive_messages(10, max_wait_time=60)
            found += [message.delivery_count for message in messages]
            await receiver.complete_messages(messages)
        assert Counter(found) == {1: 6 - prefetch, 2: 4 + prefetch}


async def test_the_process_of_a_handler_ends_when_its_worker_is_killed(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "forever")
        async with program(server.url, tmp_path, app=COMPUTING) as worker:
            await eventually(worker.lines)
            worker.process.kill()
            await worker.process.wait()
            await eventually(lambda: has_ended(int(worker.lines()[0][0])))


async def test_an_interruption_while_the_application_is_imported_is_no_traceback(
    server: LocalServer, tmp_path: Path
) -> None:
    async with program(server.url, tmp_path, app="raise KeyboardInterrupt") as worker:
        assert await worker.end() == (128 + signal.SIGINT, "")


CANCELS_ALL = (
    APP
    + """
        for each in asyncio.all_tasks():
            each.cancel()
"""
)


async def test_a_handler_that_cancels_all_tasks_ends_the_worker_with_an_error(
    server: LocalServer, tmp_path: Path
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "x")
        async with program(server.url, tmp_path, app=CANCELS_ALL) as worker:
            code, said = await worker.end()
    assert code == 1
    assert said.splitlines()[-1].startswith("sbredis: The worker has ended because")


LIFESPAN = """
    import asyncio, os, time
    from contextlib import asynccontextmanager, suppress
    from sbredis.workers import Worker

    async def waits():
        await asyncio.Event().wait()

    async def blocks():
        time.sleep(3600)

    async def goes_on():
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    @asynccontextmanager
    async def lifespan(worker):
        try:
            os.mkdir("first")
        except FileExistsError:
            pass
        else:
            await DOES()
        yield

    worker = Worker(os.environ["BUS"], lifespan=lifespan, lifespan_timeout=float(os.environ["LIFESPAN_TIMEOUT"]))

    @worker.queue("orders")
    async def place(text: str) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text}\\n")
"""


@pytest.mark.long("it starts a group of processes")
@pytest.mark.parametrize("does", ["waits", "blocks", "goes_on"])
async def test_a_lifespan_that_never_returns_ends_the_process_with_an_error(
    server: LocalServer, tmp_path: Path, does: str
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "one")
        app = LIFESPAN.replace("DOES", does)
        async with program(server.url, tmp_path, app=app, env={"LIFESPAN_TIMEOUT": "0.5"}) as worker:
            code, said = await worker.end()
        assert code == 1
        assert "The lifespan of the worker did not begin within 0.5 s (lifespan_timeout)." in said
        assert f"in {does}" in said or does == "goes_on"  # the log shows where it waits or blocks
        receiver = client.get_queue_receiver("orders")
        assert [message.delivery_count for message in await receiver.receive_messages(2, max_wait_time=5)] == [1]


@pytest.mark.long("it starts a group of processes")
@pytest.mark.parametrize("does", ["waits", "blocks"])
async def test_a_lifespan_that_takes_long_to_begin_does_not_keep_the_other_processes_waiting(
    server: LocalServer, tmp_path: Path, does: str
) -> None:
    options = "--processes", "2", "--http", "127.0.0.1:0"
    app, env = LIFESPAN.replace("DOES", does), {"LIFESPAN_TIMEOUT": "3600"}
    async with ServiceBusClient(server.url) as client:
        await send(client, "one")
        async with program(server.url, tmp_path, *options, app=app, env=env) as worker:
            address = await worker.address()
            await eventually(lambda: [line[1] for line in worker.lines()] == ["one"])

            async def seen() -> bool:
                """Return whether both answers show what is there."""
                live, ready = [await asyncio.to_thread(get, f"{address}/{path}") for path in ("live", "ready")]
                states = [json.loads(body)["processes"] for _, body in (live, ready)]
                return (live[0], ready[0], states) == (
                    200,
                    503,
                    [{"process 1": "in its lifespan", "process 2": "running"}] * 2,
                )

            await eventually(seen)
            if does == "waits":
                worker.process.send_signal(signal.SIGTERM)
                assert await worker.process.wait() == 0


@pytest.mark.parametrize("count", first(1, [1, 2], "it starts a group of processes"))
async def test_a_process_that_ends_is_replaced_and_all_are_shown_together(
    server: LocalServer, tmp_path: Path, count: int
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "one")
        async with program(server.url, tmp_path, "--processes", str(count), "--http", "127.0.0.1:0") as worker:
            address = await worker.address()
            await send(client, "die")
            await eventually(lambda: ["die", "2"] in [line[1:] for line in worker.lines()])

            async def counted() -> bool:
                return await completed(address) >= 2

            await eventually(counted)
            states = json.loads((await asyncio.to_thread(get, f"{address}/live"))[1])["processes"]
            assert states.keys() == {f"process {number + 1}" for number in range(count)}
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.process.wait() == 0


async def completed(address: str) -> int:
    _, text = await asyncio.to_thread(get, f"{address}/metrics")
    found = [line for line in text.splitlines() if line.startswith("sbredis_worker_messages_completed_total{")]
    return int(found[0].rpartition(" ")[2]) if found else 0


@pytest.mark.long("it starts a group of processes")
async def test_the_counts_of_a_process_that_was_replaced_are_kept(server: LocalServer, tmp_path: Path) -> None:
    """Its last report comes when its handlers have finished."""
    async with ServiceBusClient(server.url) as client:
        await send(client, "wait", "wait")
        options = "--max-messages-per-process", "2", "--http", "127.0.0.1:0"
        async with program(server.url, tmp_path, *options) as worker:
            address = await worker.address()
            await eventually(lambda: len(worker.lines()) == 2)
            first = int(worker.lines()[0][0])
            os.kill(first, signal.SIGTERM)
            await worker.says("finishing")
            (tmp_path / "go").touch()
            await eventually(lambda: has_ended(first))
            await send(client, "one")
            await eventually(lambda: len({line[0] for line in worker.lines()}) == 2)

            async def counted() -> bool:
                return await completed(address) == 3

            await eventually(counted)


@pytest.mark.long("it starts a group of processes")
async def test_the_supervisor_serves_the_port_of_the_worker(server: LocalServer, tmp_path: Path) -> None:
    """Its processes do not, because only one of them could."""
    app = APP.replace("stuck_after=", 'http="127.0.0.1:0", stuck_after=')
    async with ServiceBusClient(server.url) as client:
        await send(client, "one")
        async with program(server.url, tmp_path, "--processes", "2", app=app) as worker:
            address = await worker.address()

            async def ready() -> bool:
                return (await asyncio.to_thread(get, f"{address}/ready"))[0] == 200

            await eventually(ready)
            states = json.loads((await asyncio.to_thread(get, f"{address}/ready"))[1])["processes"]
            assert states == {"process 1": "running", "process 2": "running"}
            worker.process.send_signal(signal.SIGTERM)
            code, said = await worker.end()
            assert code == 0
            assert said.count("health and metrics at") == 1


@pytest.mark.long("it starts a group of processes")
async def test_a_port_that_a_supervisor_cannot_use_ends_the_worker(server: LocalServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        app = APP.replace("stuck_after=", f'http="{address}", stuck_after=')
        async with ServiceBusClient(server.url) as client:
            await send(client, "one")
            async with program(server.url, tmp_path, "--processes", "2", app=app) as worker:
                code, said = await worker.end()
                assert (code, said.count(f"sbredis: The HTTP port {address} cannot be used")) == (2, 1)
                assert "Traceback" not in said


@pytest.mark.long("it starts a group of processes")
async def test_a_worker_that_stops_itself_ends_with_all_its_processes(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, *["one"] * 3)
        async with program(server.url, tmp_path, "--processes", "2") as worker:
            await eventually(lambda: len(worker.lines()) == 3)
            await send(client, "stop")
            code, said = await worker.end()
            assert (code, "starts again" in said) == (0, False)
            receiver = client.get_queue_receiver("orders")
            assert await receiver.receive_messages(5, max_wait_time=0) == []


@pytest.mark.long("it starts a group of processes")
async def test_a_process_is_replaced_after_a_number_of_messages(server: LocalServer, tmp_path: Path) -> None:
    """Each process begins that number of messages, and no more; those that it has fetched ahead are given back."""
    async with ServiceBusClient(server.url) as client:
        await send(client, *map(str, range(6)))
        async with program(server.url, tmp_path, "--max-messages-per-process", "2") as worker:
            await eventually(lambda: len(worker.lines()) == 6)
            assert sorted(Counter(line[0] for line in worker.lines()).values()) == [2, 2, 2]
            assert sorted(line[1:] for line in worker.lines()) == [[str(number), "1"] for number in range(6)]
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.process.wait() == 0


async def test_a_process_whose_supervisor_was_killed_lets_its_handlers_finish_and_ends(
    server: LocalServer, tmp_path: Path
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "wait")
        async with program(server.url, tmp_path, "--processes", "1") as worker:
            await eventually(worker.lines)
            process = int(worker.lines()[0][0])
            worker.process.kill()
            (tmp_path / "go").touch()
            await eventually(lambda: has_ended(process))
        receiver = client.get_queue_receiver("orders")
        assert await receiver.receive_messages(1, max_wait_time=0) == []


@pytest.mark.long("it starts a group of processes")
async def test_a_worker_that_cannot_run_says_why_once(server: LocalServer, tmp_path: Path) -> None:
    for arguments in ((), ("--processes", "2")):
        async with program(server.url, tmp_path, *arguments) as worker:
            code, said = await worker.end()
            assert code == 2
            assert said.count("app.place handles 'orders', which does not exist") == 1
            assert "Traceback" not in said


@pytest.mark.long("it starts a group of processes")
@pytest.mark.parametrize("arguments", [("--max-messages-per-process", "1000"), ("--processes", "1")])
async def test_a_process_whose_event_loop_is_blocked_is_replaced(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("STUCK_AFTER", "4")
    async with ServiceBusClient(server.url) as client:
        await send(client, "block")
        async with program(server.url, tmp_path, *arguments) as worker:
            await eventually(lambda: [line[1:] for line in worker.lines()][-1:] == [["block", "2"]])
            first, second = (line[0] for line in worker.lines())
            assert first != second
            worker.process.send_signal(signal.SIGTERM)
            code, said = await worker.end()
            assert code == 0
            assert "does not turn its event loop: it is replaced" in said


@pytest.mark.long("it starts a group of processes")
async def test_a_changed_file_starts_the_worker_again_and_a_broken_one_waits_for_the_next_change(
    server: LocalServer, tmp_path: Path
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "one")
        async with program(server.url, tmp_path, "--reload") as worker:
            await eventually(lambda: len(worker.lines()) == 1)
            (tmp_path / "app.py").write_text("x = (")
            await worker.says("starts again when a file changes")
            (tmp_path / "app.py").write_text(textwrap.dedent(APP))
            await send(client, "two")
            await eventually(lambda: len(worker.lines()) == 2)
            assert len({line[0] for line in worker.lines()}) == 2
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.process.wait() == 0


def test_a_reload_without_its_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert main(["app:worker", "--reload"]) == 2
    assert "sbredis: --reload needs the library watchfiles: run pip install '.[reload]'" in capsys.readouterr().err
