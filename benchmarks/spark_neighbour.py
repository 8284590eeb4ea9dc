"""Another client on the server that Spark reads from, in a process of its own: how long do its messages take?

It sends a message, waits until its receiver gets it, and sends the next one 10 ms later, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["Neighbour", "serve"]

_QUEUE, _PAUSE = "neighbour", 0.01


class Neighbour:
    """The process of the other client, during a block."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._times: list[float] = []
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
        self._times.append(time.time())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        printed, _ = self._process.communicate("")
        if error is None:
            self._found = [(sent, seconds) for sent, seconds in json.loads(printed)]

    def percentiles(self) -> list[float]:
        """Return the 99th percentile of the seconds that a message took in each part."""
        parts = zip(self._times, self._times[1:], strict=False)
        return [_percentile([seconds for sent, seconds in self._found if begin <= sent < end]) for begin, end in parts]


def _percentile(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


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
