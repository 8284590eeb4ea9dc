"""For each kind of due event, measure how long calls block the server while a million messages are due at once.

python -m benchmarks.due [--messages N] [--server NAME]

For each kind, the benchmark fills a queue, and all its messages become due. Then the server times the calls of a
client: a count, a peek, a receive, a send, and `due` until nothing is left. Meanwhile other clients must wait.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from redis import Redis

from benchmarks.engine_calls import Engine, first_token, server_time
from benchmarks.rounds import run_as_program
from sbredis.engine import CallId, Outgoing, PartitionSettings, Request
from sbredis.servers import LocalServer

BODY = b"x" * 200
BATCH = 1000
T0 = 1_700_000_000_000
QUOTA = 10**14


class Clocked(Engine):
    """A partition with a test clock."""

    def __init__(self, client: Redis, entity: str, settings: PartitionSettings) -> None:
        self.now = T0
        super().__init__(client, entity, settings)

    def call_id(self) -> CallId:
        return super().call_id()._replace(now=self.now)


def scheduled(engine: Clocked, messages: int) -> int:
    for first in range(0, messages, BATCH):
        due = T0 + 60_000 + first // BATCH
        engine.ask(engine.partition.send(engine.call_id(), [Outgoing(BODY, due=due)] * BATCH))
    return T0 + 10_000_000


def expiring(engine: Clocked, messages: int) -> int:
    for _ in range(0, messages, BATCH):
        engine.ask(engine.partition.send(engine.call_id(), [Outgoing(BODY, time_to_live=60_000)] * BATCH))
    return T0 + 10_000_000


def indexed(engine: Clocked, messages: int) -> int:
    """Send messages, each with a shorter time to live than the one before, so that all are in the index."""
    engine.ask(engine.partition.send(engine.call_id(), [Outgoing(BODY)]))
    return expiring(engine, messages)


def locked(engine: Clocked, messages: int) -> int:
    for _ in range(0, messages, BATCH):
        engine.ask(engine.partition.send(engine.call_id(), [Outgoing(BODY)] * BATCH))
        engine.receive(BATCH, first_token())
    return T0 + 10_000_000


KINDS: dict[str, Callable[[Clocked, int], int]] = {
    "scheduled": scheduled,
    "expiring": expiring,
    "expiring, indexed": indexed,
    "locks that lapse": locked,
}


def taken(client: Redis, call: Callable[[], Any]) -> float:
    """Return the time for which a script blocked the server, in ms."""
    before = server_time(client)
    call()
    return server_time(client) - before


def show(client: Redis, name: str, fill: Callable[[Clocked, int], int], messages: int) -> None:
    settings = PartitionSettings(
        clock="test", quota=QUOTA, dead_letter_expired=True, duplicate_window=None, lock_duration=60_000
    )
    engine = Clocked(client, "due", settings)
    engine.now = fill(engine, messages)
    of, reading = engine.partition, CallId("", 0, engine.now)
    requests: list[tuple[str, Callable[[], Request[Any]]]] = [
        ("count", lambda: of.count(reading)),
        ("peek 100", lambda: of.peek(0, 100, call_id=reading)),
        ("receive 100", lambda: engine.granting(100, first_token())),
        ("send 1", lambda: of.send(engine.call_id(), [Outgoing(BODY)])),
    ]
    found: list[str] = []
    engine.ask(engine.granting(1, first_token(), source="d"))
    for label, make in requests:
        took = sorted(taken(client, partial(_ask, engine, make)) for _ in range(20))
        found.append(f"{label} {took[10]:.1f} / {took[-1]:.1f}")
    calls, longest, started = 0, 0.0, time.perf_counter()
    more = True
    while more:
        before = server_time(client)
        more = engine.ask(of.due(engine.call_id())).more
        longest = max(longest, server_time(client) - before)
        calls += 1
    spent = time.perf_counter() - started
    print(
        f"{name:<20} {'; '.join(found)}; due, longest of {calls:,}: {longest:.1f} ms, {messages / spent:,.0f} a second",
        flush=True,
    )
    assert not engine.ask(of.count(reading)).more


def _ask(engine: Engine, make: Callable[[], Request[Any]]) -> None:
    engine.ask(make())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages that are due at once (1,000,000)")
    parser.add_argument("--server", help="the server program, instead of the usual one")
    given = parser.parse_args()
    print(
        f"{given.messages:,} messages of {len(BODY)} B due at once; ms of server time, median / longest of 20 calls",
        flush=True,
    )
    for name, fill in KINDS.items():
        with LocalServer(binary=given.server) as server, Redis(host=server.host, port=server.port) as client:
            show(client, name, fill, given.messages)


if __name__ == "__main__":
    run_as_program(main)
