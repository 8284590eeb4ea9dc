"""Show the effects of a fault on callers. Compare this transport with redis-py's cluster client, each on a new cluster
of 3 masters and 3 replicas.

    python -m benchmarks.faults [--only FAULT] [--server NAME]

200 callers run a script that counts the executions of each operation. Meanwhile a master is killed, is stopped, or is
replaced with CLUSTER FAILOVER, or a slot moves to another master and back. For each fault the program prints: errors
that reached callers, operations that were executed twice, operations that were executed although the caller got an
error, acknowledged operations that are lost, and the longest time without a success on the shard.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio.to_thread
from redis.asyncio import RedisCluster

from benchmarks.pressure import COUNT, Pressure, Report, beside
from benchmarks.rounds import run_as_program
from sbredis.servers import LocalCluster
from sbredis.transport import Transport, key_slot, open_transport

__all__ = ["FAULTS", "KEYS", "counts_on", "in_thread"]

KEYS = [b"{victim}:%d" % number for number in range(20)] + [b"{other%d}" % number for number in range(10)]
SLOT = key_slot(KEYS[0])
NODE_TIMEOUT = 500  # milliseconds; with this time-out a failover takes 1 to 2 s

Fault = Callable[[LocalCluster, Pressure], Awaitable[None]]


async def in_thread(function: Callable[..., object], *arguments: object) -> None:
    """Run a blocking method of the cluster in a thread, so that the callers continue."""
    await anyio.to_thread.run_sync(partial(function, *arguments))


async def kill_the_master(cluster: LocalCluster, _: Pressure) -> None:
    """Kill the master with ``kill -9``."""
    await in_thread(lambda: cluster.master_of(SLOT).kill())


async def stop_the_master(cluster: LocalCluster, pressure: Pressure) -> None:
    """Send SIGSTOP, and SIGCONT after more than the node time-out: the old master learns late that it was replaced."""
    master = cluster.master_of(SLOT)
    master.pause()
    try:
        await pressure.flows()
    finally:
        master.resume()
    await in_thread(cluster.wait_until_ok)


async def fail_over_by_hand(cluster: LocalCluster, pressure: Pressure) -> None:
    """Run CLUSTER FAILOVER twice: to the replica and back."""
    for _ in range(2):
        replica = cluster.replicas_of(cluster.master_of(SLOT))[0]
        await in_thread(cluster.failover, replica)
        await pressure.flows()


async def migrate_key_by_key(cluster: LocalCluster, pressure: Pressure) -> None:
    """Migrate a slot key by key, there and back: ASK, TRYAGAIN and MOVED."""
    home = cluster.master_of(SLOT)
    for target in (next(master for master in cluster.masters if master is not home), home):
        await in_thread(partial(cluster.migrate_slot_classic, SLOT, target, batch=1))
        await pressure.flows()


async def migrate_atomically(cluster: LocalCluster, pressure: Pressure) -> None:
    """Migrate a slot as Valkey 9 does, to another shard and back: calls get one MOVED each way."""
    home = cluster.master_of(SLOT)
    for target in (next(master for master in cluster.masters if master is not home), home):
        await in_thread(cluster.migrate_slot_atomic, SLOT, target)
        await pressure.flows()


FAULTS: tuple[Fault, ...] = (
    kill_the_master,
    stop_the_master,
    fail_over_by_hand,
    migrate_key_by_key,
    migrate_atomically,
)


async def counts_on(transport: Transport, keys: Sequence[bytes] = KEYS) -> dict[str, int]:
    """Return how often each operation was executed, from the data on the servers at the end."""
    counts: dict[str, int] = {}
    for key in keys:
        found = await transport.command("HGETALL", key, key=key)
        counts |= {operation.decode(): int(count) for operation, count in found.items()}
    return counts


async def with_redis_py(cluster: LocalCluster, fault: Fault) -> tuple[Report, dict[str, int]]:
    """Measure the fault for callers of redis-py's cluster client, with default options except ``max_connections``."""
    first = cluster.masters[0]
    client = RedisCluster(host=first.host, port=first.port, max_connections=1000)
    for node in cluster.nodes:
        # Load the script on replicas too, because they do not get it from their masters. Otherwise every call after a
        # failover would fail.
        node.ask("SCRIPT", "LOAD", COUNT.source)

    async def call(key: bytes, operation: str) -> None:
        await asyncio.wait_for(client.evalsha(COUNT.sha, 2, key, beside(key), operation), 20)

    try:
        return await _pressed(cluster, fault, call)
    finally:
        await client.aclose()


async def with_sbredis(cluster: LocalCluster, fault: Fault) -> tuple[Report, dict[str, int]]:
    """Measure the fault for callers of this transport, with calls that must not be repeated."""
    async with await open_transport(cluster.url, scripts=[COUNT]) as transport:

        async def call(key: bytes, operation: str) -> None:
            await transport.call(COUNT, (key, beside(key)), (operation,), timeout=20)

        return await _pressed(cluster, fault, call)


async def _pressed(
    cluster: LocalCluster, fault: Fault, call: Callable[[bytes, str], Awaitable[None]]
) -> tuple[Report, dict[str, int]]:
    async with Pressure(call, KEYS) as pressure:
        await pressure.flows()
        await fault(cluster, pressure)
        await pressure.flows()
    async with await open_transport(cluster.url) as transport:
        return pressure.report, await counts_on(transport)


def main() -> None:
    """Cause the faults one after the other, and print their effects on callers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    names = [fault.__name__ for fault in FAULTS]
    parser.add_argument("--only", choices=names, help="one fault instead of all")
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    arguments = parser.parse_args()
    heads = ("calls", "errors", "executed twice", "executed, yet error", "lost", "gap")
    print(f"{'':<36}{heads[0]:>8}{heads[1]:>9}{heads[2]:>16}{heads[3]:>21}{heads[4]:>7}{heads[5]:>9}")
    for fault in FAULTS:
        if arguments.only not in (None, fault.__name__):
            continue
        for name, run in (("redis-py", with_redis_py), ("sbredis", with_sbredis)):
            with LocalCluster(3, 1, node_timeout=NODE_TIMEOUT, binary=arguments.server) as cluster:
                if fault is migrate_atomically and not cluster.supports_atomic_migration:
                    continue
                try:
                    report, counts = asyncio.run(run(cluster, fault))
                except TimeoutError as error:
                    print(f"{fault.__name__:<22}{name:<14}did not end: {error}", flush=True)
                    continue
            print(
                f"{fault.__name__:<22}{name:<14}{report.started:>8}{len(report.failed):>9}"
                f"{len(report.executed_twice(counts)):>16}{len(report.executed_although_failed(counts)):>21}"
                f"{len(report.lost(counts)):>7}{report.longest_gap:>7.2f} s",
                flush=True,
            )
            for described, number in report.errors.most_common():
                print(f"{'':<36}  {number} {described}", flush=True)


if __name__ == "__main__":
    run_as_program(main)
