"""A visitor reads and visits partitions for any errand. What a visit does is tested with each errand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from sbredis._tasks import wait_until
from sbredis.engine import due_channel
from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
)
from sbredis.maintenance import DutyResources
from sbredis.maintenance._agenda import Read, VisitPace, VisitPlace
from sbredis.maintenance._visiting import Visitor
from sbredis.moving import NotKnownYetError
from sbredis.registry import EntityRecord
from tests.aio.queues import in_memory, queue_at
from tests.maintenance.hand_census import HandCensus
from tests.waiting import eventually

if TYPE_CHECKING:
    from sbredis.maintenance._census import Census

pytestmark = pytest.mark.everywhere("partitions of all slots are read")
PACE = VisitPace(between_reads=0.0, first_pause=0.01, longest_pause=0.02)


class Hand:
    """An errand whose answers the test decides, and a visitor on that errand."""

    def __init__(self, shared: DutyResources, records: list[EntityRecord]) -> None:
        self.reads: Counter[int] = Counter()
        self.visits: list[VisitPlace] = []
        self.due: set[VisitPlace] = set()
        """The places at which something is to be done."""
        self.fail_read: Callable[[Read], None] = lambda _: None
        self.fail_visit: Callable[[VisitPlace], None] = lambda _: None
        self.news = asyncio.Event()
        self.census = HandCensus()
        self.visitor = Visitor(replace(shared, census=cast("Census", self.census)), self, PACE, self.news.set)
        self.census.use(self.visitor.update)
        self.census.show(*records)

    def clock(self) -> float:
        return asyncio.get_running_loop().time()

    def announced(self, payload: bytes) -> tuple[str, float] | None:
        if payload == b"other":
            return None
        if not payload.isascii():
            raise DataLayoutError("An announcement cannot be read.")
        return payload.decode(), self.clock()

    async def read(self, read: Read) -> list[float | None]:
        self.reads[read.number] += 1
        self.fail_read(read)
        return [self.clock() if VisitPlace(read.number, each) in self.due else None for each in read.entities]

    async def visit(self, place: VisitPlace, record: EntityRecord) -> float | None:
        assert record.id == place.entity
        self.visits.append(place)
        self.fail_visit(place)
        self.due.discard(place)
        return None

    async def run(self) -> None:
        """Visit whenever there is something to do."""
        while True:
            self.news.clear()
            await wait_until(self.news, self.clock() + self.visitor.act())


@asynccontextmanager
async def visiting(url: str) -> AsyncIterator[tuple[Hand, EntityRecord, Any]]:
    """Make a visitor for one queue with four partitions."""
    async with queue_at(url, partitions=4, partitioned=True) as queue:
        connection = queue.client._connection
        record = queue.entity.record
        hand = Hand(DutyResources.of(connection), [record])
        running = asyncio.create_task(hand.run())
        try:
            await hand.visitor.begin()
            yield hand, record, connection
        finally:
            running.cancel()
            await asyncio.wait([running])
            await hand.visitor.close()


async def announce(connection: Any, number: int, payload: bytes) -> None:
    namespace = connection.namespace
    channel = due_channel(namespace.name, namespace.salt(number))
    await connection.transport.command("SPUBLISH", channel, payload, key=channel)


async def test_due_places_are_found_by_reads_and_by_announcements(url: str) -> None:
    async with visiting(url) as (hand, record, connection):
        await eventually(lambda: hand.visitor.at_rest)
        assert set(hand.reads) == {0, 1, 2, 3}
        assert hand.visits == []
        await announce(connection, 2, record.id.encode())
        await eventually(lambda: hand.visits == [VisitPlace(2, record.id)])
        hand.due.add(VisitPlace(3, record.id))
        hand.visitor._missed(3)
        await eventually(lambda: hand.visits[1:] == [VisitPlace(3, record.id)])


async def test_known_entities_are_read_in_slots_that_are_gained_later(url: str) -> None:
    async with visiting(url) as (hand, record, _):
        hand.visitor.serve(frozenset({0, 1}))
        hand.visitor.update([record.id])
        await eventually(lambda: hand.visitor.at_rest)
        before = hand.reads.copy()
        hand.due |= {VisitPlace(number, record.id) for number in range(4)}
        hand.visitor.serve(frozenset({0, 1, 3}))
        await eventually(lambda: hand.visits == [VisitPlace(3, record.id)])
        assert set(hand.reads - before) == {3}


async def test_announcements_that_cannot_be_read_or_concern_others_cause_no_visit(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with visiting(url) as (hand, record, connection):
        await eventually(lambda: hand.visitor.at_rest)
        for payload in (b"other", b"\xff", record.id.encode()):  # they arrive in this order
            await announce(connection, 0, payload)
        await eventually(lambda: hand.visits == [VisitPlace(0, record.id)])
        logged = [each.getMessage() for each in caplog.records if each.name == "sbredis.maintenance"]
        assert len(logged) == 1
        assert logged[0].startswith("slot 0: An announcement cannot be read")


async def test_an_unknown_entity_that_has_announced_work_is_visited_when_the_census_knows_it(url: str) -> None:
    async with visiting(url) as (hand, record, connection):
        await eventually(lambda: hand.visitor.at_rest)
        hand.census.show()
        await announce(connection, 1, record.id.encode())
        await eventually(lambda: hand.census.doubted == [record.id])
        assert hand.visits == []
        hand.census.show(record)
        await eventually(lambda: hand.visits == [VisitPlace(1, record.id)])


async def test_an_entity_that_a_visit_did_not_find_is_visited_again_when_it_announces_work(url: str) -> None:
    def gone(_: object) -> None:
        if len(hand.visits) == 1:
            raise MessagingEntityNotFoundError("no such queue")

    async with visiting(url) as (hand, record, connection):
        await eventually(lambda: hand.visitor.at_rest)
        hand.fail_visit = gone
        await announce(connection, 2, record.id.encode())
        await eventually(lambda: not hand.visitor.agenda.knows(record.id))
        assert hand.census.doubted == [record.id]
        await announce(connection, 2, record.id.encode())
        await eventually(lambda: len(hand.visits) == 2)


@in_memory
@pytest.mark.parametrize(
    ("error", "logged"),
    [(NotKnownYetError("too early"), 0), (ServiceBusConnectionError("refused"), 0), (OperationTimeoutError("late"), 1)],
)
async def test_a_visit_that_only_comes_too_early_is_repeated_without_a_line_in_the_log(
    url: str, error: Exception, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The entity is new, and the census that has it comes soon. An outage is logged by the transport. Other failures
    are logged at INFO.
    """

    def fail(_: object) -> None:
        if len(hand.visits) == 1:
            raise error

    caplog.set_level("INFO", "sbredis.maintenance")
    async with visiting(url) as (hand, record, _):
        await eventually(lambda: hand.visitor.at_rest)
        hand.fail_visit = fail
        hand.due.add(VisitPlace(1, record.id))
        hand.visitor._missed(1)
        await eventually(lambda: len(hand.visits) == 2)
        assert sum("the work there waits" in each.getMessage() for each in caplog.records) == logged


