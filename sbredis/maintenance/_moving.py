"""The duty of the role ``move``: move messages that are forwarded, and messages that a transaction sent elsewhere.

A partition says on the channel of its slot when messages begin to wait. It then says nothing more until all of them
were moved. Announcements may be lost, so the client also reads which partitions are calling: all partitions when it
takes the role, those of a slot after a gap, and each partition once in two hours.
:mod:`sbredis.maintenance._visiting` visits the partitions. The :class:`Mover` moves their messages as
:mod:`sbredis.moving._moves` decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from sbredis._tasks import wait_until
from sbredis.client import CALLING, MOVE
from sbredis.engine import MOST_ASKED, MOST_SWEPT, Partition, calling, perform, read_call, recipient_of
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.maintenance._agenda import VisitPace, VisitPlace
from sbredis.maintenance._duty import Duty, DutyResources, Tenure
from sbredis.maintenance._visiting import Again, Visitor, is_move_announcement
from sbredis.model import Purpose
from sbredis.moving import (
    Carrier,
    Destinations,
    Finder,
    MoveSource,
    NotKnownYetError,
    SweepEnd,
    Sweeper,
    SweptSource,
    ask,
    destination_of_all,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sbredis.client import Entity
    from sbredis.engine import Delivery, Destination, MovesRead, Origin
    from sbredis.maintenance._agenda import Read
    from sbredis.model import MoveKind
    from sbredis.registry import EntityRecord

__all__ = ["PACE", "Mover", "MovingDuty", "destinations_of", "pause_after"]


_GATHERING = 0.02
"""The seconds from one reading of a partition to the next while messages come all the time."""


def destinations_of(shared: DutyResources, source: Entity, number: int) -> Destinations:
    """Return what finds the destinations of the messages that wait in a partition of ``source``."""
    return Destinations(source, number, _Targets(shared, source), Purpose())


def pause_after(took: float, *, before: bool, onward: int) -> float:
    """Return the seconds to wait between two readings of a partition, so that messages gather there.

    The first reading found messages, and moving them took some seconds. A mover waits only if it had found some
    ``before``, too: then they come all the time. It does not wait if more wait already, from ``onward`` on.
    """
    return max(0.0, _GATHERING - took) if before and not onward else 0.0


class _Targets(Finder):
    """The entities that ``source`` forwards to, and those that transactions have sent its messages to."""

    def __init__(self, shared: DutyResources, source: Entity) -> None:
        self._shared = shared
        self._source = source

    async def target(self, delivery: Delivery, why: MoveKind) -> tuple[Entity | None, str]:
        """Return the destination of a message, which is ``None`` if it does not exist, and its path."""
        until = asyncio.get_running_loop().time() + CALLING
        path: object = None
        try:
            if why == "transfer":
                recipient = recipient_of(delivery)
                if recipient is None:
                    return None, "its destination"
                path = recipient.path
                entity = await self.by_id(recipient.entity, path)
            else:
                name = "forward_to" if why == "forward" else "forward_dead_lettered_messages_to"
                path = self._source.record.properties.get(name)
                if not isinstance(path, str):
                    raise NotKnownYetError(
                        f"'{self._source.name}' does not forward messages any more.", outcome=Outcome.NEVER_SENT
                    )
                entity = await self._shared.connection.entity(path, until)
            if entity.record.kind == "topic" and entity.routing is None:
                await entity.load_routing(until)
        except MessagingEntityNotFoundError:
            return None, str(path)
        return entity, entity.name

    async def by_id(self, entity_id: str, path: str | None) -> Entity:
        """Return the entity with this id. The registry finds it, so ``path`` is not needed."""
        del path
        until = asyncio.get_running_loop().time() + CALLING
        record = await self._shared.census.find(entity_id)
        if record is None:
            raise MessagingEntityNotFoundError(f"The entity with the id {entity_id!r} does not exist any more.")
        entity = await self._shared.connection.entity(record.path, until)
        if entity.record.id != entity_id:
            await entity.refresh(until)
            if entity.record.id != entity_id:
                raise MessagingEntityNotFoundError(f"'{record.path}' was deleted and created again.")
        return entity


_log = logging.getLogger("sbredis.maintenance")
_READING = 5.0
_TURN = 0.5
"""The seconds after which a partition with many messages lets other partitions go first."""
_MOST_REMEMBERED = 10_000
_MOST_SOURCES = 2_000
"""The number of partitions that are kept to be swept again. Each takes some 8 KB."""
_AGAIN = {SweepEnd.NOTHING: None, SweepEnd.LATER: Again.TOGETHER, SweepEnd.OTHER: Again.ALONE}
"""How a source is visited again after a sweep."""


class Mover:
    """Moves messages from partitions to their destinations. It needs no role: two clients may move at the same time."""

    def __init__(self, shared: DutyResources) -> None:
        self.shared = shared
        self.connection = shared.connection
        self._doors: dict[Destination, str] = {}
        """The last known doors of destinations."""
        self._one_server = self.connection.target.kind != "cluster"
        """Whether one script may use the keys of several slots."""
        self._strangers: dict[Origin, tuple[Entity, int]] = {}
        """Sources that may be gone, each with the partition that remembers it."""
        self._looked_at = 0
        """How many of them were there when they were last compared with the census."""
        self._sweeper = Sweeper(self.connection, self._doors, self._strangers)
        self._sources: dict[VisitPlace, tuple[EntityRecord, Partition]] = {}
        """Partitions that were swept before, and the records that describe them. They have their keys packed."""

    async def calling(self, number: int, entities: Sequence[str]) -> Sequence[bool]:
        """Return for each of these entities whether messages wait in its partition of this number."""
        namespace = self.connection.namespace
        request = calling(namespace.name, namespace.salt(number), entities)
        return await perform(self.connection.transport, request, timeout=_READING)

    async def move_now(self, sources: Callable[[], Iterable[EntityRecord]]) -> None:
        """Move all messages that wait now in the entities that ``sources`` returns.

        A test bus does this before it shows messages. ``sources`` is called again when messages were moved, because
        they may wait in other entities now.
        """
        again = True
        while again:
            again = False
            places: defaultdict[int, list[EntityRecord]] = defaultdict(list)
            for record in sources():
                for number in record.partitions:
                    places[number].append(record)
            for number, known in places.items():
                for start in range(0, len(known), MOST_ASKED):
                    part = known[start : start + MOST_ASKED]
                    answers = await self.calling(number, [record.id for record in part])
                    for record in (record for record, calls in zip(part, answers, strict=True) if calls):
                        until = asyncio.get_running_loop().time() + CALLING
                        source = await self.connection.entity(record.path, until)
                        if source.record.id != record.id:
                            await source.refresh(until)
                        if source.record.id == record.id:
                            again = await self.move_all(source, number) or again

    async def move_together(
        self, records: Mapping[VisitPlace, EntityRecord], ended: Callable[[VisitPlace, Again | None], None]
    ) -> None:
        """Move messages of several sources of one slot until none waits, or until it is the turn of others.

        ``ended`` is called for each source when nothing more is done there.
        """
        ends, places = asyncio.get_running_loop().time() + _TURN, dict[SweptSource, VisitPlace]()
        for place, record in records.items():
            source = await self._swept_source(place, record)
            if source is None:
                ended(place, Again.ALONE)
            else:
                places[source] = place
        await self._sweeper.sweep([*places], ends, lambda source, end: ended(places[source], _AGAIN[end]))
        self._forget_some()

    async def _swept_source(self, place: VisitPlace, record: EntityRecord) -> SweptSource | None:
        """Return a source whose messages all go to one partition; ``None`` for any other source."""
        path, until = record.properties.get("forward_to"), asyncio.get_running_loop().time() + CALLING
        if not isinstance(path, str):
            return None
        try:
            to = await self.connection.entity(path, until)
            if to.record.kind == "topic" and to.routing is None:
                await to.load_routing(until)
        except ServiceBusError:  # the visit to this source alone decides what becomes of its messages
            return None
        destination = destination_of_all(to, place.number)
        if destination is None:
            return None
        known, partition = self._sources.get(place, (None, None))
        if partition is None or known is not record:
            partition = self.connection.namespace.partition(record, place.number)
            self._sources[place] = record, partition
        return SweptSource(MoveSource(record, place.number), partition, to, destination)

    async def move_all(self, source: Entity, number: int) -> bool:
        """Move messages until none waits, or until it is another partition's turn. Return whether none waits.

        Raise an error if messages wait whose destination cannot be reached now.
        """
        loop, connection = asyncio.get_running_loop(), self.connection
        ends, start = loop.time() + _TURN, 0
        failed: ServiceBusError | None = None
        destinations = destinations_of(self.shared, source, number)
        before = False
        while (begun := loop.time()) < ends:
            doors = dict(self._doors)  # a door must be known before the messages are read
            request = partial(Partition.outgoing, start=start, now=connection.clock.told())
            waiting = await ask(connection, source, number, request)
            if waiting.more:
                continue
            if not waiting.batches and not waiting.messages:
                if failed is not None:
                    raise failed
                return True
            carrier = Carrier(source, number, waiting.birth, destinations, doors, one_server=self._one_server)
            error = await self._move(carrier, waiting)
            if error is not None:
                failed, start = error, waiting.onward
                if not start:
                    raise failed
            elif pause := pause_after(loop.time() - begun, before=before, onward=waiting.onward):
                await asyncio.sleep(pause)
            before = True
        if failed is not None:
            raise failed
        return False

    async def _move(self, carrier: Carrier, waiting: MovesRead) -> ServiceBusError | None:
        """Move the messages of one reading. Return an error if some of them could not be moved."""
        heaps, error = await carrier.destinations.sorted(waiting.messages, waiting.now)
        failed = await carrier.carry_all(heaps, [batch.destination for batch in waiting.batches])
        self._doors |= carrier.doors
        self._one_server = self._one_server and carrier.one_server
        self._strangers |= carrier.strangers
        self._forget_some()
        return failed or error

    def _forget_some(self) -> None:
        for forgettable in (self._doors, self._strangers):
            if len(forgettable) > _MOST_REMEMBERED:
                forgettable.clear()
        if len(self._sources) > _MOST_SOURCES:
            self._sources.clear()
        self._looked_at = min(self._looked_at, len(self._strangers))

    def knows_the_gone(self, *, changed: bool) -> bool:
        """Return whether a source that a destination remembers does not seem to exist any more.

        Unless the census has ``changed``, only sources that have become known since the last call are looked at.
        """
        known, since = self.shared.census.by_id, 0 if changed else self._looked_at
        self._looked_at = len(self._strangers)
        return any(origin.entity not in known for origin in islice(self._strangers, since, None))

    async def forget_the_gone(self) -> None:
        """Let the destinations forget sources that do not exist any more."""
        for origin, (entity, number) in list(self._strangers.items()):
            try:
                if await self.shared.census.find(origin.entity) is not None:
                    continue
            except ServiceBusError as error:
                _log.debug("it is not known whether the source %s exists: %s", origin.entity, error)
                continue
            self._strangers.pop(origin, None)
            self._looked_at = 0  # the others have other places now
            request = partial(Partition.forget_source, origins=[origin], now=self.connection.clock.told())
            try:
                await ask(self.connection, entity, number, request)
            except ServiceBusError as error:
                _log.debug("%s still remembers a source that does not exist any more: %s", entity.name, error)


PACE = VisitPace(round=7200.0, together=MOST_SWEPT)


class MovingDuty(Duty):
    """Moves the messages of all partitions in which messages wait to be moved."""

    role = MOVE

    def __init__(self, shared: DutyResources) -> None:
        super().__init__(shared)
        pace = PACE if self.connection.test_hooks is None else replace(PACE, between_reads=0.0)
        self._news = asyncio.Event()
        self.mover = Mover(shared)
        self.visitor = Visitor(shared, self, pace, self._news.set, self._visit_together)
        self._tenure: Tenure | None = None

    async def run(self, tenure: Tenure) -> None:
        """Move messages whenever some wait, until the task is cancelled."""
        self._tenure = tenure  # two clients that move messages at the same time do no harm, so calls carry no fence
        loop = asyncio.get_running_loop()
        ended_reading = self.shared.census.use(self._census_read)
        try:
            self.visitor.serve(tenure.numbers)
            await self.visitor.begin()
            while True:
                self._news.clear()
                await wait_until(self._news, loop.time() + self.visitor.act())
        finally:
            ended_reading()
            await self.visitor.close()
            self._tenure = None

    def shards_changed(self) -> None:
        """Visit the partitions in the slots of the present shards."""
        if self._tenure is not None:
            self.visitor.serve(self._tenure.numbers)

    def _census_read(self, changed: Collection[str]) -> None:
        self.visitor.update(changed)
        self._forget(changed=bool(changed))

    def _forget(self, *, changed: bool = False) -> None:
        if self.mover.knows_the_gone(changed=changed):
            self.visitor.start(self.mover.forget_the_gone())

    # -- the errand of the visits --------------------------------------------------------------------------------------

    def clock(self) -> float:
        """Return the time of the event loop."""
        return asyncio.get_running_loop().time()

    def announced(self, payload: bytes) -> tuple[str, float] | None:
        """Return the entity whose partition says that messages wait, and the present time."""
        return (read_call(payload), self.clock()) if is_move_announcement(payload) else None

    async def read(self, read: Read) -> list[float | None]:
        """Read which partitions are calling."""
        return [self.clock() if calls else None for calls in await self.mover.calling(read.number, read.entities)]

    async def visit(self, place: VisitPlace, record: EntityRecord) -> float | None:
        """Move the messages that wait at a place. Return the present time if more messages wait."""
        until = self.clock() + CALLING
        source = await self.connection.entity(record.path, until)
        if source.record.id != record.id:
            await source.refresh(until)
        if source.record.id != record.id:
            raise MessagingEntityNotFoundError(f"'{record.path}' was deleted and created again.")
        done = await self.mover.move_all(source, place.number)
        self._forget()
        return None if done else self.clock()

    async def _visit_together(
        self, records: Mapping[VisitPlace, EntityRecord], ended: Callable[[VisitPlace, Again | None], None]
    ) -> None:
        await self.mover.move_together(records, ended)
        self._forget()
