"""Growth: many clients, queues, idle topics, moves, workers, subscriptions, sessions, partitions and due messages.

python -m benchmarks.growth [--part NAME]... [--queues N,N] [--save FILE] [--beside FILE] [--short] [--serially]
    [--server NAME]

Each part has servers of its own and prints its figures, with a goal where there is one. The last figures of a part are
the longest call on its servers, which answer nothing else meanwhile, the number of calls of more than 10 ms, and how
much of their time the servers waited for a processor. On a busy machine, which the last of these figures shows, the
times of calls also contain those in which another program had the processor. So ``--serially`` makes one call at a time
and shows the processor time of the longest calls of this process; the other figures then mean nothing. With ``--save``
the figures are also written to a file, and with ``--beside`` those of such a file, perhaps of another release, are
printed beside the new ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from redis.asyncio import Redis

from benchmarks.growth_calls import CallTimes, serially
from benchmarks.growth_holder import Holder
from benchmarks.process_tree import times_of_processes
from benchmarks.rounds import run_as_program
from benchmarks.works import CONFIG, PATIENCE, batches, each_by_itself, measure_idle, used_by
from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import ServiceBusError
from sbredis.management import CorrelationRuleFilter, RuleProperties
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalCluster, LocalServer, find_server

__all__ = ["PARTS", "Figure", "Sizes", "line_of"]

MOST_CALL = 10.0
"""The most milliseconds that a call may take on a server."""
AT_ONCE = 100
CALM = 10
"""The scripts in a second at which clients are at rest."""
LONG = 600.0
"""A message that has not come after this many seconds is lost, and the part fails."""
SLOW_LOG = {"slowlog-log-slower-than": "2000", "slowlog-max-len": "20000"}
OWN_COMMANDS = {"CONFIG", "INFO", "SLOWLOG", "FUNCTION", "PSYNC", "CLUSTER"}
"""Commands that no operation of sbredis causes: those of this program and of servers, and the loading of a library."""
BODY = b"x" * 200


class Figure(NamedTuple):
    """A measured figure, and its goal if it has one."""

    what: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = False
    """Whether the goal is the smallest value, and not the largest."""

    @property
    def verdict(self) -> str:
        """The goal, and whether it was met."""
        if self.goal is None:
            return ""
        met = self.value >= self.goal if self.at_least else self.value <= self.goal
        return f"goal {'≥' if self.at_least else '≤'} {self.goal:,g}: {'met' if met else 'MISSED'}"


@dataclass(frozen=True)
class Sizes:
    """How much there is of everything."""

    clients: int = 500
    queues: tuple[int, ...] = (20_000, 100_000)
    topics: int = 1000
    topic_partitions: int = 16
    seconds: float = 10.0
    """The seconds for which an idle process is watched."""
    sources: int = 1000
    workers: int = 400
    subscriptions: int = 1000
    sessions: int = 1_000_000
    partitions: tuple[int, ...] = (1, 16, 64, 256)
    expiring: int = 100_000
    scheduled: int = 300_000
    messages: int = 10_000
    trips: int = 50


SHORT = Sizes(
    clients=10, queues=(200,), topics=10, topic_partitions=4, seconds=0.5, sources=50, workers=10, subscriptions=20,
    sessions=500, partitions=(1, 16), expiring=300, scheduled=300, messages=200, trips=5,
)  # fmt: skip


class Bench:
    """One server for one part, with a client for everything."""

    def __init__(self, url: str, nodes: Iterable[LocalServer]) -> None:
        self.url = url
        self._nodes = list(nodes)
        self.pids = [node.pid for node in self._nodes]
        self.redis: list[Redis] = []
        self.admin: ServiceBusAdministrationClient
        self.client: ServiceBusClient
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        enter = self._stack.enter_async_context
        self.redis = [await enter(Redis(host=node.host, port=node.port)) for node in self._nodes]
        self.admin = await enter(ServiceBusAdministrationClient(self.url, timeout=LONG))
        self.client = await enter(ServiceBusClient(self.url))
        await self.admin.create_queue("warm")  # the library is loaded now
        for redis in self.redis:
            await redis.slowlog_reset()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def sum_of(self, section: str, *names: str) -> float:
        """Return a sum over numbers of INFO of all servers."""
        infos = [await redis.info(section) for redis in self.redis]
        return sum(float(info[name]) for info in infos for name in names)

    async def memory(self) -> float:
        """Return the bytes of all servers."""
        return await self.sum_of("memory", "used_memory")

    async def scripts(self) -> int:
        """Return the number of scripts that the servers have run."""
        return sum(
            int(each["calls"])
            for info in [await redis.info("commandstats") for redis in self.redis]
            for name, each in info.items()
            if name.removeprefix("cmdstat_") in {"fcall", "fcall_ro", "evalsha", "evalsha_ro"}
        )

    async def server_cpu(self) -> float:
        """Return the processor time of all servers, in seconds."""
        return await used_by(*self.redis)()

    async def long_calls(self) -> list[Figure]:
        """Return the longest call of the part, and the number of calls that took too long, by operation."""
        longest, name, above = 0.0, "none took 2 ms", Counter[str]()
        for redis in self.redis:
            entries: Sequence[Mapping[str, Any]] = await redis.slowlog_get(-1)
            for entry in entries:
                command, _, rest = entry["command"].decode("utf-8", "replace").partition(" ")
                if command.upper() in OWN_COMMANDS:
                    continue
                took, operation = entry["duration"] / 1000, _operation(command, rest)
                longest, name = max((longest, name), (took, operation))
                above[operation] += took > MOST_CALL
        said = ", ".join(f"{each} {count}" for each, count in above.most_common() if count)
        ran, waited = times_of_processes(self.pids)
        return [
            Figure(f"longest call ({name})", longest, "ms", MOST_CALL),
            Figure(f"calls above {MOST_CALL:g} ms ({said or 'none'})", above.total(), "", 0),
            Figure("the servers waited for a processor", 100 * waited / (ran + waited or 1.0), "% of their time"),
        ]

    async def create(self, create: Callable[[int], Awaitable[object]], count: int) -> float:
        """Create things, a hundred at once. Return the number a second."""
        began = time.perf_counter()
        await at_once(create, count)
        return count / (time.perf_counter() - began)

    async def send(self, queue: str, body: bytes = BODY) -> None:
        """Send one message."""
        async with self.client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(body))

    async def count(self, queue: str) -> int:
        """Return the number of active messages of a queue."""
        return (await self.admin.get_queue_runtime_properties(queue)).active_message_count


def _operation(command: str, rest: str) -> str:
    """Return the operation of a call: the end of the name of a function, or the command."""
    return rest.split(maxsplit=1)[0].split("_", 2)[2] if command.upper().startswith("FCALL") else command.lower()


async def at_once(make: Callable[[int], Awaitable[object]], count: int) -> None:
    """Call a function for each number, a hundred at once."""
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await make(number)

    await asyncio.gather(*[caller() for _ in range(min(AT_ONCE, count))])


async def arrival(receiver: ServiceBusReceiver) -> float:
    """Receive and complete a message. Return the time when it came."""
    messages = await receiver.receive_messages(1, LONG)
    assert messages, "a message did not come"
    came = time.perf_counter()
    await receiver.complete_messages(messages)
    return came


# -- the parts ---------------------------------------------------------------------------------------------------------

Part = Callable[[Bench, Sizes], AsyncIterator[Figure]]
Work = Callable[[Part, Bench, Sizes], Coroutine[Any, Any, dict[str, float]]]


async def clients(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Open many clients on a cluster of three masters."""
    connections, scripts = await bench.sum_of("clients", "connected_clients"), await bench.scripts()
    wall, cpu = time.perf_counter(), time.process_time()
    opened = [ServiceBusClient(bench.url) for _ in range(sizes.clients)]
    await at_once(lambda number: opened[number].__aenter__(), sizes.clients)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    made, ran = await bench.sum_of("clients", "connected_clients") - connections, await bench.scripts() - scripts
    yield Figure(f"opening {sizes.clients:,} clients on 3 masters", wall, "s")
    yield Figure("processor time of the process, a client", cpu / sizes.clients * 1000, "ms")
    yield Figure("connections of a client that has only been opened", made / sizes.clients, "", 2)
    yield Figure("scripts, a client", ran / sizes.clients, "")
    await at_once(lambda number: opened[number].close(), sizes.clients)


