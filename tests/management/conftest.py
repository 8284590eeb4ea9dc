"""A client that administers the namespace ``ns`` of four partitions, and what the servers hold."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.transport import Transport
from tests.registry.keys import Snapshot, snapshot


def in_namespace(url: str) -> str:
    """The connection string of the namespace ``ns``."""
    return f"{url}{'&' if '?' in url else '?'}namespace=ns"


@pytest.fixture
def where(url: str) -> str:
    """The connection string of the namespace ``ns`` of an empty target."""
    return in_namespace(url)


@pytest.fixture
async def admin(where: str) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with ServiceBusAdministrationClient.from_connection_string(where, partition_count=4) as admin:
        await admin.get_namespace_properties()
        yield admin


@pytest.fixture
async def transport(admin: ServiceBusAdministrationClient) -> Transport:
    """What the client goes through."""
    return admin._connection.transport


async def held(admin: ServiceBusAdministrationClient) -> Snapshot:
    """All that the servers hold."""
    return await snapshot(admin._connection.transport)
