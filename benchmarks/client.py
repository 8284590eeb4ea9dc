"""The client beside bare streams, in one run: batches, messages one by one, 16 partitions, a cluster, idle latency.

python -m benchmarks.client [--uvloop] [--messages N] [--rounds N] [--body BYTES] [--short] [--server NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import math
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from redis.asyncio import Redis

from benchmarks.rounds import run_as_program
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.servers import LocalCluster, LocalServer, find_server

__all__ = ["Idle", "Medians", "Results", "verdicts"]

AT_ONCE = 100
"""How many messages make a batch; and how many sends, or handlers, are under way at the same time."""
PARTITIONS = 16
PATIENCE = 10.0
"""A message that has not come after so many seconds is lost, and the run with it."""
PAUSE = 0.001
"""Before each single round trip: enough for the receiver to wait again. Much longer, and what is measured is how long
the machine takes to wake up: the bare command beside it shows that.
"""

STREAMS = "bare streams through redis-py"
BATCHES = "sbredis"
ONE = "1 partition"
SIXTEEN = f"{PARTITIONS} partitions"
CLUSTER_ONE = "1 partition, on the cluster"
CLUSTER_SIXTEEN = f"{PARTITIONS} partitions, on the cluster"
PING = "bare command through redis-py"
ALL = ""
"""A piece of work with all its steps."""

LEAST_SHARE_OF_STREAMS = 1.0
LEAST_SHARE_OF_ONE = 0.6
MOST_MEDIAN, MOST_SLOW = 0.5, 2.0
NATS = (17_600, 21_500)
NATS_GOALS = {"asyncio": 1.2, "uvloop": 1.5}
ELSEWHERE = [
    "Measured elsewhere, on 2 cores, and not here, where there is no NATS: JetStream through nats-py, with files, did",
    f"the same work at {NATS[0]:,} to {NATS[1]:,} messages/s. Beside these numbers, for comparison only:",
]

Step = Callable[[int], Awaitable[None]]
"""Does something with so many messages."""


@dataclass(frozen=True)
class Work:
    """Something to be measured: the steps that messages go through, all of them one step after the other."""

    name: str
    steps: Mapping[str, Step]
    servers: Sequence[Redis]
    """Who works for it."""


@dataclass(frozen=True)
class Cost:
    """What a number of messages took, in seconds."""

    wall: float
    client: float
    """Processor time of this process."""
    server: float
    """Processor time of the servers."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.client + other.client, self.server + other.server)


@dataclass(frozen=True)
class Medians:
    """What one message takes, by the medians of all rounds."""

    per_second: float
    client: float
    """Processor time of this process, in µs a message."""
    server: float
    """Processor time of the servers, in µs a message."""


@dataclass(frozen=True)
class Idle:
    """A round trip when there is nothing else to do, from the call that sends to the start of the handler, in ms."""

    median: float
    slow: float
    """One in a hundred takes longer."""


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


def in_batches(sender: ServiceBusSender, receiver: ServiceBusReceiver, body: bytes) -> Step:
    """Send a list, receive as many at once, and complete all of them."""

    async def run(messages: int) -> None:
        for count in batches(messages):
            await sender.send_messages([ServiceBusMessage(body) for _ in range(count)])
            await receiver.complete_messages(await received(receiver, count))

    return run


def one_by_one(sender: ServiceBusSender, receiver: ServiceBusReceiver, body: bytes) -> Mapping[str, Step]:
    """Each send awaited; then each message handled and completed by itself."""

    async def send(messages: int) -> None:
        numbers = iter(range(messages))

        async def caller() -> None:
            for _ in numbers:
                await sender.send_messages(ServiceBusMessage(body))

        await asyncio.gather(*[caller() for _ in range(AT_ONCE)])

    async def handle(message: ServiceBusReceivedMessage) -> None:
        assert len(message.body) == len(body)
        await receiver.complete_message(message)

    async def receive(messages: int) -> None:
        while messages:
            given = await receiver.receive_messages(min(AT_ONCE, messages), PATIENCE)
            assert given, f"{messages:,} messages did not come"
            await asyncio.gather(*[handle(each) for each in given])
            messages -= len(given)

    return {"send": send, "receive, complete": receive}


