"""The time of the server of an entity, which may have another clock than this machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from sbredis import sync
from sbredis.aio import ServiceBusClient
from sbredis.entities import read_clock
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.testing import Bus

pytestmark = pytest.mark.anyio


@pytest.mark.conformance
async def test_the_time_of_the_server_of_an_entity(url: str) -> None:
    """The servers of tests run on this machine, so their clocks are that of the machine."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders", enable_partitioning=True)
        for path, key in (("orders", None), ("orders/$DeadLetterQueue", "a"), ("ORDERS", "b"), ("orders", "c")):
            before = datetime.now(UTC)
            found = await client.server_time(path, partition_key=key)
            after = datetime.now(UTC)
            assert found.tzinfo is UTC
            assert before - (after - before) <= found <= after + (after - before)


async def test_the_synchronous_client_returns_the_time_of_the_server() -> None:
    with sync.ServiceBusClient("memory://server-time") as client:
        client.ensure_queue("orders")
        before = datetime.now(UTC)
        found = client.server_time("orders", timeout=30)
        after = datetime.now(UTC)
    assert before - (after - before) <= found <= after + (after - before)


async def test_the_time_of_the_server_of_a_bus_is_that_of_its_clock(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders")
    sbredis_bus.clock.advance(timedelta(days=3))
    before = sbredis_bus.clock.now
    assert before - timedelta(milliseconds=1) <= await sbredis_bus.client.server_time("orders") <= sbredis_bus.clock.now


async def test_an_unknown_entity_has_no_server(url: str) -> None:
    async with ServiceBusClient(url) as client:
        with pytest.raises(MessagingEntityNotFoundError):
            await client.server_time("orders")
        with pytest.raises(ValueError, match="partition_key"):
            await client.server_time("orders", partition_key="k" * 129)
        with pytest.raises(MessagingEntityNotFoundError):
            await client.describe_entity("orders")


@pytest.mark.parametrize("ahead", [0.0, 30.0, -3600.0])
async def test_the_difference_of_two_clocks_is_known_to_half_of_the_round_trip(ahead: float) -> None:
    async def ask() -> float:
        return time.time() + ahead

    reading = await read_clock(ask)
    assert abs(reading.ahead - ahead) <= reading.round_trip / 2 + 1e-4
    assert abs(reading.now() - time.time() - ahead) <= 1
