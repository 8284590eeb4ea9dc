"""Compare sessions with a queue: many sessions in one entity, the time from accepting to the first message, and memory.

python -m benchmarks.sessions [--messages N] [--sessions N] [--rounds N] [--body BYTES] [--short] [--server NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import NamedTuple

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from benchmarks.engine_calls import Engine, first_token, server_time
from benchmarks.rounds import run_as_program
from benchmarks.works import (
    ALL,
    AT_ONCE,
    CONFIG,
    PATIENCE,
    Idle,
    Make,
    Medians,
    Step,
    Work,
    alternate,
    each_by_itself,
    figures,
    in_batches,
    measure_idle,
    repeat,
    tell_idle,
    used_by,
)
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.engine import NEXT_SESSION, Content, Lock, PartitionSettings, SessionLock, encode
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer, find_server
from sbredis.workers import Worker

__all__ = ["Handled", "Turnstile", "Weights", "verdicts"]

QUEUE, SESSION = "a queue", "one session"
QUEUE_BATCHES, SESSION_BATCHES = f"a queue, batches of {AT_ONCE}", f"one session, batches of {AT_ONCE}"
TEN_EACH, ONE_EACH = "10 messages a session", "1 message a session"
FEW = 10
STATE = 100
"""The size of a session's state, in bytes."""
LARGE = PartitionSettings(quota=10**14)

MOST_WEIGHT = 250.0
"""The largest number of bytes that a message may need in addition to its body."""
MOST_GROWTH = 1.5
"""The largest factor by which accepting may become slower when a thousand times as many sessions are free."""
SLOWEST, DEAREST = 10.0, 6.0
"""The largest time, and processor time, of a session of one message in a worker, in messages of a plain queue."""
MOST_LEFT = 1.0
"""The largest number of bytes that a finished session may leave.

All finished sessions together leave a few keys, and the bytes of these keys count too.
"""


# -- measuring the engine ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """Memory in the server, in bytes."""

    queue: float
    """A message in a queue, without its body."""
    many: float
    """A message that is one of a hundred in its session, without its body."""
    single: float
    """A message that is alone in its session, without its body."""
    held: float
    """A message that is alone in its session, when the session is locked and the message is delivered, without its
    body.
    """
    state: float
    """A session with a state and nothing else, without the state."""
    over: float
    """A session without messages and state."""


def weigh(client: Redis, body: bytes, sessions: int) -> Weights:
    """Return the memory of messages and sessions."""
    sessional = replace(LARGE, sessions=True)
    queue = filled(client, Engine(client, "weigh-queue", LARGE), body, sessions, None)
    many = filled(client, Engine(client, "weigh-many", sessional), body, sessions, 100)
    engine = Engine(client, "weigh-single", sessional)
    partition, empty = engine.partition, weight(client, engine)
    single = filled(client, engine, body, sessions, 1)
    full, given = weight(client, engine), list[tuple[SessionLock, str]]()
    for _ in range(sessions):
        lock = accept(engine)
        (message,) = engine.receive(1, lock.token, session=lock.name)
        given.append((lock, message.name))
    held = single + (weight(client, engine) - full) / sessions
    for lock, name in given:
        assert not engine.ask(partition.complete(engine.call_id(), [Lock(lock.token, name)])).lost
        engine.ask(partition.set_state(engine.call_id(), lock, b"s" * STATE))
        engine.ask(partition.release_session(engine.call_id(), lock))
    state = (weight(client, engine) - empty) / sessions - STATE
    for lock, _ in given:
        again = accept(engine, lock.name)
        engine.ask(partition.set_state(engine.call_id(), again, None))
        engine.ask(partition.release_session(engine.call_id(), again))
    return Weights(queue, many, single, held, state, (weight(client, engine) - empty) / sessions)


def filled(client: Redis, engine: Engine, body: bytes, count: int, each: int | None) -> float:
    """Send messages, and return the number of bytes that each message needs in addition to its body.

    ``each`` is the number of messages in a session; with ``None`` the messages have no sessions.
    """
    before = weight(client, engine)
    for at in range(0, count, 1000):
        sessions = (
            None if each is None else f"session-{number // each}" for number in range(at, min(at + 1000, count))
        )
        engine.send([encode(Content(body, session_id=session)) for session in sessions])
    return (weight(client, engine) - before) / count - len(body)


