"""Compare the transport with redis-py in one run: sequential calls, 200 concurrent callers, processor time for a call.

python -m benchmarks.transport [--uvloop] [--rounds N] [--server NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis, RedisCluster

from benchmarks.rounds import alternate, run_as_program, table
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import Script, Transport, open_transport

TWO_WRITES = Script(
    "two_writes", "#!lua\nredis.call('HSET', KEYS[1], ARGV[1], '1')\nredis.call('HDEL', KEYS[1], ARGV[2])\nreturn 1"
)
CALLERS = 200
KEYS = [f"bench:{{{number}}}" for number in range(48)]

Run = Callable[[int], Awaitable[None]]


def shared(call: Callable[[int], Awaitable[object]], callers: int) -> Run:
    """Make a number of calls with several callers. Each caller makes one call after the other."""

    async def run(calls: int) -> None:
        numbers = iter(range(calls))

        async def caller() -> None:
            for number in numbers:
                await call(number)

        await asyncio.gather(*(caller() for _ in range(callers)))

    return run


def redis_py(client: Redis | RedisCluster) -> Callable[[int], Awaitable[object]]:
    async def call(number: int) -> object:
        return await client.evalsha(TWO_WRITES.sha, 1, KEYS[number % len(KEYS)], str(number), str(number - 1))

    return call


def sbredis(transport: Transport) -> Callable[[int], Awaitable[object]]:
    keys = [key.encode() for key in KEYS]

    async def call(number: int) -> object:
        return await transport.call(TWO_WRITES, (keys[number % len(keys)],), (number, number - 1))

    return call


async def compare(server: LocalServer, cluster: LocalCluster, rounds: int) -> None:
    single = Redis(host=server.host, port=server.port, max_connections=2 * CALLERS)
    first = cluster.masters[0]
    clustered = RedisCluster(host=first.host, port=first.port, max_connections=2 * CALLERS)
    await single.script_load(TWO_WRITES.source)
    await clustered.script_load(TWO_WRITES.source)
    async with (
        await open_transport(server.url, scripts=[TWO_WRITES]) as to_server,
        await open_transport(cluster.url, scripts=[TWO_WRITES]) as to_cluster,
    ):
        calls = {
            "redis-py, one server": redis_py(single),
            "redis-py, cluster": redis_py(clustered),
            "sbredis, one server": sbredis(to_server),
            "sbredis, cluster": sbredis(to_cluster),
        }
        for title, callers, slow, fast in (
            (f"{CALLERS} concurrent callers", CALLERS, 10_000, 60_000),
            ("sequential calls", 1, 3_000, 3_000),
        ):
            competitors = [
                (name, fast if name.startswith("sbredis") else slow, shared(call, callers))
                for name, call in calls.items()
            ]
            print(table(title, await alternate(competitors, rounds), "redis-py, cluster"), flush=True)
    await single.aclose()
    await clustered.aclose()


def main() -> None:
    """Start the servers, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop instead of asyncio's own loop")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; medians are printed (default 5)")
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be 1 at least")
    with LocalServer(binary=arguments.server) as server, LocalCluster(3, 0, binary=arguments.server) as cluster:
        loop = "uvloop" if arguments.uvloop else "asyncio"
        python = f"Python {sys.version.split()[0]}, {loop}"
        print(f"{python}; one server, and a cluster of 3 masters; {arguments.rounds} rounds", flush=True)
        if arguments.uvloop:
            import uvloop

            uvloop.run(compare(server, cluster, arguments.rounds))
        else:
            asyncio.run(compare(server, cluster, arguments.rounds))


if __name__ == "__main__":
    run_as_program(main)
