"""Pieces of work that are measured one after the other, step by step, with the processor time of both sides; and trips
of messages.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

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
    "handled_in_groups",
    "has",
    "in_batches",
    "measure_idle",
    "received",
    "repeat",
    "sent_by_callers",
    "spread",
    "tell_idle",
    "times_of",
    "used_by",
]

T = TypeVar("T")

AT_ONCE = 100
"""The number of messages in a batch. No more than this number of sends or handlers are under way at the same time."""
PATIENCE = 10.0
"""A message that has not come after this many seconds is lost, and the run fails."""
PAUSE = 0.001
"""The seconds before each trip of a single message: enough for the receiver to wait again. After a much longer pause,
the trip would include the time that the machine takes to wake up. The trip of a command without a message shows how
much of a trip is wake-up time.
"""
ALL = ""
"""A piece of work with all its steps."""
CONFIG = {"appendonly": "yes", "appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}
"""The configuration of the servers.

They do not rewrite their files, because the time for this would be counted for only one competitor.
"""

Step = Callable[[int], Awaitable[None]]
"""A function that does a step with a number of messages."""
Make = Callable[[], ServiceBusMessage]
"""A function that makes a message to send."""
ProcessorTime = Callable[[], Awaitable[float]]
"""A function that returns the seconds of processor time that servers have used."""


@dataclass(frozen=True)
class Work:
    """A piece of work to measure. All messages go through its steps, one step after the other."""

    name: str
    steps: Mapping[str, Step]
    server: ProcessorTime
    """The processor time of the servers that this work uses."""


@dataclass(frozen=True)
class Cost:
    """The seconds that a number of messages took."""

    wall: float
    client: float
    """Processor time of this process."""
    server: float
    """Processor time of the servers."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.client + other.client, self.server + other.server)


@dataclass(frozen=True)
class Medians:
    """The cost of one message, from the medians of all rounds."""

    per_second: float
    client: float
    """Processor time of this process, in µs a message."""
    server: float
    """Processor time of the servers, in µs a message."""


@dataclass(frozen=True)
class Idle:
    """The time of a trip without other work, in ms."""

    median: float
    slow: float
    """The 99th percentile: one trip in a hundred takes longer."""


# -- steps with messages -----------------------------------------------------------------------------------------------


def in_batches(sender: ServiceBusSender, receiver: ServiceBusReceiver, make: Make) -> Step:
    """Return a step that sends a list, receives the same number of messages, and completes all of them."""

    async def run(messages: int) -> None:
        for count in batches(messages):
            await sender.send_messages([make() for _ in range(count)])
            await receiver.complete_messages(await received(receiver, count))

    return run


def each_by_itself(sender: ServiceBusSender, receiver: ServiceBusReceiver, make: Make) -> Mapping[str, Step]:
    """Await each send; then handle and complete each message by itself."""
    size = len(make().body)

    async def handle(message: ServiceBusReceivedMessage) -> None:
        assert len(message.body) == size
        await receiver.complete_message(message)

    return {
        "send": sent_by_callers(lambda: sender.send_messages(make())),
        "receive, complete": handled_in_groups(lambda count: receiver.receive_messages(count, PATIENCE), handle),
    }


def sent_by_callers(send: Callable[[], Awaitable[object]]) -> Step:
    """Return a step in which concurrent callers send the messages. Each caller makes one call after the other."""

    async def run(messages: int) -> None:
        numbers = iter(range(messages))

        async def caller() -> None:
            for _ in numbers:
                await send()

        await asyncio.gather(*[caller() for _ in range(min(AT_ONCE, messages))])

    return run


def handled_in_groups(
    receive: Callable[[int], Awaitable[list[T]]], handle: Callable[[T], Coroutine[Any, Any, None]]
) -> Step:
    """Return a step that receives up to a hundred messages at a time, and handles these concurrently."""

    async def run(messages: int) -> None:
        while messages:
            given = await receive(min(AT_ONCE, messages))
            assert given, f"{messages:,} messages did not come"
            await asyncio.gather(*[handle(each) for each in given])
            messages -= len(given)

    return run


