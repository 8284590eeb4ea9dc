"""Tests of workers as programs: real processes over a real server, signals, and processes that end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import textwrap
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.servers import LocalServer
from sbredis.workers.__main__ import main
from tests.children import child
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

APP = """
    import asyncio, os, pathlib, time
    from sbredis.workers import Context, Worker

    worker = Worker(os.environ["BUS"], stuck_after=float(os.environ.get("STUCK_AFTER", "300")))

    @worker.queue("orders", max_concurrent_calls=4)
    async def place(text: str, context: Context) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text} {context.attempt}\\n")
        if text == "die" and context.attempt == 1:
            os._exit(9)
        if text == "block" and context.attempt == 1:
            time.sleep(3600)
        while text == "wait" and not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
"""


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


@pytest.fixture
def server() -> Any:
    with LocalServer() as made:
        yield made


class Program:
    """A worker that runs as a program."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self.folder = folder

    def lines(self) -> list[list[str]]:
        """Return what its handlers have logged: process, text, attempt."""
        path = self.folder / "log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@asynccontextmanager
async def program(url: str, folder: Path, *arguments: str, app: str = APP) -> AsyncGenerator[Program]:
    (folder / "app.py").write_text(textwrap.dedent(app))
    given = "-m", "sbredis.workers", "app:worker", *arguments
    async with child(*given, cwd=folder, env={"BUS": url}, stderr=asyncio.subprocess.PIPE) as process:
        yield Program(process, folder)


async def send(client: ServiceBusClient, *texts: str) -> None:
    await client.ensure_queue("orders", lock_duration=timedelta(seconds=5))
    async with client.get_queue_sender("orders") as sender:
        for text in texts:
            await sender.send_messages(ServiceBusMessage(text))


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


@pytest.mark.parametrize(("arguments", "ended_by"), [((), signal.SIGINT), (("--processes", "2"), signal.SIGKILL)])
async def test_a_second_signal_ends_it_at_once(
    server: LocalServer, tmp_path: Path, arguments: tuple[str, ...], ended_by: signal.Signals
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "wait")
        async with program(server.url, tmp_path, *arguments) as worker:
            await eventually(lambda: len(worker.lines()) == 1)
            worker.process.send_signal(signal.SIGTERM)
            assert worker.process.stderr is not None
            while b"finishing" not in await worker.process.stderr.readline():
                pass
            worker.process.send_signal(signal.SIGINT)
            assert await worker.process.wait() == 128 + ended_by


async def test_the_process_of_a_handler_ends_when_its_worker_is_killed(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "forever")
        async with program(server.url, tmp_path, app=COMPUTING) as worker:
            await eventually(worker.lines)
            worker.process.kill()
            await worker.process.wait()
            await eventually(lambda: has_ended(int(worker.lines()[0][0])))


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_an_interruption_while_the_application_is_imported_is_no_traceback(
    server: LocalServer, tmp_path: Path
) -> None:
    async with program(server.url, tmp_path, app="raise KeyboardInterrupt") as worker:
        assert await worker.process.wait() == 128 + signal.SIGINT
        assert worker.process.stderr is not None
        assert await worker.process.stderr.read() == b""


async def test_a_process_that_ends_is_replaced_and_all_are_shown_together(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "one")
        async with program(server.url, tmp_path, "--processes", "2", "--http", "127.0.0.1:0") as worker:
            assert worker.process.stderr is not None
            address = ""
            while not address:
                line = (await worker.process.stderr.readline()).decode()
                address = line.partition(" at ")[2].partition("/live")[0] if "/live" in line else ""
            await send(client, "die")
            await eventually(lambda: ["die", "2"] in [line[1:] for line in worker.lines()])

            async def counted() -> bool:
                return await completed(address) >= 2

            await eventually(counted)
            assert json.loads(await asyncio.to_thread(get, f"{address}/live"))["processes"] == 2
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.process.wait() == 0


async def completed(address: str) -> int:
    text = await asyncio.to_thread(get, f"{address}/metrics")
    found = [line for line in text.splitlines() if line.startswith("sbredis_worker_messages_completed_total{")]
    return int(found[0].rpartition(" ")[2]) if found else 0


def get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 -- a fixed scheme
        text: str = answer.read().decode()
    return text


async def test_a_process_is_replaced_after_a_number_of_messages(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "one", "two")
        async with program(server.url, tmp_path, "--max-messages-per-process", "2") as worker:
            await eventually(lambda: len(worker.lines()) == 2)

            async def replaced() -> bool:
                await send(client, "more")
                return len({line[0] for line in worker.lines()}) > 1

            await eventually(replaced)
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.process.wait() == 0


async def test_a_worker_that_cannot_run_says_why_once(server: LocalServer, tmp_path: Path) -> None:
    for arguments in ((), ("--processes", "2")):
        async with program(server.url, tmp_path, *arguments) as worker:
            assert await worker.process.wait() == 2
            assert worker.process.stderr is not None
            said = (await worker.process.stderr.read()).decode()
            assert said.count("app.place handles 'orders', which does not exist") == 1
            assert "Traceback" not in said


async def test_a_process_whose_event_loop_is_blocked_is_replaced(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUCK_AFTER", "4")
    async with ServiceBusClient(server.url) as client:
        await send(client, "block")
        async with program(server.url, tmp_path, "--max-messages-per-process", "1000") as worker:
            await eventually(lambda: [line[1:] for line in worker.lines()][-1:] == [["block", "2"]])
            first, second = (line[0] for line in worker.lines())
            assert first != second
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.process.wait() == 0
            assert worker.process.stderr is not None
            assert "does not turn its event loop: it is replaced" in (await worker.process.stderr.read()).decode()


async def test_a_changed_file_starts_the_worker_again_and_a_broken_one_waits_for_the_next_change(
    server: LocalServer, tmp_path: Path
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "one")
        async with program(server.url, tmp_path, "--reload") as worker:
            await eventually(lambda: len(worker.lines()) == 1)
            assert worker.process.stderr is not None
            (tmp_path / "app.py").write_text("x = (")
            while b"starts again when a file changes" not in (line := await worker.process.stderr.readline()):
                assert line
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
