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
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

APP = """
    import asyncio, os, pathlib
    from sbredis.workers import Context, Worker

    worker = Worker(os.environ["BUS"])

    @worker.queue("orders", max_concurrent_calls=4)
    async def place(text: str, context: Context) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text} {context.attempt}\\n")
        if text == "die" and context.attempt == 1:
            os._exit(9)
        while text == "wait" and not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
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
async def program(url: str, folder: Path, *arguments: str) -> AsyncGenerator[Program]:
    (folder / "app.py").write_text(textwrap.dedent(APP))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sbredis.workers", "app:worker", *arguments),
        cwd=folder,
        env={**os.environ, "BUS": url, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Program(process, folder)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


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


async def test_a_second_signal_ends_it_at_once(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "wait")
        async with program(server.url, tmp_path) as worker:
            await eventually(lambda: len(worker.lines()) == 1)
            worker.process.send_signal(signal.SIGTERM)
            assert worker.process.stderr is not None
            while b"finishing" not in await worker.process.stderr.readline():
                pass
            worker.process.send_signal(signal.SIGINT)
            assert await worker.process.wait() == 128 + signal.SIGINT


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
