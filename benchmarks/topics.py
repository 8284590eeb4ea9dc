"""Topics: the cost of a send to many subscriptions for the server and the wire, and the client's speed beside a queue.

python -m benchmarks.topics [--messages N] [--rounds N] [--body BYTES] [--short] [--server NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from benchmarks.engine_calls import CALLS, Engine, server_time
from benchmarks.rounds import run_as_program
from benchmarks.rules import COMPLEX, duration
from benchmarks.works import (
    ALL,
    AT_ONCE,
    CONFIG,
    PATIENCE,
    Idle,
    Medians,
    Step,
    Work,
    alternate,
    each_by_itself,
    figures,
    measure_idle,
    repeat,
    tell_idle,
    used_by,
)
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import Copy, Outgoing, Partition, PartitionSettings
from sbredis.management import RuleProperties, SqlRuleFilter
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.rules import Filter, MessageView, Rule, RuleBook, SqlFilter, TrueFilter
from sbredis.servers import LocalServer, find_server

__all__ = ["verdicts"]

QUEUE = "a queue"
FANS = (1, 10, 100)
WIDE, TAKERS = 2_000, 20
"""The largest number of subscriptions that Azure permits for a topic, and the number of these that take a message."""
MOST_WIDE = 10.0
"""The largest number of ms for a send to the widest topic."""
COPIES = 4_000
"""The largest number of copies that one call of the client makes."""
LARGE = PartitionSettings(quota=10**14)


# -- measuring the engine ----------------------------------------------------------------------------------------------


class Fan:
    """A topic of one partition, with a number of subscriptions that take everything."""

    def __init__(self, client: Redis, width: int) -> None:
        self._client = client
        self._topic = Engine(client, f"t{width}", replace(LARGE, topic=True))
        self._targets = [
            Partition("bench", "abc", f"s{width}-{place}", "incarnation", 1, replace(LARGE, shared=True), f"t{width}")
            for place in range(width)
        ]
        for target in self._targets:
            self._topic.ask(target.configure(create=True))

    def publish(self, body: bytes, count: int = 1) -> None:
        """Send a number of messages in one call."""
        routes = [[Copy(place) for place in range(len(self._targets))]] * count
        topic = self._topic
        topic.ask(topic.partition.publish(topic.call_id(), [Outgoing(body)] * count, routes, self._targets))

    def weight(self) -> tuple[int, int]:
        """Return the bytes of all keys, and of the keys that hold bodies."""
        bodies = set(self._topic.partition.keys[10:26])
        keys = {key for each in (self._topic.partition, *self._targets) for key in each.keys}
        asking = self._client.pipeline(transaction=False)
        for key in keys:
            asking.memory_usage(key, samples=0)
        weights = dict(zip(keys, (weight or 0 for weight in asking.execute()), strict=True))
        return sum(weights.values()), sum(weight for key, weight in weights.items() if key in bodies)


@dataclass(frozen=True)
class Call:
    """The average cost of a call."""

    scripts: float
    """The number of scripts that it runs."""
    wire: float
    """The bytes that are sent to the server."""
    milliseconds: float
    """The server's time."""


def cost_of(client: Redis, call: Callable[[], None], calls: int) -> Call:
    """Make a call a number of times, after a first call that does not count. Return the average cost."""
    call()
    client.config_resetstat()
    before: Any = client.info("stats")
    for _ in range(calls):
        call()
    after: Any = client.info("stats")
    told: Any = client.info("commandstats")
    done = sum(told[name]["calls"] for name in CALLS if name in told)
    wire = after["total_net_input_bytes"] - before["total_net_input_bytes"]
    return Call(done / calls, wire / calls, server_time(client) / calls)