async def queues(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Create very many queues; a new holder of the roles reads them; then a new queue forwards its first message."""
    (count,) = sizes.queues
    memory, named = await bench.memory(), f"{count:,} queues"
    await bench.admin.create_queue("sink")
    rate = await bench.create(lambda number: bench.admin.create_queue(f"queue-{number}"), count)
    yield Figure(f"{named}: created, {AT_ONCE} at once", rate, "a second")
    yield Figure(f"{named}: memory of a queue", (await bench.memory() - memory) / count, "bytes")
    began = time.perf_counter()
    assert sum([1 async for _ in bench.admin.list_queues()]) == count + 2
    yield Figure(f"{named}: listing all", time.perf_counter() - began, "s")
    await bench.admin.create_queue("zz-source", forward_to="sink")
    await bench.send("zz-source")
    async with Holder(bench.url) as holder, bench.client.get_queue_receiver("sink") as receiver:
        began, cpu = time.perf_counter(), await holder.cpu()
        await holder.begin()
        yield Figure(f"{named}: a new holder moves what waits", await arrival(receiver) - began, "s")
        yield Figure(f"{named}: its processor time for that", await holder.cpu() - cpu, "s")
        yield Figure(f"{named}: its longest turn of the loop", await holder.longest_turn(), "ms", 20)
        yield (await idle_of(holder, sizes.seconds))._replace(what=f"{named}: the holder, idle")
        taken: list[float] = []
        for number in range(5):
            await bench.admin.create_queue(f"new-{number}", forward_to="sink")
            began = time.perf_counter()
            await bench.send(f"new-{number}")
            taken.append((await arrival(receiver) - began) * 1000)
        yield Figure(f"{named}: first message of a new forwarding queue", statistics.median(taken), "ms", 100)


async def idle_of(holder: Holder, seconds: float) -> Figure:
    """Return the part of a core that an idle holder uses, after a while in which it may finish what it has begun."""
    await asyncio.sleep(seconds)
    cpu, began = await holder.cpu(), time.perf_counter()
    await asyncio.sleep(seconds)
    return Figure(
        "the holder, idle", (await holder.cpu() - cpu) / (time.perf_counter() - began) * 100, "% of a core", 2
    )


async def idle(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Watch the holder of the roles beside many idle partitioned topics."""
    named = f"{sizes.topics:,} topics x {sizes.topic_partitions}"
    memory = await bench.memory()

    async def create(number: int) -> None:
        await bench.admin.create_topic(
            f"topic-{number}", enable_partitioning=True, partition_count=sizes.topic_partitions
        )

    yield Figure(f"{named}: created, {AT_ONCE} at once", await bench.create(create, sizes.topics), "a second")
    yield Figure(
        f"{named}: memory of a partition",
        (await bench.memory() - memory) / sizes.topics / sizes.topic_partitions,
        "bytes",
    )
    await bench.admin.create_subscription("topic-0", "all")
    async with (
        Holder(bench.url) as holder,
        bench.client.get_topic_sender("topic-0") as sender,
        bench.client.get_subscription_receiver("topic-0", "all") as receiver,
    ):
        await holder.begin()
        began = time.time()
        await sender.send_messages(
            ServiceBusMessage(BODY, scheduled_enqueue_time_utc=datetime.fromtimestamp(began + 0.5, UTC))
        )
        await arrival(receiver)
        yield Figure(f"{named}: the first scheduled message is late by", time.time() - began - 0.5, "s")
        yield Figure(f"{named}: the longest turn of the holder's loop", await holder.longest_turn(), "ms", 20)
        server, began = await bench.server_cpu(), time.perf_counter()
        found = await idle_of(holder, sizes.seconds)
        yield found._replace(what=f"{named}: the holder, idle")
        used = (await bench.server_cpu() - server) / (time.perf_counter() - began)
        yield Figure(f"{named}: the server meanwhile", used * 100, "% of a core")


async def moves(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Move one message from each of many queues. The process that moves is stopped while the messages are sent."""
    count = sizes.sources
    await bench.admin.create_queue("sink")
    await bench.create(lambda number: bench.admin.create_queue(f"source-{number}", forward_to="sink"), count)
    async with Holder(bench.url) as holder, bench.client.get_queue_receiver("sink") as receiver:
        await holder.begin()
        await bench.send("source-0")
        await arrival(receiver)  # now it is at work
        await at_once(lambda number: bench.send(f"source-{number}"), count)  # the senders know their queues now
        await _until(bench, "sink", count)
        await receiver.purge_messages()
        taken: list[float] = []
        for _ in range(3):
            holder.pause()
            await at_once(lambda number: bench.send(f"source-{number}"), count)
            began = time.perf_counter()
            holder.resume()
            await _until(bench, "sink", count)
            taken.append(time.perf_counter() - began)
            await receiver.purge_messages()
        rate = count / statistics.median(taken)
        yield Figure(f"moves of one message from each of {count:,} queues", rate, "a second", 5000, at_least=True)
        yield Figure("the longest turn of the mover's loop", await holder.longest_turn(), "ms", 20)


async def _until(bench: Bench, queue: str, count: int) -> None:
    async with asyncio.timeout(LONG):
        while await bench.count(queue) < count:  # noqa: ASYNC110 -- a receiver would cost more
            await asyncio.sleep(0.005)


async def roles(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Close the client that holds all roles, while many others would take them."""
    first = ServiceBusClient(bench.url, maintenance=True)
    await first.__aenter__()
    async with asyncio.timeout(LONG):
        while not await bench.admin.has_maintenance():  # noqa: ASYNC110 -- there is no event to wait for
            await asyncio.sleep(0.05)
    others = [ServiceBusClient(bench.url, maintenance=True) for _ in range(sizes.workers)]
    await at_once(lambda number: others[number].__aenter__(), sizes.workers)
    began = time.perf_counter()
    while (usual := await scripts_of_a_second(bench)) > CALM and time.perf_counter() - began < LONG / 10:
        pass
    yield Figure(f"{sizes.workers:,} workers: at rest after", time.perf_counter() - began, "s")
    yield Figure(f"{sizes.workers:,} workers: scripts a second at rest", usual, "")
    closing = asyncio.create_task(first.close())
    ran = await scripts_of_a_second(bench)
    await closing
    yield Figure(f"{sizes.workers:,} workers: scripts in the second after their holder closes", ran, "", 30)
    began = time.perf_counter()
    async with asyncio.timeout(LONG):
        while not await bench.admin.has_maintenance():  # noqa: ASYNC110 -- there is no event to wait for
            await asyncio.sleep(0.01)
    yield Figure("maintenance goes on after one second more", time.perf_counter() - began, "s")
    await at_once(lambda number: others[number].close(), sizes.workers)


async def scripts_of_a_second(bench: Bench) -> int:
    """Return the number of scripts that run in the next second."""
    before = await bench.scripts()
    await asyncio.sleep(1)
    return await bench.scripts() - before


async def topic(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Send to a topic with many subscriptions: to one of them, and to all."""
    count = sizes.subscriptions
    await bench.admin.create_topic("news")
    to_all = RuleProperties("all", filter=CorrelationRuleFilter(label="all"))

    async def create(number: int) -> None:
        to_one = RuleProperties("one", filter=CorrelationRuleFilter(label=str(number)))
        await bench.admin.create_subscription("news", f"s{number}", rules=[to_one, to_all])

    yield Figure(f"{count:,} subscriptions: created, {AT_ONCE} at once", await bench.create(create, count), "a second")
    async with bench.client.get_topic_sender("news") as sender:
        for label, named in (("7", "one of them gets"), ("all", "all of them get")):
            taken: list[float] = []
            cpu = await bench.server_cpu()
            for _ in range(sizes.trips):
                began = time.perf_counter()
                await sender.send_messages(ServiceBusMessage(BODY, subject=label))
                taken.append((time.perf_counter() - began) * 1000)
            cpu = (await bench.server_cpu() - cpu) / sizes.trips * 1000
            yield Figure(f"{count:,} subscriptions: a send that {named}", statistics.median(taken), "ms")
            yield Figure(f"{count:,} subscriptions: its processor time on the server, if {named} it", cpu, "ms")


async def sessions(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Fill a queue with very many sessions, and take some of them."""
    count = sizes.sessions
    await bench.admin.create_queue("sessions", requires_session=True, max_size_in_megabytes=80 * 1024)
    memory, began, at = await bench.memory(), time.perf_counter(), 0
    async with bench.client.get_queue_sender("sessions") as sender:
        for many in batches(count):
            numbers = range(at, at + many)
            await sender.send_messages([ServiceBusMessage(BODY, session_id=f"s{number}") for number in numbers])
            at += many
    yield Figure(f"{count:,} sessions: messages sent", count / (time.perf_counter() - began), "a second")
    each = (await bench.memory() - memory) / count - len(BODY)
    yield Figure(f"{count:,} sessions: memory of one, without the body", each, "bytes")
    taken: list[float] = []
    for _ in range(sizes.trips):
        began = time.perf_counter()
        receiver = await bench.client.accept_next_session("sessions", max_wait_time=PATIENCE)
        assert receiver is not None
        async with receiver:
            await arrival(receiver)
        taken.append((time.perf_counter() - began) * 1000)
    yield Figure(f"{count:,} sessions: accept, complete, release", statistics.median(taken), "ms")


async def partitions(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Use queues of 1 to 256 partitions: the first message of a new receiver, one trip, and many messages."""
    goals, speed = {1: 6.0, 16: 8.0, 256: 15.0}, dict[int, float]()
    for count in sizes.partitions:
        name, named = f"wide-{count}", f"{count} partition{'s' * (count > 1)}"
        await bench.admin.create_queue(
            name, enable_partitioning=count > 1, partition_count=count if count > 1 else None
        )
        async with bench.client.get_queue_sender(name) as sender:
            fresh, known = list[float](), list[float]()
            for _ in range(sizes.trips):
                await sender.send_messages(ServiceBusMessage(BODY))
                began = time.perf_counter()
                async with ServiceBusClient(bench.url) as client, client.get_queue_receiver(name) as receiver:
                    fresh.append((await arrival(receiver) - began) * 1000)
                await sender.send_messages(ServiceBusMessage(BODY))
                began = time.perf_counter()
                async with bench.client.get_queue_receiver(name) as receiver:
                    known.append((await arrival(receiver) - began) * 1000)
            yield Figure(
                f"{named}: the first message of a new client", statistics.median(fresh), "ms", goals.get(count)
            )
            yield Figure(f"{named}: the first message of a new receiver", statistics.median(known), "ms")
            async with bench.client.get_queue_receiver(name) as receiver:
                trip = await measure_idle(sender, receiver, lambda: ServiceBusMessage(BODY), sizes.trips)
                yield Figure(f"{named}: send to start of handler, idle", trip.median, "ms")
                steps = each_by_itself(sender, receiver, lambda: ServiceBusMessage(BODY))
                began, cpu = time.perf_counter(), time.process_time()
                for step in steps.values():
                    await step(sizes.messages)
                cpu = (time.process_time() - cpu) / sizes.messages * 1_000_000
                speed[count] = sizes.messages / (time.perf_counter() - began)
            yield Figure(f"{named}: messages sent and completed, {AT_ONCE} at once", speed[count], "a second")
            yield Figure(f"{named}: the client's processor time for that, a message", cpu, "µs")
    if 1 in speed and 16 in speed:
        yield Figure("16 partitions against one: messages a second", speed[16] / speed[1], "x", 0.95, at_least=True)


async def send_until(
    bench: Bench, queue: str, count: int, pace: int, make: Callable[[datetime], ServiceBusMessage]
) -> float:
    """Send messages that all have something to do at one instant. Wait for it, and return it."""
    instant = time.time() + max(3, count / pace)
    async with bench.client.get_queue_sender(queue) as sender:
        for many in batches(count):
            await sender.send_messages([make(datetime.fromtimestamp(instant, UTC)) for _ in range(many)])
    late = time.time() - instant
    assert late < 0, f"the messages were sent {late:.1f} s too late"
    await asyncio.sleep(-late)
    return instant


async def expiry(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Let very many messages expire at one instant, and become dead letters when the next call comes."""
    count, named = sizes.expiring, f"{sizes.expiring:,} messages expire at once"
    await bench.admin.create_queue("brief", dead_lettering_on_message_expiration=True)

    def make(instant: datetime) -> ServiceBusMessage:
        return ServiceBusMessage(BODY, time_to_live=max(instant - datetime.now(UTC), timedelta(milliseconds=1)))

    await send_until(bench, "brief", count, 5_000, make)
    await asyncio.sleep(1)  # a message lives from the time when the server got it
    began, cpu = time.perf_counter(), await bench.server_cpu()
    async with bench.client.get_queue_receiver("brief") as receiver:
        assert not await receiver.receive_messages(1, 0.1)
        yield Figure(f"{named}: a receiver finds nothing after", (time.perf_counter() - began) * 1000, "ms")
    async with asyncio.timeout(LONG):
        while (await bench.admin.get_queue_runtime_properties("brief")).dead_letter_message_count < count:
            pass
    yield Figure(f"{named}: all are dead letters after", time.perf_counter() - began, "s")
    yield Figure(f"{named}: server time of one", (await bench.server_cpu() - cpu) / count * 1_000_000, "µs")


async def instant(bench: Bench, sizes: Sizes) -> AsyncIterator[Figure]:
    """Schedule very many messages for one instant, and receive them all."""
    count, named = sizes.scheduled, f"{sizes.scheduled:,} scheduled for one instant"
    await bench.admin.create_queue("later", max_size_in_megabytes=80 * 1024)
    due = await send_until(
        bench, "later", count, 10_000, lambda when: ServiceBusMessage(BODY, scheduled_enqueue_time_utc=when)
    )
    async with bench.client.get_queue_receiver("later") as receiver:
        await arrival(receiver)
        yield Figure(f"{named}: the first is late by", (time.time() - due) * 1000, "ms")
        left, began = count - 1, time.perf_counter()
        while left:
            messages = await receiver.receive_messages(AT_ONCE, LONG)
            await receiver.complete_messages(messages)
            left -= len(messages)
        yield Figure(f"{named}: received and completed", count / (time.perf_counter() - began), "a second")


PARTS: Mapping[str, Part] = {
    part.__name__: part for part in (clients, queues, idle, moves, roles, topic, sessions, partitions, expiry, instant)
}


# -- running and printing ----------------------------------------------------------------------------------------------


def line_of(figure: Figure, beside: Mapping[str, float]) -> str:
    """Return a figure as a line of the report, with the figure of another run if there is one."""
    earlier = beside.get(figure.what)
    other = "" if not beside else f"{'-' if earlier is None else _number(earlier):>12}"
    return f"  {figure.what:<66}{other}{_number(figure.value):>12} {figure.unit:<12}{figure.verdict}".rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


async def timed(part: Part, bench: Bench, sizes: Sizes) -> dict[str, float]:
    """Run a part with one call at a time. Print the longest calls by the processor time of the server; return them."""
    times = CallTimes()
    async with bench:
        with serially(bench.pids, times):  # the library of functions is loaded
            async for _ in part(bench, sizes):
                pass
    found = {f"{part.__name__}: longest call of {name}": longest for name, longest in times.longest().items()}
    for name, longest in found.items():
        print(line_of(Figure(name, longest, "ms", MOST_CALL), {}), flush=True)
    return found


async def measured(part: Part, bench: Bench, sizes: Sizes, beside: Mapping[str, float]) -> dict[str, float]:
    """Run a part, and print its figures. Return them."""
    found: dict[str, float] = {}
    async with bench:
        async for figure in part(bench, sizes):
            found[figure.what] = figure.value
            print(line_of(figure, beside), flush=True)
        for figure in await bench.long_calls():
            name = f"{part.__name__}: {figure.what}"
            found[name] = figure.value
            print(line_of(figure._replace(what=name), beside), flush=True)
    return found


def run(name: str, sizes: Sizes, binary: str | None, work: Work) -> dict[str, float]:
    """Start servers for a part, and run it."""
    config = CONFIG | SLOW_LOG
    if name == "clients":
        with LocalCluster(3, binary=binary, config=config) as cluster:
            return asyncio.run(work(PARTS[name], Bench(cluster.url, cluster.nodes), sizes))
    with LocalServer(binary=binary, config=config) as server:
        return asyncio.run(work(PARTS[name], Bench(server.url, [server]), sizes))


def numbers(text: str) -> tuple[int, ...]:
    """Read numbers with commas between them."""
    found = tuple(int(each) for each in text.split(","))
    if min(found) < 1:
        raise ValueError
    return found


def main() -> None:
    """Run the parts, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; repeatable")
    for name, what in (
        ("queues", "numbers of queues (20000,100000)"),
        ("partitions", "numbers of partitions (1,16,64,256)"),
    ):
        parser.add_argument(f"--{name}", type=numbers, metavar="N,N", help=what)
    for name, what in (
        ("clients", "clients that are opened (500)"),
        ("topics", "idle topics (1,000)"),
        ("sources", "queues whose messages are moved (1,000)"),
        ("workers", "workers beside the one that closes (400)"),
        ("subscriptions", "subscriptions of the topic (1,000)"),
        ("sessions", "sessions (1,000,000)"),
        ("expiring", "messages that expire at one instant (100,000)"),
        ("scheduled", "messages that are scheduled for one instant (300,000)"),
        ("messages", "messages through each partitioned queue (10,000)"),
        ("trips", "single messages whose times are measured (50)"),
    ):
        parser.add_argument(f"--{name}", type=lambda text: numbers(text)[0], metavar="N", help=what)
    parser.add_argument("--seconds", type=float, help="how long an idle process is watched (10)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures to this file too")
    parser.add_argument("--beside", type=Path, metavar="FILE", help="show the figures of this file beside the new ones")
    parser.add_argument(
        "--short", action="store_true", help="a short run, to see that it works; its figures mean nothing"
    )
    parser.add_argument(
        "--serially", action="store_true", help="make one call at a time, and show the processor time of the longest"
    )
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = vars(parser.parse_args())
    sizes = replace(
        SHORT if given["short"] else Sizes(),
        **{name: given[name] for name in vars(Sizes()) if given.get(name) is not None},
    )
    beside: Mapping[str, float] = json.loads(given["beside"].read_text()) if given["beside"] else {}
    work: Work = timed if given["serially"] else partial(measured, beside=beside)
    logging.getLogger("sbredis").setLevel(logging.ERROR)  # no warning: messages wait for a mover on purpose
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{find_server(given['server'])}; Python {sys.version.split()[0]}; load average at the start: {load}")
    if beside:
        print(f"  {'':<66}{'earlier':>12}{'now':>12}")
    found: dict[str, float] = {}
    failed = False
    for name in given["part"] or PARTS:
        for each in [replace(sizes, queues=(count,)) for count in sizes.queues] if name == "queues" else [sizes]:
            try:
                found |= run(name, each, given["server"], work)
            except (ServiceBusError, TimeoutError, AssertionError) as error:
                failed = True
                print(f"  {name}: FAILED, {type(error).__name__}: {error}", flush=True)
    if given["save"]:
        given["save"].write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if given["short"]:
        print("A short run: its figures show only that it works.")
    sys.exit(failed)


if __name__ == "__main__":
    run_as_program(main)
