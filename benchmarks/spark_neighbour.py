"""Another client on the server that Spark reads from, in a process of its own: how long do its messages take?

It sends a message, waits until its receiver gets it, and sends the next one 10 ms later, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import time
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.process_tree import times_of_processes
from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["Delay", "Neighbour", "serve"]

_QUEUE, _PAUSE = "neighbour", 0.01


class Delay(NamedTuple):
    """How long the messages of a part of the measurement took, in seconds."""

    most: float
    """The 99th percentile."""
    mean: float
    client: float
    """For how long the client waits for a processor, for each message: also after the message, when it completes it."""
    server: float
    """The part of the time in which the server has work, but no processor."""


class _Note(NamedTuple):
    """When a part of the measurement begins, and how many ms the processes have run and waited before."""

    time: float
    client: tuple[float, float]
    server: tuple[float, float]


class Neighbour:
    """The process of the other client, during a block."""

    def __init__(self, url: str, server: int) -> None:
        """``server`` is the process id of the server."""
        self._url = url
        self._server = server
        self._notes: list[_Note] = []
        self._found: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        program = "import sys; from benchmarks.spark_neighbour import serve; serve(sys.argv[1])"
        line = [sys.executable, "-c", program, self._url]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it works now
        self.note()
        return self

    def note(self) -> None:
        """Note that a part of the measurement ends and another one begins."""
        client, server = times_of_processes([self._process.pid]), times_of_processes([self._server])
        self._notes.append(_Note(time.time(), client, server))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        printed, _ = self._process.communicate("")
        if error is None:
            self._found = [(sent, seconds) for sent, seconds in json.loads(printed)]

    def delays(self) -> list[Delay]:
        """Return how long the messages of each part took."""
        return [self._delay(begin, end) for begin, end in itertools.pairwise(self._notes)]

    def _delay(self, begin: _Note, end: _Note) -> Delay:
        seconds = sorted(seconds for sent, seconds in self._found if begin.time <= sent < end.time)
        client = (end.client[1] - begin.client[1]) / 1000 / len(seconds)
        ran, waited = (after - before for after, before in zip(end.server, begin.server, strict=True))
        return Delay(
            seconds[int(len(seconds) * 0.99)], statistics.fmean(seconds), client, waited / (ran + waited or 1.0)
        )


async def _main(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin:
        await admin.create_queue(_QUEUE)
    found: list[tuple[float, float]] = []
    async with ServiceBusClient(url) as client:
        sender, receiver = client.get_queue_sender(_QUEUE), client.get_queue_receiver(_QUEUE)
        async with sender, receiver:
            print(flush=True)
            working = asyncio.create_task(_work(sender, receiver, found))
            await asyncio.to_thread(sys.stdin.read)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
    async with ServiceBusAdministrationClient(url) as admin:
        await admin.delete_queue(_QUEUE)
    print(json.dumps(found), flush=True)


async def _work(sender: ServiceBusSender, receiver: ServiceBusReceiver, found: list[tuple[float, float]]) -> None:
    while True:
        sent = time.time()
        await sender.send_messages(ServiceBusMessage(b"hello"))
        message = await anext(receiver)
        found.append((sent, time.time() - sent))
        await receiver.complete_message(message)
        await asyncio.sleep(_PAUSE)


def serve(url: str) -> None:
    """Be the other client until the standard input ends, and then print when each message was sent, and its seconds."""
    asyncio.run(_main(url))
