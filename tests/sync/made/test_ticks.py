"""Ticks: one caller of all gets each tick."""

# Made by tools/make_sync from tests/aio/test_ticks.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis import ServiceBusClient, Tick
from tests.sync.queues import HandClock

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


HOUR = timedelta(hours=1)
AT = 1_700_000_000_000
AT_HOUR = AT - AT % 3_600_000


def client_of(url: str, clock: Any = None) -> ServiceBusClient:
    return ServiceBusClient(url, namespace="ns", slot_count=3, _clock=clock)


def tick_at(milliseconds: int, missed: int = 0) -> Tick:
    return Tick(datetime.fromtimestamp(milliseconds / 1000, UTC), missed)


def test_ticks_without_a_caller_are_missed(url: str) -> None:
    clock = HandClock()
    with client_of(url, clock) as client:
        assert client.tick("t", HOUR) == tick_at(AT_HOUR)
        clock.move(4 * 3600)
        assert client.tick("t", HOUR) == tick_at(AT_HOUR + 4 * 3_600_000, missed=3)
        assert client.tick("t", HOUR) is None


def test_the_clock_of_the_server_decides(url: str) -> None:
    with client_of(url) as client:
        first = client.tick("t", 1)
        assert first is not None
        second = client.tick("t", 1, max_wait_time=60)
        assert second is not None
        assert second.time - first.time == timedelta(seconds=1 + second.missed)
        assert second.time.microsecond == 0


def test_no_tick_is_given_twice_if_the_period_or_the_clock_changes(url: str) -> None:
    clock = HandClock()
    with client_of(url, clock) as client:
        assert client.tick("t", HOUR) == tick_at(AT_HOUR)
        clock.move(-7200)
        assert client.tick("t", HOUR) is None
        clock.move(7200)
        assert client.tick("t", timedelta(hours=2)) is None
        assert client.tick("t", timedelta(minutes=1)) == tick_at(AT - AT % 60_000, missed=12)
        clock.move(-2 * 86_400)  # the clock was wrong before
        assert client.tick("t", HOUR) is not None


@pytest.mark.parametrize("every", [0, 0.5, -1, 365 * 86_400 + 1, timedelta(0), float("nan")])
def test_an_invalid_period_is_refused(url: str, every: Any) -> None:
    with client_of(url) as client:
        with pytest.raises(ValueError, match="every must be from 1 second to 365 days"):
            client.tick("t", every)
        with pytest.raises(ValueError, match="tick name"):
            client.tick("a b", 1)
        with pytest.raises(TypeError, match="every must be a timedelta"):
            client.tick("t", "1")  # type: ignore[arg-type]
