"""The duty of the role ``route``: visit partitions when something is due, and publish the scheduled messages of topics.

Every call of a partition does the work that is due in it. If no call comes, the client with the role visits the
partition when something is due. Otherwise dead letters, counters and forwarded messages would come late. A message that
is scheduled on a topic must be judged by the rules at its scheduled time. No script can do this, so a visit to a topic
also publishes what is due. All partitions announce when something will be due, so idle ones cost nothing.

A topic's partition refuses a call with a fence that is older than one that it has seen. But even if two clients
believed that they had the role, they would do no work twice. A script publishes a message and removes it from the
schedule in one step, and a visit does only work that is due.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbredis._tasks import wait_until
from sbredis.client import ROUTE
from sbredis.engine import (
    CallId,
    RoleLostError,
    SettingsBehindError,
    SettingsStaleError,
    perform,
    read_announcement,
    upcoming,
)
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.maintenance._agenda import VisitPace
from sbredis.maintenance._duty import Duty, DutyResources, Tenure
from sbredis.maintenance._publishing import Publishing
from sbredis.maintenance._visiting import Visitor, is_move_announcement

if TYPE_CHECKING:
    from collections.abc import Collection

    from sbredis.maintenance._agenda import Read, VisitPlace
    from sbredis.registry import EntityRecord

__all__ = ["DueWork", "RoutingDuty"]

_VISITING = 30.0
_READING = 5.0
_ROUNDING = 0.001
"""The seconds to add to a due time. Servers count whole milliseconds, so an exact visit could be too early."""


def _until(milliseconds: float) -> float:
    """Return the seconds until something is due."""
    return milliseconds / 1000 + _ROUNDING if milliseconds > 0 else 0.0


class DueWork:
    """The errand of visits that do due work."""

    def __init__(self, shared: DutyResources) -> None:
        self._census = shared.census
        self._connection = shared.connection
        self.publishing = Publishing(shared.connection)
        self.tenure: Tenure | None = None
        """The tenure of the role, whose fence goes with what is published."""

    def clock(self) -> float:
        """Return the time of the client's clock. A test moves it by hand."""
        return self._connection.clock.now()

    def announced(self, payload: bytes) -> tuple[str, float] | None:
        """Return the entity id and the due time in an announcement."""
        if is_move_announcement(payload):
            return None
        announcement = read_announcement(payload)
        told = self._connection.clock.told()  # on a test bus, the servers use the clock of the test too
        milliseconds = announcement.due - (announcement.said if told is None else told)
        return announcement.entity, self.clock() + _until(milliseconds)

    async def read(self, read: Read) -> list[float | None]:
        """Read the next due times of places."""
        connection, since = self._connection, self.clock()
        namespace = connection.namespace
        request = upcoming(namespace.name, namespace.salt(read.number), read.entities, connection.clock.told())
        times = await perform(connection.transport, request, timeout=_READING)
        return [None if each is None else since + _until(each) for each in times]

    async def visit(self, place: VisitPlace, record: EntityRecord) -> float | None:
        """Do a share of the work that is due. Return the time of the next visit, if one is needed."""
        connection, since = self._connection, self.clock()
        if record.kind == "topic":
            tenure = self.tenure
            assert tenure is not None  # visits are made during a tenure
            try:
                seconds = await self.publishing.visit(record, place.number, tenure.fence(place.number))
            except RoleLostError:
                tenure.doubt()  # find out which client has the shard
                raise
            return None if seconds is None else self.clock() + _until(1000 * seconds)
        partition = connection.namespace.partition(record, place.number)
        call_id = CallId("", 0, connection.clock.told())
        try:
            awoken = await perform(connection.transport, partition.due(call_id), timeout=_VISITING)
        except SettingsBehindError:
            await perform(connection.transport, partition.configure(now=connection.clock.told()), timeout=_VISITING)
            return since
        except SettingsStaleError:
            newer = await connection.namespace.get_entity(record.path, timeout=_VISITING)
            if newer.incarnation != record.incarnation or newer.version <= record.version:
                raise
            self._census.changed(newer)
            return since
        except MessagingEntityNotFoundError:
            found = await connection.namespace.get_entity(record.path, timeout=_VISITING)
            if found.incarnation != record.incarnation:
                raise
            return None  # a failover has lost the partition; its next user creates it again, empty
        if awoken.more:
            return self.clock()
        return since + _until(awoken.due) if awoken.due else None


class RoutingDuty(Duty):
    """Publishes the scheduled messages of topics, and does what is due in the partitions of all entities."""

    role = ROUTE

    def __init__(self, shared: DutyResources) -> None:
        super().__init__(shared)
        self._news = asyncio.Event()
        self._work = DueWork(shared)
        pace = VisitPace() if self.connection.test_hooks is None else VisitPace(between_reads=0.0)
        self.visitor = Visitor(shared, self._work, pace, self._news.set)

    async def run(self, tenure: Tenure) -> None:
        """Publish and visit when something is due, until the task is cancelled."""
        self._work.tenure = tenure
        ended_moving = self.connection.clock.when_moved(self.look_again)
        ended_reading = self.shared.census.use(self._census_read)
        try:
            if self.connection.test_hooks is None:
                self.visitor.serve(tenure.numbers)
                await self.visitor.begin()
            while True:
                self._news.clear()
                await wait_until(self._news, asyncio.get_running_loop().time() + self.visitor.act())
        finally:
            ended_moving()
            ended_reading()
            await self.visitor.close()
            self._work.tenure = None

    def shards_changed(self) -> None:
        """Visit the partitions in the slots of the present shards."""
        if self._work.tenure is not None:
            self.visitor.serve(self._work.tenure.numbers)

    def look_again(self) -> None:
        """Look at the due times again, because the clock was moved."""
        if self.connection.test_hooks is not None:
            self.visitor.start(self._visit_all())
        self._news.set()

    async def _visit_all(self) -> None:
        """Read the due times of all entities. On a test bus, nothing becomes due before the clock is moved."""
        census = self.shared.census
        await census.read()
        self.visitor.update(census.by_id)
        self.visitor.agenda.missed_everywhere()
        self._news.set()

    def _census_read(self, changed: Collection[str]) -> None:
        self._work.publishing.forget_others(self.shared.census.topics)
        if self.connection.test_hooks is None:
            self.visitor.update(changed)