def weight(client: Redis, engine: Engine) -> int:
    """Return the bytes of all keys of a partition."""
    asking = client.pipeline(transaction=False)
    for key in engine.partition.keys:
        asking.memory_usage(key, samples=0)
    return sum(each or 0 for each in asking.execute())


def accept(engine: Engine, name: str | None = None) -> SessionLock:
    """Lock this session, or the next free one."""
    token = first_token()
    if name is not None:
        found = engine.ask(engine.partition.accept_session(engine.call_id(), token, name))
        assert found.outcome == "taken", found
        return SessionLock(name, token)
    (reply,) = engine.ask(engine.granting(1, token, source=NEXT_SESSION)).credits
    (gift,) = reply.gifts
    assert gift.session is not None
    return SessionLock(gift.session.name, token)


@dataclass(frozen=True)
class Turnstile:
    """The server's time in µs for accepting the next session, and for releasing a session."""

    accepting: float
    releasing: float


def turnstile(client: Redis, free: int, rounds: int) -> Turnstile:
    """Return the cost of accepting with this number of free sessions."""
    engine = Engine(client, f"turnstile-{free}", replace(LARGE, sessions=True))
    for at in range(0, free, 1000):
        engine.send(
            [encode(Content(b"", session_id=f"session-{number}")) for number in range(at, min(at + 1000, free))]
        )
    spent = [0.0, 0.0]
    for number in range(rounds + 1):
        client.config_resetstat()
        locks = [accept(engine) for _ in range(FEW)]
        accepting = microseconds(client)
        client.config_resetstat()
        for lock in locks:
            engine.ask(engine.partition.release_session(engine.call_id(), lock))
        releasing = microseconds(client)
        if number:
            spent = [spent[0] + accepting, spent[1] + releasing]
    return Turnstile(spent[0] / rounds / FEW, spent[1] / rounds / FEW)


def microseconds(client: Redis) -> float:
    """Return the time of scripts since the counters were last reset."""
    return server_time(client) * 1000


# -- measuring the client ----------------------------------------------------------------------------------------------


