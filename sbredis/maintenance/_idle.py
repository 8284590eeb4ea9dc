"""The duty of the role ``idle``: remove entities that nobody has used for the time of ``auto_delete_on_idle``.

This module does what :mod:`sbredis.maintenance._idling` decides: which partitions to ask, and which entities to remove.
The removal itself is safe whatever the agenda believes (:mod:`sbredis.registry._removal`), so two clients that both
believed that they had the role would do no harm.

The duty also deletes libraries of functions that no client calls (:mod:`sbredis.maintenance._old_libraries`).

It finishes removals and deletions that another client has begun and not finished, and creations of entities that are
removed when they are idle.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from sbredis._tasks import wait_until
from sbredis.client import IDLE, BackgroundTasks
from sbredis.engine import perform, quiet
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.maintenance._duty import Duty, DutyResources, Tenure
from sbredis.maintenance._idling import IdleAgenda, IdlePace, ReadQuiet, RemoveIdle, Temporary, Wait
from sbredis.maintenance._old_libraries import OldLibraries
from sbredis.registry import IDLE_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Collection

    from sbredis.registry import EntityRecord

__all__ = ["IdleDuty"]

_log = logging.getLogger("sbredis.maintenance")
_READING = 5.0
_REMOVING = 30.0


class IdleDuty(Duty):
    """Removes the entities that nobody uses."""

    role = IDLE
    by_slot = False

    def __init__(self, shared: DutyResources) -> None:
        super().__init__(shared)
        self._pace = IdlePace() if self.connection.test_hooks is None else IdlePace(between_reads=0.0, first_pause=0.5)
        self.agenda = IdleAgenda(self._pace)
        self._news = asyncio.Event()
        self._changed: set[str] = set()
        """The ids of entities that have changed in the census since the agenda was told."""
        self._deleting: dict[str, float] = {}
        """For each entity that is being deleted the time to finish that, if its client has stopped."""
        self._jobs = BackgroundTasks("removing unused entities", shared.failures, self._news.set)
        self._libraries = OldLibraries(self.connection, shared.failures)

    async def run(self, tenure: Tenure) -> None:
        """Ask and remove when it is time, until the task is cancelled."""
        del tenure
        loop, clock = asyncio.get_running_loop(), self.connection.clock
        self.agenda = IdleAgenda(self._pace)
        ended_moving = clock.when_moved(self._news.set)
        ended_reading = self.shared.census.use(self._census_read)
        self._jobs.start(self.shared.failures.tend("the deletion of old libraries of functions", self._libraries.run))
        try:
            while True:
                self._news.clear()
                self._note_changes(clock.now())
                finish_at = self._finish_deletions()
                while not isinstance(todo := self.agenda.next(loop.time(), clock.now()), Wait):
                    self._jobs.start(self._read(todo) if isinstance(todo, ReadQuiet) else self._remove(todo))
                await wait_until(self._news, min(finish_at, loop.time() + todo.seconds))
        finally:
            ended_moving()
            ended_reading()
            self._changed.clear()
            self._deleting.clear()
            await self._jobs.cancel()

    def _census_read(self, changed: Collection[str]) -> None:
        self._changed.update(changed)
        self._news.set()

    def _note_changes(self, clock: float) -> None:
        """Tell the agenda which entities have changed."""
        now = asyncio.get_running_loop().time()
        while self._changed:
            entity = self._changed.pop()
            record = self.shared.census.by_id.get(entity)
            idle = 0 if record is None or record.state == "deleting" else _idle(record)
            if record is not None and record.state == "deleting":
                self._deleting.setdefault(entity, now + self.connection.timings.finishing_deletions)
            if record is not None and idle:
                self.agenda.set_entity(entity, Temporary(record.partitions, idle / 1000), clock)
            else:
                self.agenda.forget(entity)

    def _finish_deletions(self) -> float:
        """Finish deletions that have lasted for long: their clients have probably stopped. Return the next time."""
        now, again = asyncio.get_running_loop().time(), self.connection.timings.finishing_deletions
        for entity, at in list(self._deleting.items()):
            record = self.shared.census.by_id.get(entity)
            if record is None:
                del self._deleting[entity]
            elif at <= now:
                self._deleting[entity] = now + again
                self._jobs.start(self._finish(record))
        return min(self._deleting.values(), default=math.inf)

    # -- asking and removing -------------------------------------------------------------------------------------------

    async def _read(self, read: ReadQuiet) -> None:
        connection, agenda = self.connection, self.agenda
        since = connection.clock.now()
        records = self.shared.census.by_id
        asked = [(id_, records[id_].store if id_ in records else None) for id_ in read.entities]
        namespace = connection.namespace
        request = quiet(namespace.name, namespace.salt(read.number), asked, connection.clock.told())
        try:
            times = await perform(connection.transport, request, timeout=_READING)
        except ServiceBusError as error:
            self.shared.failures.report(f"the reading of the last uses in slot {read.number}", error)
            agenda.read_failed(read, connection.clock.now())
        except BaseException:
            agenda.read_failed(read, connection.clock.now())
            raise
        else:
            used = [None if each is None else since - each / 1000 for each in times]
            agenda.read_done(read, used, connection.clock.now())

    async def _remove(self, removal: RemoveIdle) -> None:
        agenda, clock = self.agenda, self.connection.clock
        record = self.shared.census.by_id.get(removal.entity)
        idle = 0 if record is None else _idle(record)
        if record is None or not idle or record.settings.forwards:
            agenda.kept(removal.entity, 0.0, clock.now())
            return
        try:
            done = await self.connection.namespace.remove_if_idle(record, idle, timeout=_REMOVING)
        except MessagingEntityNotFoundError:
            agenda.removed(removal.entity)
        except ServiceBusError as error:
            self.shared.failures.report(f"{record.path}: the removal of the unused entity", error)
            agenda.removal_failed(removal.entity, clock.now())
            self.shared.census.doubt_entity(removal.entity)
        except BaseException:
            agenda.removal_failed(removal.entity, clock.now())
            raise
        else:
            if done.removed:
                _log.info("%s: the %s was deleted, because nobody had used it", record.path, record.kind)
                agenda.removed(removal.entity)
            else:
                agenda.kept(removal.entity, done.quiet / 1000, clock.now())
                self.shared.census.doubt_entity(removal.entity)

    async def _finish(self, record: EntityRecord) -> None:
        try:
            await self.connection.namespace.finish_deletion(record, timeout=_REMOVING)
        except ServiceBusError as error:
            self.shared.failures.report(f"{record.path}: the end of the deletion", error)


def _idle(record: EntityRecord) -> int:
    """Return the ms without use after which the entity is removed; 0 if it is never removed for that reason."""
    idle = record.properties.get(IDLE_PROPERTY)
    return idle if type(idle) is int and idle > 0 else 0
