"""Faults that workers meet at work: each scene causes one a number of times, and checks every handling."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.waiting import eventually
from tests.workers.chaos.journal import summary
from tests.workers.chaos.programs import Town, crowd

__all__ = [
    "checked",
    "failovers",
    "fed",
    "kills",
    "more_done",
    "move_there_and_back",
    "outages",
    "pauses",
    "planted",
    "terminations",
]

LONG_LOCK = timedelta(seconds=60)
PAUSE = 1.3
"""The seconds of a pause of the server. It is much shorter than the lock of a message, and longer than the second in
which a receiver that was woken has to come.
"""


@asynccontextmanager
async def fed(town: Town) -> AsyncGenerator[None]:
    """Send messages to the workers while the block runs."""
    feeding = asyncio.create_task(town.feed())
    try:
        yield
        assert not feeding.done(), feeding.exception()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def checked(town: Town) -> str:
    """Wait until everything is handled, check it, and return the counts."""
    await town.finished()
    exempt = town.unsafe | town.unknown
    outputs = [each for each in await town.outputs() if each not in exempt]
    assert outputs == sorted(town.to_out - exempt)
    faults = town.faults()
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:10]])
    in_sessions = [each for each in town.handlings() if each.session is not None and each.message not in town.to_out]
    assert not in_sessions or any(each.acknowledged for each in in_sessions), "no completion in a session was noted"
    inputs = len(set(town.sent) - exempt)
    return f"{inputs:,} inputs acknowledged, {len(outputs):,} outputs, {summary(town.handlings())}"


async def replace_workers(town: Town, times: int, end: Callable[[int], Awaitable[object]]) -> None:
    """End one of the workers while it holds messages, again and again, and start another in its place."""
    chance = random.Random(times)
    async with fed(town):
        for _ in range(times):
            victim = chance.choice(list(town.living))
            await town.working(victim)
            await asyncio.sleep(chance.random() * 0.1)  # at any moment of its work
            await end(victim)
            await town.start()


async def kills(server: LocalServer, folder: Path, times: int, kinds: tuple[str, ...], workers: int) -> str:
    """Kill one of the workers while it holds messages, again and again."""
    async with crowd(server.url, folder, kinds, workers) as town:
        town.takes = (*town.takes, *town.takes, 0.4, 2.5)
        await replace_workers(town, times, town.kill)
        return await checked(town)


async def terminations(server: LocalServer, folder: Path, times: int, kinds: tuple[str, ...], workers: int) -> str:
    """Send SIGTERM to one of the workers while it holds messages, again and again."""
    async with crowd(server.url, folder, kinds, workers, shutdown_timeout=1.0) as town:
        town.takes = (*town.takes, 0.2, 0.5)
        town.long = tuple(kind for kind in kinds if kind != "thread"), 3.0  # nothing cuts off a thread

        async def end(victim: int) -> None:
            code = await town.terminate(victim)
            assert code == 0, f"the worker ended with {code}"

        await replace_workers(town, times, end)
        result = await checked(town)
        attempts = {each.attempt for each in town.handlings()}
        assert attempts == {1}, attempts
        return result


async def outages(folder: Path, times: int, kinds: tuple[str, ...], workers: int, seconds: float) -> str:
    """Kill the server while the workers handle messages, and start it again after a time with all that it has stored.

    A message is handled twice only if its lock has ended. The workers say that they are not ready, and go on by
    themselves.
    """
    config = {"appendonly": "yes", "appendfsync": "always"}
    with LocalServer(directory=folder / "data", config=config) as server:
        async with crowd(server.url, folder, kinds, workers, http="127.0.0.1:0") as town:
            town.takes = (*town.takes, 0.4, 2.5)
            async with fed(town):
                for _ in range(times):
                    for pid in town.living:
                        await town.working(pid)
                    await eventually(lambda: ready(town, workers, True))
                    with town.away():
                        await asyncio.to_thread(server.kill)
                        away = asyncio.create_task(asyncio.sleep(seconds))
                        await eventually(lambda: ready(town, workers, False))
                        await away
                        done = len(town.journal.done)
                        await asyncio.to_thread(server.start)
                        await eventually(lambda: ready(town, workers, True))
                    await more_done(town, done)
            return await checked(town)


async def ready(town: Town, workers: int, expected: bool) -> bool:
    return await town.ready() == [expected] * workers


async def more_done(town: Town, count: int) -> None:
    """Wait until more than this many messages have been handled."""

    def done() -> bool:
        town.journal.look()
        return len(town.journal.done) > count

    await eventually(done)


async def pauses(server: LocalServer, folder: Path, times: int, kinds: tuple[str, ...], workers: int) -> str:
    """Stop the server for a short time right after messages were sent to workers that are idle, again and again.

    No lock ends in this time, so no message is handled twice.
    """
    chance = random.Random(times)
    async with crowd(server.url, folder, kinds, workers, lock=LONG_LOCK) as town:
        await town.send_one_by_one()
        for _ in range(times):
            await town.finished()  # all workers are idle
            town.takes = (0.0, 0.01, 2 * PAUSE)
            sending = asyncio.create_task(town.send_one_by_one())
            await asyncio.sleep(chance.random() * 0.03)  # at any moment between the first message and the last
            await asyncio.to_thread(server.pause)
            await asyncio.sleep(PAUSE)
            await asyncio.to_thread(server.resume)
            await sending
        return await checked(town)


async def planted(server: LocalServer, folder: Path, numbers: set[int]) -> list[str]:
    """Let the handlers of these messages give them away while they run. Return what the check has found."""
    async with crowd(server.url, folder, ("plain",), 2) as town:
        town.planted |= numbers
        town.takes = (0.5,)
        await town.send("plain", max(numbers) + 1)
        await town.finished()
        return town.faults()


async def failovers(
    cluster: LocalCluster, folder: Path, times: int, kinds: tuple[str, ...], *, replicated: bool
) -> str:
    """Kill the master of an entity while workers handle its messages; and move its slot to another master and back.

    With the durability ``replicated`` an acknowledged call is never undone: no message is lost, and a message is
    handled again only if its lock has ended. With ``master`` the calls that had not reached the replica are undone. A
    message that was sent then may be lost. A message that was locked or completed then may be handled again, even at
    once. The promise holds for all other messages: those whose calls were on the replica when the master was killed,
    and those that were sent after the failover.
    """
    durability = "replicated" if replicated else "master"
    async with crowd(f"{cluster.url}?durability={durability}", folder, kinds, 2, ahead=replicated) as town:
        town.takes = (*town.takes, 0.4, 2.5)
        entity = await town.client._connection.entity(kinds[0], asyncio.get_running_loop().time() + 60)
        slot = key_slot(entity.partition(entity.numbers[0]).keys[0])
        async with fed(town):
            for turn in range(times):
                for pid in town.living:
                    await town.working(pid)
                master = await asyncio.to_thread(cluster.master_of, slot)
                with town.away():
                    if turn % 2:
                        atomic = cluster.supports_atomic_migration
                        await asyncio.to_thread(move_there_and_back, cluster, slot, atomic=atomic)
                    else:
                        await asyncio.to_thread(master.ask, "WAIT", 1, 60_000, timeout=70)
                        before = time.time()
                        await asyncio.to_thread(master.kill)
                        await asyncio.to_thread(cluster.wait_until_ok, 60)
                        if not replicated:
                            town.forget(before, time.time())
                        await asyncio.to_thread(master.restart)
                        await asyncio.to_thread(cluster.wait_until_ok, 60)
                    await more_done(town, len(town.journal.done))
        result = await checked(town)
        return f"{durability}: {result}" + ("" if replicated else f"; nothing was promised about {len(town.unsafe)}")


def move_there_and_back(cluster: LocalCluster, slot: int, *, atomic: bool) -> None:
    """Move a slot to another master and back, at once or key by key."""
    home = cluster.master_of(slot)
    other = next(node for node in cluster.masters if node is not home)
    for node in (other, home):
        if atomic:
            cluster.migrate_slot_atomic(slot, node)
        else:
            cluster.migrate_slot_classic(slot, node)
