"""Visit partitions of all entities: listen to the slots, read many partitions at once, and visit them one by one.

:mod:`sbredis.maintenance._agenda` decides which partition to read or visit at which time. Two duties visit partitions.
Each has its own *errand* there: the work that is due (:mod:`sbredis.maintenance._routing`), and messages that wait
to be moved (:mod:`sbredis.maintenance._moving`).

Each slot has one channel, on which its partitions announce their work.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sbredis.client import BackgroundTasks
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError, ServiceBusError
from sbredis.maintenance._agenda import Agenda, Read, Sleep, Visit, VisitPace, VisitPlace
from sbredis.maintenance._census import is_visited
from sbredis.maintenance._slot_channels import SlotChannels, is_bucket_announcement
from sbredis.moving import NotKnownYetError

if TYPE_CHECKING:
    from sbredis.maintenance._duty import DutyResources
    from sbredis.registry import EntityRecord

__all__ = ["Again", "Errand", "Together", "Visitor", "is_move_announcement"]

_log = logging.getLogger("sbredis.maintenance")
_MOST_EARLY = 1000
"""The number of announcements that are kept for entities that are not known yet."""
_MOVE = b" move"
"""The end of an announcement which says that messages wait to be moved. Other announcements end with a due time."""


def is_move_announcement(payload: bytes) -> bool:
    """Return whether a partition announces that messages wait to be moved, and not that something will be due."""
    return payload.endswith(_MOVE)


class Again(enum.Enum):
    """How a place is visited again at once, after a visit to several places."""

    TOGETHER = "together with others"
    ALONE = "by itself"


class Errand(Protocol):
    """The reason for visits to partitions. All times are times of :meth:`clock`, in seconds."""

    def clock(self) -> float:
        """Return the time with which due times are compared."""
        ...

    def announced(self, payload: bytes) -> tuple[str, float] | None:
        """Return the entity id and the due time in an announcement; ``None`` if it concerns another errand.

        Raises :class:`~sbredis.exceptions.DataLayoutError` if the announcement cannot be read.
        """
        ...

    async def read(self, read: Read) -> Sequence[float | None]:
        """Read the due times of places; ``None`` means that nothing is to be done there."""
        ...

    async def visit(self, place: VisitPlace, record: EntityRecord) -> float | None:
        """Do the work at a place. Return the time of the next visit, if one is needed.

        Raises :class:`MessagingEntityNotFoundError` if the entity does not exist any more.
        """
        ...


class Together(Protocol):
    """Does the work at several places of one slot."""

    async def __call__(
        self, records: Mapping[VisitPlace, EntityRecord], ended: Callable[[VisitPlace, Again | None], None]
    ) -> None:
        """Call ``ended`` for each place when nothing more is done there. It says how the place is visited again."""
        ...


class Visitor:
    """The visits of one client, on one errand, to the partitions of all entities in the slots that it serves."""

    def __init__(
        self,
        shared: DutyResources,
        errand: Errand,
        pace: VisitPace,
        changed: Callable[[], None],
        together: Together | None = None,
    ) -> None:
        """``changed`` is called when there may be something to do. A pace with visits together needs ``together``."""
        self._pace = pace
        self.agenda = Agenda(pace)
        self._census = shared.census
        self._errand = errand
        self._together = together
        self._changed = changed
        self._failures = shared.failures
        self._slots = SlotChannels(shared.connection, shared.failures, self._heard, self._missed)
        self._jobs = BackgroundTasks("visiting partitions", shared.failures, changed)
        self._early: dict[VisitPlace, float] = {}
        """The due times that places of unknown entities have announced."""
        self._numbers = frozenset(range(shared.connection.namespace.slots))
        """The slots whose partitions are visited."""

    async def begin(self) -> None:
        """Listen to the slots. If a slot does not answer soon, do not wait for it."""
        self._slots.choose(self._numbers)
        await self._slots.opened()

    def serve(self, numbers: frozenset[int]) -> None:
        """Visit the partitions in these slots from now on, and no others. New ones will be read."""
        self._numbers = numbers
        self._slots.choose(numbers)
        self.start(self._reconsider())

    async def close(self) -> None:
        """Stop visiting, and forget all due times."""
        self._slots.choose(frozenset())
        self.agenda = Agenda(self._pace)
        self._early.clear()
        await self._jobs.cancel()

    @property
    def at_rest(self) -> bool:
        """Whether the due times of all entities are known, and no visit is under way."""
        return self._slots.all_open and self._census.whole and self.agenda.all_read and not self._jobs

    def update(self, entities: Collection[str]) -> None:
        """Visit those of these entities from now on that may need visits, according to the census, and no others."""
        places: dict[str, tuple[int, ...]] = {}
        for entity in entities:
            record = self._census.by_id.get(entity)
            wanted = record.partitions if record is not None and is_visited(record) else ()
            places[entity] = (
                wanted  # the same object, because there may be very many entities
                if self._numbers.issuperset(wanted)
                else tuple(number for number in wanted if number in self._numbers)
            )
        self.agenda.update_entities(places, asyncio.get_running_loop().time())
        if self._early:
            for place in [VisitPlace(number, entity) for entity in places for number in places[entity]]:
                if (at := self._early.pop(place, None)) is not None:
                    self.agenda.announced(place, at)
        self._changed()

    async def _reconsider(self) -> None:
        """Look at all entities again, because the slots have changed."""
        async for portion in self._census.portions():
            self.update(portion)

    def act(self) -> float:
        """Start all visits and reads that are due now. Return the seconds to wait for an event before the next call."""
        loop = asyncio.get_running_loop()
        while True:
            match todo := self.agenda.next(loop.time(), self._errand.clock()):
                case Sleep():
                    return todo.seconds
                case Visit():
                    together = self._together is not None and not todo.alone
                    self.start(self._visit_together(todo.places) if together else self._visit(todo.place))
                case Read():
                    self.start(self._read(todo))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that ends when the visits end."""
        self._jobs.start(work)

    # -- announcements -------------------------------------------------------------------------------------------------

    def _heard(self, number: int, payload: bytes) -> None:
        if is_bucket_announcement(payload):
            return  # the census hears it too
        try:
            announced = self._errand.announced(payload)
        except DataLayoutError as error:
            _log.warning("slot %d: %s", number, error)
            return
        if announced is None:
            return
        entity, at = announced
        place = VisitPlace(number, entity)
        if self.agenda.announced(place, at):
            self._changed()
            return
        if len(self._early) >= _MOST_EARLY:
            self._early.clear()
        self._early[place] = at
        if entity in self._census.by_id:  # a visit did not find it
            self.update([entity])
        else:  # it is new
            self._census.doubt_entity(entity)

    def _missed(self, number: int) -> None:
        self.agenda.missed(number)
        self._changed()

    # -- reading and visiting ------------------------------------------------------------------------------------------

    async def _read(self, read: Read) -> None:
        """Read the due times of places. If this fails, the agenda plans another read."""
        loop, agenda = asyncio.get_running_loop(), self.agenda
        try:
            times = await self._errand.read(read)
        except ServiceBusError as error:
            self._failures.report(f"the reading of slot {read.number}", error)
            agenda.read_failed(read, loop.time())
        except BaseException:
            agenda.read_failed(read, loop.time())
            raise
        else:
            agenda.read_done(read, times)

    async def _visit(self, place: VisitPlace) -> None:
        """Visit a place. If this fails, the agenda plans another visit."""
        errand, agenda = self._errand, self.agenda
        record = self._census.by_id.get(place.entity)
        if record is None:
            agenda.remove_entity(place.entity)
            return
        try:
            at = await errand.visit(place, record)
        except MessagingEntityNotFoundError:
            agenda.remove_entity(place.entity)
            self._census.doubt_entity(place.entity)
        except ServiceBusError as error:
            if isinstance(error, NotKnownYetError):
                # The first messages for a new entity often come before its census: that is no news for an operator.
                _log.debug("%s, partition %d: the work there waits: %s", record.path, place.number, error)
            else:
                self._failures.report(f"{record.path}, partition {place.number}: the work there", error)
            agenda.visit_failed(place, errand.clock())
        except BaseException:
            agenda.visit_failed(place, errand.clock())
            raise
        else:
            agenda.visit_done(place, at)

    async def _visit_together(self, places: Sequence[VisitPlace]) -> None:
        """Visit several places of one slot. If this fails, each place that is left is visited by itself."""
        assert self._together is not None
        agenda, known = self.agenda, {place: self._census.by_id.get(place.entity) for place in places}
        left = {place: record for place, record in known.items() if record is not None}
        for place in known.keys() - left.keys():
            agenda.remove_entity(place.entity)

        def ended(place: VisitPlace, again: Again | None) -> None:
            if left.pop(place, None) is not None:
                at = None if again is None else self._errand.clock()
                agenda.visit_done(place, at, alone=again is Again.ALONE)
                self._changed()

        try:
            await self._together(dict(left), ended)
        finally:
            for place in list(left):
                ended(place, Again.ALONE)
