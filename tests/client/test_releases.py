"""Two releases of sbredis use one server: an old one with another library is replaced by this one during the work."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.engine import whole_library
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalCluster, LocalServer
from tests.access.users import nodes_of
from tests.children import child
from tests.waiting import eventually
from tools.repository import ROOT

pytestmark = pytest.mark.long("a copy of sbredis runs in a process of its own")

CHANGED = "parse_settings"
"""A fragment that every operation of a partition uses."""

# Sends numbered messages and receives messages until its input ends, a line of input for each of the two. Its output is
# a line for each message: "sent BODY" or "received BODY".
OLD = """
import asyncio, sys
import sbredis
from sbredis.aio import ServiceBusClient
from sbredis.engine import whole_library
from sbredis.model import ServiceBusMessage

def say(*words):
    print(*words, flush=True)

async def main():
    say("from", sbredis.__file__)
    say("library", whole_library().name)
    stopped = {"send": asyncio.Event(), "receive": asyncio.Event()}

    async def listen():
        for what in ("send", "receive"):
            await asyncio.to_thread(sys.stdin.readline)
            stopped[what].set()

    async with ServiceBusClient(sys.argv[1]) as client:
        async def send():
            async with client.get_queue_sender("q") as sender:
                number = 0
                while not stopped["send"].is_set():
                    await sender.send_messages(ServiceBusMessage(f"old{number}"))
                    say("sent", f"old{number}")
                    number += 1

        async def receive():
            async with client.get_queue_receiver("q") as receiver:
                while not stopped["receive"].is_set():
                    for message in await receiver.receive_messages(10, max_wait_time=0.05):
                        await receiver.complete_message(message)
                        say("received", str(message))

        await asyncio.gather(listen(), send(), receive())

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def old_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of sbredis, in which one of the Lua files has one more statement, without an effect."""
    folder = tmp_path_factory.mktemp("old")
    shutil.copytree(ROOT / "sbredis", folder / "sbredis", ignore=shutil.ignore_patterns("__pycache__"))
    (file,) = (folder / "sbredis/lua/includes").glob(f"**/{CHANGED}.lua")
    text = file.read_text("utf-8")
    begin = text.index("\n", text.index("local function")) + 1
    file.write_text(f"{text[:begin]}  do end\n{text[begin:]}", "utf-8")
    return folder


class Old:
    """The running program of the old release."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        self._input = process.stdin
        self.said: dict[str, list[str]] = {"from": [], "library": [], "sent": [], "received": []}

    async def read(self, output: asyncio.StreamReader) -> None:
        while line := await output.readline():
            what, _, rest = line.decode().strip().partition(" ")
            self.said[what].append(rest)

    def stop(self) -> None:
        """Stop the sender, or the receiver if the sender was stopped."""
        self._input.write(b"\n")


@asynccontextmanager
async def running(folder: Path, url: str) -> AsyncIterator[Old]:
    """Run the program of the old release. The block stops it."""
    path = {"PYTHONPATH": str(folder)}
    pipe = subprocess.PIPE
    async with child("-c", OLD, url, cwd=folder, env=path, stdin=pipe, stdout=pipe) as process:
        old = Old(process)
        assert process.stdout is not None
        reading = asyncio.create_task(old.read(process.stdout))
        yield old
        await reading
        assert await process.wait() == 0


class New:
    """A sender and a receiver of this release."""

    def __init__(self, client: ServiceBusClient) -> None:
        self.sent: list[str] = []
        self.received: list[str] = []
        self.sending = self.receiving = True
        self._client = client

    async def send(self) -> None:
        async with self._client.get_queue_sender("q") as sender:
            while self.sending:
                body = f"new{len(self.sent)}"
                await sender.send_messages(ServiceBusMessage(body))
                self.sent.append(body)

    async def receive(self) -> None:
        async with self._client.get_queue_receiver("q") as receiver:
            while self.receiving:
                for message in await receiver.receive_messages(10, max_wait_time=0.05):
                    await receiver.complete_message(message)
                    self.received.append(str(message))


@pytest.mark.parametrize("target", ["server", "cluster"])
async def test_clients_are_upgraded_one_after_the_other_under_load(
    target: str, old_release: Path, request: pytest.FixtureRequest
) -> None:
    """Each message is received once, although all libraries are deleted twice during the work."""
    there: LocalServer | LocalCluster = request.getfixturevalue(target)
    nodes = nodes_of(there)

    def forget_libraries() -> None:
        for node in nodes:
            node.ask("FUNCTION", "FLUSH")

    async with ServiceBusClient(there.url) as client:
        await client.ensure_queue("q", enable_partitioning=True)
        new = New(client)
        async with running(old_release, there.url) as old:

            async def goes_on(*lists: list[str]) -> None:
                """Wait until each of these lists has some entries more."""
                wanted = [len(each) + 20 for each in lists]
                await eventually(lambda: all(len(each) >= most for each, most in zip(lists, wanted, strict=True)))

            sent, received = old.said["sent"], old.said["received"]
            await goes_on(sent, received)
            assert Path(old.said["from"][0]).is_relative_to(old_release)
            assert old.said["library"] != [whole_library().name]
            sending = asyncio.create_task(new.send())
            await goes_on(sent, new.sent)
            receiving = asyncio.create_task(new.receive())
            await goes_on(sent, new.sent, new.received)
            libraries = json.dumps([node.ask("FUNCTION", "LIST") for node in nodes])
            assert whole_library().name in libraries
            assert old.said["library"][0] in libraries
            forget_libraries()
            await goes_on(sent, received, new.sent, new.received)
            old.stop()
            await goes_on(new.sent, new.received)
            old.stop()
        forget_libraries()
        await goes_on(new.sent, new.received)
        new.sending = False
        await sending
        everything = [*sent, *new.sent]
        await eventually(lambda: len(received) + len(new.received) >= len(everything))
        new.receiving = False
        await receiving
        assert sorted([*received, *new.received]) == sorted(everything)
