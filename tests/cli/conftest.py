"""Running the command against a real server, in this process."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.cli import main
from sbredis.servers import LocalServer

T = TypeVar("T")
Command = Callable[..., "Ran"]


class Ran(NamedTuple):
    """What a run of the command gave."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The JSON objects of the output, one in each line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        """The only JSON value of the output."""
        return json.loads(self.out)


class _Keyboard(io.TextIOWrapper):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


class Bus:
    """A server with queues, and the command that works on it."""

    def __init__(self, url: str, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.url = url
        self._capture = capture
        self._patch = patch

    def run(self, *arguments: str, stdin: bytes | None = None) -> Ran:
        """Run the command. Its arguments get the server's connection string."""
        return self.run_plain(*arguments, "--url", self.url, stdin=stdin)

    def run_plain(self, *arguments: str, stdin: bytes | None = None) -> Ran:
        """Run the command with these arguments alone."""
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin or b"")))
            self._capture.readouterr()
            code = main(arguments)
            shown = self._capture.readouterr()
        return Ran(code, shown.out, shown.err)

    def typed(self, answer: str, *arguments: str) -> Ran:
        """Run the command on a terminal at which somebody types an answer."""
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", _Keyboard(io.BytesIO(answer.encode())))
            self._capture.readouterr()
            code = main(arguments)
            shown = self._capture.readouterr()
        return Ran(code, shown.out, shown.err)

    def did(self, *arguments: str, stdin: bytes | None = None) -> Ran:
        """Run a command that must succeed."""
        ran = self.run(*arguments, stdin=stdin)
        assert ran.code == 0, ran
        return ran

    def shown(self) -> str:
        """Return what a run that ended with an exception has written to stderr."""
        return self._capture.readouterr().err

    def client(self, work: Callable[[ServiceBusClient], Awaitable[T]]) -> T:
        """Do something with a client, outside the command."""

        async def whole() -> T:
            async with ServiceBusClient(self.url) as client:
                return await work(client)

        return asyncio.run(whole())

    def administration(self, work: Callable[[ServiceBusAdministrationClient], Awaitable[T]]) -> T:
        """Do something with an administration client, outside the command."""

        async def whole() -> T:
            async with ServiceBusAdministrationClient(self.url) as administration:
                return await work(administration)

        return asyncio.run(whole())

    def queue(self, name: str = "orders", **properties: Any) -> str:
        """Create a queue, and return its name."""
        self.administration(lambda administration: administration.create_queue(name, **properties))
        return name

    def peek(self, path: str = "orders") -> list[dict[str, Any]]:
        """Return all messages at a path, as the command shows them."""
        ran = self.run("peek", path, "--count", "1000", "--output", "json")
        assert ran.code in {0, 3}, ran
        return ran.rows

    def bodies(self, path: str = "orders") -> list[str]:
        """Return the bodies of all messages at a path."""
        return [each["body"] for each in self.peek(path)]


@pytest.fixture(autouse=True)
def react_to_interruptions(interruptible: None) -> None:
    """Let the programs that tests start react to Ctrl-C."""
    del interruptible


@pytest.fixture
def bus(server: LocalServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bus:
    """An empty server, and the command."""
    for name in ("SBREDIS_URL", "SBREDIS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return Bus(server.url, capsys, monkeypatch)


@pytest.fixture
def sbredis(bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command with these arguments. The environment names the server, which is empty when the test begins."""
    monkeypatch.setenv("SBREDIS_CONTEXTS", str(tmp_path / "contexts.json"))
    monkeypatch.setenv("SBREDIS_URL", bus.url)
    return bus.run_plain


@pytest.fixture
def orders(bus: Bus) -> str:
    """An empty queue."""
    return bus.queue()
