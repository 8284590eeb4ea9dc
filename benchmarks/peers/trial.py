"""Measure one framework once, in a process of its own: sends, a worker, and single trips. Print the figures as JSON.

python -m benchmarks.peers.trial PEER URL [--messages N] [--trips N] [--loop asyncio|uvloop]

The sends run first, without a worker. Then the worker starts, and handles all of them. Then single messages go through
the same worker. The program needs nothing but the framework, because it runs in an environment without sbredis.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import itertools
import json
import logging
import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

__all__ = ["AT_ONCE", "Handled", "Peer", "Trial", "in_loop"]

AT_ONCE: Final = 100
"""The number of sends, and of handlers, that are under way at once."""
BODY: Final = 1024
PAUSE: Final = 0.002
PATIENCE: Final = 30.0
"""The seconds without a handled message after which a trial fails."""
WARMING: Final = 200
"""The messages and the trips that are not measured."""

Handled = Callable[[], None]
"""The function that a handler calls. The handler does nothing else."""


class Peer(Protocol):
    """A framework, called as its users call it."""

    async def open(self, handled: Handled) -> None:
        """Connect, and make the queue."""

    async def send(self, body: str) -> None:
        """Send one message, and wait until it is stored."""

    def working(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which a worker handles messages, up to 100 at once. Each handler calls ``handled``."""
        ...

    async def left(self) -> int:
        """Return the number of messages that are not acknowledged."""
        ...

    async def close(self) -> None:
        """Close the connections."""


class Trial:
    """The measurement of one framework."""

    def __init__(self, peer: Peer, messages: int, trips: int) -> None:
        self._peer = peer
        self._messages = messages
        self._trips = trips
        self._body = "x" * BODY
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)  # handlers of some frameworks run in threads, and this counter is atomic
        self._count = 0
        self._marks = {WARMING, WARMING + messages}
        self._marked: dict[int, tuple[float, float]] = {}
        self._started: asyncio.Future[float] | None = None

    def handled(self) -> None:
        """Count a message. This is all that a handler does."""
        number = self._count = next(self._numbers)
        if number in self._marks:
            self._marked[number] = (time.perf_counter(), time.process_time())
        if self._started is not None:
            now, started = time.perf_counter(), self._started
            self._started = None
            self._loop.call_soon_threadsafe(started.set_result, now)

    async def run(self) -> dict[str, Any]:
        """Measure, and return the figures."""
        await self._peer.open(self.handled)
        try:
            await self._send(WARMING)
            sent = await self._timed_send()
            async with self._peer.working():
                handled = await self._timed_work()
                trips = await self._timed_trips() if self._trips else []
        finally:
            await self._peer.close()
        return {**sent, **handled, **_spread(trips)}

    async def _send(self, messages: int) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            try:
                await self._peer.send(self._body)
            finally:
                slots.release()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(messages):
                await slots.acquire()
                tasks.create_task(one())

    async def _timed_send(self) -> dict[str, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        await self._send(self._messages)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"sent": self._messages / wall, "send_cpu": cpu / self._messages * 1e6}

    async def _timed_work(self) -> dict[str, float]:
        await self._all_handled(WARMING + self._messages)
        (began, began_cpu), (_, ended_cpu) = (self._marked[number] for number in sorted(self._marks))
        while await self._peer.left():  # noqa: ASYNC110 -- only the server knows
            await asyncio.sleep(0.002)
        wall = time.perf_counter() - began
        return {"handled": self._messages / wall, "handle_cpu": (ended_cpu - began_cpu) / self._messages * 1e6}

    async def _all_handled(self, number: int) -> None:
        before, since = self._count, time.monotonic()
        while self._count < number:
            await asyncio.sleep(0.005)
            if self._count != before:
                before, since = self._count, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                raise TimeoutError(f"only {self._count:,} of {number:,} messages were handled")

    async def _timed_trips(self) -> list[float]:
        taken: list[float] = []
        for _ in range(self._trips + min(self._trips, WARMING)):
            await asyncio.sleep(PAUSE)
            started = self._started = self._loop.create_future()
            sent = time.perf_counter()
            await self._peer.send(self._body)
            async with asyncio.timeout(PATIENCE):
                taken.append((await started - sent) * 1e3)
        return taken[-self._trips :]


def _spread(taken: list[float]) -> dict[str, float]:
    if not taken:
        return {}
    ordered = sorted(taken)
    return {"p50": statistics.median(ordered), "p99": ordered[math.ceil(0.99 * len(ordered)) - 1]}


def in_loop(work: Callable[[], Any], loop: str) -> Any:
    """Run a coroutine function on an event loop of asyncio or of uvloop."""
    if loop == "uvloop":
        uvloop = importlib.import_module("uvloop")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work())
    return asyncio.run(work())


def main() -> None:
    """Measure the framework that the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("peer")
    parser.add_argument("url")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--trips", type=int, default=300)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    module = importlib.import_module(f"benchmarks.peers.{given.peer}")

    async def run() -> dict[str, Any]:
        return await Trial(module.make(given.url), given.messages, given.trips).run()

    json.dump(in_loop(run, given.loop), sys.stdout)


if __name__ == "__main__":
    main()
