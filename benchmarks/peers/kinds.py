"""Measure kinds of handlers of sbredis in one process. Print a line of JSON for each round, with the figures by kind.

python -m benchmarks.peers.kinds URL KIND... [--messages N] [--rounds N]

The messages are there before the worker starts. The figures begin when it has started. Garbage is collected as in a
program that is a worker: otherwise a full collection, which takes as long as hundreds of messages, falls into the
figures of one kind and not into those of the next. With several rounds, the kinds take turns, each round in the reverse
order of the round before, and the first round does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import redis

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers import Context, Worker
from sbredis.workers.running._collecting import collecting_less

QUEUE, OUT = "in", "out"
SLOTS = 16
CHUNK = 500
BODY = b"x" * 1024


async def empty(body: bytes) -> None:
    """Do nothing, in the event loop."""


def plain(body: bytes) -> None:
    """Do nothing, in a thread or in a process."""


async def batch(messages: list[ServiceBusReceivedMessage]) -> None:
    """Do nothing with many messages."""


async def record(context: Context) -> None:
    """Send a message with the completion."""
    context.send(OUT, BODY)


def declared(url: str, kind: str) -> Worker:
    """Return a worker with a handler of a kind."""
    worker = Worker(url)

    async def send() -> None:
        await worker.send(OUT, BODY)

    handlers: dict[str, tuple[Any, dict[str, Any]]] = {
        "async": (empty, {}),
        "threads": (plain, {}),
        "processes": (plain, {"execution": "process"}),
        "batches": (batch, {"batch": 100}),
        "sessions": (empty, {}),
        "context.send": (record, {}),
        "worker.send": (send, {}),
    }
    handler, options = handlers[kind]
    worker.queue(QUEUE, max_concurrent_calls=SLOTS, **options)(handler)
    return worker


async def fill(url: str, messages: int, *, sessions: bool) -> None:
    """Send the messages. With ``sessions``, each one has a session of its own."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue(QUEUE, requires_session=sessions)
        await client.ensure_queue(OUT)
        sender = client.get_queue_sender(QUEUE)
        for first in range(0, messages, CHUNK):
            numbers = range(first, min(first + CHUNK, messages))
            await sender.send_messages(
                [ServiceBusMessage(BODY, session_id=str(number) if sessions else None) for number in numbers]
            )


async def measured(url: str, kind: str, messages: int) -> dict[str, float]:
    """Return the messages a second, and the CPU of worker and server for each, in µs."""
    await fill(url, messages, sessions=kind == "sessions")
    server = redis.Redis.from_url(url)
    worker = declared(url, kind)
    async with ServiceBusAdministrationClient(url) as administration:

        async def done() -> int:
            there = (await administration.get_queue_runtime_properties(QUEUE)).total_message_count
            if kind not in {"context.send", "worker.send"}:
                return messages - there
            sent = (await administration.get_queue_runtime_properties(OUT)).active_message_count
            return min(messages - there, sent)

        with collecting_less():
            async with worker.running():
                wall, own, theirs = time.perf_counter(), time.process_time(), cpu_of(server)
                while await done() < messages:  # noqa: ASYNC110 -- only the server knows
                    await asyncio.sleep(0.02)
                spent = time.perf_counter() - wall, time.process_time() - own, cpu_of(server) - theirs
        for queue in (QUEUE, OUT):
            await administration.delete_queue(queue)
    return {
        "handled": messages / spent[0],
        "cpu": spent[1] / messages * 1e6,
        "server_cpu": spent[2] / messages * 1e6,
    }


def cpu_of(server: Any) -> float:
    """Return the seconds of processor time that a server has used."""
    info = server.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def rounds_of(url: str, kinds: list[str], messages: int, rounds: int) -> AsyncIterator[dict[str, Any]]:
    """Measure the kinds in turns. Yield the figures of each round that counts, by kind."""
    for number in range(rounds + 1) if rounds > 1 else (1,):
        order = kinds if number % 2 else kinds[::-1]
        figures = {kind: await measured(url, kind, messages) for kind in order}
        if number:
            yield {kind: figures[kind] for kind in kinds}


async def report(url: str, kinds: list[str], messages: int, rounds: int) -> None:
    """Print the figures of each round."""
    async for figures in rounds_of(url, kinds, messages, rounds):
        print(json.dumps(figures), flush=True)


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("url")
    parser.add_argument("kinds", nargs="+")
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(report(given.url, given.kinds, given.messages, given.rounds))


if __name__ == "__main__":
    main()
