"""The search for partitions of an entity that have something for a receiver, and how the receiver comes there.

A search makes calls that only read. :mod:`sbredis.receiving._rotation` decides which of the found partitions get seats.

All receivers of a client that want the same from an entity share a search. A receiver that needs one while partitions
are being read takes part in the next one, because this one may have read a partition too early.

A partition of an entity that has many calls receivers itself, when something becomes ready and no receiver is there.
Receivers that wait hear these calls. A call may be lost, so the partitions are also read for all of them together when
a channel is confirmed, and now and then.

There may be very many of these receivers, and a partition may have a single message. So a call is told to two of them,
and a receiver that finds more in the partition than it wants tells two others: as many come as the messages need.
One that wants nothing any more before it has asked passes the partition on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from sbredis.client import PartitionCalls
from sbredis.engine import MOST_SEATS, find_ready
from sbredis.exceptions import ServiceBusError
from sbredis.receiving._asking import AskedSource, AskingState
from sbredis.receiving._fetching import InboxState

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.engine import Request
    from sbredis.receiving._credit_driver import CreditDriver
    from sbredis.receiving._inbox import Inbox
    from sbredis.receiving._rotation import Rotation
    from sbredis.receiving._seats import Seats

__all__ = ["PartitionSearch", "SeatSearch", "Seeking", "search_of"]

_PAUSES: Final = 0.005, 0.5
"""The first and the longest pause between two searches of a receiver that waits. Each pause is twice the last one.

