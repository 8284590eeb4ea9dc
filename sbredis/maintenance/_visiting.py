"""Visit partitions of all entities: listen to the slots, read many partitions at once, and visit them one by one.

:mod:`sbredis.maintenance._agenda` decides which partition to read or visit at which time. Two duties visit partitions.
Each has its own *errand* there: the work that is due (:mod:`sbredis.maintenance._routing`), and messages that wait
to be moved (:mod:`sbredis.maintenance._moving`).

Each slot has one channel, on which its partitions announce their work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sbredis.client import BackgroundTasks
from sbredis.engine import due_channel
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError, ServiceBusError
from sbredis.maintenance._agenda import Agenda, Read, Sleep, Visit, VisitPace, VisitPlace
from sbredis.moving import NotKnownYetError

if TYPE_CHECKING:
    from sbredis.maintenance._duty import DutyResources
    from sbredis.registry import EntityRecord
    from sbredis.transport import Subscription

__all__ = ["Errand", "SlotChannels", "Visitor", "is_move_announcement"]

_log = logging.getLogger("sbredis.maintenance")
_PAUSE = 1.0
_MOVE = b" move"
"""The end of an announcement which says that messages wait to be moved. Other announcements end with a due time."""


def is_move_announcement(payload: bytes) -> bool:
    """Return whether a partition announces that messages wait to be moved, and not that something will be due."""
    return payload.endswith(_MOVE)


@dataclass(frozen=True, slots=True)
class _AnnouncementListener:
    """Passes on the announcements of the partitions in one slot."""

    number: int
    heard: Callable[[int, bytes], None]
    missed: Callable[[int], None]

    def message(self, payload: bytes) -> None:
        """Pass on an announcement."""
        self.heard(self.number, payload)

    def gap(self) -> None:
        """Record that the client did not listen for a while."""
        self.missed(self.number)


class SlotChannels:
    """The channels of the slots that a client maintains. A slot that cannot be heard yet is tried again and again."""

    def __init__(
        self, shared: DutyResources, heard: Callable[[int, bytes], None], missed: Callable[[int], None]
    ) -> None:
        """``heard`` gets the number of a slot and an announcement. ``missed`` gets the number of a slot.

        ``missed`` is called whenever the client begins to hear a slot, because it may have missed announcements before.
        """
        self._connection = shared.connection
        self._failures = shared.failures
        self._heard = heard
        self._missed = missed
        self._chosen: frozenset[int] = frozenset()
        self._subscriptions: dict[int, Subscription] = {}
        self._heard_slots: set[int] = set()
        self._all_heard = asyncio.Event()
        """Set while the client hears all slots that it has chosen."""
        self._refused: dict[int, asyncio.TimerHandle] = {}
        """For each slot whose channel was refused, the timer that asks again."""

    def choose(self, numbers: frozenset[int]) -> None:
        """Listen to these slots, and to no others."""
        before, self._chosen = self._chosen, numbers
        for number in before - numbers:
            timer, subscription = self._refused.pop(number, None), self._subscriptions.pop(number, None)
            if timer is not None:
                timer.cancel()
            if subscription is not None and not self._connection.closed:  # otherwise it ends with the connection
                subscription.close()
            self._heard_slots.discard(number)
        self._all_heard.clear()
        for number in numbers - before:
            self._listen(number)
        self._check()

    async def opened(self) -> None:
        """Wait until the client hears the slots. If a slot does not answer soon, do not wait for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE):
                await self._all_heard.wait()

    @property
    def all_open(self) -> bool:
        """Whether the client hears all slots that it has chosen."""
        return self._all_heard.is_set()

    def _check(self) -> None:
        if self._chosen and self._heard_slots >= self._chosen:
            self._all_heard.set()

    def _listen(self, number: int) -> None:
        namespace = self._connection.namespace
        channel = due_channel(namespace.name, namespace.salt(number))
        listener = _AnnouncementListener(number, self._heard, self._begun)
        refused = partial(self._ask_later, number)
        self._subscriptions[number] = self._connection.transport.listen(channel, listener, refused)

    def _begun(self, number: int) -> None:
        if number in self._chosen:
            self._heard_slots.add(number)
            self._check()
            self._missed(number)

    def _ask_later(self, number: int, error: ServiceBusError) -> None:
        """Ask again for a channel that was refused: its user may get the right."""
        self._subscriptions.pop(number, None)
        if self._connection.closed or number not in self._chosen:
            return
        _log.info("the announcements in slot %d cannot be received yet: %s", number, error)
        again = partial(self._failures.guard, f"listening to slot {number}", partial(self._ask_again, number))
        self._refused[number] = asyncio.get_running_loop().call_later(_PAUSE, again)

    def _ask_again(self, number: int) -> None:
        del self._refused[number]
        if not self._connection.closed:
            self._listen(number)


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


class Visitor:
    """The visits of one client, on one errand, to the partitions of all entities that it is given."""

    def __init__(self, shared: DutyResources, errand: Errand, pace: VisitPace, changed: Callable[[], None]) -> None:
        """``changed`` is called when there may be something to do."""
        self._pace = pace
        self.agenda = Agenda(pace)
        self._census = shared.census
        self._errand = errand
        self._changed = changed
        self._failures = shared.failures
        self._slots = SlotChannels(shared, self._heard, self._missed)
        self._jobs = BackgroundTasks("visiting partitions", shared.failures, changed)
        self._records: Collection[EntityRecord] | None = None
        """The entities; ``None`` before they are known."""
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
        if self._records is not None:
            self.set_entities(self._records)

    async def close(self) -> None:
        """Stop visiting, and forget all due times."""
        self._slots.choose(frozenset())
        self.agenda = Agenda(self._pace)
        self._records = None
        await self._jobs.cancel()

    @property
    def at_rest(self) -> bool:
        """Whether the due times of all entities are known, and no visit is under way."""
        return self._slots.all_open and self._records is not None and self.agenda.all_read and not self._jobs

    def set_entities(self, records: Collection[EntityRecord]) -> None:
        """Replace the list of entities to visit."""
        self._records = records
        entities: dict[str, tuple[int, ...]] = {}
        for record in records:
            if numbers := tuple(number for number in record.partitions if number in self._numbers):
                entities[record.id] = numbers
        self.agenda.set_entities(entities, asyncio.get_running_loop().time())
        self._changed()

    def act(self) -> float:
        """Start all visits and reads that are due now. Return the seconds to wait for an event before the next call."""
        loop = asyncio.get_running_loop()
        while True:
            match todo := self.agenda.next(loop.time(), self._errand.clock()):
                case Sleep():
                    return todo.seconds
                case Visit():
                    self.start(self._visit(todo.place))
                case Read():
                    self.start(self._read(todo))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that ends when the visits end."""
        self._jobs.start(work)

    # -- announcements -------------------------------------------------------------------------------------------------

    def _heard(self, number: int, payload: bytes) -> None:
        try:
            announced = self._errand.announced(payload)
        except DataLayoutError as error:
            _log.warning("slot %d: %s", number, error)
            return
        if announced is None:
            return
        entity, at = announced
        if self.agenda.announced(VisitPlace(number, entity), at):
            self._changed()
        else:
            self._census.read_soon()  # the entity is new; its partitions are read after the census

    def _missed(self, number: int) -> None:
        self.agenda.missed(number)
        self._census.read_soon()  # a new entity may have made an announcement
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
            self._census.read_soon()
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
