"""Pieces of work that are measured side by side: in turns, step by step, with the processor time of both sides; and
single trips, one after the other.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sbredis.aio import ServiceBusReceiver, ServiceBusSender
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = [
    "ALL",
    "AT_ONCE",
    "CONFIG",
    "PATIENCE",
    "Cost",
    "Idle",
    "Make",
    "Medians",
    "Step",
    "Work",
    "alternate",
    "batches",
    "each_by_itself",
    "figures",
    "has",
    "in_batches",
    "measure_idle",
    "measure_ping",
    "received",
    "repeat",
    "spread",
    "tell_idle",
]

AT_ONCE = 100
"""How many messages make a batch; and how many sends, or handlers, are under way at the same time."""
PATIENCE = 10.0
"""A message that has not come after so many seconds is lost, and the run with it."""
PAUSE = 0.001
"""Before each single trip: enough for the receiver to wait again. Much longer, and what is measured is how long
the machine takes to wake up: the bare command beside it shows that.
"""
ALL = ""
"""A piece of work with all its steps."""
CONFIG = {"appendonly": "yes", "appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}
"""Of the servers. Their files are not rewritten meanwhile: that would fall on whoever is measured then."""

Step = Callable[[int], Awaitable[None]]
"""Does something with so many messages."""
Make = Callable[[], ServiceBusMessage]
"""Makes a message to be sent."""


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
    """A trip when there is nothing else to do, in ms."""

    median: float
    slow: float
    """One in a hundred takes longer."""


# -- what is done with messages ----------------------------------------------------------------------------------------


def in_batches(sender: ServiceBusSender, receiver: ServiceBusReceiver, make: Make) -> Step:
    """Send a list, receive as many at once, and complete all of them."""

    async def run(messages: int) -> None:
        for count in batches(messages):
            await sender.send_messages([make() for _ in range(count)])
            await receiver.complete_messages(await received(receiver, count))

    return run


def each_by_itself(sender: ServiceBusSender, receiver: ServiceBusReceiver, make: Make) -> Mapping[str, Step]:
    """Each send awaited; then each message handled and completed by itself."""
    size = len(make().body)

    async def send(messages: int) -> None:
        numbers = iter(range(messages))

        async def caller() -> None:
            for _ in numbers:
                await sender.send_messages(make())

        await asyncio.gather(*[caller() for _ in range(AT_ONCE)])

    async def handle(message: ServiceBusReceivedMessage) -> None:
        assert len(message.body) == size
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


async def alternate(works: Sequence[Work], messages: int, rounds: int) -> dict[str, dict[str, Medians]]:
    """Do each work once a round, after a shorter round that does not count; the medians, of each step and of all."""
    costs: dict[str, dict[str, list[Cost]]] = {work.name: {} for work in works}
    for number in range(rounds + 1):
        count = messages if number else max(1, messages // 10)
        for work in works:
            taken = {name: await measure(step, count, work.servers) for name, step in work.steps.items()}
            if number:
                taken[ALL] = sum(taken.values(), Cost(0, 0, 0))
                for name, cost in taken.items():
                    costs[work.name].setdefault(name, []).append(cost)
    return {name: {step: medians(each, messages) for step, each in steps.items()} for name, steps in costs.items()}


def medians(costs: Sequence[Cost], messages: int) -> Medians:
    """What a message takes, by what so many took in each round."""
    return Medians(
        statistics.median(messages / cost.wall for cost in costs),
        statistics.median(cost.client / messages * 1e6 for cost in costs),
        statistics.median(cost.server / messages * 1e6 for cost in costs),
    )


async def measure_idle(sender: ServiceBusSender, receiver: ServiceBusReceiver, make: Make, trips: int) -> Idle:
    """From sending to the start of the handler: the next message is sent when the one before was handled and the
    receiver waits again.
    """
    starts: asyncio.Queue[float] = asyncio.Queue()

    async def handle() -> None:
        async for message in receiver:
            started = time.perf_counter()
            await receiver.complete_message(message)
            starts.put_nowait(started)

    async def trip() -> float:
        sent = time.perf_counter()
        await sender.send_messages(make())
        async with asyncio.timeout(PATIENCE):
            return await starts.get() - sent

    handler = asyncio.create_task(handle())
    idle = await repeat(trip, trips)
    handler.cancel()
    with suppress(asyncio.CancelledError):
        await handler
    return idle


async def measure_ping(client: Redis, trips: int) -> Idle:
    """What the least command takes at the same pace. A message takes two at least: it wakes the receiver, who asks."""

    async def ping() -> float:
        sent = time.perf_counter()
        await client.echo("")
        return time.perf_counter() - sent

    return await repeat(ping, trips)


async def repeat(trip: Callable[[], Awaitable[float]], trips: int) -> Idle:
    """One trip after the other, with a pause before each; the first few do not count."""
    taken: list[float] = []
    for _ in range(trips + 10):
        await asyncio.sleep(PAUSE)
        taken.append(await trip() * 1e3)
    return spread(taken[10:])


def spread(taken: Sequence[float]) -> Idle:
    """What is usual, and what is slow, of times in ms."""
    ordered = sorted(taken)
    return Idle(statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1])


# -- telling -----------------------------------------------------------------------------------------------------------


def figures(measured: Medians) -> str:
    """Speed, and processor time on both sides, in columns."""
    return f"{measured.per_second:>10,.0f}{measured.client:>10.1f} µs{measured.server:>10.1f} µs"


def tell_idle(idle: Idle) -> str:
    """What trips took."""
    return f"p50 {idle.median:.2f} ms   p99 {idle.slow:.2f} ms"


def has(module: str) -> bool:
    """Whether a module is installed."""
    return importlib.util.find_spec(module) is not None
