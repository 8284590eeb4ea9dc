"""Visit partitions when something is due in them, on behalf of all clients of a namespace.

A partition does due work when a client calls it. If no client sends or receives, the client that maintains the
namespace must call the partition at the right time. Otherwise dead letters, counters and forwarded messages come late.
:mod:`sbredis.aio.core._agenda` decides which partition to visit at which time, and this module makes the visits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from sbredis.aio.core._agenda import Agenda, Pace, Place, Read, Sleep, Visit
from sbredis.aio.maintenance._slot_channels import SlotChannels, is_move_announcement
from sbredis.engine import (
    CallId,
    SettingsBehindError,
    SettingsStaleError,
    perform,
    read_announcement,
    salts,
    upcoming,
)
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError

if TYPE_CHECKING:
    from sbredis.aio.calls._runtime import Runtime
    from sbredis.registry import EntityRecord

__all__ = ["Visitor"]

_log = logging.getLogger("sbredis.maintenance")
_VISITING = 30.0
_READING = 5.0
_ROUNDING = 0.001
"""The seconds to add to a due time. Servers count whole milliseconds, so an exact visit could be too early."""


class Visitor:
    """The visits of one client to partitions of queues and subscriptions, while it maintains the namespace."""

    def __init__(self, runtime: Runtime, news: asyncio.Event, unknown_entity: Callable[[], None]) -> None:
        """``news`` is set when there may be something to do.

        ``unknown_entity`` is called when an unknown entity has made an announcement, or may have made one while the
        client did not listen.
        """
        self._pace = Pace() if runtime.test_hooks is None else Pace(between_reads=0.0)
        self.agenda = Agenda(self._pace)
        self._runtime = runtime
        self._news = news
        self._unknown_entity = unknown_entity
        self._records: dict[str, EntityRecord] = {}
        self._slots = SlotChannels(runtime, self._heard, self._missed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._salts = salts(runtime.namespace.partitions)
        self._counted = False

    async def begin(self) -> None:
        """Listen to all slots. If a slot does not answer soon, do not wait for it."""
        await self._slots.open()

    def close(self) -> None:
        """Stop visiting, and forget all due times."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._slots.close()
        self._records.clear()
        self.agenda = Agenda(self._pace)
        self._counted = False

    @property
    def at_rest(self) -> bool:
        """Whether the next due times of all entities are known, and no visit is under way."""
        return self._slots.all_open and self._counted and self.agenda.all_read and not self._tasks

    def set_entities(self, records: Iterable[EntityRecord]) -> None:
        """Replace the list of queues and subscriptions."""
        self._counted = True
        self._records = {record.id: record for record in records}
        entities = {record.id: record.partitions for record in self._records.values()}
        self.agenda.set_entities(entities, asyncio.get_running_loop().time())
        self._news.set()

    def act(self) -> float:
        """Start all visits and reads that are due now. Return the seconds to wait for an event before the next call."""
        loop, clock = asyncio.get_running_loop(), self._runtime.clock
        while True:
            todo = self.agenda.next(loop.time(), clock.now())
            match todo:
                case Sleep():
                    return todo.seconds
                case Visit():
                    self._start(self._visit(todo.place))
                case Read():
                    self._start(self._read(todo))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("visiting partitions failed because of a defect", exc_info=error)
        self._news.set()

    # -- announcements -------------------------------------------------------------------------------------------------

    def _heard(self, number: int, payload: bytes) -> None:
        if is_move_announcement(payload):
            return  # another duty handles it
        try:
            announcement = read_announcement(payload)
        except ValueError:
            _log.warning("an announcement cannot be read: %r", payload[:100])
            return
        clock = self._runtime.clock
        told = clock.told()  # on a test bus, the servers use the clock of the test too
        milliseconds = announcement.due - (announcement.said if told is None else told)
        if self.agenda.announced(Place(number, announcement.entity), clock.now() + milliseconds / 1000 + _ROUNDING):
            self._news.set()
        else:
            self._unknown_entity()

    def _missed(self, number: int) -> None:
        self.agenda.missed(number)
        self._unknown_entity()
        self._news.set()

    # -- reading and visiting ------------------------------------------------------------------------------------------

    async def _read(self, read: Read) -> None:
        """Read the next due times of places. If this fails, the agenda plans another read."""
        runtime, loop = self._runtime, asyncio.get_running_loop()
        since, agenda = runtime.clock.now(), self.agenda
        request = upcoming(runtime.namespace.name, self._salts[read.number], read.entities, runtime.clock.told())
        try:
            times = await perform(runtime.transport, request, timeout=_READING)
        except ServiceBusError as error:
            _log.info("the due times in partition %d of each entity could not be read: %s", read.number, error)
            agenda.read_failed(read, loop.time())
        except BaseException:
            agenda.read_failed(read, loop.time())
            raise
        else:
            agenda.read_done(read, [None if each is None else since + each / 1000 + _ROUNDING for each in times])

    async def _visit(self, place: Place) -> None:
        """Do the work that is due at a place. If this fails, the agenda plans another visit."""
        clock, agenda = self._runtime.clock, self.agenda
        record = self._records.get(place.entity)
        if record is None:
            agenda.remove_entity(place.entity)
            return
        since = clock.now()
        try:
            at = await self._due(place, record, since)
        except MessagingEntityNotFoundError:
            await self._look_up(place, record)
        except ServiceBusError as error:
            _log.info("%s, partition %d: due work could not be done yet: %s", record.path, place.number, error)
            agenda.visit_failed(place, clock.now())
        except BaseException:
            agenda.visit_failed(place, clock.now())
            raise
        else:
            agenda.visit_done(place, at)

    async def _due(self, place: Place, record: EntityRecord, since: float) -> float | None:
        """Do a share of the work that is due. Return the time of the next visit, if one is needed."""
        runtime = self._runtime
        partition = runtime.namespace.partition(record, place.number)
        call_id = CallId("", 0, runtime.clock.told())
        try:
            awoken = await perform(runtime.transport, partition.due(call_id), timeout=_VISITING)
        except SettingsBehindError:
            await perform(runtime.transport, partition.configure(now=runtime.clock.told()), timeout=_VISITING)
            return since
        except SettingsStaleError:
            newer = await runtime.namespace.get_entity(record.path, timeout=_VISITING)
            if newer.incarnation != record.incarnation or newer.version <= record.version:
                raise
            self._records[place.entity] = newer
            return since
        if awoken.more:
            return runtime.clock.now()
        return since + awoken.due / 1000 + _ROUNDING if awoken.due else None

    async def _look_up(self, place: Place, record: EntityRecord) -> None:
        """Find out why a partition is missing: its entity was deleted, or a failover has lost the partition."""
        try:
            found = await self._runtime.namespace.get_entity(record.path, timeout=_VISITING)
        except MessagingEntityNotFoundError:
            self.agenda.remove_entity(place.entity)
        except ServiceBusError as error:
            _log.info("%s: it is not known whether the entity still exists: %s", record.path, error)
            self.agenda.visit_failed(place, self._runtime.clock.now())
        else:
            if found.incarnation == record.incarnation:
                self.agenda.visit_done(place, None)  # the next user of the partition creates it again, empty
            else:
                self.agenda.remove_entity(place.entity)
                self._unknown_entity()