@in_memory
async def test_a_failed_read_and_a_failed_visit_are_repeated(url: str) -> None:
    def fail(_: object) -> None:
        failures.append(None)
        if len(failures) < 3:
            raise ServiceBusConnectionError("no answer")

    failures: list[None] = []
    async with visiting(url) as (hand, record, connection):
        await eventually(lambda: hand.visitor.at_rest)
        hand.due.add(VisitPlace(1, record.id))
        hand.fail_read = fail
        hand.visitor._missed(1)
        await eventually(lambda: hand.visits == [VisitPlace(1, record.id)])
        failures.clear()
        hand.fail_visit = fail
        await announce(connection, 2, record.id.encode())
        await eventually(lambda: hand.visits[1:] == [VisitPlace(2, record.id)] * 3)
        await eventually(lambda: hand.visitor.at_rest)


@in_memory
async def test_a_defect_is_logged_and_does_not_stop_the_visits(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        if len(hand.visits) < 2:
            raise ZeroDivisionError

    async with visiting(url) as (hand, record, connection):
        await eventually(lambda: hand.visitor.at_rest)
        hand.fail_visit = fail
        await announce(connection, 2, record.id.encode())
        await eventually(lambda: hand.visits == [VisitPlace(2, record.id)] * 2)
        (logged,) = caplog.records
        assert logged.getMessage() == "visiting partitions failed because of a defect, and is tried again"
        assert logged.exc_info is not None
        assert logged.exc_info[0] is ZeroDivisionError


@in_memory
async def test_closing_ends_all_visits(url: str) -> None:
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(None)

    ended: list[None] = []
    async with visiting(url) as (hand, record, _):
        await eventually(lambda: hand.visitor.at_rest)
        hand.visitor.start(endless())
        await asyncio.sleep(0)
        assert not hand.visitor.at_rest
        await hand.visitor.close()
        assert ended == [None]
        assert not hand.visitor.agenda.knows(record.id)