def session_by_session(
    client: ServiceBusClient, queue: str, sender: ServiceBusSender, body: bytes, each: int
) -> Mapping[str, Step]:
    """Send messages one by one to all sessions. Then many workers each accept the next session, receive and complete
    its messages, and continue with another session.
    """
    numbers = itertools.count()

    async def send(messages: int) -> None:
        first = next(numbers)
        sends = iter(range(messages))

        async def caller() -> None:
            for number in sends:
                session = f"session-{first}-{number // each}"
                await sender.send_messages(ServiceBusMessage(body, session_id=session))

        await asyncio.gather(*[caller() for _ in range(AT_ONCE)])

    async def receive(messages: int) -> None:
        left = messages
        sessions = iter(range(-(-messages // each)))

        async def worker() -> None:
            nonlocal left
            for _ in sessions:
                receiver = await client.accept_next_session(queue, max_wait_time=PATIENCE)
                assert receiver is not None, f"{left:,} messages did not come"
                async with receiver:
                    given = await receiver.receive_messages(each, PATIENCE)
                    await asyncio.gather(*[receiver.complete_message(message) for message in given])
                    left -= len(given)

        await asyncio.gather(*[worker() for _ in range(AT_ONCE)])
        assert not left, f"{left:,} messages were not received"

    return {"send": send, "accept, receive, complete, close": receive}


async def measure_next(client: ServiceBusClient, queue: str, trips: int) -> Idle:
    """Measure the time from asking for the next session to its first message, while sessions are free."""

    async def trip() -> float:
        begun = time.perf_counter()
        receiver = await client.accept_next_session(queue, max_wait_time=PATIENCE)
        assert receiver is not None, "no session is free"
        async with receiver:
            (message,) = await receiver.receive_messages(1, PATIENCE)
            taken = time.perf_counter() - begun
            await receiver.abandon_message(message)
        return taken

    return await repeat(trip, trips)


async def measure_woken(client: ServiceBusClient, queue: str, sender: ServiceBusSender, make: Make, trips: int) -> Idle:
    """Measure the time from sending the first message of a session to its arrival at a client that waits for any
    session.
    """
    starts: asyncio.Queue[float] = asyncio.Queue()
    waiting = asyncio.Event()

    async def worker() -> None:
        while True:
            waiting.set()
            receiver = await client.accept_next_session(queue, max_wait_time=PATIENCE)
            assert receiver is not None, "nothing was sent"
            async with receiver:
                (message,) = await receiver.receive_messages(1, PATIENCE)
                started = time.perf_counter()
                await receiver.complete_message(message)
            waiting.clear()
            starts.put_nowait(started)

    async def trip() -> float:
        await waiting.wait()
        sent = time.perf_counter()
        await sender.send_messages(make())
        async with asyncio.timeout(PATIENCE):
            return await starts.get() - sent

    working = asyncio.ensure_future(worker())
    try:
        return await repeat(trip, trips)
    finally:
        working.cancel()
        await asyncio.wait([working])


class Handled(NamedTuple):
    """What a worker of 16 slots needed for the messages of an entity."""

    per_second: float
    processor: float
    """The µs of its process for a message."""


async def handled(client: ServiceBusClient, url: str, queue: str, messages: int, *, sessions: bool) -> Handled:
    """Measure a worker that empties a queue. With ``sessions`` each message has a session of its own."""
    await client.ensure_queue(queue, requires_session=sessions)
    names = (f"session-{number}" if sessions else None for number in range(messages))
    sender = client.get_queue_sender(queue)
    await sender.send_stream(ServiceBusMessage(b"", session_id=name) for name in names)
    worker, left, done = Worker(url, namespace="bench"), messages, asyncio.Event()

    @worker.queue(queue, max_concurrent_calls=16)
    async def handle(_: bytes) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with worker.running():
        begun, used = time.perf_counter(), time.process_time()
        await done.wait()
        taken, used = time.perf_counter() - begun, time.process_time() - used
    return Handled(messages / taken, used / messages * 1e6)


async def in_workers(client: ServiceBusClient, url: str, messages: int, rounds: int) -> tuple[Handled, Handled]:
    """Return the medians of a worker with a plain queue, and with sessions of one message. They take turns."""
    taken: list[list[Handled]] = [[], []]
    for number in range(rounds):
        for place, sessions in enumerate((False, True)):
            name = f"worker-{number}-{place}"
            taken[place].append(await handled(client, url, name, messages, sessions=sessions))
    plain, single = (Handled(*map(statistics.median, zip(*each, strict=True))) for each in taken)
    return plain, single


@dataclass(frozen=True)
class Results:
    """The measurements through the client."""

    works: Mapping[str, Mapping[str, Medians]]
    idle: Mapping[str, Idle]
    workers: tuple[Handled, Handled]
    """A worker with a plain queue, and with sessions of one message."""
    left: Mapping[str, int]
    """For each kind of key: the bytes that one entity still needs at the end."""
    through: int
    """The number of sessions that went through that entity."""


async def run_all(url: str, options: Options, server: AsyncRedis) -> Results:
    """Measure the pieces of work one after the other, in several rounds; then measure the trips without other work."""
    body = options.body
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(ServiceBusClient(url, namespace="bench"))
        alone = await stack.enter_async_context(ServiceBusClient(url, namespace="left"))

        def plain() -> ServiceBusMessage:
            return ServiceBusMessage(body)

        def ours() -> ServiceBusMessage:
            return ServiceBusMessage(body, session_id="ours")

        async def queue(name: str) -> tuple[ServiceBusSender, ServiceBusReceiver]:
            await client.ensure_queue(name)
            return client.get_queue_sender(name), client.get_queue_receiver(name)

        async def sessions(name: str, client: ServiceBusClient = client) -> ServiceBusSender:
            await client.ensure_queue(name, requires_session=True)
            return client.get_queue_sender(name)

        async def session(name: str) -> tuple[ServiceBusSender, ServiceBusReceiver]:
            sender = await sessions(name)
            receiver = client.get_queue_receiver(name, session_id="ours")
            return sender, await stack.enter_async_context(receiver)

        works = [
            Work(QUEUE_BATCHES, {ALL: in_batches(*await queue("batches"), plain)}, used_by(server)),
            Work(SESSION_BATCHES, {ALL: in_batches(*await session("session-batches"), ours)}, used_by(server)),
            Work(QUEUE, each_by_itself(*await queue("one"), plain), used_by(server)),
            Work(SESSION, each_by_itself(*await session("session-one"), ours), used_by(server)),
            Work(TEN_EACH, session_by_session(client, "tens", await sessions("tens"), body, 10), used_by(server)),
            Work(ONE_EACH, session_by_session(alone, "ones", await sessions("ones", alone), body, 1), used_by(server)),
        ]
        measured = await alternate(works, options.messages, options.rounds)
        through = options.messages * options.rounds + max(1, options.messages // 10)
        left = await weigh_keys(server, "left")

        idle = {
            QUEUE: await measure_idle(*await queue("idle"), plain, options.trips),
            SESSION: await measure_idle(*await session("session-idle"), ours, options.trips),
        }
        numbers = itertools.count()
        idle["any session"] = await measure_woken(
            client,
            "woken",
            await sessions("woken"),
            lambda: ServiceBusMessage(body, session_id=f"session-{next(numbers)}"),
            options.trips,
        )
        for free in (FEW, options.sessions):
            name = f"free-{free}"
            sender = await sessions(name)
            await sender.send_stream(ServiceBusMessage(body, session_id=f"session-{number}") for number in range(free))
            idle[f"{free:,} free"] = await measure_next(client, name, min(options.trips, 5 * free))
        workers = await in_workers(client, url, min(options.messages, 1000), options.rounds)
        return Results(measured, idle, workers, left, through)


async def weigh_keys(server: AsyncRedis, namespace: str) -> dict[str, int]:
    """Return the bytes of a namespace's keys for each kind of key, the largest number first, without the registry."""
    weights: dict[str, int] = {}
    async for key in server.scan_iter(match=f"sb:{namespace}:*", count=1000):
        parts = key.decode().split(":")
        if len(parts) == 5:
            weights[parts[4]] = weights.get(parts[4], 0) + (await server.memory_usage(key, samples=0) or 0)
    return dict(sorted(weights.items(), key=lambda each: -each[1]))


# -- printing ----------------------------------------------------------------------------------------------------------

WIDTH = 50


def engine_table(weights: Weights, few: Turnstile, many: Turnstile, sessions: int) -> Iterator[str]:
    """Return the measurements of the engine as lines of text."""
    yield "memory over the body, a message"
    yield f"{'    in a queue':<{WIDTH}}{weights.queue:>8.0f} B"
    yield f"{'    in a session of 100 messages':<{WIDTH}}{weights.many:>8.0f} B"
    yield f"{'    alone in its session':<{WIDTH}}{weights.single:>8.0f} B   {weights.held:.0f} B when held"
    yield "memory, a session without messages"
    yield f"{f'    with a state of {STATE} B, over that':<{WIDTH}}{weights.state:>8.0f} B"
    yield f"{'    without one':<{WIDTH}}{weights.over:>8.1f} B"
    yield "server time, a call"
    for free, each in ((FEW, few), (sessions, many)):
        told = f"    {free:,} sessions free"
        yield f"{told:<{WIDTH}}accept the next {each.accepting:>6.1f} µs   give back {each.releasing:>6.1f} µs"


def table(results: Results, sessions: int) -> list[str]:
    """Return the measurements through the client as lines of text, with the ratios to a queue."""
    lines = [f"{'through the client, each by itself':<{WIDTH}}messages/s   client CPU   server CPU"]
    for name, steps in results.works.items():
        for step in (ALL, *(step for step in steps if step != ALL)):
            told = f"      {step}" if step else f"    {name}"
            ratio = ""
            if step == ALL:
                base = results.works[QUEUE_BATCHES if name in (QUEUE_BATCHES, SESSION_BATCHES) else QUEUE][ALL]
                ratio = f"{steps[ALL].per_second / base.per_second:>8.2f} x a queue"
            lines.append(f"{told:<{WIDTH}}{figures(steps[step])}{ratio}")
    titles = {
        QUEUE: "send to start of handler, a queue",
        SESSION: "send to start of handler, one session",
        "any session": "send to start of handler, the next session",
        f"{FEW:,} free": f"accept the next to first message, {FEW:,} free",
        f"{sessions:,} free": f"accept the next to first message, {sessions:,} free",
    }
    lines.append("  idle")
    lines += [f"{f'    {titles[name]}':<{WIDTH}}  {tell_idle(idle)}" for name, idle in results.idle.items()]
    plain, single = results.workers
    lines.append("  a worker of 16 slots")
    for told, each in (("messages of a queue", plain), ("sessions of one message", single)):
        lines.append(f"{f'    {told}':<{WIDTH}}{each.per_second:>10,.0f}   {each.processor:>7.0f} µs")
    heaviest = ", ".join(f"{kind} {weight:,} B" for kind, weight in list(results.left.items())[:3])
    lines.append(f"  left of {results.through:,} sessions when they are over: {heaviest}")
    return lines


def verdicts(weights: Weights, few: Turnstile, many: Turnstile, workers: tuple[Handled, Handled]) -> list[str]:
    """Return the goals as lines of text, and whether they were met."""
    plain, single = workers
    rows = [
        (f"a message in a session, over its body: ≤ {MOST_WEIGHT:.0f} B", weights.many, "B", MOST_WEIGHT),
        (f"accepting, many free: ≤ {MOST_GROWTH} x {FEW} free", many.accepting / few.accepting, "x", MOST_GROWTH),
        (f"a session that is over: ≤ {MOST_LEFT:.0f} B", weights.over, "B", MOST_LEFT),
        (f"plain messages a session in a worker: ≤ {SLOWEST:.0f}", plain.per_second / single.per_second, "x", SLOWEST),
        (f"CPU of a session in a worker: ≤ {DEAREST:.0f} messages", single.processor / plain.processor, "x", DEAREST),
    ]
    return [
        "goals",
        *(
            f"{f'  {told}':<{WIDTH}}{value:.3f} {unit}  {'met' if value <= most else 'MISSED'}"
            for told, value, unit, most in rows
        ),
    ]


# -- the program -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """The extent of the measurement."""

    messages: int
    sessions: int
    rounds: int
    trips: int
    body: bytes


async def through_client(server: LocalServer, options: Options) -> Results:
    """Measure the client on the server."""
    async with AsyncRedis(host=server.host, port=server.port) as beside:
        return await run_all(server.url, options, beside)


def main() -> None:
    """Start the servers, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--messages", type=int, help="messages for each work (10,000)")
    parser.add_argument("--sessions", type=int, help="the number of sessions where there are many (10,000)")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are printed (5)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of each message's body (1,024)")
    parser.add_argument(
        "--short", action="store_true", help="a short run, to see that it works; its figures mean nothing"
    )
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    messages, sessions, rounds, trips = (200, 1_000, 1, 10) if given.short else (10_000, 10_000, 5, 300)
    options = Options(
        given.messages or messages, given.sessions or sessions, given.rounds or rounds, trips, b"x" * given.body
    )
    if options.messages < 1 or options.rounds < 1 or options.sessions <= FEW or given.body < 1:
        parser.error(f"--messages, --rounds and --body must be 1 at least, and --sessions more than {FEW}")
    print(
        f"{find_server(given.server)}\nwith its append-only file on; Python {sys.version.split()[0]}; "
        f"{options.messages:,} messages of {given.body:,} B each time, {options.sessions:,} sessions; medians, rounds: "
        f"{options.rounds}; CPU a message; {options.trips} trips",
        flush=True,
    )
    with LocalServer(binary=given.server, config=CONFIG) as server:
        client = Redis(host=server.host, port=server.port)
        weights = weigh(client, options.body, options.sessions)
        few, many = (turnstile(client, free, 5 if given.short else 50) for free in (FEW, options.sessions))
        client.close()
    print(*engine_table(weights, few, many, options.sessions), sep="\n", flush=True)
    with LocalServer(binary=given.server, config=CONFIG) as server:
        results = asyncio.run(through_client(server, options))
    print(*table(results, options.sessions), *verdicts(weights, few, many, results.workers), sep="\n")
    if given.short:
        print("A short run: its figures show only that it works.")


if __name__ == "__main__":
    run_as_program(main)