def batches(messages: int) -> list[int]:
    """Return the number of messages in each batch."""
    rest = messages % AT_ONCE
    return [AT_ONCE] * (messages // AT_ONCE) + ([rest] if rest else [])


async def received(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive this number of messages. Make as many calls as necessary."""
    messages = await receiver.receive_messages(count, PATIENCE)
    while len(messages) < count:
        more = await receiver.receive_messages(count - len(messages), PATIENCE)
        assert more, f"{count - len(messages)} messages did not come"
        messages += more
    return messages


# -- measuring ---------------------------------------------------------------------------------------------------------


def used_by(*servers: Redis) -> ProcessorTime:
    """Return a function that returns the processor time of Redis or Valkey servers."""

    async def seconds() -> float:
        infos: list[dict[str, float]] = [await server.info("cpu") for server in servers]
        return sum(info["used_cpu_user"] + info["used_cpu_sys"] for info in infos)

    return seconds


async def measure(step: Step, messages: int, server: ProcessorTime) -> Cost:
    """Return the cost of one step."""
    before = await server()
    wall, client = time.perf_counter(), time.process_time()
    await step(messages)
    wall, client = time.perf_counter() - wall, time.process_time() - client
    return Cost(wall, client, await server() - before)


async def alternate(works: Sequence[Work], messages: int, rounds: int) -> dict[str, dict[str, Medians]]:
    """Do each work once in each round, after a shorter round that does not count. Return the medians of all steps."""
    costs: dict[str, dict[str, list[Cost]]] = {work.name: {} for work in works}
    for number in range(rounds + 1):
        count = messages if number else max(1, messages // 10)
        for work in works:
            taken = {name: await measure(step, count, work.server) for name, step in work.steps.items()}
            if number:
                taken[ALL] = sum(taken.values(), Cost(0, 0, 0))
                for name, cost in taken.items():
                    costs[work.name].setdefault(name, []).append(cost)
    return {name: {step: medians(each, messages) for step, each in steps.items()} for name, steps in costs.items()}


def medians(costs: Sequence[Cost], messages: int) -> Medians:
    """Return the cost of a message from the cost of a number of messages in each round."""
    return Medians(
        statistics.median(messages / cost.wall for cost in costs),
        statistics.median(cost.client / messages * 1e6 for cost in costs),
        statistics.median(cost.server / messages * 1e6 for cost in costs),
    )


async def measure_idle(sender: ServiceBusSender, receiver: ServiceBusReceiver, make: Make, trips: int) -> Idle:
    """Measure the time from sending a message to the start of its handler.

    The next message is sent when the previous message was handled and the receiver waits again.
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


async def repeat(trip: Callable[[], Awaitable[float]], trips: int) -> Idle:
    """Make one trip after the other, with a pause before each. The first few do not count."""
    return spread(await times_of(trip, trips))


async def times_of(trip: Callable[[], Awaitable[float]], trips: int, pause: float = PAUSE) -> list[float]:
    """Return the times of trips in ms, one after the other, with a pause before each. The first few do not count."""
    taken: list[float] = []
    for _ in range(trips + 10):
        await asyncio.sleep(pause)
        taken.append(await trip() * 1e3)
    return taken[10:]


def spread(taken: Sequence[float]) -> Idle:
    """Return the median and the 99th percentile of times in ms."""
    ordered = sorted(taken)
    return Idle(statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1])


# -- printing ----------------------------------------------------------------------------------------------------------


def figures(measured: Medians) -> str:
    """Return the speed, and the processor time on both sides, in columns."""
    return f"{measured.per_second:>10,.0f}{measured.client:>10.1f} µs{measured.server:>10.1f} µs"


def tell_idle(idle: Idle) -> str:
    """Return the times of trips as text."""
    return f"p50 {idle.median:.2f} ms   p99 {idle.slow:.2f} ms"


def has(module: str) -> bool:
    """Whether a module is installed."""
    return importlib.util.find_spec(module) is not None
