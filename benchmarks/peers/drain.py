"""Run a worker of sbredis in a process of its own: to empty a queue beside others, or to show its memory over time.

python -m benchmarks.peers.drain URL [--work N]      empty the queue, after a line on standard input
python -m benchmarks.peers.drain URL --flat N        send and handle N messages, and report the memory
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.peers.sbredis import Sbredis
from sbredis.model import ServiceBusMessage

CHUNK = 500
BACKLOG = 4000
SAMPLES = 40


async def empty(url: str, work: float) -> dict[str, float]:
    """Handle messages until the queue is empty. Return their number, and when the first and the last were handled.

    A handler computes for ``work`` microseconds.
    """
    count, first, last = 0, 0.0, 0.0

    def handled() -> None:
        nonlocal count, first, last
        began = time.perf_counter()
        while time.perf_counter() - began < work / 1e6:
            pass
        last = time.monotonic()
        first = first or last
        count += 1

    peer = Sbredis(url)
    await peer.open(handled)
    await peer.left()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with peer.working():
        await emptied(peer)
    await peer.close()
    return {"count": count, "first": first, "last": last}


async def emptied(peer: Sbredis) -> None:
    """Wait until the queue is empty."""
    while await peer.left():  # noqa: ASYNC110 -- only the server knows
        await asyncio.sleep(0.05)


def memory() -> float:
    """Return the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def flat(url: str, messages: int) -> dict[str, float]:
    """Send and handle messages. Return the memory after a tenth of them, and the largest change after that."""
    count = 0
    samples: list[float] = []

    def handled() -> None:
        nonlocal count
        count += 1
        if count % (messages // SAMPLES) == 0:
            samples.append(memory())

    peer = Sbredis(url)
    await peer.open(handled)
    async with peer.working():
        for sent in range(CHUNK, messages + CHUNK, CHUNK):
            await peer.send_all([ServiceBusMessage(b"x" * 1024) for _ in range(CHUNK)])
            while sent - count > BACKLOG:  # noqa: ASYNC110 -- a handler only counts
                await asyncio.sleep(0.005)
        await emptied(peer)
    await peer.close()
    warm = samples[SAMPLES // 10]
    return {"count": count, "warm": warm, "change": max((each - warm for each in samples[SAMPLES // 10 :]), key=abs)}


def main() -> None:
    """Do what the arguments ask for, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("url")
    parser.add_argument("--flat", type=int)
    parser.add_argument("--work", type=float, default=0.0)
    given = parser.parse_args()
    json.dump(asyncio.run(flat(given.url, given.flat) if given.flat else empty(given.url, given.work)), sys.stdout)


if __name__ == "__main__":
    main()
