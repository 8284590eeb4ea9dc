"""Measure one kind of handler of sbredis once, in a process of its own. Print the figures as JSON.

python -m benchmarks.peers.kinds URL KIND [--messages N]

The messages are there before the worker starts. The figures begin when it has started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any

import redis

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers import Context, Worker

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

        async with worker.running():
            wall, own, theirs = time.perf_counter(), time.process_time(), cpu_of(server)
            while await done() < messages:  # noqa: ASYNC110 -- only the server knows
                await asyncio.sleep(0.02)
            spent = time.perf_counter() - wall, time.process_time() - own, cpu_of(server) - theirs
    return {
        "handled": messages / spent[0],
        "cpu": spent[1] / messages * 1e6,
        "server_cpu": spent[2] / messages * 1e6,
    }


def cpu_of(server: Any) -> float:
    """Return the seconds of processor time that a server has used."""
    info = server.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("url")
    parser.add_argument("kind")
    parser.add_argument("--messages", type=int, default=5000)
    given = parser.parse_args()
    json.dump(asyncio.run(measured(given.url, given.kind, given.messages)), sys.stdout)


if __name__ == "__main__":
    main()
