"""Servers that return without data: the namespace and everything in it is gone."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.exceptions import NamespaceMissingError
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer
from sbredis.transport import Transport

pytestmark = pytest.mark.everywhere("the registry and the partitions lie in different slots")


async def come_back_empty(transport: Transport) -> None:
    """Delete all data of every server."""
    reached = set[object]()
    for number in range(16384):
        key = b"{%d}" % number
        endpoint = transport.endpoint_of(key)
        if endpoint not in reached:
            reached.add(endpoint)
            await transport.command("FLUSHALL", key=key)
        if len(reached) == len(transport.masters):
            break
    assert await size(transport) == 0


async def size(transport: Transport) -> int:
    """Return the number of keys on all servers."""
    counts: dict[object, int] = {}
    for number in range(16384):
        key = b"{%d}" % number
        endpoint = transport.endpoint_of(key)
        if endpoint not in counts:
            counts[endpoint] = int(await transport.command("DBSIZE", key=key))
        if len(counts) == len(transport.masters):
            break
    return sum(counts.values())


async def test_a_sender_with_create_if_missing_continues_after_data_loss(url: str) -> None:
    async with ServiceBusClient(url) as client:
        sender = client.get_queue_sender("orders", create_if_missing=True)
        await sender.send_messages(ServiceBusMessage("lost"))
        await come_back_empty(client._connection.transport)
        await sender.send_messages(ServiceBusMessage("kept"))
        receiver = client.get_queue_receiver("orders")
        assert [message.body for message in await receiver.receive_messages(1, 60)] == [b"kept"]


async def test_a_receiver_with_create_if_missing_continues_after_data_loss(binary: str | None) -> None:
    with LocalServer(binary=binary) as server:
        async with ServiceBusClient(server.url) as client:
            receiver = client.get_queue_receiver("orders", create_if_missing=True)
            assert await receiver.receive_messages(1, 2) == []
            waiting = asyncio.ensure_future(receiver.receive_messages(1, 60))
            await asyncio.to_thread(restart, server)
            await client.get_queue_sender("orders").send_messages(ServiceBusMessage("kept"))
            assert [message.body for message in await waiting] == [b"kept"]


async def test_create_if_missing_recreates_a_lost_topic_and_subscription(binary: str | None) -> None:
    with LocalServer(binary=binary) as server:
        async with ServiceBusClient(server.url) as client:
            sender = client.get_topic_sender("events", create_if_missing=True)
            reader = client.get_subscription_receiver("events", "all", create_if_missing=True)
            await sender.send_messages(ServiceBusMessage("for nobody"))
            assert await reader.receive_messages(1, 2) == []
            await asyncio.to_thread(restart, server)
            await sender.send_messages(ServiceBusMessage("for nobody"))  # this call creates the topic again
            assert await reader.receive_messages(1, 2) == []  # this call creates its subscription again
            await sender.send_messages(ServiceBusMessage("kept"))
            assert [message.body for message in await reader.receive_messages(1, 60)] == [b"kept"]


def restart(server: LocalServer) -> None:
    """Restart a server without persistence, so that its data is gone."""
    server.kill()
    server.restart()


async def test_without_create_if_missing_a_lost_namespace_is_reported(url: str) -> None:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders")
        sender = client.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("lost"))
        transport = client._connection.transport
        await come_back_empty(transport)
        with pytest.raises(NamespaceMissingError, match="create_if_missing=True") as raised:
            await sender.send_messages(ServiceBusMessage("refused"))
        assert raised.value.code == "NamespaceMissing"
        assert raised.value.entity == "orders"
        assert await size(transport) == 0
