"""Compare what a handler costs that sends with ``context.send`` with one that awaits ``worker.send``.

python -m benchmarks.additions [--messages N] [--rounds N] [--short] [--server NAME]

``context.send`` and the completion are one transaction, and happen together. ``worker.send`` and the completion are two
steps. Two rows: the other queue shares the slot, or it does not, so that its messages are moved after the transaction.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import time
from typing import Any

from benchmarks.rounds import run_as_program
from benchmarks.works import CONFIG
from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.servers import LocalServer, find_server
from sbredis.workers import Context, Worker

GOAL = 1.1
"""The most CPU of ``context.send``, as a share of that of ``worker.send`` and a completion."""
AT_ONCE = 100
BODY = b"x" * 100


async def handled(server: LocalServer, messages: int, *, recorded: bool, here: bool) -> tuple[float, float]:
    """Let a worker handle messages. Return the CPU of the worker and of the server for each, in µs."""
    namespace = f"{'context' if recorded else 'worker'}-{'here' if here else 'there'}-{time.monotonic_ns()}"
    worker = Worker(server.url, namespace=namespace, max_concurrent_calls=AT_ONCE)
    left, over = messages, asyncio.Event()

    def note() -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set()

    async def record(context: Context) -> None:
        context.send("out", BODY)
        note()

    async def send() -> None:
        await worker.send("out", BODY)
        note()

    worker.queue("in")(record if recorded else send)
    async with ServiceBusClient(server.url, namespace=namespace) as client:
        await client.ensure_queue("in")
        together: dict[str, Any] = {"colocate_with": "in"} if here else {}
        await client.ensure_queue("out", **together)
        async with client.get_queue_sender("in") as sender:
            for first in range(0, messages, 500):
                await sender.send_messages([ServiceBusMessage(BODY) for _ in range(min(500, messages - first))])
    async with worker.running(), ServiceBusAdministrationClient(server.url, namespace=namespace) as administration:
        own, theirs = time.process_time(), cpu_of(server)
        await over.wait()
        while not await all_moved(administration, messages):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        spent = time.process_time() - own, cpu_of(server) - theirs
    return spent[0] / messages * 1e6, spent[1] / messages * 1e6


async def all_moved(administration: ServiceBusAdministrationClient, messages: int) -> bool:
    """Return whether no message is left in the one queue, and all are in the other."""
    left = await administration.get_queue_runtime_properties("in")
    there = await administration.get_queue_runtime_properties("out")
    return not left.total_message_count and there.active_message_count == messages


def cpu_of(server: LocalServer) -> float:
    """Return the seconds of processor time that a server has used."""
    info = str(server.ask("INFO", "cpu"))
    return sum(float(each) for each in re.findall(r"used_cpu_(?:user|sys):([0-9.]+)", info))


def compare(server: LocalServer, messages: int, rounds: int, *, here: bool) -> str:
    """Measure both ways by turns, and return the line of the table."""
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(rounds + 1):
        for recorded in (True, False):
            count = messages if number else messages // 5
            costs = asyncio.run(handled(server, count, recorded=recorded, here=here))
            if number:  # the first round does not count
                found[recorded].append(costs)
    (ours, server_ours), (sent, server_sent) = (map(statistics.median, zip(*found[way], strict=True)) for way in found)
    where = "the same slot" if here else "another slot"
    share = (ours + server_ours) / (sent + server_sent)
    return f"{where:<14} {ours:8.1f} {server_ours:8.1f} {sent:10.1f} {server_sent:8.1f} {share:8.2f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="one round of few messages, to see whether it works")
    parser.add_argument("--server", help="the server, as sbredis server takes it")
    given = parser.parse_args()
    messages, rounds = (200, 1) if given.short else (given.messages, given.rounds)
    with LocalServer(binary=find_server(given.server), config=CONFIG) as server:
        print(f"µs of CPU a message, medians of {rounds} alternating rounds of {messages} messages")
        print("                context.send      worker.send and complete")
        print("out is in        client   server     client   server    share")
        for here in (True, False):
            print(compare(server, messages, rounds, here=here), flush=True)
    print(f"The goal for the share is {GOAL}, of the client and the server together.")


if __name__ == "__main__":
    run_as_program(main)
