"""The client beside bare streams, in one run: batches, messages one by one, 16 partitions, a cluster, idle latency.

python -m benchmarks.client [--uvloop] [--messages N] [--rounds N] [--body BYTES] [--short] [--server NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from redis.asyncio import Redis

from benchmarks.rounds import run_as_program
from benchmarks.works import (
    ALL,
    AT_ONCE,
    CONFIG,
    Idle,
    Medians,
    Step,
    Work,
    alternate,
    batches,
    each_by_itself,
    figures,
    has,
    in_batches,
    measure_idle,
    measure_ping,
    tell_idle,
)
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalCluster, LocalServer, find_server

__all__ = ["Results", "verdicts"]

PARTITIONS = 16

STREAMS = "bare streams through redis-py"
BATCHES = "sbredis"
ONE = "1 partition"
SIXTEEN = f"{PARTITIONS} partitions"
CLUSTER_ONE = "1 partition, on the cluster"
CLUSTER_SIXTEEN = f"{PARTITIONS} partitions, on the cluster"
PING = "bare command through redis-py"

LEAST_SHARE_OF_STREAMS = 1.0
LEAST_SHARE_OF_ONE = 0.6
MOST_MEDIAN, MOST_SLOW = 0.5, 2.0
NATS = (17_600, 21_500)
NATS_GOALS = {"asyncio": 1.2, "uvloop": 1.5}
ELSEWHERE = [
    "Measured elsewhere, on 2 cores, and not here, where there is no NATS: JetStream through nats-py, with files, did",
    f"the same work at {NATS[0]:,} to {NATS[1]:,} messages/s. Beside these numbers, for comparison only:",
]


@dataclass(frozen=True)
class Results:
    """What was measured on one event loop: the works by name and step, and the latencies by name."""

    works: Mapping[str, Mapping[str, Medians]]
    idle: Mapping[str, Idle]

    def ratio(self, name: str, reference: str) -> float:
        """How fast one is, in terms of the other."""
        return self.works[name][ALL].per_second / self.works[reference][ALL].per_second


@dataclass(frozen=True)
class Options:
    """How much to measure."""

    messages: int
    rounds: int
    trips: int
    body: bytes


# -- the works ---------------------------------------------------------------------------------------------------------


def bare_streams(client: Redis, body: bytes) -> Step:
    """The least that a queue on streams does: add, read in a group, acknowledge and delete; a batch at a time."""

    async def run(messages: int) -> None:
        for count in batches(messages):
            adding: Any = client.pipeline(transaction=False)
            for _ in range(count):
                adding.xadd("stream", {"b": body})
            await adding.execute()
            given: Any = await client.xreadgroup("group", "consumer", {"stream": ">"}, count=count)
            ids = [identifier for identifier, _ in given[0][1]]
            assert len(ids) == count
            ending: Any = client.pipeline(transaction=False)
            ending.xack("stream", "group", *ids)
            ending.xdel("stream", *ids)
            await ending.execute()

    return run


# -- measuring ---------------------------------------------------------------------------------------------------------


async def run_all(name: str, server: LocalServer, cluster: LocalCluster | None, options: Options) -> Results:
    """All works in turns, on the event loop of this name, and then the way when idle."""
    async with AsyncExitStack() as stack:
        to_server = await stack.enter_async_context(Redis(host=server.host, port=server.port))
        await to_server.delete("stream")
        await to_server.xgroup_create("stream", "group", mkstream=True)

        async def pair(
            url: str, queue: str, *, partitioned: bool = False
        ) -> tuple[ServiceBusSender, ServiceBusReceiver]:
            client = await stack.enter_async_context(ServiceBusClient(url, partition_count=PARTITIONS))
            await client.ensure_queue(f"{name}-{queue}", enable_partitioning=partitioned)
            sender, receiver = client.get_queue_sender, client.get_queue_receiver
            return sender(f"{name}-{queue}"), receiver(f"{name}-{queue}")

        def make() -> ServiceBusMessage:
            return ServiceBusMessage(options.body)

        alone = [to_server]
        works = [
            Work(STREAMS, {ALL: bare_streams(to_server, options.body)}, alone),
            Work(BATCHES, {ALL: in_batches(*await pair(server.url, "batches"), make)}, alone),
            Work(ONE, each_by_itself(*await pair(server.url, "one"), make), alone),
            Work(SIXTEEN, each_by_itself(*await pair(server.url, "sixteen", partitioned=True), make), alone),
        ]
        if cluster is not None:
            masters = [
                await stack.enter_async_context(Redis(host=node.host, port=node.port)) for node in cluster.masters
            ]
            one, sixteen = await pair(cluster.url, "one"), await pair(cluster.url, "sixteen", partitioned=True)
            works += [
                Work(CLUSTER_ONE, each_by_itself(*one, make), masters),
                Work(CLUSTER_SIXTEEN, each_by_itself(*sixteen, make), masters),
            ]
        return Results(
            await alternate(works, options.messages, options.rounds),
            {
                PING: await measure_ping(to_server, options.trips),
                ONE: await measure_idle(*await pair(server.url, "idle"), make, options.trips),
                SIXTEEN: await measure_idle(*await pair(server.url, "idle-16", partitioned=True), make, options.trips),
            },
        )


# -- printing ----------------------------------------------------------------------------------------------------------

WIDTH = 42


def table(results: Results) -> list[str]:
    """The measurements as lines of text, each group with the ratios to its first."""
    lines = [f"{'':<{WIDTH}}messages/s   client CPU   server CPU"]
    for title, names, called in (
        (f"batches of {AT_ONCE}", (STREAMS, BATCHES), "streams"),
        (f"each by itself, {AT_ONCE} at once", (ONE, SIXTEEN, CLUSTER_ONE, CLUSTER_SIXTEEN), "one"),
    ):
        lines.append(f"  {title}")
        for name in names:
            steps = results.works.get(name, {})
            for step in (ALL, *(step for step in steps if step != ALL)) if steps else ():
                ratio = f"{results.ratio(name, names[0]):>8.2f} x {called}" if step == ALL else ""
                label = f"      {step}" if step else f"    {name}"
                lines.append(f"{label:<{WIDTH}}{figures(steps[step])}{ratio}".rstrip())
    lines.append("  idle, send to start of handler")
    lines += [f"{f'    {name}':<{WIDTH}}{tell_idle(idle)}" for name, idle in results.idle.items()]
    return lines


def verdicts(by_loop: Mapping[str, Results]) -> list[str]:
    """The goals, whether each event loop has met them, and what was measured elsewhere, for comparison."""
    rows: list[tuple[str, Callable[[Results], tuple[str, bool]]]] = [
        (
            f"batches: ≥ {LEAST_SHARE_OF_STREAMS:.1f} x bare streams",
            lambda results: _times(results.ratio(BATCHES, STREAMS), LEAST_SHARE_OF_STREAMS),
        ),
        (
            f"{PARTITIONS} partitions: ≥ {LEAST_SHARE_OF_ONE} x one",
            lambda results: _times(results.ratio(SIXTEEN, ONE), LEAST_SHARE_OF_ONE),
        ),
        (f"idle, p50: ≤ {MOST_MEDIAN} ms", lambda results: _within(results.idle[ONE].median, MOST_MEDIAN)),
        (f"idle, p99: ≤ {MOST_SLOW} ms", lambda results: _within(results.idle[ONE].slow, MOST_SLOW)),
    ]
    lines = [f"{'goals':<{WIDTH}}" + "".join(f"{loop:<22}" for loop in by_loop).rstrip()]
    for title, measured in rows:
        cells = [measured(results) for results in by_loop.values()]
        told = "".join(f"{figure + ('  met' if met else '  MISSED'):<22}" for figure, met in cells)
        lines.append(f"{f'  {title}':<{WIDTH}}{told}".rstrip())
    lines += ELSEWHERE
    for loop, results in by_loop.items():
        slow, fast = (results.works[ONE][ALL].per_second / nats for nats in reversed(NATS))
        title = f"  {loop}, each by itself, {ONE}"
        lines.append(f"{title:<{WIDTH}}{slow:.2f} to {fast:.2f} x NATS (to reach: {NATS_GOALS[loop]})")
    return lines


def _times(ratio: float, least: float) -> tuple[str, bool]:
    return f"{ratio:.3f} x", ratio >= least


def _within(milliseconds: float, most: float) -> tuple[str, bool]:
    return f"{milliseconds:.3f} ms", milliseconds <= most


# -- the program -------------------------------------------------------------------------------------------------------


def on_loop(name: str, server: LocalServer, cluster: LocalCluster | None, options: Options) -> Results:
    """Measure on an event loop of asyncio's own or of uvloop's."""
    if name == "uvloop":
        import uvloop

        return uvloop.run(run_all(name, server, cluster, options))
    return asyncio.run(run_all(name, server, cluster, options))


def main() -> None:
    """Start the servers, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--uvloop", action="store_true", help="on uvloop only, not on asyncio's own loop first")
    parser.add_argument("--messages", type=int, help="how many messages each work is done with (20,000)")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are printed (5)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of each message's body (1,024)")
    parser.add_argument("--short", action="store_true", help="a few seconds, to see that it runs: its figures are none")
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    messages, rounds, trips = (500, 1, 20) if given.short else (20_000, 5, 300)
    options = Options(given.messages or messages, given.rounds or rounds, trips, b"x" * given.body)
    if options.messages < 1 or options.rounds < 1 or given.body < 0:
        parser.error("--messages and --rounds must be 1 at least, and --body 0")
    if given.uvloop and not has("uvloop"):
        parser.error("there is no uvloop here: pip install uvloop")
    loops = ["uvloop"] if given.uvloop else ["asyncio", "uvloop"] if has("uvloop") else ["asyncio"]
    results: dict[str, Results] = {}
    with (
        LocalServer(binary=given.server, config=CONFIG) as server,
        LocalCluster(3, 0, binary=given.server, config=CONFIG) as cluster,
    ):
        print(
            f"{find_server(given.server)}\n"
            f"with its append-only file on, alone and as a cluster of 3 masters; Python {sys.version.split()[0]}, "
            f"redis-py {version('redis')} {'with' if has('hiredis') else 'without'} hiredis\n"
            f"{options.messages:,} messages of {given.body:,} B each time; medians, rounds: {options.rounds}; "
            f"CPU a message; {options.trips} round trips",
            flush=True,
        )
        for place, loop in enumerate(loops):
            results[loop] = on_loop(loop, server, None if place else cluster, options)
            print(f"\n{loop}", *table(results[loop]), sep="\n", flush=True)
    print("", *verdicts(results), sep="\n")
    if given.short:
        print("A short run: its figures say that it runs, and nothing else.")
    if not has("uvloop"):
        print("There is no uvloop here, so nothing was measured on it.")


if __name__ == "__main__":
    run_as_program(main)
