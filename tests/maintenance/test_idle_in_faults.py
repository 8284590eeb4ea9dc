"""The removal of unused entities while masters and slots of a cluster move: an accepted message is never lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import head_keys
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.registry import SLOTS_OF_NEW, Namespace
from sbredis.servers import ClusterNode, LocalCluster
from sbredis.testing import TestClock
from sbredis.transport import key_slot
from tests.waiting import eventually

QUEUES = 12
FIVE = timedelta(minutes=5)
IDLE = 300_000
LONG_ENOUGH = timedelta(minutes=6, seconds=1)


class Play:
    """Queues that nobody has used for long enough, clients that remove them, and users that send at that moment."""

    def __init__(self, client: ServiceBusClient, admin: ServiceBusAdministrationClient, clock: TestClock) -> None:
        self.client = client
        self.admin = admin
        self.clock = clock
        self.chance = random.Random(1)
        self.accepted: dict[str, set[str]] = {}
        self.outcomes: list[str] = []
        self.attempts = 0
        """The number of attempts to remove a queue of the present round."""

    async def namespace(self) -> Namespace:
        found = await self.client._connection.entity("first", asyncio.get_running_loop().time() + 60)
        return found.connection.namespace

    async def fill(self, round_: int) -> list[str]:
        """Create the queues of a round, each with one message, and let them become idle."""
        self.attempts = 0
        names = [f"r{round_}q{number}" for number in range(QUEUES)]
        for name in names:
            await self.admin.create_queue(name, auto_delete_on_idle=FIVE, enable_partitioning=True)
            self.accepted[name] = set()
            async with self.client.get_queue_sender(name) as sender:
                await sender.send_messages(ServiceBusMessage("before"))
        self.clock.advance(LONG_ENOUGH)
        return names

    async def remove(self, name: str, *, again: Callable[[], bool]) -> None:
        """Try to remove a queue, again and again for a while."""
        namespace = await self.namespace()
        while True:
            try:
                listed = {each.path: each for each in await namespace.list_entities(limit=1000)}
            except ServiceBusError as error:  # the list is not complete: a master is away
                self.outcomes.append(f"list: {type(error).__name__}")
                continue
            record = listed.get(name)
            if record is None:
                return
            self.attempts += 1
            try:
                if record.state == "deleting":
                    await namespace.finish_deletion(record, timeout=20)
                elif (await namespace.remove_if_idle(record, IDLE, timeout=20)).removed:
                    return
            except ServiceBusError as error:
                self.outcomes.append(f"remove: {type(error).__name__}")
            if not again():
                return

    async def send(self, name: str, body: str) -> None:
        """Send a message; note it if it was accepted."""
        moment = self.chance.randrange(QUEUES)
        await eventually(lambda: self.attempts > moment)
        async with self.client.get_queue_sender(name) as sender:
            try:
                await sender.send_messages(ServiceBusMessage(body, partition_key=body), timeout=60)
            except ServiceBusError as error:
                self.outcomes.append(f"send: {type(error).__name__}")
            else:
                self.accepted[name].add(body)
                self.outcomes.append("send: accepted")

    async def check(self, name: str) -> bool:
        """Check that each accepted message is in its queue. Return whether the queue is left."""
        try:
            left = (await self.admin.get_queue(name)) is not None
        except MessagingEntityNotFoundError:
            assert not self.accepted[name], f"{name} was removed with messages that were accepted"
            return False
        async with self.client.get_queue_receiver(name) as receiver:
            bodies = {str(message) for message in await receiver.peek_messages(100, sequence_number=1)}
            bodies |= {str(message) for message in await receiver.receive_messages(100, max_wait_time=2)}
        assert self.accepted[name] <= bodies, f"{name} has lost a message"
        return left


async def _kill(cluster: LocalCluster, master: ClusterNode) -> None:
    await asyncio.to_thread(master.kill)
    await asyncio.to_thread(cluster.wait_until_ok, 60)
    await asyncio.to_thread(master.restart)  # it becomes a replica, which confirms what its master writes


async def _fail_over(cluster: LocalCluster, master: ClusterNode) -> None:
    await asyncio.to_thread(cluster.failover, cluster.replicas_of(master)[0])


async def _move(cluster: LocalCluster, slot: int) -> None:
    home = cluster.master_of(slot)
    for node in (next(node for node in cluster.masters if node is not home), home):
        await asyncio.to_thread(cluster.migrate_slot_classic, slot, node)


@pytest.mark.long("it changes a cluster many times")
async def test_removals_are_completed_or_taken_back_while_masters_and_slots_of_a_cluster_move(
    replicated_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = replicated_cluster
    clock = TestClock(datetime.now(UTC))
    hooks = SimpleNamespace(clock=clock._clock, slots=SLOTS_OF_NEW, sent=lambda *_: None, used=lambda *_: None)
    monkeypatch.setattr("sbredis.client._connection.hooks_for", lambda _: hooks)
    url = f"{cluster.url}?durability=replicated"
    async with (
        ServiceBusClient(url, namespace="ns", maintenance=False) as client,
        ServiceBusAdministrationClient.from_connection_string(url, namespace="ns") as admin,
    ):
        await admin.create_queue("first")
        play = Play(client, admin, clock)
        registry = key_slot(head_keys("ns")[0])
        entity = await client._connection.entity("first", asyncio.get_running_loop().time() + 60)
        partition = key_slot(entity.partition(entity.numbers[0]).keys[0])
        disturb: list[Callable[[], Awaitable[None]]] = [
            lambda: _fail_over(cluster, cluster.master_of(registry)),
            lambda: _move(cluster, registry),
            lambda: _move(cluster, partition),
            lambda: _kill(cluster, cluster.master_of(partition)),
        ]
        left: list[str] = []
        for round_, disturbance in enumerate(disturb):
            names = await play.fill(round_)
            disturbed = asyncio.ensure_future(disturbance())
            async with asyncio.timeout(300), asyncio.TaskGroup() as group:
                for place, name in enumerate(names):
                    group.create_task(play.remove(name, again=lambda: not disturbed.done()))  # noqa: B023 -- awaited here
                    if place % 2:
                        group.create_task(play.send(name, f"{name} at the last moment"))
            await disturbed
            left += [name for name in names if await play.check(name)]
        assert "send: accepted" in play.outcomes, play.outcomes
        assert len(left) < len(disturb) * QUEUES, "no queue was removed"

        clock.advance(2 * LONG_ENOUGH)
        async with asyncio.timeout(300), asyncio.TaskGroup() as group:
            for name in left:
                group.create_task(play.remove(name, again=lambda: True))
        listed = await (await play.namespace()).list_entities(limit=1000)
        assert [each.path for each in listed] == ["first"]
