"""Workers that run as programs over a real server, each in a process group of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import textwrap
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from urllib.error import HTTPError

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from tests.children import child

__all__ = ["APP", "Program", "get", "has_ended", "program", "send"]

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
        if text == "stop":
            worker.stop()
        while text == "wait" and not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
"""
"""A worker whose handler does what the text of a message says."""
IN_A_GROUP = "import os, sys; os.setsid(); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


class Program:
    """A worker that runs as a program."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.said = ""
        """The part of its standard error output that was read so far."""

    def lines(self) -> list[list[str]]:
        """Return what its handlers have logged: process, text, attempt."""
        path = self.folder / "log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    async def says(self, text: str, times: int = 1) -> str:
        """Wait until it has written a text to its standard error output, and return the line with this text."""
        assert self.process.stderr is not None
        while self.said.count(text) < times:
            line = await self.process.stderr.readline()
            assert line, self.said
            self.said += line.decode()
        return next(line for line in reversed(self.said.splitlines()) if text in line)

    async def address(self) -> str:
        """Wait until it serves HTTP, and return the URL without a path."""
        return (await self.says("/live")).partition(" at ")[2].partition("/live")[0]

    async def end(self) -> tuple[int, str]:
        """Wait until it ends. Return its exit code, and what it has written to its standard error output."""
        assert self.process.stderr is not None
        self.said += (await self.process.stderr.read()).decode()
        return await self.process.wait(), self.said

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and to all processes that it has started, as a shell and ``timeout`` do."""
        os.killpg(self.process.pid, number)


@asynccontextmanager
async def program(
    url: str, folder: Path, *arguments: str, app: str = APP, env: Mapping[str, str] | None = None
) -> AsyncGenerator[Program]:
    """Run a worker. At the end, kill it and all processes that it has started."""
    (folder / "app.py").write_text(textwrap.dedent(app))
    given = "-c", IN_A_GROUP, "-m", "sbredis.workers", "app:worker", *arguments
    async with child(*given, cwd=folder, env={"BUS": url, **(env or {})}, stderr=asyncio.subprocess.PIPE) as process:
        try:
            yield Program(process, folder)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


async def send(client: ServiceBusClient, *texts: str) -> None:
    """Send messages to the queue of the worker."""
    await client.ensure_queue("orders", lock_duration=timedelta(seconds=5))
    async with client.get_queue_sender("orders") as sender:
        for text in texts:
            await sender.send_messages(ServiceBusMessage(text))


def has_ended(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def get(url: str) -> tuple[int, str]:
    """Return the status and the body of a page."""
    try:
        with urllib.request.urlopen(url) as answer:  # noqa: S310 -- a fixed scheme
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
