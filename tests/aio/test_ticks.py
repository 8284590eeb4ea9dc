"""Ticks: one caller of all gets each tick."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient, Tick
from sbredis.engine import tick_keys
from sbredis.engine._scripts import load
from sbredis.exceptions import ServiceBusQuotaExceededError
from tests.aio.queues import HandClock

HOUR = timedelta(hours=1)
KEYS = tick_keys("ns")
AT = 1_700_000_000_000
AT_HOUR = AT - AT % 3_600_000


def client_of(url: str, clock: Any = None) -> ServiceBusClient:
    return ServiceBusClient(url, namespace="ns", slot_count=3, _clock=clock)


def tick_at(milliseconds: int, missed: int = 0) -> Tick:
    return Tick(datetime.fromtimestamp(milliseconds / 1000, UTC), missed)


@pytest.mark.conformance
async def test_one_of_many_callers_gets_each_tick(url: str) -> None:
    clock = HandClock()
    async with client_of(url, clock) as one, client_of(url, clock) as two:
        for hour in range(3):
            ticks = await asyncio.gather(*(client.tick("t", HOUR) for client in (one, two) * 5))
            assert [tick for tick in ticks if tick] == [tick_at(AT_HOUR + hour * 3_600_000)]
            clock.move(3600)
        assert await one.tick("other", 3600.0)
        assert await one.tick("T", HOUR)  # case matters


async def test_ticks_without_a_caller_are_missed(url: str) -> None:
    clock = HandClock()
    async with client_of(url, clock) as client:
        assert await client.tick("t", HOUR) == tick_at(AT_HOUR)
        clock.move(4 * 3600)
        assert await client.tick("t", HOUR) == tick_at(AT_HOUR + 4 * 3_600_000, missed=3)
        assert await client.tick("t", HOUR) is None


async def test_a_caller_waits_for_the_next_tick(url: str) -> None:
    clock = HandClock()
    async with client_of(url, clock) as client:
        assert await client.tick("t", HOUR)
        waiting = asyncio.create_task(client.tick("t", HOUR, max_wait_time=60))
        await asyncio.sleep(0)
        clock.move(1)
        clock.move(3600)
        assert await waiting == tick_at(AT_HOUR + 3_600_000)


async def test_the_clock_of_the_server_decides(url: str) -> None:
    async with client_of(url) as client:
        first = await client.tick("t", 1)
        assert first is not None
        second = await client.tick("t", 1, max_wait_time=60)
        assert second is not None
        assert second.time - first.time == timedelta(seconds=1 + second.missed)
        assert second.time.microsecond == 0


async def test_no_tick_is_given_twice_if_the_period_or_the_clock_changes(url: str) -> None:
    clock = HandClock()
    async with client_of(url, clock) as client:
        assert await client.tick("t", HOUR) == tick_at(AT_HOUR)
        clock.move(-7200)
        assert await client.tick("t", HOUR) is None
        clock.move(7200)
        assert await client.tick("t", timedelta(hours=2)) is None
        assert await client.tick("t", timedelta(minutes=1)) == tick_at(AT - AT % 60_000, missed=12)
        clock.move(-2 * 86_400)  # the clock was wrong before
        assert await client.tick("t", HOUR) is not None


async def test_a_repeated_call_gets_the_same_tick(url: str) -> None:
    async with client_of(url) as client:
        transport = client._connection.transport

        async def ask(caller: str, now: int) -> Any:
            return await transport.call(load("take_tick"), KEYS, ("t", 1000, caller, now))

        assert await ask("a", 5300) == [1, 5000, 0, 700]
        assert await ask("a", 5400) == [1, 5000, 0, 600]
        assert await ask("b", 5400) == [0, 0, 0, 600]
        assert await ask("a", 9400) == [1, 5000, 0, 0]
        assert await ask("b", 9400) == [1, 9000, 3, 600]


async def test_at_most_a_thousand_names_are_remembered(url: str) -> None:
    clock = HandClock()
    async with client_of(url, clock) as client:
        transport = client._connection.transport
        full = [part for number in range(1000) for part in (f"n{number}", f"{AT_HOUR} 3600000 0 a")]
        await transport.command("HSET", KEYS[0], *full, key=KEYS[0])
        with pytest.raises(ServiceBusQuotaExceededError, match="remembers the ticks of 1000 names already"):
            await client.tick("new", HOUR)
        assert await transport.command("HLEN", KEYS[0], key=KEYS[0]) == 1000
        clock.move(86_400 + 3600)
        assert await client.tick("new", HOUR)
        assert await transport.command("HLEN", KEYS[0], key=KEYS[0]) == 1


@pytest.mark.parametrize("every", [0, 0.5, -1, 365 * 86_400 + 1, timedelta(0), float("nan")])
async def test_an_invalid_period_is_refused(url: str, every: Any) -> None:
    async with client_of(url) as client:
        with pytest.raises(ValueError, match="every must be from 1 second to 365 days"):
            await client.tick("t", every)
        with pytest.raises(ValueError, match="tick name"):
            await client.tick("a b", 1)
        with pytest.raises(TypeError, match="every must be a timedelta"):
            await client.tick("t", "1")  # type: ignore[arg-type]
