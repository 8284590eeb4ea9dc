"""Tests of the pace at which all entities are read."""

from __future__ import annotations

import asyncio
import math

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.entities import AsyncItemPaged, ListPage
from sbredis.exceptions import ServiceBusError, ServiceBusServerBusyError
from sbredis.model import PartitionRuntimeProperties
from sbredis.operating import Sampler
from tests.waiting import eventually

NAMES = ["a", "b", "c"]
AN_HOUR_EACH = 2 / 3600
"""The reads a second with which the one partition of a queue takes an hour."""


@pytest.fixture
async def administration(url: str) -> ServiceBusAdministrationClient:
    administration = ServiceBusAdministrationClient(url)
    for name in NAMES:
        await administration.create_queue(name)
    return administration


async def test_the_first_round_does_not_wait_and_the_next_ones_do(
    administration: ServiceBusAdministrationClient,
) -> None:
    async with administration:
        sampler = Sampler(administration, 0.1, most_reads=AN_HOUR_EACH)
        await sampler.find()
        assert (sampler.unread, list(sampler.sights)) == (3, [])
        await sampler.round()
        first = {path: sight.now.at for path, sight in sampler.sights.items()}
        assert (sampler.unread, sorted(first)) == (0, NAMES)
        with pytest.raises(TimeoutError):  # each entity takes an hour
            await asyncio.wait_for(sampler.round(), 0.5)
        assert all(sampler.sights[path].now.at == first[path] for path in ("b", "c"))


async def test_a_sampler_without_a_pace_never_waits(administration: ServiceBusAdministrationClient) -> None:
    async with administration:
        sampler = Sampler(administration, 0.1, most_reads=math.inf)
        for _ in range(2):
            await sampler.round()
        assert {path: sight.incoming for path, sight in sampler.sights.items()} == dict.fromkeys(NAMES, 0.0)


async def test_an_error_of_one_entity_ends_the_round(administration: ServiceBusAdministrationClient) -> None:
    sampler = Sampler(administration, 0.1, most_reads=200)
    async with administration:
        await sampler.find()
    with pytest.raises((ServiceBusError, ValueError), match="closed"):
        await sampler.round()
    assert sampler.unread == 3


def sampler_that_cannot_read_b(
    administration: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch, most_reads: float = 200
) -> Sampler:
    """Return a sampler whose reading of the entity "b" fails when all others are read."""
    sampler, read = Sampler(administration, 0.1, most_reads=most_reads), administration.list_partitions

    async def refuse(_: str) -> ListPage[PartitionRuntimeProperties]:
        await eventually(lambda: sampler.unread == 1)
        raise ServiceBusServerBusyError("planted by the test")

    def read_others(path: str) -> AsyncItemPaged[PartitionRuntimeProperties]:
        return AsyncItemPaged(refuse) if path == "b" else read(path)

    monkeypatch.setattr(administration, "list_partitions", read_others)
    return sampler


async def test_after_an_error_entities_that_were_not_read_yet_do_not_wait(
    administration: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with administration:
        sampler = sampler_that_cannot_read_b(administration, monkeypatch, most_reads=AN_HOUR_EACH)
        with pytest.raises(ServiceBusServerBusyError):
            await sampler.round()
        assert sorted(sampler.sights) == ["a", "c"]
        monkeypatch.undo()
        second = asyncio.create_task(sampler.round())
        await eventually(lambda: sampler.unread == 0)
        assert not second.done()
        second.cancel()
        await asyncio.wait((second,))


async def test_entities_that_were_read_are_read_again_although_another_one_never_can_be(
    administration: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with administration:
        sampler = sampler_that_cannot_read_b(administration, monkeypatch)
        rounds: list[dict[str, float]] = []
        for _ in range(2):
            with pytest.raises(ServiceBusServerBusyError):
                await sampler.round()
            rounds.append({path: sight.now.at for path, sight in sampler.sights.items()})
        first, second = rounds
        assert sorted(first) == sorted(second) == ["a", "c"]
        assert all(second[path] > first[path] for path in first)
