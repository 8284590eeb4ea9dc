"""A process with very many receivers, which says what they cost it. The benchmark of receivers starts it.

It uses only what is public, so it also runs with the code of an older release.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.model import ServiceBusMessage

__all__ = ["TurnWatch", "run"]

_TICK = 0.001
_AT_ONCE = 100
_LONG = 600.0
_CALM = 5
"""The scripts in a second at which receivers are at rest."""


class TurnWatch:
    """Watches how long the event loop works in one go, by the processor time of its thread."""

    def __init__(self) -> None:
        self._longest = self._longest_own = 0.0
        self._collecting = self._collection_began = 0.0
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to watch the loop that runs."""
        gc.callbacks.append(self._collects)
        self._task = asyncio.create_task(self._watch())

    def end(self) -> None:
        """Watch no more."""
        if self._task is not None:
            self._task.cancel()
            gc.callbacks.remove(self._collects)

    def take(self) -> tuple[float, float]:
        """Return the longest turn since the last time, in ms, and the longest if Python's garbage collector is left
        out.
        """
        found = self._longest * 1000, self._longest_own * 1000
        self._longest = self._longest_own = 0.0
        return found

    async def _watch(self) -> None:
        last = time.thread_time()
        while True:
            self._collecting = 0.0
            await asyncio.sleep(_TICK)
            now = time.thread_time()
            self._longest = max(self._longest, now - last)
            self._longest_own = max(self._longest_own, now - last - self._collecting)
            last = now

    def _collects(self, phase: str, _: object) -> None:
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            self._collecting += time.thread_time() - self._collection_began


class _Program:
    """Receivers that wait at some queues."""

    def __init__(self, url: str, queues: list[str], receivers: int, seconds: float) -> None:
        self._url, self._queues, self._count, self._seconds = url, queues, receivers, seconds
        self._redis: Any = Redis.from_url(url)
        self._watch = TurnWatch()
        self._found: dict[str, float] = {}

    async def run(self) -> dict[str, float]:
        """Open the receivers, let them wait, receive a message with each, and close them. Return what was measured."""
        async with ServiceBusClient(self._url) as client, ServiceBusClient(self._url) as other:
            memory = _memory()
            receivers = [client.get_queue_receiver(self._queues[at % len(self._queues)]) for at in range(self._count)]
            self._watch.begin()
            scripts, began = await self._scripts(), time.process_time()
            await asyncio.gather(*[receiver.__aenter__() for receiver in receivers])
            calls = _receive(receivers)
            opened = await self._rest()
            self._note("opening", began, opened - scripts)
            self._found["memory of a receiver"] = (_memory() - memory) / self._count / 1024
            self._watch.end()  # it takes some percent of a core
            await self._idle()
            self._watch.begin()
            scripts, began = await self._scripts(), time.process_time()
            await asyncio.gather(*[self._send(other, at) for at in range(len(self._queues))])
            got = [message for messages in await asyncio.gather(*calls) for message in messages]
            assert len(got) == self._count, "a message did not come"
            self._note("receiving", began, await self._scripts() - scripts)
            scripts, began = await self._scripts(), time.process_time()
            for at in range(0, self._count, _AT_ONCE):
                pairs = zip(receivers[at : at + _AT_ONCE], got[at : at + _AT_ONCE], strict=True)
                await asyncio.gather(*[receiver.complete_message(message) for receiver, message in pairs])
            self._note("completing", began, await self._scripts() - scripts)
            calls = _receive(receivers)
            scripts, began = await self._rest(), time.process_time()
            self._watch.take()
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            await asyncio.gather(*[receiver.close() for receiver in receivers])
            self._note("closing", began, await self._scripts() - scripts)
            self._watch.end()
        await self._redis.aclose()
        return self._found

    def _note(self, what: str, began: float, scripts: float) -> None:
        longest, own = self._watch.take()
        self._found[f"{what}: the longest turn of the loop"] = longest
        self._found[f"{what}: the longest turn without the garbage collector"] = own
        self._found[f"{what}: processor time of a receiver"] = (time.process_time() - began) / self._count * 1_000_000
        self._found[f"{what}: scripts of a receiver"] = scripts / self._count

    async def _idle(self) -> None:
        await asyncio.sleep(self._seconds)
        scripts, cpu, began = await self._scripts(), time.process_time(), time.perf_counter()
        await asyncio.sleep(self._seconds)
        took = time.perf_counter() - began
        self._found["idle: processor"] = (time.process_time() - cpu) / took * 100
        self._found["idle: scripts"] = (await self._scripts() - scripts) / took

    async def _send(self, client: ServiceBusClient, at: int) -> None:
        left = len(range(at, self._count, len(self._queues)))
        async with client.get_queue_sender(self._queues[at]) as sender:
            while left:
                many = min(left, _AT_ONCE)
                await sender.send_messages([ServiceBusMessage(b"x" * 200) for _ in range(many)])
                left -= many

    async def _scripts(self) -> int:
        ran = await self._redis.info("commandstats")
        names = ("cmdstat_fcall", "cmdstat_fcall_ro", "cmdstat_evalsha", "cmdstat_evalsha_ro")
        return sum(int(ran[name]["calls"]) for name in names if name in ran)

    async def _rest(self) -> int:
        """Wait until the receivers are at rest. Return the number of scripts until then."""
        last = await self._scripts()
        async with asyncio.timeout(_LONG):
            while True:
                await asyncio.sleep(1)
                scripts = await self._scripts()
                if scripts - last <= _CALM:
                    return scripts
                last = scripts


def _receive(receivers: list[ServiceBusReceiver]) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(receiver.receive_messages(1, _LONG)) for receiver in receivers]


def _memory() -> int:
    """Return the bytes that the process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(url: str, queues: str, receivers: str, seconds: str) -> None:
    """Be the process, with the names of the queues and commas between them. Print what was measured."""
    program = _Program(url, queues.split(","), int(receivers), float(seconds))
    print(json.dumps(asyncio.run(program.run())))
