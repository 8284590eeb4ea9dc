"""Waking waiting receivers: the causes, the number of receivers that are woken, faults, and the cost of waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from sbredis.servers import ClusterNode, LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.access.users import nodes_of
from tests.aio.queues import Calls, HandClock, Queue, bodies, both, on_servers, queue_at
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("a receiver listens to several nodes")

# -- the causes --------------------------------------------------------------------------------------------------------


async def _released(queue: Queue) -> None:
    await queue.abandon(await queue.take(at=-1), at=-1)


async def _given_back(queue: Queue) -> None:
    await queue.abandon(await queue.take(at=-1), at=-1, counted=False)


@both
@pytest.mark.parametrize("release", [_released, _given_back])
async def test_a_message_released_by_another_receiver_wakes_a_waiting_one(
    url: str, partitioned: bool, release: Callable[[Queue], Awaitable[None]]
) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        await queue.send("a", at=-1)
        locks = await queue.take(at=-1)
        task = await queue.waits(queue.receiver())
        await queue.abandon(locks, at=-1, counted=release is _released)
        (message,) = await task
        assert message.delivery_count == (2 if release is _released else 1)


@both
@pytest.mark.parametrize("what", ["scheduled", "delayed", "locked"])
async def test_a_receiver_sleeps_until_a_message_is_due(url: str, partitioned: bool, what: str) -> None:
    """The partition told the receiver the due time. At that time the receiver asks again."""
    async with queue_at(url, partitioned=partitioned, lock_duration=150 if what == "locked" else 60_000) as queue:
        if what == "scheduled":
            await queue.send("a", at=-1, due=round(time.time() * 1000) + 150)
        else:
            await queue.send("a", at=-1)
            if what == "locked":
                await queue.take(at=-1)
            else:
                async with queue.receiver() as receiver:
                    (message,) = await receiver.receive_messages(1, 60)
                    await receiver.abandon_message(message, delay=timedelta(seconds=0.15))
        begun = asyncio.get_running_loop().time()
        assert bodies(await queue.receiver().receive_messages(1, 60)) == ["a"]
        assert asyncio.get_running_loop().time() - begun < 20


@both
async def test_moving_the_test_clock_delivers_a_due_message(queue: Queue, clock: HandClock) -> None:
    await queue.send("a", at=-1, due=clock.told() + 3_600_000)
    task = await queue.waits(queue.receiver())
    clock.move(3599)
    clock.move(1)
    assert bodies(await task) == ["a"]


@both
async def test_a_receiver_of_the_dead_letter_queue_is_woken(queue: Queue) -> None:
    await queue.send("a", at=-1)
    receiver = queue.receiver()
    (message,) = await receiver.receive_messages(1, 60)
    task = await queue.waits(queue.receiver(sub_queue="deadletter"))
    await receiver.dead_letter_message(message)
    assert bodies(await task) == ["a"]


# -- the receivers that are woken --------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_only_one_waiting_receiver_is_woken_for_each_message(queue: Queue, partitioned: bool) -> None:
    """Ten receivers wait. A message causes at most one call of one receiver, and no call of the others."""
    receivers = [queue.receiver() for _ in range(10)]
    tasks = [await queue.waits(receiver) for receiver in receivers]
    for place in range(3):
        with Calls(queue.transport) as calls:
            await queue.send("x", at=-1)
            await eventually(lambda place=place: sum(task.done() for task in tasks) == place + 1)
            assert calls.by_script["grant"] == partitioned  # without partitions, the message is pushed
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# -- faults ------------------------------------------------------------------------------------------------------------


@both
async def test_a_receiver_is_woken_by_a_restarted_server(binary: str | None, partitioned: bool) -> None:
    with LocalServer(binary=binary, config={"appendonly": "yes", "appendfsync": "always"}) as server:
        async with queue_at(server.url, partitioned=partitioned) as queue:
            task = await queue.waits(queue.receiver())
            server.kill()
            server.restart()
            await queue.counts()  # the client connects again
            await queue.send("a", at=-1)
            assert bodies(await task) == ["a"]


@pytest.mark.parametrize("target", ["cluster"], indirect=True)
@pytest.mark.parametrize("way", ["classic", "atomic"])
async def test_a_receiver_follows_a_slot_that_moves(queue: Queue, cluster: LocalCluster, way: str) -> None:
    if way == "atomic" and not cluster.supports_atomic_migration:
        pytest.skip("this server has no CLUSTER MIGRATESLOTS (Valkey 9 has)")

    def migrate(slot: int, to: ClusterNode) -> None:
        (cluster.migrate_slot_atomic if way == "atomic" else cluster.migrate_slot_classic)(slot, to)

    task = await queue.waits(queue.receiver())
    slot = key_slot(queue.partitions[0].keys[0])
    source = cluster.master_of(slot)
    target = next(node for node in cluster.masters if node.port != source.port)
    try:
        await asyncio.to_thread(migrate, slot, target)
        await queue.send("a")
        assert bodies(await task) == ["a"]
    finally:
        await asyncio.to_thread(migrate, slot, source)


# -- the cost of waiting -----------------------------------------------------------------------------------------------


def commands(node: LocalServer) -> dict[str, int]:
    """Return the number of executions of each command on a server."""
    said = node.ask("INFO", "commandstats")
    assert isinstance(said, str)
    lines = [line for line in said.splitlines() if line.startswith("cmdstat_")]
    return {line.split(":")[0][8:]: int(line.split("calls=")[1].split(",")[0]) for line in lines}


@on_servers
async def test_waiting_costs_less_than_one_command_per_second_on_each_server(
    url: str, target: str, request: pytest.FixtureRequest
) -> None:
    """The servers themselves count the commands while a receiver waits at sixteen partitions."""
    running: LocalServer | LocalCluster = request.getfixturevalue(target)
    async with queue_at(url, partitioned=True, partitions=16) as queue:
        async with queue.receiver() as receiver:
            task = await queue.waits(receiver, seconds=60)
            before = [commands(node) for node in nodes_of(running)]
            begun = asyncio.get_running_loop().time()
            await asyncio.wait((task,), timeout=1.5)
            seconds = asyncio.get_running_loop().time() - begun
            for node, was in zip(nodes_of(running), before, strict=True):
                calls = {name: count - was.get(name, 0) for name, count in commands(node).items()}
                ours = {name: count for name, count in calls.items() if count and name not in {"info", "ping"}}
                ours = {name: count for name, count in ours.items() if not name.startswith("cluster")}
                assert sum(ours.values()) <= seconds, ours
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await queue.waiters() == 0
