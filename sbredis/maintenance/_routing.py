"""The duty of the role ``route``: publish the scheduled messages of topics, and visit the other partitions.

A message that is scheduled on a topic must be judged by the rules at its scheduled time. No script can do this, so the
client that has the role does it. In queues and subscriptions, every call does due work. If no call comes, the client
with the role visits their partitions when something is due. Otherwise dead letters, counters and forwarded messages
would come late.

A topic's partition refuses a call with a fence that is older than one that it has seen. But even if two clients
believed that they had the role, they would do no work twice. A script publishes a message and removes it from the
schedule in one step, and a visit does only work that is due.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from sbredis._tasks import wait_until
from sbredis.client import CALLING, ROUTE, to_ask
from sbredis.engine import (
    CallId,
    RoleLostError,
    SettingsBehindError,
    SettingsStaleError,
    perform,
    read_announcement,
    upcoming,
)
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.maintenance._agenda import VisitPace
from sbredis.maintenance._duty import Duty, DutyResources, Tenure
from sbredis.maintenance._publishing import TopicWatcher
from sbredis.maintenance._visiting import Visitor, is_move_announcement

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.maintenance._agenda import Read, VisitPlace
    from sbredis.registry import EntityRecord

__all__ = ["DueWork", "RoutingDuty"]

_VISITING = 30.0
_READING = 5.0
_ROUNDING = 0.001
"""The seconds to add to a due time. Servers count whole milliseconds, so an exact visit could be too early."""


class DueWork:
    """The errand of visits that do due work."""

    def __init__(self, shared: DutyResources) -> None:
        self._census = shared.census
        self._connection = shared.connection

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
        return announcement.entity, self.clock() + milliseconds / 1000 + _ROUNDING

    async def read(self, read: Read) -> list[float | None]:
        """Read the next due times of places."""
        connection, since = self._connection, self.clock()
        namespace = connection.namespace
        request = upcoming(namespace.name, namespace.salt(read.number), read.entities, connection.clock.told())
        times = await perform(connection.transport, request, timeout=_READING)
        return [None if each is None else since + each / 1000 + _ROUNDING for each in times]

    async def visit(self, place: VisitPlace, record: EntityRecord) -> float | None:
        """Do a share of the work that is due. Return the time of the next visit, if one is needed."""
        connection, since = self._connection, self.clock()
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
        return since + awoken.due / 1000 + _ROUNDING if awoken.due else None


_PAUSE = 1.0
_AT_ONCE = 16


class RoutingDuty(Duty):
    """Publishes the scheduled messages of topics, and visits the partitions of queues and subscriptions."""

    role = ROUTE

    def __init__(self, shared: DutyResources) -> None:
        super().__init__(shared)
        self._news = asyncio.Event()
        self.watchers: dict[tuple[str, int], TopicWatcher] = {}
        """The watched partitions of topics, by the topic's incarnation and the number of the partition."""
        pace = VisitPace() if self.connection.test_hooks is None else VisitPace(between_reads=0.0)
        self.visitor = Visitor(shared, DueWork(shared), pace, self._news.set)
        """Visits the partitions of queues and subscriptions."""
        self._tenure: Tenure | None = None
        self._listed = False
        """Whether the census was read since this duty last looked at it."""
        self._retry_at = math.inf
        """The time at which the duty looks at the census again, because a topic could not be found."""
        self._moved = False
        """Whether the clock of a test bus was moved since the last reading of the census."""

    def called(self) -> None:
        """Read the census: a topic with a scheduled message may be new."""
        if self._tenure is not None:
            self.shared.census.read_now()

    async def run(self, tenure: Tenure) -> None:
        """Publish and visit when something is due, until the task is cancelled."""
        self._tenure = tenure
        ended_moving = self.connection.clock.when_moved(self.look_again)
        ended_reading = self.shared.census.use(self._census_read)
        try:
            if self.connection.test_hooks is None:
                await self.visitor.begin()
            while True:
                self._news.clear()
                await self._list()
                publishing_at = self._publish(tenure.fence())
                visits_at = asyncio.get_running_loop().time() + self.visitor.act()
                until = min(self._retry_at, visits_at, publishing_at)
                await wait_until(self._news, until)
        finally:
            self._tenure = None
            self._listed = False
            ended_moving()
            ended_reading()
            self._drop(list(self.watchers))
            await self.visitor.close()

    def look_again(self) -> None:
        """Look at all topics again, because the clock was moved."""
        for watcher in self.watchers.values():
            watcher.watch.missed()
        if self.connection.test_hooks is not None:
            self._moved = True
            self.shared.census.read_now()
        self._news.set()

    def _census_read(self) -> None:
        self._listed = True
        self._news.set()

    def _publish(self, fence: int | None) -> float:
        """Publish in the partitions where something may be due. Return the time of the next call of this method.

        A partition that does not answer does not delay the other partitions.
        """
        now = asyncio.get_running_loop().time()
        watchers = list(self.watchers.values())
        watches = [watcher.watch for watcher in watchers]
        for watch in watches:
            if watch.look_at is not None and watch.look_at <= now:  # this check saves many calls
                watch.time_passed(now)
        for place in to_ask(watches, _AT_ONCE):
            watchers[place].begin(fence)
        return min((watch.look_at for watch in watches if watch.look_at is not None), default=math.inf)

    async def _list(self) -> None:
        """If the census was read, watch the topics in it from now on, and visit the queues and subscriptions in it."""
        loop = asyncio.get_running_loop()
        if self._listed:
            self._listed = False
            self._retry_at = 0.0
            if self.connection.test_hooks is None:
                self.visitor.set_entities(self.shared.census.others)
            elif self._moved:  # on a test bus nothing becomes due before the clock is moved
                self._moved = False
                self.visitor.set_entities(self.shared.census.others)
                self.visitor.agenda.missed_everywhere()
        if loop.time() < self._retry_at:
            return
        self._retry_at = math.inf
        found: set[tuple[str, int]] = set()
        for record in self.shared.census.topics:
            try:
                found |= self._watch(await self._entity(record, loop.time() + CALLING))
            except MessagingEntityNotFoundError:
                continue  # the topic was deleted meanwhile
            except ServiceBusError as error:
                self.shared.failures.report(f"{record.path}: the watch of the topic", error)
                found |= {(record.incarnation, number) for number in record.partitions}
                self._retry_at = loop.time() + _PAUSE
        self._drop([place for place in self.watchers if place not in found])

    async def _entity(self, record: EntityRecord, until: float) -> Entity:
        """Return the topic of a record. This topic may have replaced an older topic that this client knows."""
        entity = await self.connection.entity(record.path, until)
        if entity.record.incarnation != record.incarnation:
            await entity.refresh(until)
        return entity

    def _watch(self, entity: Entity) -> set[tuple[str, int]]:
        places = {(entity.record.incarnation, number) for number in entity.numbers}
        for place in places:
            if place not in self.watchers:
                self.watchers[place] = TopicWatcher(
                    entity, place[1], self.shared.failures, changed=self._news.set, failed=self._failed
                )
                self._news.set()
        return places

    def _drop(self, places: list[tuple[str, int]]) -> None:
        for place in places:
            self.watchers.pop(place).close()

    def _failed(self, watcher: TopicWatcher, error: BaseException) -> None:
        if isinstance(error, MessagingEntityNotFoundError):
            self._drop([place for place, other in self.watchers.items() if other is watcher])
        elif isinstance(error, RoleLostError) and self._tenure is not None:
            self._tenure.doubt()  # find out which client has the role
        self._news.set()