def batches(messages: int) -> list[int]:
    """How many messages go into each batch."""
    rest = messages % AT_ONCE
    return [AT_ONCE] * (messages // AT_ONCE) + ([rest] if rest else [])


async def received(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """So many messages, however they come."""
    messages = await receiver.receive_messages(count, PATIENCE)
    while len(messages) < count:
        more = await receiver.receive_messages(count - len(messages), PATIENCE)
        assert more, f"{count - len(messages)} messages did not come"
        messages += more
    return messages


# -- measuring ---------------------------------------------------------------------------------------------------------


async def server_cpu(servers: Sequence[Redis]) -> float:
    """Seconds of processor time that the servers have used."""
    infos: list[dict[str, float]] = [await server.info("cpu") for server in servers]
    return sum(info["used_cpu_user"] + info["used_cpu_sys"] for info in infos)


async def measure(step: Step, messages: int, servers: Sequence[Redis]) -> Cost:
    """What one step takes."""
    server = await server_cpu(servers)
    wall, client = time.perf_counter(), time.process_time()
    await step(messages)
    wall, client = time.perf_counter() - wall, time.process_time() - client
    return Cost(wall, client, await server_cpu(servers) - server)


async def alternate(works: Sequence[Work], options: Options) -> dict[str, dict[str, Medians]]:
    """Do each work once a round, after a shorter round that does not count; the medians, of each step and of all."""
    costs: dict[str, dict[str, list[Cost]]] = {work.name: {} for work in works}
    for number in range(options.rounds + 1):
        messages = options.messages if number else max(1, options.messages // 10)
        for work in works:
            taken = {name: await measure(step, messages, work.servers) for name, step in work.steps.items()}
            if number:
                taken[ALL] = sum(taken.values(), Cost(0, 0, 0))
                for name, cost in taken.items():
                    costs[work.name].setdefault(name, []).append(cost)
    return {
        name: {step: medians(each, options.messages) for step, each in steps.items()} for name, steps in costs.items()
    }


def medians(costs: Sequence[Cost], messages: int) -> Medians:
    return Medians(
        statistics.median(messages / cost.wall for cost in costs),
        statistics.median(cost.client / messages * 1e6 for cost in costs),
        statistics.median(cost.server / messages * 1e6 for cost in costs),
    )


async def measure_idle(sender: ServiceBusSender, receiver: ServiceBusReceiver, options: Options) -> Idle:
    """Single round trips: the next message is sent when the one before was handled and the receiver waits again."""
    starts: asyncio.Queue[float] = asyncio.Queue()

    async def handle() -> None:
        async for message in receiver:
            started = time.perf_counter()
            await receiver.complete_message(message)
            starts.put_nowait(started)

    async def trip() -> float:
        sent = time.perf_counter()
        await sender.send_messages(ServiceBusMessage(options.body))
        async with asyncio.timeout(PATIENCE):
            return await starts.get() - sent

    handler = asyncio.create_task(handle())
    idle = await repeat(trip, options)
    handler.cancel()
    with suppress(asyncio.CancelledError):
        await handler
    return idle


async def measure_ping(client: Redis, options: Options) -> Idle:
    """What the least command takes at the same pace. A message takes two at least: it wakes the receiver, who asks."""

    async def ping() -> float:
        sent = time.perf_counter()
        await client.echo("")
        return time.perf_counter() - sent

    return await repeat(ping, options)


async def repeat(trip: Callable[[], Awaitable[float]], options: Options) -> Idle:
    """One trip after the other, with a pause before each; the first few do not count."""
    taken: list[float] = []
    for _ in range(options.trips + 10):
        await asyncio.sleep(PAUSE)
        taken.append(await trip() * 1e3)
    taken = sorted(taken[10:])
    return Idle(statistics.median(taken), taken[math.ceil(0.99 * len(taken)) - 1])


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

        body = options.body
        alone = [to_server]
        works = [
            Work(STREAMS, {ALL: bare_streams(to_server, body)}, alone),
            Work(BATCHES, {ALL: in_batches(*await pair(server.url, "batches"), body)}, alone),
            Work(ONE, one_by_one(*await pair(server.url, "one"), body), alone),
            Work(SIXTEEN, one_by_one(*await pair(server.url, "sixteen", partitioned=True), body), alone),
        ]
        if cluster is not None:
            masters = [
                await stack.enter_async_context(Redis(host=node.host, port=node.port)) for node in cluster.masters
            ]
            one, sixteen = await pair(cluster.url, "one"), await pair(cluster.url, "sixteen", partitioned=True)
            works += [
                Work(CLUSTER_ONE, one_by_one(*one, body), masters),
                Work(CLUSTER_SIXTEEN, one_by_one(*sixteen, body), masters),
            ]
        return Results(
            await alternate(works, options),
            {
                PING: await measure_ping(to_server, options),
                ONE: await measure_idle(*await pair(server.url, "idle"), options),
                SIXTEEN: await measure_idle(*await pair(server.url, "idle-16", partitioned=True), options),
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
                lines.append(f"{label:<{WIDTH}}{_figures(steps[step])}{ratio}".rstrip())
    lines.append("  idle, send to start of handler")
    lines += [
        f"{f'    {name}':<{WIDTH}}p50 {idle.median:.2f} ms   p99 {idle.slow:.2f} ms"
        for name, idle in results.idle.items()
    ]
    return lines


def _figures(measured: Medians) -> str:
    return f"{measured.per_second:>10,.0f}{measured.client:>10.1f} µs{measured.server:>10.1f} µs"


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


def has(module: str) -> bool:
    """Whether a module is installed."""
    return importlib.util.find_spec(module) is not None


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
    # Its file is not rewritten meanwhile: that would fall on whoever is measured then.
    config = {"appendonly": "yes", "appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}
    results: dict[str, Results] = {}
    with (
        LocalServer(binary=given.server, config=config) as server,
        LocalCluster(3, 0, binary=given.server, config=config) as cluster,
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
