"""The partition of a message: it is chosen by the key of the message, or in turns that skip unreachable partitions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from redis.credentials import CredentialProvider

from benchmarks.faults import in_thread
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client._send_lane import _STRETCH
from sbredis.engine import partition_for_key, slot_for_name
from sbredis.exceptions import Outcome, ServiceBusError
from sbredis.model import ServiceBusMessage
from sbredis.servers import ClusterNode, LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.aio.gates import Gate, bodies_at, stored_bodies
from tests.aio.queues import PARTITIONS, Queue, in_memory, queue_at
from tests.aio.test_sending import flat
from tests.transport.hand import turns
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("a key chooses a partition, and a partition has a slot")


@pytest.mark.slow
async def test_the_session_id_or_partition_key_selects_the_partition(url: str) -> None:
    """The session id takes precedence over the partition key."""
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        for key in "abcdefgh":
            await sender.send_messages(ServiceBusMessage(key, session_id=key))
            await sender.send_messages(ServiceBusMessage(key, partition_key=key))
            await sender.send_messages(ServiceBusMessage(key, session_id=key, partition_key=key))
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage(key, session_id=key))
            batch.add_message(ServiceBusMessage(key, partition_key=key))
            await sender.send_messages(batch)
        for number, bodies in enumerate(await stored_bodies(queue)):
            keys = [key for key in "abcdefgh" if partition_for_key(key, PARTITIONS) == number]
            assert bodies == [key for key in keys for _ in range(5)]


async def test_the_message_id_is_the_key_if_the_queue_detects_duplicates(url: str) -> None:
    async with (
        queue_at(url, partitioned=True, duplicate_window=60_000) as queue,
        queue.client.get_queue_sender("q") as sender,
    ):
        for key in "abcdefgh":
            await sender.send_messages(ServiceBusMessage(key, message_id=key))
        session = next(key for key in "bcdefgh" if queue.entity.pinned(key) is not queue.entity.pinned("a"))
        await sender.send_messages(ServiceBusMessage("s", message_id="a", session_id=session))
        for number, bodies in enumerate(await stored_bodies(queue)):
            expected = [key for key in "abcdefgh" if partition_for_key(key, PARTITIONS) == number]
            assert bodies == expected + ["s"] * (partition_for_key(session, PARTITIONS) == number)


async def test_an_empty_session_id_is_used_as_a_key(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([ServiceBusMessage("x", session_id="")] * 3)
        assert (await stored_bodies(queue))[partition_for_key("", PARTITIONS)] == ["x"] * 3


async def test_messages_without_a_key_are_spread_evenly_over_the_partitions(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        for _ in range(PARTITIONS * 5):
            await sender.send_messages(ServiceBusMessage("x"))
        assert [len(bodies) for bodies in await stored_bodies(queue)] == [5] * PARTITIONS


@in_memory
async def test_clients_that_send_one_message_each_begin_with_different_partitions(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue:
        for _ in range(40):
            async with queue.other_client() as client, client.get_queue_sender("q") as sender:
                await sender.send_messages(ServiceBusMessage("x"))
        assert sum(bool(bodies) for bodies in await stored_bodies(queue)) > 1


@in_memory
async def test_a_list_goes_to_one_partition(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([ServiceBusMessage("x")] * 7)
        assert sorted(len(bodies) for bodies in await stored_bodies(queue)) == [*[0] * (PARTITIONS - 1), 7]


@in_memory
async def test_a_list_with_different_keys_is_refused(url: str) -> None:
    """A partitioned queue cannot store such a list as a whole: all of its messages or none."""
    mixed = [ServiceBusMessage("a", session_id="s1"), ServiceBusMessage("b", session_id="s2")]
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        batch = await sender.create_message_batch()
        for message in mixed:
            batch.add_message(message)
        with Gate(queue.client) as gate:
            for what in (mixed, batch):
                with pytest.raises(ValueError, match=r"different keys \('s1', 's2'\)"):
                    await sender.send_messages(what)
            with pytest.raises(ValueError, match=r"different keys \('1', '2', '3', …\)"):
                await sender.send_messages([ServiceBusMessage("x", partition_key=str(key)) for key in range(1, 9)])
            assert gate.arrived == []
        assert sender.in_flight == 0
        await sender.send_messages([mixed[0], ServiceBusMessage("c")])
    async with queue_at(url, name="p") as queue, queue.client.get_queue_sender("p") as sender:
        await sender.send_messages(mixed)
        assert flat(await stored_bodies(queue)) == ["a", "b"]


@in_memory
async def test_a_message_with_two_different_keys_is_refused(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        with pytest.raises(ValueError, match="partition_key"):
            await sender.send_messages({"body": "x", "session_id": "a", "partition_key": "b"})


# -- unreachable partitions --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_lived(binary: str | None) -> Iterator[LocalCluster]:
    with LocalCluster(3, 0, binary=binary) as cluster:
        yield cluster


@pytest.fixture
def damaged(short_lived: LocalCluster) -> LocalCluster:
    """Return a cluster without replicas. Tests may kill its masters, which then come back empty."""
    short_lived.wait_until_ok()
    short_lived.flush()
    return short_lived


def victim(cluster: LocalCluster, queue: Queue) -> tuple[ClusterNode, list[str], list[str]]:
    """Return a master that has neither the namespace nor the record of the queue. Also return keys that select its
    partitions, and keys that select other partitions.
    """
    masters = [cluster.master_of(key_slot(partition.keys[0])) for partition in queue.partitions]
    record = queue.entity.partition(slot_for_name("q", PARTITIONS))  # a partition beside the record
    needed = [cluster.master_of(key_slot(key)) for key in (b"{027h}", record.keys[0])]
    master = next(master for master in masters if master not in needed)
    keys: tuple[list[str], list[str]] = ([], [])
    for number in range(50):
        keys[masters[partition_for_key(str(number), len(masters))] is not master].append(str(number))
    return master, *keys


async def test_messages_without_a_key_skip_an_unreachable_partition(damaged: LocalCluster) -> None:
    """They also overtake messages with a key, which wait for this partition."""
    async with queue_at(damaged.url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        for _ in range(PARTITIONS):
            await sender.send_messages(ServiceBusMessage("before"))
        master, there, _ = victim(damaged, queue)
        await in_thread(master.kill)
        bound = [
            asyncio.create_task(sender.send_messages(ServiceBusMessage("bound", partition_key=key)))
            for key in there[:3]
        ]
        await asyncio.sleep(0)
        began = time.monotonic()
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage("free")) for _ in range(60)))
        assert time.monotonic() - began < 45
        assert not any(task.done() for task in bound)
        again = time.monotonic()
        for _ in range(PARTITIONS * 3):
            await sender.send_messages(ServiceBusMessage("free"))
        assert time.monotonic() - again < 45
        await in_thread(master.restart)
        await asyncio.gather(*bound)

        async def is_back() -> bool:
            for _ in range(PARTITIONS):
                await sender.send_messages(ServiceBusMessage("back"))
            found = await stored_bodies(queue)
            return all("back" in bodies for bodies in found)

        await eventually(is_back)
        found = flat(await stored_bodies(queue))
        assert (found.count("free"), found.count("bound")) == (60 + PARTITIONS * 3, 3)


async def test_a_message_for_an_unreachable_partition_fails_in_time(damaged: LocalCluster) -> None:
    """The error names the entity and says that the message was not sent and may be retried."""
    async with queue_at(damaged.url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        for key in map(str, range(50)):
            await sender.send_messages(ServiceBusMessage("before", partition_key=key))
        master, there, elsewhere = victim(damaged, queue)
        await in_thread(master.kill)
        await eventually(lambda: not queue.entity.pinned(there[0]).connected)  # until then a call may be written
        ended = await asyncio.gather(
            sender.send_messages(ServiceBusMessage("x", partition_key=there[0]), timeout=0.5),
            sender.send_messages(ServiceBusMessage("y", session_id=elsewhere[0]), timeout=20),
            return_exceptions=True,
        )
        error = ended[0]
        assert isinstance(error, ServiceBusError)
        assert (error.is_transient, error.entity) == (True, "q")
        assert error.outcome is Outcome.NEVER_SENT
        assert "a retry may help" in str(error)
        assert ended[1] is None
        await in_thread(master.restart)
        await sender.send_messages(ServiceBusMessage("z", partition_key=there[0]))
        at = queue.entity.numbers.index(queue.entity.pinned(there[0]).number)
        assert await bodies_at(queue.transport, queue.partitions[at]) == ["z"]  # the master came back without data


class SlowVault(CredentialProvider):
    """Provides credentials, which makes connections slow as soon as the test says so."""

    slow = False

    async def get_credentials_async(self) -> tuple[str, str]:
        if self.slow:
            await asyncio.sleep(4 * _STRETCH)
        return "default", "any"


async def test_the_time_of_a_first_connection_does_not_make_a_partition_unreachable(cluster: LocalCluster) -> None:
    """A client connects to a master when it first needs it, and this may take longer than one try of a partition."""
    async with ServiceBusAdministrationClient(cluster.url) as administration:
        await administration.create_queue("q", enable_partitioning=True)
    for _ in range(20):
        vault = SlowVault()
        async with ServiceBusClient(cluster.url, vault) as client, client.get_queue_sender("q") as sender:
            await sender.send_messages([])
            entity = await client._connection.entity("q", asyncio.get_running_loop().time() + 60)
            links = [entity.partition_client(number) for number in entity.numbers]
            transport = client._connection.transport
            new = [link for link in links if transport.server_of(link.partition.keys[0]) is None]
            if not new:
                continue  # by chance, opening the client has reached all masters
            vault.slow = True
            for _ in links:  # each partition has its turn
                await sender.send_messages(ServiceBusMessage("x"))
            assert not any(link.down_until for link in links)
            assert any(transport.server_of(link.partition.keys[0]) for link in new)
            return
    pytest.fail("opening a client always reaches all masters")


async def test_sends_wait_while_no_partition_can_be_reached(binary: str | None) -> None:
    """The sends do not fail after one attempt at each partition, because there is time left."""
    with LocalServer(binary=binary, config={"appendonly": "yes", "appendfsync": "always"}) as server:
        async with queue_at(server.url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
            await sender.send_messages([])
            await in_thread(server.kill)
            sends = [asyncio.create_task(sender.send_messages(ServiceBusMessage(str(n)))) for n in range(20)]
            partition_clients = [queue.entity.partition_client(number) for number in queue.entity.numbers]
            await eventually(lambda: all(partition_client.down_until for partition_client in partition_clients))
            await turns(20)
            assert not any(send.done() for send in sends)
            await in_thread(server.restart)
            await asyncio.gather(*sends)
            assert flat(await stored_bodies(queue)) == sorted(map(str, range(20)))
