"""Tests of signals to a whole process group, which a shell, ``timeout`` and a service manager send."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.servers import LocalServer
from tests.waiting import eventually
from tests.workers.worker_programs import Program, program, send

WAITING = """
    import asyncio, os, pathlib
    from sbredis.workers import Context, Worker

    worker = Worker(os.environ["BUS"])

    @worker.queue("orders", max_concurrent_calls=4)
    async def place(text: str, context: Context) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text} {context.attempt}\\n")
        while not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
"""
IN_PROCESSES = """
    import os, pathlib, time
    from sbredis.workers import SyncContext, Worker

    worker = Worker(os.environ["BUS"])

    @worker.queue("orders", execution="process", max_concurrent_calls=2)
    def place(text: str, context: SyncContext) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text} {context.attempt}\\n")
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
"""


async def ended_well(worker: Program, client: ServiceBusClient, texts: list[str], *, begun: int) -> None:
    """Let the handlers finish. Assert that nothing is handled twice, and that no delivery counts for the rest."""
    (worker.folder / "go").touch()
    code, said = await worker.end()
    assert code == 0, said
    handled = [text for _, text, attempt in worker.lines() if attempt == "1"]
    assert len(handled) == len(worker.lines()) == begun
    left = await client.get_queue_receiver("orders").receive_messages(len(texts), max_wait_time=0)
    assert sorted([*handled, *map(str, left)]) == texts
    assert {message.delivery_count for message in left} <= {1}


@pytest.mark.long("it starts a group of processes")
async def test_a_supervisor_and_its_processes_finish_when_all_get_a_signal(server: LocalServer, tmp_path: Path) -> None:
    texts = sorted(f"message{number}" for number in range(12))
    async with ServiceBusClient(server.url) as client:
        await send(client)
        async with program(server.url, tmp_path, "--processes", "2", app=WAITING) as worker:
            await send(client, *texts)
            await eventually(lambda: len(worker.lines()) == 8)
            worker.signal_group(signal.SIGTERM)
            await worker.says("finishing", times=2)
            heard = time.monotonic()
            await eventually(lambda: time.monotonic() > heard + 0.6)  # signals before that belong together anyway
            for process in {int(line[0]) for line in worker.lines()}:
                os.kill(process, signal.SIGTERM)  # the signal of the supervisor may come this late
            await ended_well(worker, client, texts, begun=8)


@pytest.mark.long("each case starts a group of processes")
@pytest.mark.parametrize(
    ("number", "arguments", "begun"),
    [(signal.SIGTERM, (), 2), (signal.SIGINT, (), 2), (signal.SIGTERM, ("--processes", "2"), 4)],
)
async def test_the_processes_of_handlers_finish_when_all_get_a_signal(
    server: LocalServer, tmp_path: Path, number: signal.Signals, arguments: tuple[str, ...], begun: int
) -> None:
    texts = sorted(f"message{number}" for number in range(6))
    async with ServiceBusClient(server.url) as client:
        await send(client)
        async with program(server.url, tmp_path, *arguments, app=IN_PROCESSES) as worker:
            await send(client, *texts)
            await eventually(lambda: len(worker.lines()) == begun)
            worker.signal_group(number)
            await worker.says("finishing", times=begun // 2)
            for process in {int(line[0]) for line in worker.lines()}:
                os.kill(process, number)
            await ended_well(worker, client, texts, begun=begun)


@pytest.mark.long("it starts a group of processes again and again")
async def test_files_that_change_twice_while_a_handler_runs_let_it_finish(server: LocalServer, tmp_path: Path) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client)
        async with program(server.url, tmp_path, "--reload", app=WAITING) as worker:
            await send(client, "message")
            await eventually(lambda: len(worker.lines()) == 1)
            for times in (1, 2):
                (tmp_path / "other.py").write_text(f"x = {times}")
                await worker.says("other.py changed", times=times)
            await worker.says("finishing")
            (tmp_path / "go").touch()
            await send(client, "another")
            await eventually(lambda: len(worker.lines()) == 2)
            worker.signal_group(signal.SIGTERM)
            code, said = await worker.end()
            assert (code, "starts again in" in said) == (0, False)
    assert [line[1:] for line in worker.lines()] == [["message", "1"], ["another", "1"]]


@pytest.mark.parametrize(
    "arguments", [(), pytest.param(("--processes", "2"), marks=pytest.mark.long("it starts a group of processes"))]
)
async def test_signals_that_come_together_are_one_request(
    server: LocalServer, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """``timeout`` and some process managers signal a program and then its group.

    The program is halted meanwhile, so that it gets both signals at the same time.
    """
    async with ServiceBusClient(server.url) as client:
        await send(client)
        async with program(server.url, tmp_path, *arguments, app=WAITING) as worker:
            await send(client, "message")
            await eventually(lambda: len(worker.lines()) == 1)
            worker.process.send_signal(signal.SIGSTOP)
            worker.process.send_signal(signal.SIGINT)
            worker.signal_group(signal.SIGTERM)
            worker.process.send_signal(signal.SIGCONT)
            await worker.says("finishing")
            await ended_well(worker, client, ["message"], begun=1)
