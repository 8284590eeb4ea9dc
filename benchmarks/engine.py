"""Compare the engine with bare streams in one run on one server: send, receive, complete; server time, memory, a long
queue.

python -m benchmarks.engine [--rounds N] [--waiting N] [--server NAME]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from redis import Redis

from benchmarks.engine_calls import LARGE, Engine, alternate, engine_round, first_token, given_by, server_time
from benchmarks.engine_reserved import compare_audited, compare_pinned, strain_reserved
from benchmarks.rounds import run_as_program
from sbredis.engine import (
    NO_CALL_ID,
    CallId,
    Copy,
    Destination,
    Lock,
    MovesRead,
    Operation,
    Origin,
    Outgoing,
    Partition,
    PartitionSettings,
    Request,
    transact,
    withdraw,
)
from sbredis.engine._moving import Verdict
from sbredis.moving._moves import MOST_AT_ONCE
from sbredis.servers import LocalServer, find_server

T = TypeVar("T")


def memory(client: Redis) -> int:
    """Wait until the server has freed deleted keys in the background, and return the memory that is then in use."""
    while client.info("memory")["lazyfree_pending_objects"]:
        time.sleep(0.01)
    return int(client.info("memory")["used_memory"])


def streams_round(client: Redis, batch: int, body: bytes, calls: int) -> None:
    """Use the smallest possible queue on streams: add messages, read them in a group, acknowledge and delete them."""
    for _ in range(calls):
        adding = client.pipeline(transaction=False)
        for _ in range(batch):
            adding.xadd("stream", {"b": body})
        adding.execute()
        given: Any = client.xreadgroup("group", "consumer", {"stream": ">"}, count=batch)
        ids = [identifier for identifier, _ in given[0][1]]
        ending = client.pipeline(transaction=False)
        ending.xack("stream", "group", *ids)
        ending.xdel("stream", *ids)
        ending.execute()


def compare(client: Redis, rounds: int) -> None:
    print("send + receive + complete, a message:      server CPU                       wall time")
    for size in (200, 1024):
        body = b"x" * size
        for batch in (1, 10, 100):
            engine = Engine(client, f"compare{size}-{batch}")
            calls = max(30, 4000 // batch)
            (streams_cpu, streams_wall), (engine_cpu, engine_wall) = alternate(
                client,
                [
                    ("streams", lambda calls: streams_round(client, batch, body, calls)),  # noqa: B023 -- called at once
                    ("engine", lambda calls: engine_round(engine, batch, body, calls)),  # noqa: B023 -- called at once
                ],
                calls,
                batch,
                rounds,
            )
            print(
                f"  {size:>4} B, batches of {batch:>3}:  streams {streams_cpu:6.1f} µs  engine {engine_cpu:6.1f} µs"
                f"  {engine_cpu / streams_cpu:4.2f} x    {streams_wall:6.1f} µs {engine_wall:6.1f} µs"
                f"  {engine_wall / streams_wall:4.2f} x",
                flush=True,
            )


def weigh(client: Redis) -> None:
    """Print the memory of a waiting message without its body."""
    print("memory over the body, a waiting message:")
    count = 50_000
    for size in (200, 1024):
        body = b"x" * size
        before = memory(client)
        for _ in range(count // 100):
            adding = client.pipeline(transaction=False)
            for _ in range(100):
                adding.xadd("heavy", {"b": body})
            adding.execute()
        streams = (memory(client) - before) / count - size
        client.delete("heavy")
        before = memory(client)
        engine = Engine(client, f"weigh{size}")
        for _ in range(count // 100):
            engine.send([body] * 100)
        waiting = (memory(client) - before) / count - size
        for _ in range(count // 1000):
            engine.receive(1000, first_token())
        locked = (memory(client) - before) / count - size
        print(
            f"  {size:>4} B:  streams {streams:5.0f} B  engine {waiting:5.0f} B, {locked:5.0f} B when locked",
            flush=True,
        )
        engine.ask(engine.partition.destroy())


def lengthen(client: Redis, rounds: int, waiting: int) -> None:
    """Print the speed with a long queue and with an empty one. The two are measured alternately."""
    body = b"x" * 200
    empty, long = Engine(client, "empty"), Engine(client, "long")
    for _ in range(waiting // 1000):
        long.send([body] * 1000)
    (empty_cpu, empty_wall), (long_cpu, long_wall) = alternate(
        client,
        [
            ("empty", lambda calls: engine_round(empty, 100, body, calls)),
            ("long", lambda calls: engine_round(long, 100, body, calls)),
        ],
        40,
        100,
        rounds,
    )
    print(
        f"with {waiting:,} messages waiting, 200 B, batches of 100: "
        f"{long_cpu:.1f} µs server CPU a message, empty {empty_cpu:.1f}:"
        f" {empty_cpu / long_cpu:.2f} x the speed; wall {empty_wall / long_wall:.2f} x",
        flush=True,
    )
    long.ask(long.partition.destroy())


def strain(client: Redis) -> None:
    """Print the time for which each operation blocks the server when its batch is as large as possible."""
    print("how long the server is held at the largest legal batches:")

    def held(label: str, request: Request[Any], engine: Engine) -> None:
        client.config_resetstat()
        engine.ask(request)
        print(f"    {label:<22} {server_time(client):6.2f} ms", flush=True)

    for count, size in ((1000, 4000), (64, 65_000), (4, 1_000_000), (1, 4_000_000)):
        print(f"  {count} messages of {size:,} B in one call:")
        engine = Engine(
            client, f"strain{size}", PartitionSettings(quota=10**14, largest_message=10**7, lock_duration=10**9)
        )
        p, body = engine.partition, b"x" * size

        def locks(engine: Engine = engine, count: int = count) -> list[Lock]:
            token = first_token()
            found: list[Lock] = []
            while len(found) < count:
                found += [Lock(token, one.name) for one in engine.receive(count - len(found), token)]
                if len(found) < count:
                    token = first_token()
            return found

        outgoing = [Outgoing(body)] * count
        held("send", p.send(engine.call_id(), outgoing), engine)
        held("peek", p.peek(0, count), engine)
        token = first_token()
        held("receive", engine.granting(count, token), engine)
        rest = [Lock(token, str(number)) for number in range(1, count + 1)]
        held("renew", p.renew(engine.call_id(), rest), engine)
        held("abandon", p.abandon(engine.call_id(), rest), engine)
        given = locks()
        held("defer", p.defer(engine.call_id(), given), engine)
        token = first_token()
        held("receive deferred", p.receive_deferred(engine.call_id(), token, [lock.name for lock in rest]), engine)
        held("complete", p.complete(engine.call_id(), [Lock(token, lock.name) for lock in rest]), engine)
        engine.ask(p.send(engine.call_id(), outgoing))
        given = locks()
        held("dead-letter", p.dead_letter(engine.call_id(), given), engine)
        held("purge", p.purge(engine.call_id(), 9_999_999_999_999, side="d"), engine)
        later = [Outgoing(body, due=9_000_000_000_000)] * count
        held("schedule", p.send(engine.call_id(), later), engine)
        scheduled = [one.name for one in engine.ask(p.peek(0, count, states="s")).messages]
        held("cancel", p.cancel(engine.call_id(), scheduled), engine)
        engine.ask(p.send(engine.call_id(), [Outgoing(body, time_to_live=1)] * count))
        time.sleep(0.01)
        held("due (expiry)", p.due(NO_CALL_ID), engine)
        held("count", p.count(), engine)
        engine.ask(p.send(engine.call_id(), outgoing))
        held("destroy", p.destroy(), engine)


def strain_changed(client: Redis) -> None:
    """Print the longest of three calls that read 1,000 messages with large changed properties."""
    count, size = 1000, 64_000
    print(
        f"how long the server is held, at most, by a call that reads from {count} messages with {size:,} B of changes:"
    )
    engine = Engine(client, "changed", LARGE)
    p, changed = engine.partition, b"c" * size
    taken: dict[str, list[float]] = {}
    names = [str(number) for number in range(1, count + 1)]

    def held(label: str, request: Request[T]) -> T:
        client.config_resetstat()
        answer = engine.ask(request)
        taken.setdefault(label, []).append(server_time(client))
        return answer

    def settle(settlement: Callable[[CallId, list[Lock]], Request[Any]], token: str, given: list[str]) -> None:
        for at in range(0, len(given), 50):  # one call carries at most 4 MB of changes
            engine.ask(settlement(engine.call_id(), [Lock(token, name, changed) for name in given[at : at + 50]]))

    engine.ask(p.send(engine.call_id(), [Outgoing(b"m")] * count))
    token = first_token()
    settle(p.abandon, token, [one.name for one in engine.receive(count, token)])
    for _ in range(3):
        held("peek", p.peek(0, count))
        token = first_token()
        given = given_by(held("receive", engine.granting(count, token)))
        settle(p.abandon, token, [one.name for one in given])
        token = first_token()
        given = held("receive by number", p.receive_deferred(engine.call_id(), token, names, wide=True)).messages
        settle(p.abandon, token, [one.name for one in given])
    for at in range(0, count, 10):
        token = first_token()
        engine.ask(p.receive_deferred(engine.call_id(), token, names[at : at + 10], wide=True))
        settle(p.defer, token, names[at : at + 10])
    for _ in range(3):
        token = first_token()
        given = held("receive deferred", p.receive_deferred(engine.call_id(), token, names)).messages
        settle(p.defer, token, [one.name for one in given])
    for label, times in taken.items():
        print(f"    {label:<22} {max(times):6.2f} ms", flush=True)


MOVED = ((MOST_AT_ONCE, 100, 0), (MOST_AT_ONCE, 2000, 0), (MOST_AT_ONCE, 100, 1900), (16, 65_000, 0), (1, 4_000_000, 0))
"""The moves to measure: the number of messages, the bytes of each, and the bytes of its changed properties."""


class Moves:
    """A source that forwards its messages, with a queue and a topic as destinations, each in the same slot.

    The calls that move a batch between two slots do not ask for the slot, so this place of the partitions is as good.
    """

    def __init__(self, client: Redis, number: int, subscriptions: int = 4) -> None:
        self._client = client
        self._name = f"source{number}"
        self._engine = Engine(client, self._name, replace(LARGE, forwards=True))
        self._source = self._engine.partition
        self._queue = Engine(client, f"queue{number}", LARGE).partition
        self._topic = Engine(client, f"topic{number}", replace(LARGE, topic=True)).partition
        shared = replace(LARGE, shared=True)
        self._targets = [
            Partition("bench", "abc", f"s{number}-{place}", "incarnation", 1, shared, f"topic{number}")
            for place in range(subscriptions)
        ]
        for target in self._targets:
            self._engine.ask(target.configure(create=True))
        self._to = Destination(f"queue{number}", 1)
        self.taken: dict[str, list[float]] = {}
        """The times of each call in ms."""

    def _held(self, label: str, request: Request[T]) -> T:
        self._client.config_resetstat()
        answer = self._engine.ask(request)
        self.taken.setdefault(label, []).append(server_time(self._client))
        return answer

    def _fill(self, count: int, size: int, changes: int) -> MovesRead:
        engine, source = self._engine, self._source
        engine.ask(source.send(engine.call_id(), [Outgoing(b"x" * size)] * count))
        if changes:  # a receiver has changed the properties, before the entity began to forward its messages
            self._client.hset(source.keys[0], "forwards", "0")
            token, changed = first_token(), b"c" * changes
            locks = [Lock(token, each.name, changed) for each in engine.receive(count, token)]
            engine.ask(source.abandon(engine.call_id(), locks))
            self._client.hset(source.keys[0], "forwards", "1")
        waiting = self._held("outgoing", source.outgoing())
        assert len(waiting.messages) == count
        return waiting

    def measure(self, count: int, size: int, changes: int) -> None:
        """Move messages in each way."""
        bodies = [Outgoing(b"x" * (size + changes))] * count
        send = self._queue.send(NO_CALL_ID, bodies)
        copies = [[Copy(place) for place in range(len(self._targets))]] * count
        publishing = self._topic.publish(NO_CALL_ID, bodies, copies, self._targets)
        for label, to, sending in (("queue", self._queue, send), ("topic", self._topic, publishing)):
            waiting = self._fill(count, size, changes)
            operations = [withdraw(self._source, waiting.birth, waiting.messages), Operation(to, sending)]
            self._held(f"in slot, {label}", transact(NO_CALL_ID, operations))
        verdicts: tuple[Verdict, ...] = ("taken", "back", "refused")
        for verdict in verdicts:
            waiting = self._fill(count, size, changes)
            origin = Origin(self._name, waiting.birth)
            batch = self._held("freeze", self._source.freeze(waiting.birth, self._to, "in", waiting.messages))
            assert batch is not None
            self._held("read batch", self._source.read_batch(self._to))
            if verdict == "taken":
                self._held("take", self._queue.take(origin, batch, "", send))
            given_up = dict.fromkeys(batch.names, b"r" * 200) if verdict == "refused" else {}
            settling = self._source.settle_batch(waiting.birth, self._to, batch.number, verdict, changes=given_up)
            self._held(f"settle: {verdict}", settling)
            self._engine.ask(self._source.purge(self._engine.call_id(), 9_999_999_999_999))


def strain_moves(client: Redis) -> None:
    """Print the shortest time for which each call of a move blocks the server, at the largest pieces of a mover."""
    print("how long the server is held by the calls of a move, the best of 5:")
    for place, (count, size, changes) in enumerate(MOVED):
        moves = Moves(client, place)
        for _ in range(5):
            moves.measure(count, size, changes)
        beside = f" and {changes:,} B of changed properties" if changes else ""
        print(f"  {count} messages of {size:,} B{beside}:")
        for label, times in moves.taken.items():
            print(f"    {label:<22} {min(times):6.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds for each competitor (5)")
    parser.add_argument("--waiting", type=int, default=1_000_000, help="messages in the long queue (1,000,000)")
    parser.add_argument("--server", help="the server program, instead of the usual one")
    options = parser.parse_args()
    # The server must not rewrite its file during the run, because this would count for one competitor.
    config = {"appendonly": "yes", "auto-aof-rewrite-percentage": "0"}
    with LocalServer(binary=options.server, config=config) as server:
        client = Redis(host=server.host, port=server.port)
        client.xgroup_create("stream", "group", mkstream=True)
        print(f"{find_server(options.server)}, with its append-only file on")
        compare(client, options.rounds)
        lengthen(client, options.rounds, options.waiting)
        client.close()
    for part in (
        weigh,
        strain,
        strain_changed,
        strain_moves,
        strain_reserved,
        compare_pinned,
        compare_audited,
    ):  # on new servers, because the measurement would include the time to free earlier data
        with LocalServer(binary=options.server, config=config) as server:
            client = Redis(host=server.host, port=server.port)
            part(client)
            client.close()


if __name__ == "__main__":
    run_as_program(main)
