"""A process that does maintenance, and says what this costs it. The benchmark of growth starts it and asks it.

It reads a word from each line of its standard input, and answers with a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from benchmarks.receivers_program import TurnWatch
from sbredis.aio import ServiceBusClient
from sbredis.workers.running._collecting import collecting_less

__all__ = ["Holder", "hold"]


class Holder:
    """The process, as the benchmark sees it. It begins with maintenance when :meth:`begin` is called."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: Process

    async def __aenter__(self) -> Self:
        code = "import asyncio, sys; from benchmarks.growth_holder import hold; asyncio.run(hold(sys.argv[1]))"
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, self._url, stdin=PIPE, stdout=PIPE
        )
        await self._answer()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._process.communicate(b"")

    async def begin(self) -> None:
        """Open a client that does maintenance, and watch its event loop from then on."""
        await self._ask("begin")

    async def longest_turn(self) -> float:
        """Return the longest time that the event loop has worked in one go since it began, in ms. Ask once."""
        return await self._ask("turn")

    async def cpu(self) -> float:
        """Return the processor time of the process so far, in seconds."""
        return await self._ask("cpu")

    def pause(self) -> None:
        """Stop the process until :meth:`resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process go on."""
        self._process.send_signal(signal.SIGCONT)

    async def _ask(self, word: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        return await self._answer()

    async def _answer(self) -> float:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the process that does maintenance has ended"
        return float(json.loads(line))


async def hold(url: str) -> None:
    """Be the process: do maintenance from the first question on, and answer until there are no more questions.

    Its garbage is collected as in the program of a worker.
    """
    client, program, turns = ServiceBusClient(url, maintenance=True), ExitStack(), TurnWatch()
    _say(0)
    while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
        match word:
            case "begin":
                await client.__aenter__()
                program.enter_context(collecting_less())
                turns.begin()
                _say(0)
            case "turn":
                longest, _ = turns.take()
                turns.end()
                _say(longest)
            case _:
                _say(time.process_time())
    await client.close()
    program.close()


def _say(number: float) -> None:
    print(json.dumps(number), flush=True)
