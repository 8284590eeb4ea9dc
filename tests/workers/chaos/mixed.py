"""Rounds of faults of all kinds, chosen by chance, while workers handle messages.

A round lasts some seconds. Messages are sent all the time, and one fault follows the other. Then the round waits until
all messages are handled, and checks every start of a handler.

With the library libfaketime, faults set the clocks of servers back, too (:mod:`tests.workers.chaos.clocks`). A clock
that leaps ahead ends locks early, as docs/connecting.md says, so that no check could tell this from a fault. The
machine of credit (``make prove WHAT=credit``) lets clocks leap in both directions.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import redis
import trustme

from sbredis.servers import LocalCluster, LocalSentinel, LocalServer, acquire, free_port
from sbredis.transport import key_slot
from tests.waiting import eventually
from tests.workers.chaos.clocks import Clocks
from tests.workers.chaos.programs import Town, crowd
from tests.workers.chaos.scenes import checked, fed, more_done, move_there_and_back

__all__ = ["PLACES", "Place", "mixed"]

Fault = Callable[[Town, random.Random], Awaitable[None]]

KINDS = ("plain", "session", "batch")
LONGEST = 10.0
"""The longest pause in seconds. It is twice as long as the lock of a message."""
_LEAP = 1.0
"""The longest leap of a clock in seconds. After some leaps, its replica is still less ahead than a lock lasts."""
KEEPS_ALL = {"appendonly": "yes", "appendfsync": "always"}


class Place:
    """Servers, and the faults that they can have. ``url`` is what the workers connect to."""

    def __init__(self, url: str, faults: Mapping[str, Fault], choose: Callable[[], LocalServer] | None = None) -> None:
        """``choose`` returns a server whose clock may be set."""
        self.url = url
        self.faults = {"kill a worker": _kill_a_worker, "suspend a worker": _suspend_a_worker} | dict(faults)
        self._choose = choose

    def set_clocks(self, clocks: Clocks) -> None:
        """Let faults set the clocks of the servers, too."""
        if self._choose is not None:
            self.faults["set a clock back"] = _set_a_clock_back(clocks, self._choose)


async def mixed(
    place: Place,
    folder: Path,
    rounds: int,
    *,
    seconds: float,
    seed: int,
    said: Callable[[str], None],
    kinds: Sequence[str] = KINDS,
    processes: int = 3,
    messages: int = 0,
) -> str:
    """Cause faults for some seconds, and until enough messages were sent. Check, and do this a number of times.

    Returns what happened in all rounds.
    """
    happened: Counter[str] = Counter()
    for number in range(rounds):
        chance = random.Random(f"{seed} {number}")
        own = folder / str(number)
        own.mkdir()
        done: list[str] = []
        # each round has entities of its own, so it does not meet what an earlier one has left
        async with crowd(place.url, own, kinds, processes, namespace=f"round-{number}") as town:
            town.takes = (*town.takes, 0.4, 2.5)
            async with fed(town):
                until = time.monotonic() + seconds
                while time.monotonic() < until or len(town.sent) < messages:
                    await asyncio.sleep(chance.random())
                    name = chance.choice(list(place.faults))
                    done.append(name)
                    with town.away():
                        await place.faults[name](town, chance)
                    await more_done(town, len(town.journal.done))
            try:
                result = await checked(town)
            except AssertionError as error:
                raise AssertionError(f"round {number} of seed {seed}, after {done}: {error}") from None
        happened.update(done)
        said(f"round {number}: {', '.join(done)}: {result}")
    return f"{rounds} rounds; " + ", ".join(f"{name}: {count}" for name, count in sorted(happened.items()))


# -- the faults of workers ---------------------------------------------------------------------------------------------


def some_time(chance: random.Random) -> float:
    """Return a time between a tenth of a second and the longest pause. Short times are as probable as long ones."""
    return float(0.1 * (LONGEST / 0.1) ** chance.random())


async def _kill_a_worker(town: Town, chance: random.Random) -> None:
    victim = chance.choice(list(town.living))
    await town.working(victim)
    await town.kill(victim)
    await town.start()


async def _suspend_a_worker(town: Town, chance: random.Random) -> None:
    """Stop a worker process for a time. Its locks end if the time is long."""
    victim = chance.choice(list(town.living))
    await town.working(victim)
    town.living[victim].send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(some_time(chance))
    finally:
        town.living[victim].send_signal(signal.SIGCONT)


# -- the faults of one server ------------------------------------------------------------------------------------------


def _pause(choose: Callable[[], LocalServer], time_of: Callable[[random.Random], float] = some_time) -> Fault:
    async def fault(town: Town, chance: random.Random) -> None:
        del town
        server = await asyncio.to_thread(choose)
        await asyncio.to_thread(server.pause)
        try:
            await asyncio.sleep(time_of(chance))
        finally:
            await asyncio.to_thread(server.resume)

    return fault


def _cut(choose: Callable[[], LocalServer]) -> Fault:
    """Cut connections: those that listen, those that call, or all."""

    async def fault(town: Town, chance: random.Random) -> None:
        del town
        server = await asyncio.to_thread(choose)
        for kind in chance.choice([("normal",), ("pubsub",), ("pubsub", "normal")]):
            for _ in range(chance.randrange(1, 5)):
                await asyncio.to_thread(server.ask, "CLIENT", "KILL", "TYPE", kind)
                await asyncio.sleep(0.05 * chance.random())

    return fault


def _restart(server: LocalServer) -> Fault:
    """Kill a server that has stored all that it acknowledged, and start it again after a time."""

    async def fault(town: Town, chance: random.Random) -> None:
        del town
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(some_time(chance))
        await asyncio.to_thread(server.start)

    return fault


def _set_a_clock_back(clocks: Clocks, choose: Callable[[], LocalServer]) -> Fault:
    async def fault(town: Town, chance: random.Random) -> None:
        del town
        server = await asyncio.to_thread(choose)
        clocks.set_back(server, _LEAP * chance.random())

    return fault


@contextmanager
def one_server(binary: str | None, folder: Path) -> Generator[Place]:
    with LocalServer(binary=binary, directory=folder / "data", config=KEEPS_ALL) as server:
        yield Place(server.url, _of_one(server), lambda: server)


@contextmanager
def over_tls(binary: str | None, folder: Path) -> Generator[Place]:
    """A server that speaks TLS too. Its other port is for the faults. Debian's redis-server has TLS."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    port = free_port()
    config = KEEPS_ALL | {
        "tls-port": str(port),
        "tls-cert-file": str(folder / "server.pem"),
        "tls-key-file": str(folder / "server.pem"),
        "tls-ca-cert-file": str(folder / "ca.pem"),
        "tls-auth-clients": "no",
    }
    with LocalServer(binary=binary or "path:redis-server", directory=folder / "data", config=config) as server:
        yield Place(f"rediss://localhost:{port}?tls_ca={folder / 'ca.pem'}", _of_one(server), lambda: server)


