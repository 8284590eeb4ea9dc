"""Forwarding: messages that wait are moved to another queue, within a slot and between two slots, and one by one.

python -m benchmarks.forward [--messages N] [--rounds N] [--body BYTES] [--trips N] [--short] [--server NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Mapping

from redis.asyncio import Redis

from benchmarks.rounds import run_as_program
from benchmarks.works import CONFIG, Cost, Idle, Medians, batches, figures, measure_idle, medians, tell_idle, used_by
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer, find_server

__all__ = ["verdicts"]

NEAR, FAR = "within a slot", "between two slots"
LEAST_PER_SECOND = 10_000
"""The smallest number of moves a second."""
MOST_DELAY = 20.0
"""The largest median of the time of a move in ms."""
WIDTH = 34


class Bench:
    """Two queues, each of which forwards to another queue: one in its slot, and one in another slot."""

    def __init__(self, server: LocalServer, client: ServiceBusClient, admin: ServiceBusAdministrationClient) -> None:
        self._server = server
        self._client = client
        self._admin = admin

    async def create(self) -> None:
        """Create the queues. A queue with ``colocate_with`` is in the slot of the other queue."""
        await self._admin.create_queue("near-to")
        await self._admin.create_queue("near-from", forward_to="near-to", colocate_with="near-to")
        await self._admin.create_queue("far-to")
        for number in range(64):  # find a name whose slot is not that of the destination
            name = f"far-from-{number}"
            await self._admin.create_queue(name, forward_to="far-to")
            if await self._slot_of(name) != await self._slot_of("far-to"):
                self.sources = {NEAR: ("near-from", "near-to"), FAR: (name, "far-to")}
                return
            await self._admin.delete_queue(name)

    async def _slot_of(self, name: str) -> tuple[int, ...]:
        record = await self._client._connection.record(name, asyncio.get_running_loop().time() + 60)
        return record.partitions

    async def _count(self, name: str) -> int:
        return (await self._admin.get_queue_runtime_properties(name)).active_message_count

    async def bulk(self, way: str, messages: int, body: bytes, used: Redis) -> Cost:
        """Move messages that wait already, and return the cost."""
        source, destination = self.sources[way]
        async with self._client.get_queue_sender(source) as sender:
            for count in batches(messages):
                await sender.send_messages([ServiceBusMessage(body) for _ in range(count)])
        async with ServiceBusClient(self._server.url) as mover:
            server = used_by(used)
            wall, cpu, spent = time.perf_counter(), time.process_time(), await server()
            async with mover.maintain():
                while await self._count(destination) < messages:  # noqa: ASYNC110 -- a receiver would cost more
                    await asyncio.sleep(0.01)
            cost = Cost(time.perf_counter() - wall, time.process_time() - cpu, await server() - spent)
        await self._client.get_queue_receiver(destination).purge_messages()
        return cost

    async def idle(self, way: str, body: bytes, trips: int) -> Idle:
        """Return the time from sending a message to the start of its handler, which waits at the destination."""
        source, destination = self.sources[way]
        async with (
            ServiceBusClient(self._server.url, maintenance=True),
            self._client.get_queue_sender(source) as sender,
            self._client.get_queue_receiver(destination) as receiver,
        ):
            await sender.send_messages(ServiceBusMessage(body))
            (message,) = await receiver.receive_messages(max_wait_time=60)  # now the mover is at work
            await receiver.complete_message(message)
            return await measure_idle(sender, receiver, lambda: ServiceBusMessage(body), trips)


async def measured(
    server: LocalServer, body: bytes, messages: int, rounds: int, trips: int
) -> tuple[dict[str, Medians], dict[str, Idle]]:
    """Return the cost of moves in bulk, and the times of single moves."""
    async with (
        Redis(host=server.host, port=server.port) as used,
        ServiceBusClient(server.url) as client,
        ServiceBusAdministrationClient(server.url) as admin,
    ):
        bench = Bench(server, client, admin)
        await bench.create()
        costs: dict[str, list[Cost]] = {NEAR: [], FAR: []}
        for _ in range(rounds):
            for way, found in costs.items():
                found.append(await bench.bulk(way, messages, body, used))
        idle = {way: await bench.idle(way, body, trips) for way in costs}
    return {way: medians(found, messages) for way, found in costs.items()}, idle


def verdicts(moved: Mapping[str, Medians], idle: Mapping[str, Idle]) -> list[str]:
    """Return the goals as lines of text, and whether they were met."""
    slowest = min(each.per_second for each in moved.values())
    longest = max(each.median for each in idle.values())
    rows = [
        (f"moves a second: ≥ {LEAST_PER_SECOND:,}", f"{slowest:,.0f}", slowest >= LEAST_PER_SECOND),
        (f"p50 of a move: < {MOST_DELAY:.0f} ms", f"{longest:.2f} ms", longest < MOST_DELAY),
    ]
    return ["goals", *(f"{f'  {what}':<{WIDTH}}{value}  {'met' if met else 'MISSED'}" for what, value, met in rows)]


def main() -> None:
    """Start a server, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--messages", type=int, help="messages that are moved in each round (20,000)")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are printed (5)")
    parser.add_argument("--trips", type=int, help="single moves (500)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of each message's body (1,024)")
    parser.add_argument(
        "--short", action="store_true", help="a short run, to see that it works; its figures mean nothing"
    )
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    messages, rounds = given.messages or (200 if given.short else 20_000), given.rounds or (1 if given.short else 5)
    trips = given.trips or (10 if given.short else 500)
    if min(messages, rounds, trips, given.body) < 1:
        parser.error("--messages, --rounds, --trips and --body must be 1 at least")
    logging.getLogger("sbredis.client").setLevel(logging.ERROR)  # no warning: the messages wait for a mover on purpose
    print(
        f"{find_server(given.server)}\nwith its append-only file on; Python {sys.version.split()[0]}; "
        f"{messages:,} messages of {given.body:,} B each time; medians, rounds: {rounds}",
        flush=True,
    )
    with LocalServer(binary=given.server, config=CONFIG) as server:
        moved, idle = asyncio.run(measured(server, b"x" * given.body, messages, rounds, trips))
    print(f"{'messages that wait are moved':<{WIDTH}}   a second   client CPU   server CPU")
    print(*(f"{f'  {way}':<{WIDTH}}{figures(each)}" for way, each in moved.items()), sep="\n")
    print("from sending a message to the start of its handler at the destination")
    print(*(f"{f'  {way}':<{WIDTH}}{tell_idle(each)}" for way, each in idle.items()), sep="\n")
    print(*verdicts(moved, idle), sep="\n")
    if given.short:
        print("A short run: its figures show only that it works.")


if __name__ == "__main__":
    run_as_program(main)
