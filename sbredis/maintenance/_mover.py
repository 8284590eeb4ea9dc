"""Moves the messages that wait in partitions for as long as some wait, and remembers what later moves need."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sbredis.client._background_work import CALLING
from sbredis.engine import MOST_ASKED, calling, forget_source, outgoing, perform, salts
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.maintenance._targets import destinations_of
from sbredis.moving._carrying import Carrier, ask

if TYPE_CHECKING:
    from sbredis.client._entity import Entity
    from sbredis.engine import Destination, Origin, Waiting
    from sbredis.maintenance._duty import Shared

__all__ = ["Mover"]

_log = logging.getLogger("sbredis.maintenance")
_READING = 5.0
_TURN = 0.5
"""The seconds after which a partition with many messages lets other partitions go first."""
_MOST_REMEMBERED = 10_000


class Mover:
    """Moves messages from partitions to their destinations. It needs no role: two clients may move at the same time."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.connection = shared.connection
        self._salts = salts(self.connection.namespace.partitions)
        self._doors: dict[Destination, str] = {}
        """The last known doors of destinations."""
        self._strangers: dict[Origin, tuple[Entity, int]] = {}
        """Sources that may be gone, each with the partition that remembers it."""

    async def calling(self, number: int, entities: Sequence[str]) -> Sequence[bool]:
        """Return for each of these entities whether messages wait in its partition of this number."""
        request = calling(self.connection.namespace.name, self._salts[number], entities)
        return await perform(self.connection.transport, request, timeout=_READING)

    async def move_now(self) -> None:
        """Move all messages that wait now. A test bus does this before it shows messages."""
        census, again = self.shared.census, True
        await census.read()
        while again:
            again = False
            for number in range(len(self._salts)):
                known = [record for record in census.by_id.values() if number in record.partitions]
                for start in range(0, len(known), MOST_ASKED):
                    part = known[start : start + MOST_ASKED]
                    answers = await self.calling(number, [record.id for record in part])
                    for record in (record for record, calls in zip(part, answers, strict=True) if calls):
                        source = await self.shared.find(record.path, asyncio.get_running_loop().time() + CALLING)
                        again = await self.move_all(source, number) or again

    async def move_all(self, source: Entity, number: int) -> bool:
        """Move messages until none waits, or until it is another partition's turn. Return whether none waits.

        Raise an error if messages wait whose destination cannot be reached now.
        """
        loop, connection = asyncio.get_running_loop(), self.connection
        ends, start = loop.time() + _TURN, 0
        failed: ServiceBusError | None = None
        destinations = destinations_of(self.shared, source, number)
        while loop.time() < ends:
            doors = dict(self._doors)  # a door must be known before the messages are read
            request = partial(outgoing, start=start, now=connection.clock.told())
            waiting = await ask(connection, source, number, request)
            if waiting.more:
                continue
            if not waiting.batches and not waiting.messages:
                if failed is not None:
                    raise failed
                return True
            error = await self._move(Carrier(connection, source, number, waiting.birth, destinations), waiting, doors)
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

    def knows_the_gone(self) -> bool:
        """Return whether a source does not exist any more that a destination remembers."""
        return bool(self._gone())

    def _gone(self) -> list[Origin]:
        return [origin for origin in self._strangers if self.shared.census.is_gone(origin.entity)]

    async def forget_the_gone(self) -> None:
        """Let the destinations forget sources that do not exist any more, according to the census."""
        gone = [(origin, *self._strangers.pop(origin)) for origin in self._gone()]
        for origin, entity, number in gone:
            request = partial(forget_source, origins=[origin], now=self.connection.clock.told())
            try:
                await ask(self.connection, entity, number, request)
            except ServiceBusError as error:
                _log.debug("%s still remembers a source that does not exist any more: %s", entity.name, error)