def _of_one(server: LocalServer) -> dict[str, Fault]:
    def choose() -> LocalServer:
        return server

    return {"pause the server": _pause(choose), "cut connections": _cut(choose), "restart the server": _restart(server)}


@contextmanager
def embedded(binary: str | None, folder: Path) -> Generator[Place]:
    """The server that the processes of a machine share: who finds it missing starts it again."""
    data = folder / "data"
    with acquire(data, binary=binary, fsync="always") as lease:

        async def kill(town: Town, chance: random.Random) -> None:
            del town, chance
            with redis.Redis(unix_socket_path=lease.socket_path) as client:
                os.kill(int(client.info("server")["process_id"]), signal.SIGKILL)
            await asyncio.to_thread(lease.ensure_running)

        yield Place(f"embedded://{data}?fsync=always", {"kill the server": kill})


# -- the faults of several servers -------------------------------------------------------------------------------------


@contextmanager
def behind_sentinels(binary: str | None, folder: Path) -> Generator[Place]:
    del folder
    with LocalSentinel(2, config=KEEPS_ALL, binary=binary) as group:

        def choose() -> LocalServer:
            return group.master

        async def replace(town: Town, chance: random.Random) -> None:
            """Kill the master. When another one was chosen, it comes back."""
            del town
            old = await asyncio.to_thread(group.kill_master)

            def promoted() -> bool:
                try:
                    return group.master is not old
                except LookupError:
                    return False

            await eventually(lambda: asyncio.to_thread(promoted), 60)
            await asyncio.sleep(some_time(chance))
            await asyncio.to_thread(old.restart)
            await asyncio.to_thread(group.wait_until_ok, 60)

        yield Place(
            f"{group.url}?durability=replicated",
            {
                "pause the master": _pause(choose, some_moment),
                "cut connections": _cut(choose),
                "replace the master": replace,
            },
            choose,
        )


def some_moment(chance: random.Random) -> float:
    """Return a time that is so short that no other server takes the place of one that is paused."""
    return 0.3 * chance.random()


@contextmanager
def in_a_cluster(binary: str | None, folder: Path) -> Generator[Place]:
    """Three masters with a replica each. An acknowledged call is on both."""
    del folder
    with LocalCluster(3, 1, node_timeout=2000, binary=binary) as cluster:

        def choose() -> LocalServer:
            return random.choice(cluster.masters)

        async def replace(town: Town, chance: random.Random) -> None:
            """Kill the master of an entity. When its replica has taken its place, it comes back."""
            master = await asyncio.to_thread(cluster.master_of, await _a_slot(town, chance))
            await asyncio.to_thread(master.kill)
            await asyncio.to_thread(cluster.wait_until_ok, 60)
            await asyncio.to_thread(master.restart)
            await asyncio.to_thread(cluster.wait_until_ok, 60)

        async def change_places(town: Town, chance: random.Random) -> None:
            master = await asyncio.to_thread(cluster.master_of, await _a_slot(town, chance))
            (replica,) = await asyncio.to_thread(cluster.replicas_of, master)
            await asyncio.to_thread(cluster.failover, replica, timeout=60)

        def move(atomic: bool) -> Fault:
            async def fault(town: Town, chance: random.Random) -> None:
                await asyncio.to_thread(move_there_and_back, cluster, await _a_slot(town, chance), atomic=atomic)

            return fault

        async def suspend(town: Town, chance: random.Random) -> None:
            """Pause a master. If it is paused for long, its replica takes its place."""
            await _pause(choose)(town, chance)
            await asyncio.to_thread(cluster.wait_until_ok, 60)

        moves = {"move a slot at once": move(True)} if cluster.supports_atomic_migration else {}
        yield Place(
            f"{cluster.url}?durability=replicated",
            {
                "pause a master": suspend,
                "cut connections": _cut(choose),
                "replace a master": replace,
                "exchange master and replica": change_places,
                "move a slot key by key": move(False),
            }
            | moves,
            choose,
        )


async def _a_slot(town: Town, chance: random.Random) -> int:
    """Return the slot of one of the entities."""
    entity = await town.client._connection.entity(chance.choice(town.kinds), asyncio.get_running_loop().time() + 60)
    return key_slot(entity.partition(entity.numbers[0]).keys[0])


PLACES: Mapping[str, Callable[[str | None, Path], AbstractContextManager[Place]]] = {
    "cluster": in_a_cluster,
    "sentinel": behind_sentinels,
    "server": one_server,
    "tls": over_tls,
    "embedded": embedded,
}
