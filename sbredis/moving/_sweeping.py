"""Move the messages of many sources at once: sweep the sources of a slot, and let their destinations take the batches.

A sweep needs that all messages of the main side of a source go to one partition in another slot, as they do if the
source forwards to a queue without partitions. It then freezes messages before the client has read them. So a source
needs three calls for all that waits there, and it shares each of them with other sources::

    sweep: freeze, and read ──► take, with batches of many slots ──► sweep: settle, and freeze what has come meanwhile

This is the way of all messages that meet no obstacle. If anything else is the matter, the source is left to its own
mover, which finds the outstanding batch and completes it: so nothing is decided here that :mod:`sbredis.moving._moves`
decides.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sbredis.client import CALLING
from sbredis.engine import Batch, Destination, Origin, perform, sweep_together
from sbredis.exceptions import ServiceBusError
from sbredis.model import Purpose
from sbredis.moving._carrying import sending_of
from sbredis.moving._moves import MOST_AT_ONCE, MOST_BYTES
from sbredis.moving._taking import TakeCalls, TakenBatch

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity
    from sbredis.engine import Partition, Request, Swept, Taken
    from sbredis.moving._destinations import MoveSource
    from sbredis.moving._moves import Bound

__all__ = ["SweepEnd", "Sweeper", "SweptSource", "destination_of_all"]

_log = logging.getLogger("sbredis.maintenance")
_WAITING = Purpose()
_PATIENCE = 1.0
"""The seconds after which a destination that does not answer no longer holds up the other sources of a sweep."""


class SweepEnd(enum.Enum):
    """Why nothing more is done in a source."""

    NOTHING = "no message waits"
    LATER = "the time was over, and messages may wait"
    OTHER = "the source needs other calls"


def destination_of_all(to: Entity, number: int) -> Destination | None:
    """Return the partition that all messages for an entity go to; ``None`` if each may go to another one.

    ``number`` is that of the source. The result is also ``None`` if a transaction moves the messages, because both are
    in one slot.
    """
    if to.partitioned or to.numbers[0] == number:
        return None
    return Destination(to.record.id, to.numbers[0])


@dataclass(eq=False, slots=True)
class SweptSource:
    """A source partition that is swept."""

    source: MoveSource
    partition: Partition
    to: Entity
    destination: Destination
    door: str = ""
    """The door of the destination that was known before the last sweep."""
    taken: Batch | None = None
    """The batch that the destination has taken, until it is settled."""
    birth: str = ""
    """The birth of the source that the taken batch was frozen in."""

    def request(self, wanted: int, now: int | None) -> Request[Swept]:
        """Return the request that sweeps this source."""
        holder = self.to.record.incarnation
        return self.partition.sweep(
            self.destination, holder, self.taken, self.birth, wanted=wanted, room=MOST_BYTES, now=now
        )


@dataclass(eq=False, slots=True)
class _Frozen:
    """A batch on its way to its destination."""

    of: SweptSource
    batch: Batch
    birth: str
    bound: list[Bound]

    def taking(self, door: str, now: int | None) -> TakenBatch:
        """Return the batch as its destination takes it."""
        origin = Origin(self.of.source.record.id, self.birth)

        def make(partition: Partition) -> Request[Taken]:
            sending = sending_of(self.of.to, self.of.destination.number, self.bound, now)
            return partition.take(origin, self.batch, door, sending, now=now)

        return TakenBatch(make, len(self.bound), sum(each.size for each in self.bound))


class Sweeper:
    """Sweeps sources for a client that moves messages."""

    def __init__(
        self, connection: Connection, doors: dict[Destination, str], strangers: dict[Origin, tuple[Entity, int]]
    ) -> None:
        """``doors`` and ``strangers`` are what the client knows of destinations, as :class:`Carrier` learns it too."""
        self._connection = connection
        self._doors = doors
        self._strangers = strangers
        self._takes = TakeCalls(connection)

    async def sweep(
        self, sources: Sequence[SweptSource], until: float, ended: Callable[[SweptSource, SweepEnd], None]
    ) -> None:
        """Move the messages of sources of one slot, until none waits, or until a time.

        ``ended`` is called for each source when nothing more is done there. A source whose destination does not answer
        soon does not hold up the others.
        """
        left, slow = list(sources), set[asyncio.Task[None]]()
        try:
            while left:
                last = asyncio.get_running_loop().time() >= until
                try:
                    waiting, frozen = await self._sweep(left, 0 if last else MOST_AT_ONCE, ended)
                except ServiceBusError as error:
                    _log.debug("%d sources cannot be swept together: %s", len(left), error)
                    _end(left, SweepEnd.OTHER, ended)
                    break
                left = [*await self._take(frozen, ended, slow), *waiting]
                if last:
                    _end(left, SweepEnd.LATER, ended)
                    break
            await asyncio.gather(*slow)
        finally:
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    async def _sweep(
        self, sources: Sequence[SweptSource], wanted: int, ended: Callable[[SweptSource, SweepEnd], None]
    ) -> tuple[list[SweptSource], list[_Frozen]]:
        """Sweep sources once. Return those in which messages may still wait, and what was frozen."""
        now = self._connection.clock.told()
        for source in sources:
            source.door = self._doors.get(source.destination, "")
        request = sweep_together([each.request(wanted, now) for each in sources])
        found = await perform(self._connection.transport, request, timeout=CALLING)
        waiting, frozen = list[SweptSource](), list[_Frozen]()
        for source, swept in zip(sources, found, strict=True):
            source.taken, source.birth = None, ""
            if swept.state == "limits":
                waiting.append(source)
            elif swept.batch is not None and (bound := self._bound(source, swept)) is not None:
                frozen.append(_Frozen(source, swept.batch, swept.birth, bound))
            else:
                ended(source, SweepEnd.NOTHING if swept.state == "nothing" else SweepEnd.OTHER)
        return waiting, frozen

    @staticmethod
    def _bound(source: SweptSource, swept: Swept) -> list[Bound] | None:
        """Return the messages as their destination gets them; ``None`` if one of them cannot be moved."""
        move, to, path = source.source.move, source.to, source.to.name
        moves = [move(each, _WAITING, to, path, swept.now)[0] for each in swept.messages]
        return None if any(each.fault for each in moves) else [each.message for each in moves]

    async def _take(
        self,
        frozen: Iterable[_Frozen],
        ended: Callable[[SweptSource, SweepEnd], None],
        slow: set[asyncio.Task[None]],
    ) -> list[SweptSource]:
        """Let the destinations take batches. Return the sources whose batches were taken.

        The tasks that are still under way after a while are added to ``slow``.
        """
        by_destination: defaultdict[Destination, list[_Frozen]] = defaultdict(list)
        for each in frozen:
            by_destination[each.of.destination].append(each)
        if not by_destination:
            return []
        loop = asyncio.get_running_loop()
        tasks = {loop.create_task(self._take_at(place, some)): some for place, some in by_destination.items()}
        slow |= tasks.keys()
        done, _ = await asyncio.wait(tasks, timeout=_PATIENCE)
        taken: list[SweptSource] = []
        for task, some in tasks.items():
            if task in done:
                slow.discard(task)
                task.result()  # raises a defect
                _end([each.of for each in some if each.of.taken is None], SweepEnd.OTHER, ended)
                taken += [each.of for each in some if each.of.taken is not None]
            else:
                task.add_done_callback(partial(_end_late, [each.of for each in some], ended))
        return taken

    async def _take_at(self, destination: Destination, frozen: Sequence[_Frozen]) -> None:
        """Let a destination judge batches, and note those that it has taken."""
        to, number = frozen[0].of.to, destination.number
        now, door = self._connection.clock.told(), frozen[0].of.door
        batches = [each.taking(door, now) for each in frozen]
        topic = to.record.kind == "topic"
        neutral = not topic and self._is_beside(frozen[0].of)
        found: list[Taken] = []
        try:
            for some in [[batch] for batch in batches] if topic else [batches]:
                found += await self._takes.take(to, destination, some, neutral=neutral)
        except ServiceBusError as error:
            _log.debug("%s does not take batches of %d sources together: %s", to.name, len(batches), error)
        for each, taken in zip(frozen, found, strict=False):
            self._strangers.update(dict.fromkeys(taken.strangers, (to, number)))
            if taken.verdict == "door":
                self._doors[destination] = taken.detail
            elif taken.verdict == "taken":
                each.of.taken, each.of.birth = each.batch, each.birth

    def _is_beside(self, source: SweptSource) -> bool:
        """Return whether a source is on the server of its destination."""
        here, there = source.partition, source.to.partition(source.destination.number)
        endpoint_of = self._connection.transport.endpoint_of
        return endpoint_of(here.keys[0]) == endpoint_of(there.keys[0])


def _end(sources: Iterable[SweptSource], end: SweepEnd, ended: Callable[[SweptSource, SweepEnd], None]) -> None:
    for source in sources:
        ended(source, end)


def _end_late(
    sources: Iterable[SweptSource], ended: Callable[[SweptSource, SweepEnd], None], _: asyncio.Task[None]
) -> None:
    _end(sources, SweepEnd.OTHER, ended)
