"""The duty of the role ``move``: move messages that are forwarded, and messages that a transaction sent elsewhere.

A partition says on the channel of its slot when messages begin to wait. It then says nothing more until all of them
were moved. Announcements may be lost, so the client also reads which partitions are calling: all partitions when it
takes the role, those of a slot after a gap, and each partition once in two hours.
:mod:`sbredis.aio.core._agenda` decides which partition comes next, and :mod:`sbredis.aio.core._moving` how messages are
moved.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from sbredis.aio.core._agenda import Agenda, Pace, Place, Read, Sleep, Visit
from sbredis.aio.maintenance._carrying import Carrier, ask
from sbredis.aio.maintenance._destinations import Destinations
from sbredis.aio.maintenance._duty import Duty, Shared, Tenure
from sbredis.aio.maintenance._role import MOVE
from sbredis.aio.maintenance._slot_channels import SlotChannels, is_move_announcement
from sbredis.engine import MOST_ASKED, calling, forget_source, outgoing, perform, read_call, salts
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError

if TYPE_CHECKING:
    from sbredis.aio.calls._entity import Entity
    from sbredis.engine import Destination, Origin, Waiting

__all__ = ["PACE", "MovingDuty"]

_log = logging.getLogger("sbredis.maintenance")
_READING = 5.0
_CALLING = 30.0
_TURN = 0.5
"""The seconds after which a partition with many messages lets other partitions go first."""
PACE = Pace(visits_at_once=16, round=7200.0)
_MOST_REMEMBERED = 10_000


class MovingDuty(Duty):
    """Moves the messages of all partitions in which messages wait to be moved."""

    role = MOVE

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._pace = PACE if self.runtime.test_hooks is None else Pace(visits_at_once=16, between_reads=0.0)
        self.agenda = Agenda(self._pace)
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = SlotChannels(self.runtime, self._heard, self._missed)
        self._salts = salts(self.runtime.namespace.partitions)
        self._doors: dict[Destination, str] = {}
        """The last known doors of destinations."""
        self._strangers: dict[Origin, tuple[Entity, int]] = {}
        """Sources that may be gone, each with the partition that remembers it."""
        self._counted = False

    @property
    def at_rest(self) -> bool:
        """Whether all partitions were read, and no messages are being moved."""
        return self._slots.all_open and self._counted and self.agenda.all_read and not self._tasks

    def called(self) -> None:
        """Do nothing: the partitions themselves call, on the channels of their slots."""

    async def run(self, tenure: Tenure) -> None:
        """Move messages whenever some wait, until the task is cancelled."""
        del tenure  # two clients that move messages at the same time do no harm, so the calls carry no fence
        loop = asyncio.get_running_loop()
        ended_reading = self.shared.census.use(self._census_read)
        try:
            await self._slots.open()
            while True:
                self._news.clear()
                wait = self._act()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if wait == math.inf else loop.time() + wait):
                        await self._news.wait()
        finally:
            ended_reading()
            self._slots.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            self.agenda = Agenda(self._pace)
            self._counted = False
            if tasks:
                await asyncio.wait(tasks)

    def _act(self) -> float:
        """Start all work that is due now. Return the seconds to wait for an event before the next call."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            todo = self.agenda.next(now, now)
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
            _log.error("moving messages failed because of a defect", exc_info=error)
        self._news.set()

    # -- events --------------------------------------------------------------------------------------------------------

    def _census_read(self) -> None:
        self._counted = True
        census, now = self.shared.census, asyncio.get_running_loop().time()
        records = [*census.topics, *census.others]
        self.agenda.set_entities({record.id: record.partitions for record in records}, now)
        if gone := [origin for origin in self._strangers if census.is_gone(origin.entity)]:
            self._start(self._forget(gone))
        self._news.set()

    def _heard(self, number: int, payload: bytes) -> None:
        if not is_move_announcement(payload):
            return  # another duty handles it
        try:
            entity = read_call(payload)
        except ValueError:
            _log.warning("an announcement cannot be read: %r", payload[:100])
            return
        if self.agenda.announced(Place(number, entity), asyncio.get_running_loop().time()):
            self._news.set()
        else:
            self.shared.census.read_soon()  # the entity is new; its partitions are read after the census

    def _missed(self, number: int) -> None:
        self.agenda.missed(number)
        self._news.set()

    async def _read(self, read: Read) -> None:
        """Read which partitions are calling. If this fails, the agenda plans another read."""
        runtime, loop, agenda = self.runtime, asyncio.get_running_loop(), self.agenda
        request = calling(runtime.namespace.name, self._salts[read.number], read.entities)
        try:
            answers = await perform(runtime.transport, request, timeout=_READING)
        except ServiceBusError as error:
            _log.info("it is not known in which partitions of slot %d messages wait: %s", read.number, error)
            agenda.read_failed(read, loop.time())
        except BaseException:
            agenda.read_failed(read, loop.time())
            raise
        else:
            agenda.read_done(read, [loop.time() if each else None for each in answers])

    # -- moving --------------------------------------------------------------------------------------------------------

    async def _visit(self, place: Place) -> None:
        """Move the messages that wait at a place. If this fails, the agenda plans another visit."""
        loop, agenda = asyncio.get_running_loop(), self.agenda
        record = self.shared.census.by_id.get(place.entity)
        if record is None:
            agenda.remove_entity(place.entity)
            return
        try:
            source = await self.shared.find(record.path, loop.time() + _CALLING)
            if source.record.id != place.entity:
                await source.recover(source.record, loop.time() + _CALLING)
            if source.record.id == place.entity:
                finished = await self._move_all(source, place.number)
                agenda.visit_done(place, None if finished else loop.time())
            else:
                agenda.remove_entity(place.entity)
        except MessagingEntityNotFoundError:
            agenda.remove_entity(place.entity)
            self.shared.census.read_soon()
        except ServiceBusError as error:
            _log.info("%s, partition %d: messages wait to be moved: %s", record.path, place.number, error)
            agenda.visit_failed(place, loop.time())
        except BaseException:
            agenda.visit_failed(place, loop.time())
            raise

    async def move_now(self) -> None:
        """Move all messages that wait now. A test bus does this before it shows messages."""
        runtime, census, again = self.runtime, self.shared.census, True
        await census.read()
        while again:
            again = False
            for number, salt in enumerate(self._salts):
                known = [record for record in census.by_id.values() if number in record.partitions]
                for start in range(0, len(known), MOST_ASKED):
                    part = known[start : start + MOST_ASKED]
                    request = calling(runtime.namespace.name, salt, [record.id for record in part])
                    answers = await perform(runtime.transport, request, timeout=_READING)
                    for record in (record for record, calls in zip(part, answers, strict=True) if calls):
                        source = await self.shared.find(record.path, asyncio.get_running_loop().time() + _CALLING)
                        again = await self._move_all(source, number) or again

    async def _move_all(self, source: Entity, number: int) -> bool:
        """Move messages until none waits, or until it is another partition's turn. Return whether none waits.

        Raise an error if messages wait whose destination cannot be reached now.
        """
        loop, runtime = asyncio.get_running_loop(), self.runtime
        ends, start = loop.time() + _TURN, 0
        failed: ServiceBusError | None = None
        destinations = Destinations(self.shared, source, number)
        while loop.time() < ends:
            doors = dict(self._doors)  # a door must be known before the messages are read
            request = partial(outgoing, start=start, now=runtime.clock.told())
            waiting = await ask(runtime, source, number, request)
            if waiting.more:
                continue
            if not waiting.batches and not waiting.messages:
                if failed is not None:
                    raise failed
                return True
            error = await self._move(Carrier(runtime, source, number, waiting.birth, destinations), waiting, doors)
            if error is not None:
                failed, start = error, waiting.onward
                if not start:
                    raise failed
        if failed is not None:
            raise failed
        return False

    async def _move(
        self, carrier: Carrier, waiting: Waiting, doors: Mapping[Destination, str]
    ) -> ServiceBusError | None:
        """Move the messages of one reading, to all their destinations at the same time. Return an error if one failed.

        The messages for a destination wait until an outstanding batch for it is complete.
        """
        heaps, error = await carrier.destinations.sorted(waiting.messages, waiting.now)
        outstanding = {batch.destination for batch in waiting.batches}
        works = {place: carrier.carry(place, None, door=doors.get(place, "")) for place in outstanding}
        for heap in heaps:
            if heap.destination not in works:
                door = doors.get(heap.destination, "")
                works[heap.destination] = carrier.carry(heap.destination, heap.entity, heap.moves, door)
        results = await asyncio.gather(*works.values(), return_exceptions=True)
        for place, result in zip(works, results, strict=True):
            if isinstance(result, ServiceBusError):
                if isinstance(result, MessagingEntityNotFoundError):
                    raise result  # the source does not exist any more
                error = result
            elif isinstance(result, BaseException):
                raise result
            elif result:
                self._doors[place] = result
        self._strangers |= carrier.strangers
        for forgettable in (self._doors, self._strangers):
            if len(forgettable) > _MOST_REMEMBERED:
                forgettable.clear()
        return error

    async def _forget(self, origins: Sequence[Origin]) -> None:
        """Let the destinations forget sources that do not exist any more."""
        for origin in origins:
            entity, number = self._strangers.pop(origin)
            request = partial(forget_source, origins=[origin], now=self.runtime.clock.told())
            try:
                await ask(self.runtime, entity, number, request)
            except ServiceBusError as error:
                _log.debug("%s still remembers a source that does not exist any more: %s", entity.name, error)
