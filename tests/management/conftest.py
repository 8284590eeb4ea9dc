"""A client that administers the namespace ``ns`` of four partitions, and the contents of its servers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.transport import Transport
from tests.registry.keys import Snapshot, snapshot


def in_namespace(url: str) -> str:
    """Return the connection string of the namespace ``ns``."""
    return f"{url}{'&' if '?' in url else '?'}namespace=ns"


@pytest.fixture
def where(url: str) -> str:
    """The connection string of the namespace ``ns`` of an empty target."""
    return in_namespace(url)


@pytest.fixture
async def admin(where: str) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with ServiceBusAdministrationClient.from_connection_string(where, slot_count=4) as admin:
        await admin.get_namespace_properties()
        yield admin


@pytest.fixture
async def transport(admin: ServiceBusAdministrationClient) -> Transport:
    """Return the transport of the client."""
    return admin._connection.transport


async def held(admin: ServiceBusAdministrationClient) -> Snapshot:
    """Return the whole contents of the servers."""
    return await snapshot(admin._connection.transport)
