"""Servers that return without data: an open client continues when the namespace and the queue exist again."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.model import ServiceBusMessage
from tests.aio.queues import exists, queue_at
from tests.engine.bench import everything
from tests.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.everywhere("the registry and the partitions are made again in different slots"),
]


async def emptied(client: ServiceBusClient) -> None:
    """Delete all data on the servers of a client."""
    transport = client._connection.transport
    for endpoint in transport.masters:
        for number in range(16384):
            key = b"{%d}" % number
            if transport.endpoint_of(key) == endpoint:
                await transport.command("FLUSHALL", key=key)
                break


async def test_a_lost_namespace_and_queue_are_recreated_with_create_if_missing(url: str) -> None:
    async with queue_at(url) as queue:
        client, name = queue.client, queue.entity.name
        sender, receiver = client.get_queue_sender(name), client.get_queue_receiver(name, create_if_missing=True)
        await sender.send_messages(ServiceBusMessage("lost"))
        await emptied(client)
        with pytest.raises(MessagingEntityNotFoundError, match="There is no"):
            await sender.send_messages(ServiceBusMessage("refused"))
        keys = [key for partition in queue.partitions for key in partition.keys]
        assert not await everything(queue.transport, keys[:1])
        with pytest.raises(MessagingEntityNotFoundError):
            await client.get_queue_receiver(name).receive_messages(1, 60)
        receiving = asyncio.create_task(receiver.receive_messages(1, 60))
        await eventually(lambda: exists(client, name))
        await sender.send_messages(ServiceBusMessage("new"))
        assert [message.body for message in await receiving] == [b"new"]


async def test_ensuring_a_queue_recreates_a_lost_namespace(url: str) -> None:
    async with queue_at(url) as queue:
        await emptied(queue.client)
        await queue.client.ensure_queue("other", enable_partitioning=True)
        await queue.client.get_queue_sender("other").send_messages(ServiceBusMessage("a"))
        assert len(await queue.client.get_queue_receiver("other").receive_messages(1, 60)) == 1
