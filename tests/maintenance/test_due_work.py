"""The errand of visits that do due work: what a visit does at a place, and when the place is visited again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sbredis.engine import SettingsStaleError, perform
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.maintenance import DutyResources
from sbredis.maintenance._agenda import VisitPlace
from sbredis.maintenance._routing import DueWork
from tests.aio.queues import HandClock, Queue, in_memory, queue_at

pytestmark = in_memory


@asynccontextmanager
async def visited(url: str) -> AsyncIterator[tuple[Queue, DueWork, VisitPlace, HandClock]]:
    """Make a queue whose messages live for a second, and the errand of a client that the test lets visit it."""
    clock = HandClock()
    async with queue_at(url, clock=clock, time_to_live=1000, dead_letter_expired=True) as queue:
        connection = queue.client._connection
        errand = DueWork(DutyResources.of(connection))
        yield queue, errand, VisitPlace(queue.entity.numbers[0], queue.entity.record.id), clock


async def test_a_visit_returns_the_next_due_time(url: str) -> None:
    async with visited(url) as (queue, errand, place, clock):
        assert await errand.visit(place, queue.entity.record) is None
        await queue.send("m")
        assert await errand.visit(place, queue.entity.record) == pytest.approx(clock.now() + 1, abs=0.01)


async def test_a_visit_that_leaves_due_work_is_repeated_at_once(url: str) -> None:
    async with visited(url) as (queue, errand, place, clock):
        await queue.fill(1500)
        clock.move(2)
        visits = 1
        while (at := await errand.visit(place, queue.entity.record)) is not None:
            assert at <= clock.now()
            visits += 1
        assert visits > 1
        assert (await queue.counts()).dead_active == 1500


async def test_a_partition_with_older_settings_is_told_the_newer_ones(url: str) -> None:
    async with visited(url) as (queue, errand, place, clock):
        settings = replace(queue.entity.record.settings, max_delivery_count=77)
        newer = replace(queue.entity.record, version=queue.entity.record.version + 1, settings=settings)
        assert await errand.visit(place, newer) == clock.now()
        assert await errand.visit(place, newer) is None
        with pytest.raises(SettingsStaleError):
            await queue.send("m")  # the client of the test still has the older settings


async def test_a_partition_with_newer_settings_than_the_registry_is_an_error(url: str) -> None:
    """A failover of the registry has lost an update. The visit is repeated after a pause, and not at once."""
    async with visited(url) as (queue, errand, place, clock):
        record = queue.entity.record
        newer = replace(record, version=record.version + 1)
        namespace = queue.client._connection.namespace
        await perform(queue.transport, namespace.partition(newer, place.number).configure(now=clock.told()))
        with pytest.raises(SettingsStaleError):
            await errand.visit(place, record)


async def test_an_update_that_the_census_has_not_seen_is_adopted(url: str) -> None:
    async with visited(url) as (queue, _, place, clock):
        record, connection = queue.entity.record, queue.client._connection
        shared = DutyResources.of(connection)
        shared.census.by_id = {record.id: record}
        errand = DueWork(shared)
        updated = await connection.namespace.update_entity(record, replace(record.settings, max_delivery_count=77))
        assert await errand.visit(place, record) == clock.now()
        assert shared.census.by_id == {record.id: updated}


@pytest.mark.parametrize("again", [False, True])
async def test_the_place_of_a_deleted_queue_is_gone_even_if_its_name_has_another_queue(url: str, again: bool) -> None:
    async with visited(url) as (queue, errand, place, _):
        record, namespace = queue.entity.record, queue.client._connection.namespace
        await namespace.delete_entity("q")
        if again:
            await namespace.create_entity("q", record.settings)
        with pytest.raises(MessagingEntityNotFoundError):
            await errand.visit(place, record)


async def test_a_partition_that_a_failover_has_lost_needs_no_visit(url: str) -> None:
    async with visited(url) as (queue, errand, place, _):
        for key in queue.partitions[0].keys:
            await queue.transport.command("DEL", key, key=key)
        assert await asyncio.wait_for(errand.visit(place, queue.entity.record), 60) is None
