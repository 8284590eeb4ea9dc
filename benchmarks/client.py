"""Compare the client with NATS JetStream and bare streams, in one run: ways of calling, partitions, a cluster, latency.

python -m benchmarks.client [--uvloop] [--messages N] [--rounds N] [--body BYTES] [--short] [--server NAME]
                            [--nats FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from redis.asyncio import Redis

from benchmarks.client_report import (
    CLUSTER_ONE,
    CLUSTER_SIXTEEN,
    NATS,
    ONE,
    PARTITIONS,
    PING,
    SIXTEEN,
    STREAMS,
    Results,
    table,
    verdicts,
)
from benchmarks.jetstream import FOLDER, JetStreamQueue, NatsServer, connected
from benchmarks.rounds import run_as_program
from benchmarks.ways import (
    BACKLOG,
    BATCHES,
    CALLERS,
    SHAPES,
    TASKS,
    WAYS,
    Queue,
    by_batches,
    by_callers,
    trip_through,
    with_tasks,
)
from benchmarks.works import (
    CONFIG,
    PATIENCE,
    Idle,
    ProcessorTime,
    Step,
    Work,
    alternate,
    has,
    received,
    spread,
    times_of,
    used_by,
)
from sbredis.aio import ServiceBusClient
from sbredis.exceptions import ServerUnsuitableError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.servers import LocalCluster, LocalServer, find_server

PREFETCHED = 200
"""The number of messages that a consumer of sbredis prefetches: two for each handler.

