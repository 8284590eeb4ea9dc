"""The time of the server of an entity, which may have another clock than this machine."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta

import pytest

from sbredis import sync
from sbredis.aio import ServiceBusClient, check_connection
from sbredis.entities import _server_time, read_clock
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.servers import LocalServer
from sbredis.testing import Bus


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


async def test_the_difference_to_the_clock_of_the_server_is_measured(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = time.time

    class Wrong:
        """The clock of a machine that is a hundred seconds slow."""

        perf_counter = staticmethod(time.perf_counter)

        @staticmethod
        def time() -> float:
            return real() - 100

    monkeypatch.setattr(_server_time, "time", Wrong)
    with caplog.at_level(logging.WARNING, "sbredis"):
        report = await check_connection(server.url)
    async with ServiceBusClient(server.url) as client:
        await client.ensure_queue("orders")
        found = await client.server_time("orders")
    assert abs(found.timestamp() - real()) < 5
    assert 95 < report.servers[0].clock_ahead < 105
    assert "s ahead of that of this machine" in caplog.text
    assert "s ahead of that of this machine" in str(report)