While partitions were found that were not asked yet, the pause is the longest one.
"""
_LONG_PAUSE: Final = 10.0
"""The pause if partitions can call receivers."""
_TOLD: Final = 2
"""The number of receivers that are told of a partition. If one of them leaves meanwhile, the other one goes there."""
_STAYING: Final = 0.02
"""The seconds for which a receiver stays at a partition that has given something."""
_LOOKED_AT: Final = 32
"""The largest number of receivers that are asked for that whether they are free."""


def search_of(entity: Entity, source: str) -> PartitionSearch:
    """Return the search that all receivers of a client share that want this from an entity."""
    found: PartitionSearch | None = entity.searches.get(source)
    if found is None:
        found = entity.searches[source] = PartitionSearch(entity, source)
    return found


class PartitionSearch:
    """The searches in one entity, one after the other."""

    def __init__(self, entity: Entity, source: str) -> None:
        self._entity, self._source = entity, source
        self._connection = entity.connection
        self._loop = asyncio.get_running_loop()
        self._number = 0
        """The number of the latest search that has begun to read."""
        self._missing: set[int] = set()
        """The indexes of the partitions that have not answered it."""
        self._answered = False
        """Whether a partition has answered it."""
        self._timer: asyncio.TimerHandle | None = None
        self._searchers: dict[SeatSearch, None] = {}
        """The receivers that take part in it."""
        self._next: dict[SeatSearch, None] = {}
        """The receivers that take part in the next one."""
        self._requests: dict[int, Request[bool]] = {}
        """The request to each partition, if the partition uses the clock of the server."""
        self._id = ""
        """The entity that these requests are for."""
        self._hearers: dict[SeatSearch, None] = {}
        """The receivers that hear calls and want something, those that were told of one last at the end."""
        self._idle: dict[SeatSearch, None] = {}
        """The receivers that hear calls and want nothing now."""
        self._left_over: set[int] = set()
        """Partitions that receivers were told of, which have not asked them and want nothing any more."""
        self._calls: PartitionCalls | None = None
        self._heard_id = ""
        """The entity whose calls are heard."""
        self._joint: asyncio.TimerHandle | None = None
        """Reads the partitions for the receivers that hear calls, again and again."""
        self._jointly = self._jointly_next = False
        """Whether the search under way, and the next one, is for all receivers that hear calls."""

    def begin(self, searcher: SeatSearch) -> None:
        """Let a receiver take part in the next search. It begins in the next turn of the event loop, or after the one
        under way.
        """
        self._begin_soon()
        self._next[searcher] = None

    def _begin_soon(self) -> None:
        if not (self._next or self._jointly_next or self._missing):
            self._loop.call_soon(self._begin)

    def expects(self, searcher: SeatSearch) -> bool:
        """Return whether a receiver takes part in the next search."""
        return searcher in self._next

    def has_answer(self, searcher: SeatSearch) -> bool:
        """Return whether a partition has answered the search under way that a receiver takes part in."""
        return self._answered and searcher in self._searchers

    def leave(self, searcher: SeatSearch) -> None:
        """Tell a receiver nothing more."""
        self._next.pop(searcher, None)
        self._searchers.pop(searcher, None)

    # -- calls of partitions -------------------------------------------------------------------------------------------

    @property
    def hears(self) -> bool:
        """Whether the calls of all partitions are heard."""
        return self._calls is not None and self._calls.heard

    def is_heard_by(self, searcher: SeatSearch) -> bool:
        """Return whether a receiver hears the calls of all partitions."""
        return (searcher in self._hearers or searcher in self._idle) and self.hears

    def hear(self, searcher: SeatSearch) -> None:
        """Let a receiver that wants something hear the calls of partitions."""
        self._idle.pop(searcher, None)
        self._hearers[searcher] = None
        self.follow()
        self._take_left_over(searcher)

    def wants(self, searcher: SeatSearch, *, something: bool) -> None:
        """Note whether a receiver wants something. The others are told of a partition only if none does."""
        before, after = (self._idle, self._hearers) if something else (self._hearers, self._idle)
        if searcher in before:
            del before[searcher]
            after[searcher] = None
            if something:
                self._take_left_over(searcher)
            else:
                self._pass_on(searcher)

    def follow(self) -> None:
        """Hear the calls of the entity that there is now, also if it was deleted and created again."""
        if self._calls is not None and self._heard_id != self._entity.record.id:
            self._calls.close()
            self._calls = None
        if self._calls is None and (self._hearers or self._idle):
            self._heard_id = self._entity.record.id
            self._calls = PartitionCalls(self._entity, self.called, self._read_jointly, self._refused)

    def stop_hearing(self, searcher: SeatSearch) -> None:
        """Let a receiver hear no more calls."""
        self._hearers.pop(searcher, None)
        self._idle.pop(searcher, None)
        self._pass_on(searcher)
        if self._hearers or self._idle:
            return
        self._left_over.clear()
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        if self._joint is not None:
            self._joint.cancel()
            self._joint = None

    def called(self, place: int, ready: frozenset[str]) -> None:
        """Handle the call of a partition."""
        if self._source in ready:
            self._tell(place, answered=True)

    def has_more(self, place: int, finder: SeatSearch) -> None:
        """Tell other receivers of a partition in which a receiver has found more than it wants."""
        if self._goes_to_the_end(finder):
            for searcher in self._free_for(place, finder):
                self._told(searcher, place, answered=True)

    def _tell(self, place: int, *, answered: bool) -> None:
        """Tell some receivers that hear calls of a partition: free ones, or else others, which go there later."""
        for searcher in self._free_for(place) or list(islice(chain(self._hearers, self._idle), _TOLD)):
            self._told(searcher, place, answered=answered)

    def _free_for(self, place: int, finder: SeatSearch | None = None) -> list[SeatSearch]:
        looked_at = islice(self._hearers, _LOOKED_AT)
        return list(islice((each for each in looked_at if each is not finder and each.is_free_for(place)), _TOLD))

    def _pass_on(self, searcher: SeatSearch) -> None:
        """Tell others of the partitions that a receiver was told of, has not asked, and wants nothing of now."""
        for place in searcher.rotation.take_told():
            if self._hearers:
                self._tell(place, answered=True)
            else:
                self._left_over.add(place)

    def _take_left_over(self, searcher: SeatSearch) -> None:
        """Tell a receiver of the partitions that nobody wanted anything of."""
        places, self._left_over = self._left_over, set()
        for place in places:
            self._told(searcher, place, answered=True)

    def _told(self, searcher: SeatSearch, place: int, *, answered: bool) -> None:
        self._goes_to_the_end(searcher)
        searcher.found(place, answered=answered, told=True)

    def _goes_to_the_end(self, searcher: SeatSearch) -> bool:
        """Let others be told first of the next call. Return whether the receiver hears calls."""
        for hearers in (self._hearers, self._idle):
            if searcher in hearers:
                hearers[searcher] = hearers.pop(searcher)
                return True
        return False

    def _refused(self) -> None:
        """Note that calls cannot be heard any more. Each receiver searches by itself from now on."""
        for searcher in chain(self._hearers, self._idle):
            self.begin(searcher)

    def _read_jointly(self) -> None:
        """Read the partitions for all receivers that hear calls. Earlier calls may be lost."""
        if self._joint is not None:
            self._joint.cancel()
        self._joint = None
        if not (self._hearers or self._idle) or self._connection.closed:
            return
        self._joint = self._loop.call_later(_LONG_PAUSE, self._read_jointly)
        if self.hears:
            self._begin_soon()
            self._jointly_next = True

    # -- a search ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._missing:  # a search has begun since this was planned
            return
        self._searchers, self._next = self._next, {}
        self._jointly, self._jointly_next = self._jointly_next, False
        if not (self._searchers or self._jointly) or self._connection.closed:
            return
        self._number += 1
        self._answered, self._missing = False, set(range(len(self._entity.numbers)))
        for searcher in self._searchers:
            searcher.began()
        search = self._number
        self._timer = self._loop.call_later(self._connection.timings.late, self._end_late)
        for place, number in enumerate(self._entity.numbers):
            self._read(search, place, number)

    def _read(self, search: int, place: int, number: int) -> None:
        request = self._request(number)

        def answered(_: object, reply: object) -> None:
            try:
                ready = request.result(reply)
            except ServiceBusError:
                ready = None
            self._take(search, place, ready=ready)

        def failed(call: Any, failure: Any) -> None:
            self._connection.start(self._read_again(partial(transport.finish, call, failure), answered))

        timeout, transport = self._connection.timings.answering, self._connection.transport
        called = request.script, request.keys, request.arguments
        if not transport.begin(*called, timeout=timeout, answered=answered, failed=failed, repeatable=True):
            reading = partial(transport.call, *called, timeout=timeout, repeatable=True)
            self._connection.start(self._read_again(reading, answered))

    async def _read_again(
        self, reading: Callable[[], Coroutine[Any, Any, Any]], answered: Callable[[object, object], None]
    ) -> None:
        """Make further attempts. A partition that cannot be read has not answered when the search is late."""
        with suppress(ServiceBusError):
            answered(None, await reading())

    def _request(self, number: int) -> Request[bool]:
        entity, now = self._entity, self._connection.clock.told()
        if entity.record.id != self._id:
            self._requests, self._id = {}, entity.record.id
        request = self._requests.get(number)
        if request is None or now is not None:
            namespace = self._connection.namespace
            request = find_ready(namespace.name, namespace.salt(number), self._id, self._source, now)
            self._requests[number] = request
        return request

    def _take(self, search: int, place: int, *, ready: bool | None) -> None:
        """Tell the receivers what a partition has answered."""
        if search != self._number or place not in self._missing:
            return
        self._missing.discard(place)
        self._answered = self._answered or ready is not None
        if ready is not False:
            for searcher in list(self._searchers):
                searcher.found(place)
            if self._jointly:
                self._tell(place, answered=True)
        if not self._missing:
            self._end()

    def _end_late(self) -> None:
        """End a search that is late, unless no partition has answered: then the server may be busy."""
        timings = self._connection.timings
        if self._answered:
            self._end()
        else:
            self._timer = self._loop.call_later(max(0.0, timings.answering - timings.late), self._end)

    def _end(self) -> None:
        """End the search under way. The partitions that have not answered may have something."""
        if self._timer is not None:
            self._timer.cancel()
        missing, self._missing = self._missing, set()
        searchers, self._searchers = self._searchers, {}
        if self._next or self._jointly_next:
            self._loop.call_soon(self._begin)
        for place in missing if self._jointly else ():
            self._tell(place, answered=False)
        for searcher in searchers:
            for place in missing:
                searcher.found(place, answered=False)
            searcher.ended(answered=self._answered)


class Seeking(Enum):
    """What a receiver has done to find partitions since it wants something."""

    NOT_YET = auto()
    """No search was made."""
    FIRST = auto()
    """The first search is under way, or what it has found was not asked. Other partitions are not asked before."""
    DONE = auto()
    """All partitions with a seat are asked."""


class SeatSearch(AskedSource):
    """The searches of one receiver, and the seats that it takes at partitions in which something was found.

    For its callers, a search is a source of messages like a partition.
    """

    def __init__(self, seats: Seats, inbox: Inbox[Any], rotation: Rotation) -> None:
        entity = inbox.entity
        super().__init__(entity.partition_client(entity.numbers[0]), entity.connection.timings.late)
        self._seats, self._inbox, self._loop = seats, inbox, asyncio.get_running_loop()
        self.rotation = rotation
        """Decides at which partitions the receiver is."""
        self.shared = search_of(entity, inbox.source)
        """The search that it takes part in."""
        self.seeking = Seeking.NOT_YET
        self.has_answer: bool | None = None
        """Whether a partition has answered the last search that has ended."""
        self._next_at = -math.inf
        self._pause = _PAUSES[0]
        """The pause after a search; 0 if it has found something."""
        self._gives_at = math.inf
        """The time of the loop at which seats may have become idle that partitions wait for which were found."""

    # -- a source of messages ------------------------------------------------------------------------------------------

    @property
    def troubled(self) -> bool:
        """Whether no partition has answered the last search, or the first one is late."""
        return not self.is_answered and (self.late or self.has_answer is False)

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still come, as far as the client knows, or was found and is not used yet."""
        return self.under_way or self.rotation.seeks

    @property
    def is_answered(self) -> bool:
        """Whether a partition has answered the search under way, or the last one."""
        return self.has_answer is True or self.shared.has_answer(self)

    def ask_now(self) -> None:
        """Search for what the partitions have now. A search under way may have read them too early."""
        self.begin_asking(self._loop.time())
        self.shared.begin(self)

    def look_again(self) -> None:
        """Search again: something may have changed."""
        self.shared.follow()
        self._next_at, self._pause = -math.inf, _PAUSES[0]

    def leave(self) -> None:
        """Stop searching for good."""
        self.shared.stop_hearing(self)
        self.shared.leave(self)
        super().leave()

    # -- a part of the search that receivers share ---------------------------------------------------------------------

    def began(self) -> None:
        """Note that a search begins to read."""
        self.begin_asking(self._loop.time())
        self.calls += 1

    def found(self, place: int, *, answered: bool = True, told: bool = False) -> None:
        """Handle a partition that may have something: ask it, or give it a seat.

        It has ``answered`` so, or not at all: then callers that want what is there do not ask it. Few receivers are
        ``told`` of it, or each of them has searched.
        """
        if answered:
            self._pause = 0.0
        elif self._inbox.only_now:
            return
        rotation = self.rotation
        if place in rotation.seats:
            seat = rotation.seats.index(place)
            driver = self._seats.drivers[seat]
            if self._inbox.callers.await_found(driver, self) or (driver.credit.silent and self._inbox.wants):
                rotation.found_at(seat, driver.calls, told=told)
                driver.look_again()
        else:
            rotation.found((place,), told=told)
        self._inbox.pump_soon()

    def is_free_for(self, place: int) -> bool:
        """Return whether the receiver would ask a partition at once if it is found: nothing else has come before."""
        seats, rotation = self._seats, self.rotation
        if not self._inbox.wants or rotation.seeks or seats.with_news:
            return False
        return place not in rotation.seats or seats.drivers[rotation.seats.index(place)].credit.silent

    def has_more(self, driver: CreditDriver) -> None:
        """Note that a partition has more than the receiver wants."""
        if driver in self._seats.drivers:
            self.shared.has_more(self.rotation.seats[self._seats.drivers.index(driver)], self)

    def ended(self, *, answered: bool) -> None:
        """Note the end of a search. The next one comes after a pause, which grows while nothing is found."""
        first, longest = _PAUSES
        self.has_answer = answered
        self.end_asking()
        if self.shared.expects(self):
            self.begin_asking(self._loop.time())
        self._pause = longest if self.rotation.seeks else min(max(first, 2 * self._pause), longest)
        self._next_at = self._loop.time() + (_LONG_PAUSE if self.shared.hears else self._pause)
        self._inbox.pump_soon()

    # -- the seats of the receiver -------------------------------------------------------------------------------------

    @property
    def look_at(self) -> float:
        """The time of the loop at which to look at this search, if nothing happens before."""
        return min(self._search_at, self._gives_at, self.changes_at)

    def look(self) -> None:
        """Search if that is needed, and give seats to partitions in which something was found."""
        inbox, drivers = self._inbox, self._seats.drivers
        wants = inbox.wants
        self.shared.wants(self, something=wants)
        if wants:
            self._search_if_needed()
            self._take_seats()
        else:
            self.seeking, self._gives_at = Seeking.NOT_YET, math.inf
            if inbox.lingering.state is InboxState.QUIET:
                self.shared.stop_hearing(self)
        self._seats.see_off()
        if (
            not self.under_way
            and not self.troubled
            and not (self.rotation.waiting and any(driver.prompt for driver in drivers))
        ):  # all partitions have answered in which something was found
            inbox.callers.answered(self)

    def _search_if_needed(self) -> None:
        """Search if the receiver has slept, or if the time has come."""
        drivers = self._seats.drivers
        for seat, calls in self.rotation.asking.items():
            driver = drivers[seat]
            if driver.calls > calls and (not driver.under_way or driver.late):
                self.rotation.answered(seat)
        asleep = self.seeking is Seeking.NOT_YET and all(driver.is_asleep for driver in drivers)
        if self._may_search and (asleep or self._loop.time() >= self._search_at):
            self.seeking = Seeking.FIRST if asleep else Seeking.DONE
            self.ask_now()

    @property
    def _may_search(self) -> bool:
        """Whether a search may begin: not before partitions that were found have answered. Callers that want only what
        is there have had theirs.
        """
        return self._inbox.wants and not (self.under_way or self.rotation.is_asking or self._inbox.only_now)

    @property
    def _search_at(self) -> float:
        """The time of the loop at which to search again. A receiver that hears calls does not search by itself."""
        if self.rotation.is_complete or not self._may_search or self.shared.is_heard_by(self):
            return math.inf
        return self._next_at

    def _take_seats(self) -> None:
        inbox, seats, rotation = self._inbox, self._seats, self.rotation
        now, only_now = self._loop.time(), inbox.only_now
        if rotation.waiting:
            awaited, news = inbox.callers.awaited, seats.with_news
            if only_now:  # the others are not asked again
                news = [seat for seat in news if seats.drivers[seat] in awaited]
            wanted = min(inbox.missing, MOST_SEATS) - len({*news, *rotation.asking})
            idle, busy = self._leavers(only_now=only_now)
            for change in rotation.give(now, wanted, idle, busy):
                seats.move(change)
                inbox.callers.await_found(seats.drivers[change.seat], self)
        if (self.late or not self.under_way) and not rotation.seeks:
            if self.seeking is Seeking.FIRST:
                self.seeking = Seeking.DONE
            if not only_now:
                for change in (filled := rotation.fill(now)):
                    seats.move(change)
                for driver in seats.drivers if filled else ():
                    driver.listen_first()
                if not rotation.is_complete:
                    self.shared.hear(self)
        self._gives_at = now + _STAYING if rotation.waiting else math.inf

    def _leavers(self, *, only_now: bool) -> tuple[list[int], list[int]]:
        """Return the seats whose partitions have nothing now, and those that have more messages."""
        awaited, buffer = self._inbox.callers.awaited, self._inbox.buffer
        idle, busy, now, asking = list[int](), list[int](), self._loop.time(), self.rotation.asking
        for seat, driver in enumerate(self._seats.drivers):
            if driver.state is not AskingState.RESTING or seat in asking:
                continue
            if buffer.first_token(driver.partition_client.number) is not None:
                continue  # its messages are reported as begun to the partition
            if only_now and driver not in awaited:
                idle.append(seat)
            elif driver.credit.news:
                busy.append(seat)
            elif not only_now and now >= driver.gave_at + _STAYING:
                idle.append(seat)
        return idle, busy
