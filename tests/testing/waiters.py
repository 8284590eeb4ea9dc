"""A function that returns when receivers wait on a bus. After that a test can move the clock of the bus."""

from __future__ import annotations

import asyncio

from sbredis.aio import ServiceBusClient
from sbredis.client import Entity
from tests.aio.queues import Queue

__all__ = ["wait_for_waiters"]


async def wait_for_waiters(client: ServiceBusClient, path: str, receivers: int = 1) -> None:
    """Return when a number of receivers wait in every partition of a queue or a subscription."""
    connection = client._connection
    record = await connection.record(path, asyncio.get_running_loop().time() + 60)
    await Queue(client, Entity(connection, record), "", None).wait_for_waiters(receivers)
