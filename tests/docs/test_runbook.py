"""The runbook's commands for backups and damaged files, run as they are printed, on a server that is in use."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer, find_kept, stop_kept
from tests.waiting import eventually
from tools.repository import ROOT

PAGE = (ROOT / "docs" / "runbook.md").read_text("utf-8")


def blocks(section: str) -> list[str]:
    """Return the shell commands of a section of the page."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [
        re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
        for indent, block in re.findall(r"^( *)```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    ]


(BACK_UP,) = blocks("Make a backup")
PUT_AWAY, RESTORE, START = blocks("Restore a backup")
LOOK, CUT = blocks("The append-only file is damaged")


class Shell:
    """A shell in the folder of a machine, which has the command ``sbredis``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tools = folder / "tools"
        tools.mkdir(parents=True)
        (tools / "sbredis").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sbredis.cli "$@"\n')
        (tools / "sbredis").chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SBREDIS_CONTEXTS": str(folder / "contexts.json"),
        }

    async def run(self, commands: str, code: int = 0) -> str:
        """Run commands. Each must succeed, and the last one must end with ``code``."""
        running = await asyncio.create_subprocess_exec(
            *("sh", "-e", "-c", commands),
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await running.communicate()
        assert running.returncode == code, (commands, out.decode(), err.decode())
        return out.decode()


@pytest.fixture
def machine(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "machine")


@pytest.fixture
def new_machine(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "new")


@pytest.fixture(autouse=True)
def stopped(machine: Shell, new_machine: Shell) -> Iterator[None]:
    """Stop the servers that the commands have started."""
    yield
    for shell in (machine, new_machine):
        for path in shell.folder.glob("bus*"):
            if path.is_dir() and find_kept(path) is not None:
                stop_kept(path)


@asynccontextmanager
async def sending(client: ServiceBusClient, acknowledged: list[str], senders: int = 4) -> AsyncIterator[None]:
    """Send messages one after another, during the block. Note the ids of those that are acknowledged."""
    ended = False

    async def send(number: int) -> None:
        async with client.get_queue_sender("orders") as sender:
            count = 0
            while not ended:
                message = ServiceBusMessage(b"x" * 500, message_id=f"{number}-{count}")
                await sender.send_messages(message)
                acknowledged.append(f"{number}-{count}")
                count += 1

    async with asyncio.TaskGroup() as group:
        for number in range(senders):
            group.create_task(send(number))
        try:
            yield
        finally:
            ended = True


async def ids(url: str) -> Counter[str]:
    """Return how often each message is in the queue."""
    found: Counter[str] = Counter()
    async with ServiceBusClient(url) as client, client.get_queue_receiver("orders") as receiver:
        after = 0
        while page := await receiver.peek_messages(250, sequence_number=after):
            found.update(str(message.message_id) for message in page)
            after = max(message.sequence_number or 0 for message in page) + 1
    return found


async def until(acknowledged: list[str], count: int) -> None:
    await eventually(lambda: len(acknowledged) >= count)


@pytest.mark.long("it sends until a backup is complete")
async def test_a_backup_under_load_restored_on_another_machine_has_each_acknowledged_message_once(
    machine: Shell, new_machine: Shell
) -> None:
    await machine.run("sbredis server start bus")
    url = f"embedded://{machine.folder}/bus"
    acknowledged: list[str] = []
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders")
        async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
            for number in range(20):
                await sender.send_messages(ServiceBusMessage("done", message_id=f"done-{number}"))
            handled = 0
            while handled < 20:
                for message in await receiver.receive_messages(20, 60):
                    await receiver.complete_message(message)
                    handled += 1
        async with sending(client, acknowledged):
            await until(acknowledged, 200)
            before = set(acknowledged)
            await machine.run(BACK_UP)
            last = len(acknowledged)
            await until(acknowledged, last + 1)
    assert last > len(before), "nothing was sent during the backup"

    shutil.copytree(machine.folder / "bus-monday", new_machine.folder / "bus-monday")
    shown = await new_machine.run(RESTORE)
    assert re.search(r"^namespaces +default$", shown, re.MULTILINE)
    assert re.search(r"^entities +1$", shown, re.MULTILINE)
    assert "orders" in await new_machine.run(START, code=0)
    found = await ids(f"embedded://{new_machine.folder}/bus")
    assert before - found.keys() == set(), "a message that was acknowledged before the backup is missing"
    assert set(found.values()) == {1}, "a message is there twice"
    assert [each for each in found if each.startswith("done")] == [], "a completed message has come back"

    # On the machine itself, the present data are put away first. They still have everything.
    await machine.run(PUT_AWAY + RESTORE + START)
    assert await ids(url) == found
    assert (await ids(f"embedded://{machine.folder}/bus-before")).keys() == set(acknowledged)


@pytest.mark.long("it goes through a page with real servers")
async def test_a_snapshot_is_restored_as_the_page_says(machine: Shell) -> None:
    with LocalServer(directory=machine.folder / "elsewhere") as server:
        async with ServiceBusClient(server.url) as client:
            await client.ensure_queue("orders")
            await client.get_queue_sender("orders").send_messages(ServiceBusMessage("a", message_id="1"))
        server.ask("SAVE")
    shutil.copyfile(machine.folder / "elsewhere" / "dump.rdb", machine.folder / "bus-monday")
    await machine.run(RESTORE + START)
    assert await ids(f"embedded://{machine.folder}/bus") == {"1": 1}


@pytest.mark.long("it goes through a page with real servers")
async def test_a_damaged_file_is_repaired_as_the_page_says_and_nothing_acknowledged_is_lost(machine: Shell) -> None:
    await machine.run("sbredis server start bus")
    url = f"embedded://{machine.folder}/bus"
    acknowledged: list[str] = []
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders")
        async with sending(client, acknowledged):
            await until(acknowledged, 50)
    await machine.run("sbredis server stop bus")
    assert await machine.run(LOOK) == "nothing to repair in bus\n"
    (last,) = (machine.folder / "bus" / "appendonlydir").glob("*.incr.aof")
    with last.open("ab") as file:
        file.write(b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n\x00\x9f\x00garbage")
    damaged = last.read_bytes()
    await machine.run("sbredis server start bus", code=1)
    shown = await machine.run(LOOK, code=3)
    assert re.search(r"^readable commands lost +0$", shown, re.MULTILINE)
    assert last.read_bytes() == damaged
    await machine.run(CUT)
    assert await ids(url) == dict.fromkeys(acknowledged, 1)
