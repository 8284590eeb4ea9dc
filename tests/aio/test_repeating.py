"""After lost answers, kills, pauses and failovers, repeated calls run only once: one message, one settlement."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Self

import pytest

from benchmarks.faults import in_thread
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.exceptions import Outcome, ServiceBusError, ServiceBusQuotaExceededError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.aio.gates import stored_bodies
from tests.aio.queues import Queue, both, queue_at
from tests.aio.scissors import Scissors
from tests.aio.test_sending import flat
from tests.waiting import eventually

SOON = datetime(2030, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def behind_scissors(server: LocalServer, *, partitioned: bool = False) -> AsyncIterator[tuple[Queue, Scissors]]:
    """Create a queue, and a client that reaches its server through a network that a test can cut."""
    async with (
        queue_at(server.url, partitioned=partitioned) as queue,
        Scissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns") as client,
    ):
        yield Queue(client, queue.entity, queue.url, None), network


# -- lost answers ------------------------------------------------------------------------------------------------------


@both
async def test_many_sends_with_lost_answers_store_each_message_once(server: LocalServer, *, partitioned: bool) -> None:
    async with (
        behind_scissors(server, partitioned=partitioned) as (queue, network),
        queue.client.get_queue_sender("q") as sender,
    ):
        expected = sorted(str(number) for number in range(200))
        network.cut("send", 5)
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage(body)) for body in expected[:100]))
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage(body)) for body in expected[100:]))
        assert flat(await stored_bodies(queue)) == expected
        assert network.cuts == 5


async def test_scheduling_and_cancelling_with_lost_answers_run_once(server: LocalServer) -> None:
    async with behind_scissors(server) as (queue, network), queue.client.get_queue_sender("q") as sender:
        network.cut("send")
        numbers = await sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], SOON)
        assert network.cuts == 1
        assert (await queue.counts()).scheduled == 2
        network.cut("cancel")
        await sender.cancel_scheduled_messages(numbers[0])
        assert network.cuts == 2
        assert flat(await stored_bodies(queue)) == ["b"]


Settlement = Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Awaitable[object]]
SETTLEMENTS: dict[str, tuple[Settlement, dict[str, int]]] = {
    "complete": (ServiceBusReceiver.complete_message, {}),
    "abandon": (ServiceBusReceiver.abandon_message, {"active": 1}),
    "defer": (ServiceBusReceiver.defer_message, {"deferred": 1}),
    "dead_letter": (ServiceBusReceiver.dead_letter_message, {"dead_active": 1}),
    "renew": (ServiceBusReceiver.renew_message_lock, {"locked": 1}),
}


@pytest.mark.parametrize("script", SETTLEMENTS)
async def test_a_settlement_with_a_lost_answer_is_done_once(server: LocalServer, script: str) -> None:
    """The first call was executed. When it is repeated, it succeeds and reports no lost lock."""
    settle, expected = SETTLEMENTS[script]
    async with behind_scissors(server) as (queue, network):
        await queue.send("x")
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 5)
        network.cut(script, 2)
        await settle(receiver, message)
        assert network.cuts == 2
        counts = await queue.counts()
        columns = ("active", "locked", "delayed", "deferred", "scheduled", "dead_active", "dead_locked")
        assert {name: value for name in columns if (value := getattr(counts, name))} == expected
        if script == "abandon":
            (again,) = await receiver.receive_messages(1, 5)
            assert again.delivery_count == 2


async def test_a_send_that_is_cut_off_after_a_refused_send_stores_one_message(server: LocalServer) -> None:
    """The server has not recorded the lane of the refused call. So the client knows that the call that was cut off did
    not run.
    """
    async with (
        queue_at(server.url, quota=2000) as queue,
        Scissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns") as client,
        client.get_queue_sender("q") as sender,
    ):
        with pytest.raises(ServiceBusQuotaExceededError) as caught:
            await sender.send_messages(ServiceBusMessage("x" * 3000))
        assert caught.value.outcome is Outcome.REFUSED
        network.cut("send", on_the_way=True)
        await sender.send_messages(ServiceBusMessage("y"))
        assert network.cuts == 1
        assert flat(await stored_bodies(queue)) == ["y"]


# -- killed and paused servers -----------------------------------------------------------------------------------------


class Crowd:
    """Callers that each send messages one after the other, half of them with a key. They record the outcome of each
    send.
    """

    def __init__(self, sender: ServiceBusSender) -> None:
        self.acknowledged: set[str] = set()
        self.failed: dict[str, BaseException] = {}
        self._sender = sender
        self._stops = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(20)]
        await self.wait_for_progress()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stops = True
        await asyncio.gather(*self._tasks)

    async def _send(self, caller: int) -> None:
        number = 0
        while not self._stops:
            number += 1
            body = f"{caller}-{number}"
            message = ServiceBusMessage(body, partition_key=str(caller) if caller % 2 else None)
            try:
                await self._sender.send_messages(message, timeout=120)
            except Exception as error:  # noqa: BLE001  # checked at the end
                self.failed[body] = error
            else:
                self.acknowledged.add(body)
            await asyncio.sleep(0)

    async def wait_for_progress(self) -> None:
        """Wait until many more messages are acknowledged."""
        goal = len(self.acknowledged) + 100
        await eventually(lambda: len(self.acknowledged) >= goal, timeout=120)


async def check_outcomes(crowd: Crowd, url: str, *, loses: bool = False) -> None:
    """Check that no message exists twice, that every acknowledged message exists, and that errors state the true
    outcome.
    """
    async with ServiceBusClient(url, namespace="ns") as client:
        entity = await client._connection.entity("q", asyncio.get_running_loop().time() + 60)
        counts = Counter(flat(await stored_bodies(Queue(client, entity, url, None))))
    assert [body for body, count in counts.items() if count > 1] == []
    lost = crowd.acknowledged - counts.keys()
    assert not lost or loses, f"{len(lost)} of {len(crowd.acknowledged)} were lost"
    for body, error in crowd.failed.items():
        assert isinstance(error, ServiceBusError)
        assert error.outcome is Outcome.UNKNOWN or body not in counts


def slot_of(queue: Queue) -> int:
    """Return the slot of a partition of the queue."""
    return key_slot(queue.partitions[1].keys[0])


async def kill_the_master(cluster: LocalCluster, slot: int, _: Crowd) -> None:
    master = cluster.master_of(slot)
    await in_thread(master.kill)
    await in_thread(cluster.wait_until_ok)
    await in_thread(master.restart)


async def stop_the_master(cluster: LocalCluster, slot: int, _: Crowd) -> None:
    """Pause a master until its replica has taken over. When the old master continues, it learns that it is no longer
    the master.
    """
    master = cluster.master_of(slot)
    (replica,) = cluster.replicas_of(master)
    master.pause()
    try:
        await eventually(lambda: "role:master" in str(replica.ask("INFO", "replication")))
    finally:
        master.resume()
    await in_thread(cluster.wait_until_ok)


async def fail_over_by_hand(cluster: LocalCluster, slot: int, crowd: Crowd) -> None:
    for _ in range(2):
        await in_thread(cluster.failover, cluster.replicas_of(cluster.master_of(slot))[0])
        await crowd.wait_for_progress()


async def test_failovers_lose_and_duplicate_no_message(replicated_cluster: LocalCluster) -> None:
    """With ``durability=replicated``, every acknowledged message exists afterwards."""
    cluster = replicated_cluster
    async with (
        queue_at(f"{cluster.url}?durability=replicated", partitioned=True) as queue,
        queue.client.get_queue_sender("q") as sender,
    ):
        async with Crowd(sender) as crowd:
            for fault in (fail_over_by_hand, stop_the_master, kill_the_master):
                await fault(cluster, slot_of(queue), crowd)
                await crowd.wait_for_progress()
        assert crowd.failed == {}
    await check_outcomes(crowd, cluster.url)


async def test_a_failover_that_loses_messages_duplicates_none(replicated_cluster: LocalCluster) -> None:
    """With ``durability=master``, a failover may lose acknowledged messages and the records of calls."""
    cluster = replicated_cluster
    async with (
        queue_at(cluster.url, partitioned=True) as queue,
        queue.client.get_queue_sender("q") as sender,
        Crowd(sender) as crowd,
    ):
        await kill_the_master(cluster, slot_of(queue), crowd)
        await crowd.wait_for_progress()
    await check_outcomes(crowd, cluster.url, loses=True)


@both
async def test_a_killed_and_restarted_server_loses_nothing(binary: str | None, *, partitioned: bool) -> None:
    """The server writes its append-only file before it answers."""
    with LocalServer(binary=binary, config={"appendonly": "yes", "appendfsync": "always"}) as server:
        async with (
            queue_at(f"{server.url}?durability=fsync", partitioned=partitioned) as queue,
            queue.client.get_queue_sender("q") as sender,
        ):
            async with Crowd(sender) as crowd:
                for _ in range(2):
                    await in_thread(server.kill)
                    await in_thread(server.restart)
                    await crowd.wait_for_progress()
            assert crowd.failed == {}
        await check_outcomes(crowd, server.url)


async def test_a_paused_server_only_delays_sends(binary: str | None) -> None:
    with LocalServer(binary=binary) as server:
        async with queue_at(server.url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
            async with Crowd(sender) as crowd:
                server.pause()
                try:
                    await eventually(lambda: sender.in_flight == 20)
                finally:
                    server.resume()
                await crowd.wait_for_progress()
            assert crowd.failed == {}
        await check_outcomes(crowd, server.url)
