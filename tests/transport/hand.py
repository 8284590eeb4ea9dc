"""A stream that a test drives step by step, and a wire over it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from sbredis.transport import Endpoint, Script, ServerFacts, WireLimits
from sbredis.transport._resp import PythonParser, ReplyError
from sbredis.transport._script import Call
from sbredis.transport._stream import OnLost, OnReplies, Stream
from sbredis.transport._wire import Wire

__all__ = ["FACTS", "NOSCRIPT", "SCRIPT", "HandStream", "call", "in_seconds", "running", "turns"]

FACTS = ServerFacts(Endpoint("h", 1), run_id=b"r" * 40)
SCRIPT = Script("s", "return 1")
NOSCRIPT = ReplyError("NOSCRIPT No matching script.")


class HandStream(Stream):
    """Records written data, and delivers replies when the test says so."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.lost: OnLost
        self.was_cancelled = False
        self._on_replies: OnReplies
        self._on_resumed: Callable[[], None]
        self._ready = asyncio.Event()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> int:
        self.writes.append(data)
        return self.unsent

    def listen(self, on_replies: OnReplies, on_lost: OnLost, on_resumed: Callable[[], None]) -> None:
        self._on_replies, self.lost, self._on_resumed = on_replies, on_lost, on_resumed

    async def run(self) -> None:
        self._ready.set()
        try:
            await self._broken
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    async def ready(self) -> None:
        await self._ready.wait()

    def reply(self, *replies: Any) -> None:
        """Deliver these replies of the server in one piece."""
        self._on_replies(list(replies))

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._on_resumed()

    def break_with(self, error: Exception) -> None:
        """Let the stream raise an unforeseen error, as a defect would."""
        self._broken.set_exception(error)

    @property
    def commands(self) -> list[list[bytes]]:
        """Return all commands written so far, each as a list of words."""
        return PythonParser().feed(b"".join(self.writes))

    @property
    def said(self) -> list[bytes]:
        """Return the word that identifies each command written so far: its last argument, or its name if it has no
        argument.
        """
        return [words[-1] if words[0] == b"EVALSHA" else words[0] for words in self.commands]


@asynccontextmanager
async def running(
    limits: WireLimits | None = None, on_suspect: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[Wire, HandStream]]:
    """Run a wire during the block. Unless the limits say otherwise, its connection never counts as quiet."""
    stream = HandStream()
    limits = limits or WireLimits()
    if limits.quiet_after == WireLimits().quiet_after:
        limits = replace(limits, quiet_after=math.inf)
    wire = Wire(stream, FACTS, limits, on_suspect=on_suspect)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wire.run)
        await stream.ready()
        yield wire, stream
        tasks.cancel_scope.cancel()


def call(argument: bytes | str | int = b"", *, script: Script = SCRIPT, repeatable: bool = False) -> Call:
    """Return a call that tests identify by its argument."""
    return Call(script, [b"k"], [argument], repeatable=repeatable)


def in_seconds(seconds: float) -> float:
    """Return a deadline this many seconds from now."""
    return asyncio.get_running_loop().time() + seconds


async def turns(count: int = 3) -> None:
    """Let the event loop run all callbacks that are due."""
    for _ in range(count):
        await asyncio.sleep(0)
