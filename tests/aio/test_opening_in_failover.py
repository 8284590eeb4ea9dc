"""A client that opens while a master is being replaced. It waits, and then its first call succeeds."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.engine import head_keys
from sbredis.exceptions import ServerUnsuitableError
from sbredis.model import ServiceBusMessage
from sbredis.servers import ClusterNode, LocalCluster, LocalSentinel
from sbredis.transport import key_slot
from tests.waiting import eventually


async def registry_of(cluster: LocalCluster, namespace: str) -> ClusterNode:
    """Return the master that has the registry of a namespace. Every client queries this master first."""
    async with ServiceBusClient(cluster.url, namespace=namespace):
        key = head_keys(namespace)[0]
    return await asyncio.to_thread(cluster.master_of, key_slot(key))


async def sent_and_received(client: ServiceBusClient, timeout: float) -> None:
    async with client:
        await client.ensure_queue("orders", timeout=timeout)
        await client.get_queue_sender("orders").send_messages(ServiceBusMessage("a"), timeout=timeout)
        (message,) = await client.get_queue_receiver("orders").receive_messages(1, timeout)
        assert message.body == b"a"


async def test_a_client_that_opens_right_after_a_master_was_killed_succeeds(replicated_cluster: LocalCluster) -> None:
    cluster = replicated_cluster
    namespace = "orders"
    master = await registry_of(cluster, namespace)
    await asyncio.to_thread(master.kill)
    await sent_and_received(ServiceBusClient(cluster.url, namespace=namespace, connect_timeout=1), 60)
    assert not master.is_alive()


async def test_a_client_opens_when_a_shard_gets_its_replica_back(
    replicated_cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """With ``durability=replicated``, no replica can confirm a write until the killed master is back."""
    cluster = replicated_cluster
    namespace = "orders"
    master = await registry_of(cluster, namespace)
    await asyncio.to_thread(master.kill)
    # the former replica is now the master, and has no replica itself
    await asyncio.to_thread(cluster.wait_until_ok, 60)
    with caplog.at_level(logging.WARNING, "sbredis"):
        client = ServiceBusClient(f"{cluster.url}?durability=replicated", namespace=namespace, connect_timeout=1)
        working = asyncio.ensure_future(sent_and_received(client, 60))
        await eventually(lambda: working.done() or "has no replica at the moment" in caplog.text, 60)
        assert not working.done()
        await asyncio.to_thread(master.restart)
        await working


async def test_a_cluster_without_replicas_is_refused_at_once(binary: str | None) -> None:
    with LocalCluster(3, 0, binary=binary) as bare:
        client = ServiceBusClient(f"{bare.url}?durability=replicated")
        with pytest.raises(ServerUnsuitableError, match="has no replica, so nothing can confirm") as refused:
            await client.ensure_queue("orders")
        assert not refused.value.is_transient
        assert sum(int(str(node.ask("DBSIZE"))) for node in bare.nodes) == 0
        await client.close()


async def test_a_client_finds_the_new_master_while_sentinel_names_the_old_one(binary: str | None) -> None:
    with LocalSentinel(1, 3, binary=binary) as watched:
        first = watched.master
        await asyncio.to_thread(lambda: first.ask("WAIT", 1, 5000))
        await asyncio.to_thread(first.kill)
        client = ServiceBusClient(watched.url, connect_timeout=0.5)
        await sent_and_received(client, 60)
        assert watched.master.port != first.port


async def test_a_patient_caller_still_connects_after_another_caller_timed_out(binary: str | None) -> None:
    with LocalSentinel(1, 3, binary=binary) as watched:
        first = watched.master
        await asyncio.to_thread(lambda: first.ask("WAIT", 1, 5000))
        await asyncio.to_thread(first.kill)
        client = ServiceBusClient(watched.url, connect_timeout=0.1)
        hasty = asyncio.ensure_future(client.ensure_queue("orders", timeout=0.4))
        patient = asyncio.ensure_future(client.ensure_queue("orders", timeout=60))
        await asyncio.wait((hasty, patient))
        assert hasty.exception() is not None
        assert patient.exception() is None
        await client.close()
