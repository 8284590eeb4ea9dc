"""Waking waiting receivers: the causes, the number of receivers that are woken, faults, and the cost of waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.engine import perform
from sbredis.model import ServiceBusReceivedMessage
from sbredis.receiving._credit import CreditState
from sbredis.servers import ClusterNode, LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.access.users import nodes_of
from tests.aio.queues import Calls, HandClock, Queue, at_rest, bodies, both, in_memory, on_servers, queue_at
from tests.transport.hand import turns
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.everywhere("a receiver listens to several nodes")]

Waiting = asyncio.Task[list[ServiceBusReceivedMessage]]


async def waits(queue: Queue, receiver: ServiceBusReceiver, wanted: int = 1, seconds: float = 20) -> Waiting:
    """Start a receive call and wait until it is registered in every partition."""
    before = await queue.waiters()
    task = asyncio.create_task(receiver.receive_messages(wanted, seconds))
    await eventually(lambda: registered(queue, before + len(queue.partitions)))
    return task


async def registered(queue: Queue, count: int) -> bool:
    return await queue.waiters() == count


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
        task = await waits(queue, queue.receiver())
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
async def test_an_earlier_due_time_wakes_a_sleeping_receiver(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        task = await waits(queue, queue.receiver())
        await queue.send("a", at=-1, due=round(time.time() * 1000) + 150)
        assert bodies(await task) == ["a"]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["server"], indirect=True)  # each of these tests takes ten seconds
@pytest.mark.parametrize(("how", "partitioned"), [("wants nothing any more", False), ("is closed", True)])
async def test_a_receiver_that_stops_waiting_passes_on_the_due_time_that_it_knew(
    url: str, partitioned: bool, how: str
) -> None:
    """One of two receivers is woken when the message is scheduled, and then it stops waiting. The other receiver still
    gets the message in time.
    """
    async with queue_at(url, partitioned=partitioned) as queue:
        receivers = queue.receiver(), queue.receiver()
        tasks = [await waits(queue, each, seconds=60) for each in receivers]
        await queue.send(
            "a", at=-1, due=round(time.time() * 1000) + 10_000
        )  # the steps before this wait take much less time
        inboxes = [each._inbox for each in receivers if each._inbox is not None]
        sources = [source for inbox in inboxes for source in inbox.drivers]
        drivers = [source for source in sources if source.partition_client.number == queue.entity.numbers[-1]]
        clock = queue.client._connection.clock

        def keepers() -> list[bool]:
            return [driver.credit._due_at < clock.now() + 10 for driver in drivers]

        await eventually(lambda: any(keepers()))
        woken = keepers().index(True)
        assert await registered(queue, 2 * len(queue.partitions))
        tasks[woken].cancel()
        await asyncio.gather(tasks[woken], return_exceptions=True)
        if how == "is closed":
            await receivers[woken].close()
        begun = asyncio.get_running_loop().time()
        assert bodies(await tasks[1 - woken]) == ["a"]
        # this is long before the receiver would look again by itself
        assert asyncio.get_running_loop().time() - begun < 20


@both
async def test_moving_the_test_clock_delivers_a_due_message(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue:
        await queue.send("a", at=-1, due=clock.told() + 3_600_000)
        task = await waits(queue, queue.receiver())
        clock.move(3599)
        clock.move(1)
        assert bodies(await task) == ["a"]


@both
async def test_a_receiver_of_the_dead_letter_queue_is_woken(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        await queue.send("a", at=-1)
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 60)
        task = await waits(queue, queue.receiver(sub_queue="deadletter"))
        await receiver.dead_letter_message(message)
        assert bodies(await task) == ["a"]


# -- the receivers that are woken --------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_only_one_waiting_receiver_is_woken_for_each_message(url: str, partitioned: bool) -> None:
    """Ten receivers wait. A message causes at most one call of one receiver, and no call of the others."""
    async with queue_at(url, partitioned=partitioned) as queue:
        receivers = [queue.receiver() for _ in range(10)]
        tasks = [await waits(queue, receiver) for receiver in receivers]
        for place in range(3):
            with Calls(queue.transport) as calls:
                await queue.send("x", at=-1)
                await eventually(lambda place=place: sum(task.done() for task in tasks) == place + 1)
                assert calls.by_script["grant"] == partitioned  # without partitions, the message is pushed
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.slow
@both
async def test_all_waiting_receivers_get_their_messages(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        receivers = [queue.receiver() for _ in range(3)] + [other.get_queue_receiver("q") for _ in range(3)]
        tasks = [await waits(queue, receiver, 2) for receiver in receivers]
        await queue.fill(12, at=-1)
        received = await asyncio.gather(*tasks)
        assert sorted(int(body) for messages in received for body in bodies(messages)) == list(range(12))


@both
async def test_a_receiver_that_stopped_waiting_passes_its_wake_on_to_another_receiver(
    url: str, partitioned: bool
) -> None:
    """The receiver passes the wake on immediately, and not only at its next call."""
    async with queue_at(url, partitioned=partitioned) as queue:
        quitter, patient = queue.receiver(), queue.receiver()
        gone = await waits(queue, quitter)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        task = await waits(queue, patient)
        begun = asyncio.get_running_loop().time()
        await queue.send("a", at=-1)
        assert bodies(await task) == ["a"]
        assert asyncio.get_running_loop().time() - begun < 20
        assert bodies(await quitter.receive_messages(1, 0.05)) == []


@both
async def test_a_receiver_woken_by_two_partitions_passes_one_wake_on_to_another_receiver(
    url: str, partitioned: bool
) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        first = await waits(queue, queue.receiver())
        second = await waits(queue, queue.receiver())
        begun = asyncio.get_running_loop().time()
        await queue.send("a", at=0)
        await queue.send("b", at=-1)
        assert sorted(bodies([*await first, *await second])) == ["a", "b"]
        assert asyncio.get_running_loop().time() - begun < 20


@both
async def test_a_receiver_is_unregistered_when_it_closes(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        gone = queue.receiver()
        await queue.register_waiter(gone)
        task = await waits(queue, queue.receiver())
        await gone.close()
        assert await queue.waiters() == len(queue.partitions)
        begun = asyncio.get_running_loop().time()
        await queue.send("a", at=-1)
        assert bodies(await task) == ["a"]
        assert asyncio.get_running_loop().time() - begun < 20


@pytest.mark.slow
@in_memory
async def test_an_idle_receiver_is_woken_only_once(url: str) -> None:
    """After its notice the receiver has looked once, and no longer waits."""
    async with queue_at(url, partitioned=True) as queue:
        receiver = queue.receiver()
        await queue.register_waiter(receiver)
        with Calls(queue.transport) as calls:
            for _ in range(20):
                await queue.send("a", at=1)
                await turns(20)
            await eventually(lambda: registered(queue, 2))
        assert calls.by_script["grant"] == 1


@both
async def test_an_idle_receiver_that_was_woken_without_a_message_does_not_register_again(
    url: str, partitioned: bool
) -> None:
    """In the meantime another receiver took the message, so there is no notice to pass on."""
    async with queue_at(url, partitioned=partitioned) as queue:
        receiver = queue.receiver()
        await queue.send("a", at=-1)
        locks = await queue.take(at=-1)
        await queue.register_waiter(receiver)
        with Calls(queue.transport) as calls:
            await asyncio.gather(queue.abandon(locks, at=-1), queue.take(at=-1))
            await eventually(lambda: registered(queue, len(queue.partitions) - 1))
            await at_rest(receiver)
            # One is the call of `take`. Without partitions, the credit was withdrawn before.
            assert calls.by_script["grant"] == 1 + partitioned
        assert await queue.waiters() == len(queue.partitions) - 1
        task = asyncio.create_task(receiver.receive_messages(1, 60))
        await queue.wait_for_waiters()
        await queue.send("b", at=-1)
        assert bodies(await task) == ["b"]


# -- faults ------------------------------------------------------------------------------------------------------------


@on_servers
@both
async def test_a_receiver_looks_again_after_losing_its_pubsub_connection(
    url: str, target: str, partitioned: bool, request: pytest.FixtureRequest
) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        task = await waits(queue, queue.receiver())
        for node in nodes_of(request.getfixturevalue(target)):
            node.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await queue.send("a", at=-1)
        assert bodies(await task) == ["a"]
        await queue.process_due()


@both
async def test_a_receiver_is_woken_by_a_restarted_server(binary: str | None, partitioned: bool) -> None:
    with LocalServer(binary=binary, config={"appendonly": "yes", "appendfsync": "always"}) as server:
        async with queue_at(server.url, partitioned=partitioned) as queue:
            task = await waits(queue, queue.receiver())
            server.kill()
            server.restart()
            await queue.counts()  # the client connects again
            await queue.send("a", at=-1)
            assert bodies(await task) == ["a"]


@pytest.mark.parametrize("target", ["cluster"], indirect=True)
@pytest.mark.parametrize("way", ["classic", "atomic"])
async def test_a_receiver_follows_a_slot_that_moves(url: str, cluster: LocalCluster, way: str) -> None:
    if way == "atomic" and not cluster.supports_atomic_migration:
        pytest.skip("this server has no CLUSTER MIGRATESLOTS (Valkey 9 has)")

    def migrate(slot: int, to: ClusterNode) -> None:
        (cluster.migrate_slot_atomic if way == "atomic" else cluster.migrate_slot_classic)(slot, to)

    async with queue_at(url) as queue:
        task = await waits(queue, queue.receiver())
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
            task = await waits(queue, receiver, seconds=60)
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


@in_memory
async def test_a_receiver_registers_again_before_its_registration_ends(url: str) -> None:
    """A registration lasts thirty seconds. The receiver registers again after twenty-five seconds."""
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        inbox = receiver._inbox
        assert inbox is not None
        (driver,) = inbox.drivers
        clock = queue.client._connection.clock
        await eventually(lambda: driver.credit.state is CreditState.OPEN)
        assert 20 < driver.credit.next_at - clock.now() <= 120
        await perform(queue.transport, queue.partitions[0].due(queue.call_id))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
