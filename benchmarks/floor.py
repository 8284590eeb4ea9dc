"""Measure what the client costs for each message, beside a minimal client over the same scripts, and beside NATS.

python -m benchmarks.floor [--messages N] [--rounds N] [--body BYTES] [--short] [--server NAME] [--nats FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol, Self, cast

import hiredis
from redis.asyncio import Redis

from benchmarks.client import PREFETCHED, SbredisQueue, start_nats
from benchmarks.jetstream import FOLDER, JetStreamQueue, NatsServer, connected
from benchmarks.rounds import run_as_program
from benchmarks.ways import BACKLOG, SEND, with_tasks
from benchmarks.works import ALL, AT_ONCE, CONFIG, Medians, Step, Work, alternate, has, sent_by_callers, used_by
from sbredis.aio import ServiceBusClient
from sbredis.client import connection_of, deadline_of
from sbredis.engine import CallId, Lock, Outgoing, Partition, Request
from sbredis.model import ServiceBusMessage, hold_of
from sbredis.servers import LocalCluster, LocalServer, find_server
from sbredis.sync import ServiceBusClient as BlockingClient

SBREDIS, FLOOR, NATS = "sbredis", "the floor", "NATS"
TASKS, CALLERS = f"a task for each, {AT_ONCE} at once", f"{AT_ONCE} endless callers"
COMPLETE = "complete"
PARTITIONS, MASTERS, THREADS = 16, 3, 16
DEAREST_SEND, DEAREST_COMPLETION = 9.0, 5.0
"""The goals on uvloop, in µs of processor time."""
SHARE_OF_ONE = 0.95
"""The goal for several partitions and several masters, as a share of the speed of one."""
MOST_HELD = 1000
"""The number of messages that NATS gives out before it waits for their acknowledgements."""
WIDTH = 46


# -- the floor ---------------------------------------------------------------------------------------------------------


class MinimalConnection(asyncio.Protocol):
    """A connection that writes calls and passes each reply on. Any error ends the benchmark."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._reader = hiredis.Reader()
        self._in_flight: deque[Sequence[asyncio.Future[None]]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # or that of uvloop, which is no such class

    def write(self, call: bytes, futures: Sequence[asyncio.Future[None]]) -> None:
        """Write a call. Its reply is the result of all the futures."""
        self._in_flight.append(futures)
        self.transport.write(call)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            for future in self._in_flight.popleft():
                if future.done():
                    continue
                if isinstance(reply, Exception):
                    future.set_exception(reply)
                else:
                    future.set_result(None)


Make = Callable[[CallId, Sequence[Any]], Request[Any]]


class MinimalLane:
    """Joins the calls of one turn of the event loop in one call of a script.

    It does nothing else: no error is told apart, nothing is repeated, no deadline is kept.
    """

    def __init__(self, connection: MinimalConnection, run_id: bytes, make: Make) -> None:
        self._connection = connection
        self._run_id = run_id
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._name = token_hex(8)
        self._number = 0
        self._items: list[Any] = []
        self._futures: list[asyncio.Future[None]] = []

    def submit(self, item: Any) -> asyncio.Future[None]:
        """Send an item with the next call."""
        future: asyncio.Future[None] = self._loop.create_future()
        if not self._items:
            self._loop.call_soon(self._flush)
        self._items.append(item)
        self._futures.append(future)
        return future

    def _flush(self) -> None:
        items, self._items = self._items, []
        futures, self._futures = self._futures, []
        self._number += 1
        request = self._make(CallId(self._name, self._number), items)
        own = (self._run_id,) if request.script.takes_run_id else ()
        head = ("EVALSHA", request.script.sha, len(request.keys), *request.keys)
        arguments = [_as_bytes(each) for each in (*head, *own, *request.arguments)]
        pieces = [b"*%d\r\n" % len(arguments)]
        for argument in arguments:
            pieces += (b"$%d\r\n" % len(argument), argument, b"\r\n")
        self._connection.write(b"".join(pieces), futures)


def _as_bytes(argument: bytes | str | int) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()


# -- the competitors ---------------------------------------------------------------------------------------------------


class Competitor(Protocol):
    """A queue whose sends and completions are measured."""

    async def send(self) -> None:
        """Send a message, and wait until it is stored."""

    async def hold(self, messages: int) -> list[Any]:
        """Receive this number of messages."""
        ...

    async def complete(self, message: Any) -> None:
        """Complete a message."""


class Ours:
    """A queue of sbredis."""

    def __init__(self, queue: SbredisQueue) -> None:
        self._queue = queue
        self.send = queue.send
        self.complete = queue.complete

    async def hold(self, messages: int) -> list[Any]:
        """Receive this number of messages."""
        return await _held(self._queue.receive, messages)


class Floor:
    """A queue of sbredis to which the minimal client sends, and whose messages it completes."""

    def __init__(self, queue: SbredisQueue, body: bytes) -> None:
        self._queue = queue
        self._payload = b"\x01\x00" + body

    async def open(self, client: ServiceBusClient, name: str, server: LocalServer, redis: Redis) -> Self:
        """Connect to the server, and load the scripts."""
        entity = await connection_of(client).entity(name, deadline_of(None))
        partition = entity.partition(entity.numbers[0])
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(MinimalConnection, server.host, server.port)
        run_id = (await redis.info("server"))["run_id"].encode()
        sends, completes = partial(_sent, partition), partition.complete
        lock = Lock("a" * 11, "1")
        for request in (sends(CallId("a", 1), [self._payload]), completes(CallId("a", 1), [lock])):
            await redis.script_load(request.script.source)
        self._sends = MinimalLane(connection, run_id, sends)
        self._completes = MinimalLane(connection, run_id, completes)
        return self

    async def send(self) -> None:
        """Send a message, and wait until it is stored."""
        await self._sends.submit(self._payload)

    async def hold(self, messages: int) -> list[Lock]:
        """Receive this number of messages."""
        return [hold_of(message).lock() for message in await _held(self._queue.receive, messages)]

    async def complete(self, message: Lock) -> None:
        """Complete a message."""
        await self._completes.submit(message)


class JetStream:
    """A stream of NATS. An acknowledgement has no answer."""

    def __init__(self, queue: JetStreamQueue) -> None:
        self._queue = queue
        self.send = queue.send
        self.complete = queue.complete

    async def hold(self, messages: int) -> list[Any]:
        """Receive this number of messages."""
        return await _held(self._queue.receive, messages)


def _sent(partition: Partition, call_id: CallId, payloads: Sequence[bytes]) -> Request[Any]:
    return partition.send(call_id, [Outgoing(payload) for payload in payloads])


async def _held(receive: Callable[[int], Awaitable[list[Any]]], messages: int) -> list[Any]:
    held: list[Any] = []
    while len(held) < messages:
        held += await receive(min(AT_ONCE, messages - len(held)))
    return held


# -- what is measured --------------------------------------------------------------------------------------------------


def _steps(competitor: Competitor, way: str) -> Mapping[str, Step]:
    """Return the steps of a work: send all messages, hold all of them, complete all of them."""
    held: list[Any] = []

    async def hold(messages: int) -> None:
        held[:] = await competitor.hold(messages)

    async def complete(_: int) -> None:
        given, held[:] = iter(list(held)), []
        if way == TASKS:
            await _in_tasks(competitor.complete, given)
        else:
            await asyncio.gather(*[_one_after_the_other(competitor.complete, given) for _ in range(AT_ONCE)])

    send = _sent_in_tasks(competitor.send) if way == TASKS else sent_by_callers(competitor.send)
    return {SEND: send, "hold": hold, COMPLETE: complete}


def _sent_in_tasks(send: Callable[[], Awaitable[object]]) -> Step:
    async def run(messages: int) -> None:
        await _in_tasks(lambda _: send(), range(messages))

    return run


async def _in_tasks(do: Callable[[Any], Awaitable[object]], given: Iterable[Any]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> None:
        try:
            await do(item)
        finally:
            slots.release()

    async with asyncio.TaskGroup() as tasks:
        for item in given:
            await slots.acquire()
            tasks.create_task(one(item))


async def _one_after_the_other(do: Callable[[Any], Awaitable[object]], given: Iterable[Any]) -> None:
    for item in given:
        await do(item)


@dataclass(frozen=True)
class Options:
    """The numbers of messages and rounds of the measurement."""

    messages: int
    rounds: int
    body: bytes


@dataclass(frozen=True)
class Peers:
    """The servers of a run."""

    server: LocalServer
    cluster: LocalCluster
    nats: NatsServer | None


Found = Mapping[str, Mapping[str, Medians]]


async def run_all(loop: str, peers: Peers, options: Options) -> Found:
    """Measure all works in alternating rounds."""
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(Redis(host=peers.server.host, port=peers.server.port))
        nodes = [
            await stack.enter_async_context(Redis(host=each.host, port=each.port)) for each in peers.cluster.masters
        ]
        nats: Any = None
        if peers.nats is not None:
            nats = (await stack.enter_async_context(connected(peers.nats))).jetstream()
        clients: dict[str, ServiceBusClient] = {}
        for url in (peers.server.url, peers.cluster.url):
            clients[url] = await stack.enter_async_context(ServiceBusClient(url))
        client = clients[peers.server.url]

        async def queue(name: str, url: str, *, partitioned: bool = False) -> SbredisQueue:
            made = SbredisQueue(clients[url], f"{loop}-{name}", options.body, prefetched=PREFETCHED)
            return await made.create(partitioned=partitioned)

        works: list[Work] = []
        for place, way in enumerate((TASKS, CALLERS)):
            ours = Ours(await queue(f"ours-{place}", peers.server.url))
            below = await queue(f"floor-{place}", peers.server.url)
            floor = await Floor(below, options.body).open(client, f"{loop}-floor-{place}", peers.server, redis)
            competitors: dict[str, Competitor] = {SBREDIS: ours, FLOOR: floor}
            if nats is not None:
                competitors[NATS] = JetStream(await JetStreamQueue(nats, f"{loop}-nats-{place}", options.body).create())
            works += [
                Work(f"{way}: {who}", _steps(competitor, way), used_by(redis))
                for who, competitor in competitors.items()
            ]
        for name, url, partitioned in (
            (ONE, peers.server.url, False),
            (SIXTEEN, peers.server.url, True),
            (CLUSTER, peers.cluster.url, True),
        ):
            servers = nodes if name == CLUSTER else [redis]
            whole = with_tasks(await queue(name.replace(" ", "-"), url, partitioned=partitioned), BACKLOG)
            works.append(Work(name, whole, used_by(*servers)))
        return await alternate(works, options.messages, options.rounds)


ONE, SIXTEEN, CLUSTER = "one partition", f"{PARTITIONS} partitions", f"{PARTITIONS} partitions on {MASTERS} masters"


async def run_blocking(peers: Peers, options: Options) -> Found:
    """Measure the sends of the client for code without an event loop."""
    with BlockingClient(peers.server.url) as client, ThreadPoolExecutor(THREADS) as threads:
        loop = asyncio.get_running_loop()
        client.ensure_queue("blocking")
        sender = client.get_queue_sender("blocking")

        def send(messages: int) -> None:
            for _ in range(messages):
                sender.send_messages(ServiceBusMessage(options.body))

        async def alone(messages: int) -> None:
            send(messages)

        async def together(messages: int) -> None:
            share = [messages // THREADS] * THREADS
            await asyncio.gather(*[loop.run_in_executor(threads, send, count) for count in share])

        async with Redis(host=peers.server.host, port=peers.server.port) as redis:
            used = used_by(redis)
            works = [Work("one thread", {SEND: alone}, used), Work(f"{THREADS} threads", {SEND: together}, used)]
            return await alternate(works, options.messages // 2, options.rounds)


# -- printing ----------------------------------------------------------------------------------------------------------


def table(found: Found, step_names: Sequence[str]) -> list[str]:
    """Return the processor time of the client and the speed of each work."""
    lines = [f"{'':<{WIDTH}}" + "".join(f"{name or 'all':>24}" for name in step_names)]
    for name, steps in found.items():
        cells = [steps.get(step) for step in step_names]
        lines.append(f"  {name:<{WIDTH - 2}}" + "".join(map(_cell, cells)))
    return lines


def _cell(one: Medians | None) -> str:
    return f"{'':>24}" if one is None else f"{one.client:>10.1f} µs{one.per_second:>9,.0f}/s"


def verdicts(loop: str, found: Found) -> list[str]:
    """Return the goals as lines of text."""
    lines = [f"goals, {loop}"]
    for step, most in ((SEND, DEAREST_SEND), (COMPLETE, DEAREST_COMPLETION)):
        ours, floor = (found[f"{TASKS}: {who}"][step].client for who in (SBREDIS, FLOOR))
        lines.append(f"  {step} in a task: {ours:.1f} µs (the floor {floor:.1f}); goal ≤ {most} µs on uvloop")
    for name in (SIXTEEN, CLUSTER):
        share = found[name][ALL].per_second / found[ONE][ALL].per_second
        lines.append(f"  {name}: {share:.2f} x {ONE}; goal ≥ {SHARE_OF_ONE}")
    return lines


# -- the program -------------------------------------------------------------------------------------------------------


def on_loop(name: str, main: Callable[[], Any]) -> Any:
    """Run on an event loop of asyncio or of uvloop."""
    if name == "uvloop":
        import uvloop

        return uvloop.run(main())
    return asyncio.run(main())


def main() -> None:
    """Start the servers, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--messages", type=int, help="messages for each work (1,000)")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are printed (15)")
    parser.add_argument("--body", type=int, default=100, help="bytes of each message's body (100)")
    parser.add_argument(
        "--short", action="store_true", help="a short run, to see that it works; its figures mean nothing"
    )
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    parser.add_argument("--nats", type=Path, default=FOLDER, help="where tools/nats has installed NATS")
    given = parser.parse_args()
    messages, rounds = (100, 1) if given.short else (MOST_HELD, 15)
    options = Options(given.messages or messages, given.rounds or rounds, b"x" * given.body)
    if not AT_ONCE <= options.messages <= MOST_HELD or options.rounds < 1 or given.body < 0:
        parser.error(f"--messages must be from {AT_ONCE} to {MOST_HELD}, --rounds 1 at least, and --body 0")
    with ExitStack() as stack:
        server = stack.enter_context(LocalServer(binary=given.server, config=CONFIG))
        cluster = stack.enter_context(LocalCluster(MASTERS, 0, binary=given.server, config=CONFIG))
        nats, about_nats = start_nats(given.nats, stack)
        peers = Peers(server, cluster, nats)
        print(
            f"{find_server(given.server)}\nPython {sys.version.split()[0]}\n{about_nats}\n"
            f"{options.messages:,} messages of {given.body:,} B each time; medians, rounds: {options.rounds}; "
            "processor time of the client, and speed\n"
            "The floor packs no message and keeps no promise. NATS does not answer acknowledgements.",
            flush=True,
        )
        for loop in ("asyncio", "uvloop") if has("uvloop") else ("asyncio",):
            found = on_loop(loop, partial(run_all, loop, peers, options))
            print(f"\n{loop}", *table(found, (SEND, COMPLETE, ALL)), "", *verdicts(loop, found), sep="\n", flush=True)
        found = asyncio.run(run_blocking(peers, options))
        print("\nthe client for code without an event loop", *table(found, (SEND,)), sep="\n", flush=True)
    if given.short:
        print("A short run: its figures show only that it works.")


if __name__ == "__main__":
    run_as_program(main)
