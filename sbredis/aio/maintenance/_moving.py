"""The duty of the role ``move``: move messages that are forwarded, and messages that a transaction sent elsewhere.

A partition says on the channel of its slot when messages begin to wait. It then says nothing more until all of them
were moved. Announcements may be lost, so the client also reads which partitions are calling: all partitions when it
takes the role, those of a slot after a gap, and each partition once in two hours.
:mod:`sbredis.aio.maintenance._visiting` visits the partitions, and :mod:`sbredis.aio.core._moving` decides how messages
are moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sbredis._tasks import wait_until
from sbredis.aio.core._agenda import Pace
from sbredis.aio.maintenance._carrying import Carrier, ask
from sbredis.aio.maintenance._destinations import Destinations
from sbredis.aio.maintenance._duty import Duty, Shared, Tenure
from sbredis.aio.maintenance._role import MOVE
from sbredis.aio.maintenance._slot_channels import is_move_announcement
from sbredis.aio.maintenance._visiting import Visitor
from sbredis.engine import MOST_ASKED, calling, forget_source, outgoing, perform, read_call, salts
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError

if TYPE_CHECKING:
    from sbredis.aio.calls._entity import Entity
    from sbredis.aio.core._agenda import Place, Read
    from sbredis.engine import Destination, Origin, Waiting
    from sbredis.registry import EntityRecord

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
        pace = PACE if self.runtime.test_hooks is None else Pace(visits_at_once=16, between_reads=0.0)
        self._news = asyncio.Event()
        self.visitor = Visitor(shared, self, pace, self._news.set)
        self._salts = salts(self.runtime.namespace.partitions)
        self._doors: dict[Destination, str] = {}
        """The last known doors of destinations."""
        self._strangers: dict[Origin, tuple[Entity, int]] = {}
        """Sources that may be gone, each with the partition that remembers it."""

    def called(self) -> None:
        """Do nothing: the partitions themselves call, on the channels of their slots."""

    async def run(self, tenure: Tenure) -> None:
        """Move messages whenever some wait, until the task is cancelled."""
        del tenure  # two clients that move messages at the same time do no harm, so the calls carry no fence
        loop = asyncio.get_running_loop()
        ended_reading = self.shared.census.use(self._census_read)
        try:
            await self.visitor.begin()
            while True:
                self._news.clear()
                await wait_until(self._news, loop.time() + self.visitor.act())
        finally:
            ended_reading()
            await self.visitor.close()

    def _census_read(self) -> None:
        census = self.shared.census
        self.visitor.set_entities([*census.topics, *census.others])
        if gone := [origin for origin in self._strangers if census.is_gone(origin.entity)]:
            self.visitor.start(self._forget(gone))

    # -- the errand of the visits --------------------------------------------------------------------------------------

    def clock(self) -> float:
        """Return the time of the event loop."""
        return asyncio.get_running_loop().time()

    def announced(self, payload: bytes) -> tuple[str, float] | None:
        """Return the entity whose partition says that messages wait, and the present time."""
        return (read_call(payload), self.clock()) if is_move_announcement(payload) else None

    async def read(self, read: Read) -> list[float | None]:
        """Read which partitions are calling."""
        request = calling(self.runtime.namespace.name, self._salts[read.number], read.entities)
        answers = await perform(self.runtime.transport, request, timeout=_READING)
        return [self.clock() if each else None for each in answers]

    async def visit(self, place: Place, record: EntityRecord) -> float | None:
        """Move the messages that wait at a place. Return the present time if more messages wait."""
        until = self.clock() + _CALLING
        source = await self.shared.find(record.path, until)
        if source.record.id != record.id:
            await source.refresh(until)
        if source.record.id != record.id:
            raise MessagingEntityNotFoundError(f"'{record.path}' was deleted and created again.")
        return None if await self._move_all(source, place.number) else self.clock()

    # -- moving --------------------------------------------------------------------------------------------------------

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
