"""The census reads all that can be read of a large bucket, also beside a record that cannot be read."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import bucket_keys, slot_salt
from sbredis.maintenance import DutyResources
from sbredis.servers import LocalServer

pytestmark = pytest.mark.anyio

MANY = 260  # more than one page


@pytest.mark.parametrize("broken", ["q000", f"q{MANY - 1:03}"])
async def test_a_broken_record_keeps_no_other_of_its_bucket_from_the_census(server: LocalServer, broken: str) -> None:
    async with (
        ServiceBusClient(server.url, namespace="census", slot_count=1) as client,
        ServiceBusAdministrationClient(server.url, namespace="census") as administration,
    ):
        for number in range(MANY):
            await administration.create_queue(f"q{number:03}")
        transport, key = client._connection.transport, bucket_keys("census", slot_salt("census", 0, 1))[1]
        await transport.command("HSET", key, broken, b"2 nothing that a release has written", key=key)
        census = DutyResources.of(client._connection).census
        async with asyncio.timeout(60):
            await census.read()
        assert {record.name for record in census.by_id.values()} == {f"q{n:03}" for n in range(MANY)} - {broken}
        assert census.whole