NATS prefetches up to 1,000 messages.
"""
PAUSE = 0.002
"""The pause before each trip of a single message, in seconds."""


@dataclass(frozen=True)
class Options:
    """The numbers of messages and rounds of the measurement."""

    messages: int
    rounds: int
    trips: int
    body: bytes


@dataclass(frozen=True)
class Peers:
    """The servers of a run."""

    server: LocalServer
    cluster: LocalCluster | None
    nats: NatsServer | None


# -- the queues of the competitors -------------------------------------------------------------------------------------


class SbredisQueue:
    """A queue of sbredis."""

    def __init__(self, client: ServiceBusClient, name: str, body: bytes, *, prefetched: int) -> None:
        self._client = client
        self._name = name
        self._body = body
        self._prefetched = prefetched
        self._sender = client.get_queue_sender(name)
        self._receiver = client.get_queue_receiver(name)

    async def create(self, *, partitioned: bool) -> Self:
        """Create the queue."""
        count = PARTITIONS if partitioned else None
        await self._client.ensure_queue(self._name, enable_partitioning=partitioned, partition_count=count)
        return self

    async def send(self) -> None:
        """Send a message."""
        await self._sender.send_messages(ServiceBusMessage(self._body))

    async def send_all(self, count: int) -> None:
        """Send a list of messages."""
        await self._sender.send_messages([ServiceBusMessage(self._body) for _ in range(count)])

    async def receive(self, count: int) -> list[ServiceBusReceivedMessage]:
        """Receive up to this number of messages."""
        return await self._receiver.receive_messages(count, PATIENCE)

    async def settle_all(self, count: int) -> None:
        """Receive messages, and complete them with one call."""
        await self._receiver.complete_messages(await received(self._receiver, count))

    async def complete(self, message: ServiceBusReceivedMessage) -> None:
        """Complete a message."""
        await self._receiver.complete_message(message)

    @asynccontextmanager
    async def consumer(self, start: Callable[[Any], Awaitable[None]]) -> AsyncGenerator[None]:
        """Iterate over a receiver as long as the context is open."""
        async with asyncio.TaskGroup() as tasks:
            consuming = tasks.create_task(self._consume(start))
            yield
            consuming.cancel()

    async def _consume(self, start: Callable[[Any], Awaitable[None]]) -> None:
        consuming = self._client.get_queue_receiver(self._name, prefetch_count=self._prefetched)
        usual, self._receiver = self._receiver, consuming
        try:
            async with consuming:
                async for message in consuming:
                    await start(message)
        finally:
            self._receiver = usual


class Streams:
    """The smallest possible queue on streams. It adds a batch, reads it in a group, and acknowledges and deletes it."""

    def __init__(self, client: Redis, name: str, body: bytes) -> None:
        self._client = client
        self._name = name
        self._body = body

    async def create(self) -> Self:
        """Create the stream and its group."""
        await self._client.delete(self._name)
        await self._client.xgroup_create(self._name, "group", mkstream=True)
        return self

    async def send_all(self, count: int) -> None:
        """Add messages with one pipeline."""
        adding: Any = self._client.pipeline(transaction=False)
        for _ in range(count):
            adding.xadd(self._name, {"b": self._body})
        await adding.execute()

    async def settle_all(self, count: int) -> None:
        """Read messages; acknowledge and delete them with one pipeline."""
        given: Any = await self._client.xreadgroup("group", "consumer", {self._name: ">"}, count=count)
        ids = [identifier for identifier, _ in given[0][1]]
        assert len(ids) == count
        ending: Any = self._client.pipeline(transaction=False)
        ending.xack(self._name, "group", *ids)
        ending.xdel(self._name, *ids)
        await ending.execute()


# -- measuring ---------------------------------------------------------------------------------------------------------


class Bench:
    """The queues of all peers on one event loop."""

    def __init__(self, loop: str, peers: Peers, options: Options, stack: AsyncExitStack) -> None:
        self._loop = loop
        self._peers = peers
        self._options = options
        self._stack = stack
        self._clients: dict[str, ServiceBusClient] = {}
        self._context: Any = None

    async def open(self) -> Self:
        """Connect to the servers."""
        peers, enter = self._peers, self._stack.enter_async_context
        self.redis = await enter(Redis(host=peers.server.host, port=peers.server.port))
        nodes = peers.cluster.masters if peers.cluster is not None else ()
        self.masters = [await enter(Redis(host=node.host, port=node.port)) for node in nodes]
        if peers.nats is not None:
            self._context = (await enter(connected(peers.nats))).jetstream()
        return self

    async def sbredis(
        self, name: str, *, url: str | None = None, partitioned: bool = False, prefetched: int = PREFETCHED
    ) -> SbredisQueue:
        """Create a queue, with a client of its own."""
        made = ServiceBusClient(url or self._peers.server.url)
        client = await self._stack.enter_async_context(made)
        queue = SbredisQueue(client, f"{self._loop}-{name}", self._options.body, prefetched=prefetched)
        return await queue.create(partitioned=partitioned)

    async def jetstream(self, name: str) -> JetStreamQueue:
        """Create a stream of NATS."""
        return await JetStreamQueue(self._context, f"{self._loop}-{name}", self._options.body).create()

    async def works(self) -> list[Work]:
        """Return all works whose speed is measured in messages a second."""
        works: list[Work] = []
        on_server = used_by(self.redis)

        def add(way: str, shape: str, who: str, queue: Queue, server: ProcessorTime = on_server) -> None:
            works.append(Work(Results.key(way, shape, who), _steps(way, shape, queue), server))

        for place, (way, shape) in enumerate((way, shape) for way in WAYS for shape in SHAPES):
            if way == BATCHES:
                streams = await Streams(self.redis, f"streams-{place}", self._options.body).create()
                works.append(Work(Results.key(way, shape, STREAMS), by_batches(streams, shape), on_server))
            if self._peers.nats is not None:
                add(way, shape, NATS, await self.jetstream(f"nats-{place}"), self._peers.nats.processor_time)
            add(way, shape, ONE, await self.sbredis(f"one-{place}"))
            if way != BATCHES:
                add(way, shape, SIXTEEN, await self.sbredis(f"sixteen-{place}", partitioned=True))
        if self._peers.cluster is not None:
            url, on_cluster = self._peers.cluster.url, used_by(*self.masters)
            add(TASKS, BACKLOG, CLUSTER_ONE, await self.sbredis("one", url=url), on_cluster)
            sixteen = await self.sbredis("sixteen", url=url, partitioned=True)
            add(TASKS, BACKLOG, CLUSTER_SIXTEEN, sixteen, on_cluster)
        return works

    async def idle(self) -> dict[str, Idle]:
        """Measure trips of single messages through one queue after the other, in several rounds, without other work."""
        queues: dict[str, Queue] = {}
        if self._peers.nats is not None:
            queues[NATS] = await self.jetstream("nats-idle")
        queues[ONE] = await self.sbredis("idle", prefetched=0)
        queues[SIXTEEN] = await self.sbredis("idle-16", partitioned=True, prefetched=0)
        trips = -(-self._options.trips // self._options.rounds)

        async def ping() -> float:
            sent = perf_counter()
            await self.redis.echo("")
            return perf_counter() - sent

        async def measure(trip: Callable[[], Awaitable[float]]) -> list[float]:
            return await times_of(trip, trips, PAUSE)

        times: dict[str, list[float]] = {PING: [], **{name: [] for name in queues}}
        for _ in range(self._options.rounds):
            times[PING] += await measure(ping)
            for name, queue in queues.items():
                times[name] += await trip_through(queue, measure)
        return {name: spread(taken) for name, taken in times.items()}


def _steps(way: str, shape: str, queue: Queue) -> Mapping[str, Step]:
    return {TASKS: with_tasks, CALLERS: by_callers, BATCHES: by_batches}[way](queue, shape)


async def run_all(loop: str, peers: Peers, options: Options) -> Results:
    """Measure the pieces of work one after the other, in several rounds, on the event loop of this name. Then measure
    the trips of single messages.
    """
    async with AsyncExitStack() as stack:
        bench = await Bench(loop, peers, options, stack).open()
        return Results(await alternate(await bench.works(), options.messages, options.rounds), await bench.idle())


# -- the program -------------------------------------------------------------------------------------------------------


def on_loop(name: str, peers: Peers, options: Options) -> Results:
    """Measure on an event loop of asyncio or of uvloop."""
    if name == "uvloop":
        import uvloop

        return uvloop.run(run_all(name, peers, options))
    return asyncio.run(run_all(name, peers, options))


def start_nats(folder: Path, stack: ExitStack) -> tuple[NatsServer | None, str]:
    """Start a NATS server if it is installed. Return the server, and a line about it for the report."""
    try:
        nats = stack.enter_context(NatsServer(folder))
    except ServerUnsuitableError as error:
        return None, f"NATS JetStream is not measured: {error.message}"
    return nats, f"{nats.versions}; JetStream with file storage, each message kept until it is acknowledged"


def main() -> None:
    """Start the servers, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--uvloop", action="store_true", help="on uvloop only, not on asyncio's own loop first")
    parser.add_argument("--messages", type=int, help="messages for each work (20,000)")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are printed (5)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of each message's body (1,024)")
    parser.add_argument(
        "--short", action="store_true", help="a short run, to see that it works; its figures mean nothing"
    )
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    parser.add_argument("--nats", type=Path, default=FOLDER, help="where tools/nats has installed NATS")
    given = parser.parse_args()
    messages, rounds, trips = (500, 1, 20) if given.short else (20_000, 5, 3000)
    options = Options(given.messages or messages, given.rounds or rounds, trips, b"x" * given.body)
    if options.messages < 1 or options.rounds < 1 or given.body < 0:
        parser.error("--messages and --rounds must be 1 at least, and --body 0")
    if given.uvloop and not has("uvloop"):
        parser.error("there is no uvloop here: pip install uvloop")
    loops = ["uvloop"] if given.uvloop else ["asyncio", "uvloop"] if has("uvloop") else ["asyncio"]
    results: dict[str, Results] = {}
    with ExitStack() as stack:
        server = stack.enter_context(LocalServer(binary=given.server, config=CONFIG))
        cluster = stack.enter_context(LocalCluster(3, 0, binary=given.server, config=CONFIG))
        nats, about_nats = start_nats(given.nats, stack)
        print(
            f"{find_server(given.server)}\n"
            f"with its append-only file on, alone and as a cluster of 3 masters; Python {sys.version.split()[0]}, "
            f"redis-py {version('redis')} {'with' if has('hiredis') else 'without'} hiredis\n"
            f"{about_nats}\n"
            f"{options.messages:,} messages of {given.body:,} B each time; medians, rounds: {options.rounds}; "
            f"CPU a message; {options.trips:,} single trips",
            flush=True,
        )
        for place, loop in enumerate(loops):
            results[loop] = on_loop(loop, Peers(server, None if place else cluster, nats), options)
            print(f"\n{loop}", *table(results[loop]), sep="\n", flush=True)
    print("", *verdicts(results), sep="\n")
    if given.short:
        print("A short run: its figures show only that it works.")
    if not has("uvloop"):
        print("There is no uvloop here, so nothing was measured on it.")


if __name__ == "__main__":
    run_as_program(main)
