"""Waiting until somebody waits, on a bus whose clock the test is about to move."""

from __future__ import annotations

import asyncio

from sbredis.aio import ServiceBusClient
from sbredis.aio.calls._entity import Entity
from tests.aio.standing import Queue

__all__ = ["waited_at"]


async def waited_at(client: ServiceBusClient, path: str, receivers: int = 1) -> None:
    """Return when a number of receivers wait in every partition of a queue or a subscription."""
    connection = client._connection
    record = await connection.record(path, asyncio.get_running_loop().time() + 60)
    await Queue(client, Entity(connection, record), "", None).waited_at(receivers)
