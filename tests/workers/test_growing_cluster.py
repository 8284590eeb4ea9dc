"""One namespace on a cluster of nine masters, to which a tenth is added while messages are sent and handled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import slot_salt
from sbredis.exceptions import Outcome, ServiceBusError
from sbredis.servers import ClusterNode, LocalCluster
from sbredis.transport import key_slot
from sbredis.workers import Worker
from tests.waiting import eventually

MASTERS = 9
SLOTS = 256
PARTITIONS = 64
WIDE = "wide"
PLAIN = [f"plain-{number}" for number in range(24)]
SENDERS = 8
MOVED = {number * SLOTS // 25 for number in range(25)}
"""The slots of the namespace that are moved to the tenth master: its share, evenly from all others."""


@pytest.fixture
def nine() -> Iterator[LocalCluster]:
    """A cluster of nine masters."""
    with LocalCluster(MASTERS) as cluster:
        yield cluster


class Traffic:
    """Messages that are sent and handled, each with a number of its own."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._numbers = count()
        self.sent = set[int]()
        """The messages whose sends were acknowledged."""
        self.unknown = set[int]()
        """The messages whose sends ended with an unknown outcome."""
        self.begun = Counter[int]()
        """How often a handler has begun with each message."""
        self._enough = asyncio.Event()

    async def send(self, queue: str, times: int | None = None) -> None:
        """Send messages one by one: this number, or until there are enough."""
        async with self._client.get_queue_sender(queue) as sender:
            for _ in count() if times is None else range(times):
                if self._enough.is_set():
                    return
                number = next(self._numbers)
                try:
                    await sender.send_messages(ServiceBusMessage(str(number)))
                except ServiceBusError as error:
                    if error.outcome is Outcome.UNKNOWN:
                        self.unknown.add(number)
                else:
                    self.sent.add(number)

    @asynccontextmanager
    async def sending(self) -> AsyncGenerator[None]:
        """Send messages to all queues while the block runs."""
        queues = [WIDE, *PLAIN[: SENDERS - 1]]
        tasks = [asyncio.create_task(self.send(queue)) for queue in queues]
        try:
            yield
            assert not any(task.done() for task in tasks), tasks
        finally:
            self._enough.set()
            await asyncio.gather(*tasks)

    async def goes_on(self) -> None:
        """Wait until more messages were sent and handled."""
        sent, handled = len(self.sent) + SENDERS, len(self.begun) + SENDERS
        await eventually(lambda: len(self.sent) >= sent and len(self.begun) >= handled)


@asynccontextmanager
async def handled(url: str, traffic: Traffic) -> AsyncGenerator[None]:
    """Handle the messages of all queues with a worker while the block runs."""
    worker = Worker(url, max_concurrent_calls=32)

    async def begin(body: str) -> None:
        traffic.begun[int(body)] += 1

    for queue in (WIDE, *PLAIN):
        worker.queue(queue)(begin)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


def move_slot(cluster: LocalCluster, slot: int, to: ClusterNode, *, whole: bool) -> None:
    """Move a slot as one change, if the servers can do that, or key by key."""
    if whole and cluster.supports_atomic_migration:
        cluster.migrate_slot_atomic(slot, to)
    else:
        cluster.migrate_slot_classic(slot, to)


async def servers_of(administration: ServiceBusAdministrationClient, queue: str) -> Counter[str | None]:
    """Return the number of partitions of a queue that each server has."""
    return Counter([each.server async for each in administration.list_partitions(queue)])


def masters_with_keys(cluster: LocalCluster) -> int:
    """Return the number of masters that have partitions."""
    return sum(bool(node.ask("KEYS", "sb:default:*:state")) for node in cluster.masters)


@pytest.mark.long("it starts ten servers, and moves slots")
async def test_a_namespace_uses_nine_masters_and_a_tenth_that_is_added_under_load(nine: LocalCluster) -> None:
    async with ServiceBusAdministrationClient(nine.url) as administration, ServiceBusClient(nine.url) as client:
        await administration.create_queue(WIDE, enable_partitioning=True, partition_count=PARTITIONS)
        for queue in PLAIN:
            await administration.create_queue(queue)
        traffic = Traffic(client)
        await asyncio.gather(traffic.send(WIDE, 2 * PARTITIONS), *(traffic.send(queue, 1) for queue in PLAIN))
        assert masters_with_keys(nine) == MASTERS
        reached = {each.number: each.active_message_count async for each in administration.list_partitions(WIDE)}
        assert len(reached) == PARTITIONS
        assert min(reached.values()) >= 1
        assert sorted((await servers_of(administration, WIDE)).values()) == [7] * 8 + [8]

        async with handled(nine.url, traffic):
            async with traffic.sending():
                await traffic.goes_on()
                added = await asyncio.to_thread(nine.add_master)
                for number in MOVED:
                    slot = key_slot(f"{{{slot_salt('default', number, SLOTS)}}}".encode())
                    await asyncio.to_thread(move_slot, nine, slot, added, whole=number % 2 == 0)
                    await traffic.goes_on()
                await asyncio.to_thread(nine.wait_until_ok)
            await eventually(lambda: traffic.begun.keys() >= traffic.sent)

        assert added in nine.masters
        assert masters_with_keys(nine) == MASTERS + 1
        servers = await servers_of(administration, WIDE)
        assert servers[f"{added.host}:{added.port}"] == len(MOVED & reached.keys()) > 0
        assert len(servers) == MASTERS + 1
        assert max(traffic.begun.values()) == 1, "handled twice"
        assert traffic.begun.keys() <= traffic.sent | traffic.unknown
        left = [
            (await administration.get_queue_runtime_properties(queue)).total_message_count for queue in (WIDE, *PLAIN)
        ]
        assert sum(left) <= len(traffic.unknown - traffic.begun.keys())