def spread_out(client: Redis, body: bytes, messages: int) -> Iterator[str]:
    """Print the cost of one message to 1, 10 and 100 subscriptions."""
    yield f"one message to all subscriptions of a topic, {len(body):,} B"
    heads = ("bodies stored", "a copy beside", "scripts", "on the wire", "server a send", "a copy in calls of many")
    yield f"  {'':<20}" + "".join(f"{head:>{max(15, len(head) + 2)}}" for head in heads)
    for width in FANS:
        fan = Fan(client, width)
        together = min(AT_ONCE, COPIES // width)
        fan.publish(body)  # the first message also makes the keys
        before = fan.weight()
        for _ in range(messages):
            fan.publish(body)
        after = fan.weight()
        copy = (after[0] - before[0]) / messages - len(body)
        stored = (after[1] - before[1]) / messages / len(body)
        one = cost_of(client, lambda: fan.publish(body), messages)  # noqa: B023 -- called at once
        many = cost_of(client, lambda: fan.publish(body, together), max(3, messages // together))  # noqa: B023 -- called at once
        told = f"{width} subscription{'s' * (width > 1)}"
        yield (
            f"  {told:<20}{stored:>12.2f} x {copy / width:>12.0f} B {one.scripts:>14.0f}"
            f"{one.wire:>13,.0f} B {one.milliseconds * 1000:>11,.0f} µs"
            f"{many.milliseconds / together / width * 1000:>22.1f} µs"
        )


def reach_out(client: Redis, body: bytes, calls: int, wide: int) -> tuple[dict[int, Call], list[str]]:
    """Measure a send that few subscriptions take, and a send that many subscriptions take.

    The call does not name subscriptions that do not take the message.
    """
    costs: dict[int, Call] = {}
    for width in (TAKERS, wide):
        fan = Fan(client, width)
        costs[width] = cost_of(client, lambda: fan.publish(body), calls)  # noqa: B023 -- called at once
    lines = [f"one message to some of the {wide:,} subscriptions of a topic, {len(body):,} B"]
    lines += [
        f"  {f'{width:,} of them take it':<24}{cost.wire:>12,.0f} B on the wire"
        f"{cost.milliseconds:>10.2f} ms of the server"
        for width, cost in costs.items()
    ]
    return costs, lines


# -- measuring the client ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A topic: its number of subscriptions, its filters, and whether each message goes to all or to one."""

    name: str
    width: int
    filters: Sequence[Filter]
    fan: int
    """The number of subscriptions that take a message."""


def all_of(width: int) -> str:
    """Return the name of a topic whose subscriptions all take everything."""
    return f"{width} that take{'s' * (width == 1)} all"


def shapes(widths: Sequence[int]) -> list[Shape]:
    """Return the topics to measure."""
    found = [
        Shape(f"{width} that take{'s' * (width == 1)} all", width, [TrueFilter()] * width, width) for width in widths
    ]
    for width in widths:
        if width > 1:
            simple = [SqlFilter(f"kind = {place}") for place in range(width)]
            hard = [SqlFilter(f"{COMPLEX.format(1)} AND number % {width} = {place}") for place in range(width)]
            found.append(Shape(f"one of {width} takes it, simple filters", width, simple, 1))
            found.append(Shape(f"one of {width} takes it, complex filters", width, hard, 1))
    return found


def facts_of(number: int, width: int) -> dict[str, Any]:
    """Return the application properties of the message with this number."""
    return {"kind": number % width, "number": number, "color": "red", "price": 12, "region": "eu"}


def spreading(
    sender: ServiceBusSender, receivers: Sequence[ServiceBusReceiver], shape: Shape, body: bytes
) -> Mapping[str, Step]:
    """Await each send; then handle and complete each copy by itself. The speed is counted in copies."""
    numbers = itertools.count()
    waiting: list[int] = [0] * shape.width

    async def send(copies: int) -> None:
        sends = iter(range(-(-copies // shape.fan)))

        async def caller() -> None:
            for _ in sends:
                number = next(numbers)
                for place in range(shape.width) if shape.fan > 1 else (number % shape.width,):
                    waiting[place] += 1
                properties = facts_of(number, shape.width)
                await sender.send_messages(ServiceBusMessage(body, application_properties=properties))

        await asyncio.gather(*[caller() for _ in range(AT_ONCE)])

    async def receive_all(place: int) -> None:
        receiver = receivers[place]

        async def handle(message: ServiceBusReceivedMessage) -> None:
            assert len(message.body) == len(body)
            await receiver.complete_message(message)

        while waiting[place]:
            given = await receiver.receive_messages(min(AT_ONCE, waiting[place]), PATIENCE)
            assert given, f"{waiting[place]:,} messages did not come to subscription {place}"
            waiting[place] -= len(given)
            await asyncio.gather(*[handle(each) for each in given])

    async def receive(copies: int) -> None:
        del copies  # this step always receives all copies
        await asyncio.gather(*map(receive_all, range(shape.width)))

    return {"send": send, "receive, complete": receive}


async def create(administration: ServiceBusAdministrationClient, topic: str, filters: Sequence[Filter]) -> None:
    """Make a topic with a subscription for each of these filters, several at a time."""
    await administration.create_topic(topic)
    left = iter(enumerate(filters))

    async def some() -> None:
        for place, each in left:
            rules = [RuleProperties("it", filter=SqlRuleFilter(each.text))] if isinstance(each, SqlFilter) else None
            await administration.create_subscription(topic, f"s{place}", rules=rules)

    await asyncio.gather(*[some() for _ in range(16)])


@dataclass(frozen=True)
class Results:
    """The measurements through the client."""

    works: Mapping[str, Mapping[str, Medians]]
    judging: Mapping[str, float]
    """For each topic: the time in µs that the client needs to find the subscriptions of a message."""
    idle: Mapping[str, Idle]
    wide: Mapping[str, tuple[Idle, float]]
    """For each kind of filter: the times of a send to the widest topic, and the part of this time, in ms, that the
    client needs to find the subscriptions.
    """


async def run_all(url: str, options: Options, server: AsyncRedis) -> Results:
    """Measure the pieces of work one after the other, in several rounds; then measure the trips without other work."""
    body, chosen = options.body, shapes(options.widths)
    async with AsyncExitStack() as stack:
        administration = await stack.enter_async_context(ServiceBusAdministrationClient(url))
        client = await stack.enter_async_context(ServiceBusClient(url))

        async def queue(name: str) -> tuple[ServiceBusSender, ServiceBusReceiver]:
            await administration.ensure_queue(name)
            return client.get_queue_sender(name), client.get_queue_receiver(name)

        def plain() -> ServiceBusMessage:
            return ServiceBusMessage(body, application_properties=facts_of(0, 1))

        works = [Work(QUEUE, each_by_itself(*await queue("beside"), plain), used_by(server))]
        for place, shape in enumerate(chosen):
            topic = f"topic-{place}"
            await create(administration, topic, shape.filters)
            receivers = [client.get_subscription_receiver(topic, f"s{number}") for number in range(shape.width)]
            works.append(
                Work(shape.name, spreading(client.get_topic_sender(topic), receivers, shape, body), used_by(server))
            )
        measured = await alternate(works, options.messages, options.rounds)

        idle = {QUEUE: await measure_idle(*await queue("idle"), plain, options.trips)}
        for width in options.widths:
            topic = f"idle-{width}"
            await create(administration, topic, [TrueFilter()] * width)
            pair = client.get_topic_sender(topic), client.get_subscription_receiver(topic, "s0")
            idle[all_of(width)] = await measure_idle(*pair, plain, options.trips)

        wide: dict[str, tuple[Idle, float]] = {}
        kinds = options.wide // TAKERS
        numbers = itertools.count()
        for name, filters in wide_filters(options.wide, kinds).items():
            topic = f"wide-{name}"
            await create(administration, topic, filters)
            sender = client.get_topic_sender(topic)

            async def send(sender: ServiceBusSender = sender) -> float:
                begun = time.perf_counter()
                properties = facts_of(next(numbers), kinds)
                await sender.send_messages(ServiceBusMessage(body, application_properties=properties))
                return time.perf_counter() - begun

            took = await repeat(send, options.trips)
            wide[name] = took, judged(filters, kinds, options.rounds) / 1000
        judging = {shape.name: judged(shape.filters, shape.width, options.rounds) for shape in chosen}
        return Results(measured, judging, idle, wide)


def wide_filters(width: int, kinds: int) -> dict[str, list[Filter]]:
    """Return filters for the widest topic. Each filter matches one message out of ``kinds``."""
    return {
        "simple": [SqlFilter(f"kind = {place % kinds}") for place in range(width)],
        "complex": [SqlFilter(f"{COMPLEX.format(1)} AND number % {kinds} = {place % kinds}") for place in range(width)],
    }


def judged(filters: Sequence[Filter], width: int, rounds: int) -> float:
    """Return the time in µs that the client needs to find the subscriptions of a message."""
    book = RuleBook([([Rule("it", each)], True) for each in filters])
    numbers = itertools.count()
    return duration(lambda: book.judge(MessageView({"messageid": "m"}, facts_of(next(numbers), width))), rounds) * 1e6


# -- printing ----------------------------------------------------------------------------------------------------------

WIDTH = 44


def table(results: Results, wide: int) -> list[str]:
    """Return the measurements of the client as lines of text, with the ratios to the queue."""
    lines = [f"{'through the client, each by itself':<{WIDTH}}  copies/s   client CPU   server CPU   judging a send"]
    base = results.works[QUEUE]
    for name, steps in results.works.items():
        for step in (ALL, *(step for step in steps if step != ALL)):
            told = f"      {step}" if step else f"    {name}"
            ratio = steps[step].per_second / base[step].per_second
            judging = f"{results.judging[name]:>12.1f} µs" if step == ALL and name in results.judging else ""
            line = f"{told:<{WIDTH}}{figures(steps[step])}{judging:<17}{ratio:>6.2f} x {QUEUE}"
            lines.append(line)
    lines.append("  idle, send to start of handler")
    lines += [f"{f'    {name}':<{WIDTH}}{tell_idle(idle)}" for name, idle in results.idle.items()]
    lines.append(f"  one send, to a topic of {wide:,} subscriptions of which {TAKERS} take it")
    lines += [
        f"{f'    {name} filters':<{WIDTH}}{tell_idle(took)}   of which judging {judging:.2f} ms"
        for name, (took, judging) in results.wide.items()
    ]
    return lines


def verdicts(wide: int, server: float, client: Mapping[str, float]) -> list[str]:
    """Return the goals as lines of text, and whether they were met.

    ``server`` is the server's ms for a send to the widest topic. ``client`` has the ms through the client for each kind
    of filter.
    """
    rows = [("server", server), *((f"client, {name} filters, p50", value) for name, value in client.items())]
    return [
        f"goals: one send to {wide:,} subscriptions of which {TAKERS} take it, ≤ {MOST_WIDE:.0f} ms",
        *(f"{f'  {what}':<{WIDTH}}{value:.3f} ms  {'met' if value <= MOST_WIDE else 'MISSED'}" for what, value in rows),
    ]


# -- the program -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """The extent of the measurement."""

    messages: int
    rounds: int
    trips: int
    calls: int
    widths: Sequence[int]
    wide: int
    body: bytes


async def through_client(server: LocalServer, options: Options) -> Results:
    """Measure the client on the server."""
    async with AsyncRedis(host=server.host, port=server.port) as beside:
        return await run_all(server.url, options, beside)


def main() -> None:
    """Start the servers, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--messages", type=int, help="copies for each work (10,000)")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are printed (5)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of each message's body (1,024)")
    parser.add_argument(
        "--short", action="store_true", help="a short run, to see that it works; its figures mean nothing"
    )
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    messages, rounds, trips, calls = (200, 1, 10, 5) if given.short else (10_000, 5, 200, 500)
    options = Options(
        given.messages or messages,
        given.rounds or rounds,
        trips,
        calls,
        (1, 10) if given.short else FANS,
        WIDE // 10 if given.short else WIDE,
        b"x" * given.body,
    )
    if options.messages < 1 or options.rounds < 1 or given.body < 1:
        parser.error("--messages, --rounds and --body must be 1 at least")
    print(
        f"{find_server(given.server)}\nwith its append-only file on; Python {sys.version.split()[0]}; "
        f"{options.messages:,} copies each time; medians, rounds: {options.rounds}; CPU a copy; {options.trips} trips",
        flush=True,
    )
    with LocalServer(binary=given.server, config=CONFIG) as server:
        client = Redis(host=server.host, port=server.port)
        for line in spread_out(client, options.body, options.calls):
            print(line, flush=True)
        costs, lines = reach_out(client, options.body, max(5, options.calls // 10), options.wide)
        print(*lines, sep="\n", flush=True)
        client.close()
    with LocalServer(binary=given.server, config=CONFIG) as server:
        results = asyncio.run(through_client(server, options))
    medians = {name: took.median for name, (took, _) in results.wide.items()}
    print(*table(results, options.wide), *verdicts(options.wide, costs[TAKERS].milliseconds, medians), sep="\n")
    if given.short:
        print("A short run: its figures show only that it works.")


if __name__ == "__main__":
    run_as_program(main)
