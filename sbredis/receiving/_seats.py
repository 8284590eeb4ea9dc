"""The seats of a receiver: the partitions that it is at, and the search for others that have something for it.

:mod:`sbredis.receiving._rotation` decides which partition has a seat. Each seat has a driver. When a seat goes to
another partition, its driver departs: it withdraws its credit first.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from sbredis.engine import MOST_SEATS
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
)
from sbredis.receiving._asking import AskingState
from sbredis.receiving._credit import NO_DEMAND
from sbredis.receiving._credit_driver import CLOSING, CreditDriver, part_from
from sbredis.receiving._credit_places import CreditPlace, CreditPlaces, SeatsStanding, demand_of
from sbredis.receiving._fetching import InboxState
from sbredis.receiving._rotation import Rotation, SeatChange
from sbredis.receiving._searching import SeatSearch

if TYPE_CHECKING:
    from sbredis.receiving._asking import AskedSource
    from sbredis.receiving._callers import ReceiveCall
    from sbredis.receiving._inbox import Inbox

__all__ = ["Seats", "failure_to_tell"]

_STAYING: Final = 0.02
"""The seconds for which a receiver stays at a partition that has given something."""
_LOOK_AT: Final = attrgetter("look_at")
_FEW: Final = 4
"""The largest number of partitions that a receiver asks for messages without a search."""


def failure_to_tell(failures: Iterable[object], *, gone: bool) -> ServiceBusError | None:
    """Return which of the partitions' failures a caller is told: the first, but that the entity is missing if it is
    ``gone``.
    """
    first: ServiceBusError | None = None
    for failure in failures:
        if gone and isinstance(failure, MessagingEntityNotFoundError):
            return failure
        if first is None and isinstance(failure, ServiceBusError):
            first = failure
    return first


class Seeking(Enum):
    """What a receiver with a search has done to find partitions since it wants something."""

    NOT_YET = auto()
    """No search was made."""
    FIRST = auto()
    """The first search is under way, or what it has found was not asked. Other partitions are not asked before."""
    DONE = auto()
    """All partitions with a seat are asked."""


class Seats:
    """The drivers of one receiver, and its search if the entity has more than a few partitions."""

    __slots__ = (
        "_gives_at",
        "_inbox",
        "_loop",
        "_names",
        "_numbers",
        "_seeking",
        "departing",
        "drivers",
        "places",
        "search",
    )

    def __init__(self, inbox: Inbox[Any], numbers: Sequence[int]) -> None:
        self._inbox, self._numbers = inbox, numbers
        """The numbers of the partitions that have something for the receiver."""
        self._loop = asyncio.get_running_loop()
        self.search: SeatSearch | None = None
        """The searches for partitions that have something, if there are more than a few partitions."""
        self._names = 0
        """The number of names that drivers have got."""
        count = len(numbers)
        first = random.randrange(count) if count > 1 else 0
        seats = [(first + place) % count for place in range(count)]
        if count > _FEW:
            rotation = Rotation(count, first)
            self.search, seats = SeatSearch(self, inbox.entity, inbox.source, rotation), rotation.seats
        self.drivers = [self._new_driver(place) for place in seats]
        """The driver of each seat."""
        self.departing: tuple[CreditDriver, ...] = ()
        """The drivers without a seat that withdraw their credit."""
        self.places = CreditPlaces(0)
        """Divides what is wanted between the partitions that have seats."""
        self._seeking = Seeking.NOT_YET
        self._gives_at = math.inf
        """The time of the loop at which seats may have become idle that partitions wait for which were found."""

    def _new_driver(self, place: int) -> CreditDriver:
        """Return a driver for a partition. Its name is a new one, because the partition remembers earlier ones."""
        self._names += 1
        name = self._inbox.identity
        if self._names > 1 and self.search is not None:
            name = f"{name}.{self._names}"
        return self._inbox.new_driver(self._numbers[place], name)

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def all_drivers(self) -> list[CreditDriver]:
        """The drivers of all partitions that the receiver is at or leaves."""
        return [*self.drivers, *self.departing]

    @property
    def sources(self) -> Sequence[AskedSource]:
        """The partitions, and the search if there is one: what callers may wait for."""
        return self.drivers if self.search is None else [*self.drivers, self.search]

    def were_asked(self, since: float) -> bool:
        """Return whether partitions give what they have, or were asked for it ``since`` this time of the loop."""
        return any(source.asked_at >= since for source in self.sources) or not all(
            driver.credit.silent for driver in self.drivers
        )

    @property
    def _failure(self) -> ServiceBusError | None:
        """Why the last call to a partition has failed, if one has."""
        return failure_to_tell([driver.failure for driver in self.drivers], gone=self._inbox.entity.gone)

    @property
    def are_cut_off(self) -> bool:
        """Whether no partition answers that was asked, or one has said that the entity is gone, and there is no new one
        of its name yet.
        """
        if self._inbox.entity.gone and isinstance(self._failure, MessagingEntityNotFoundError):
            return True
        asked = [source for source in self.sources if source.calls]
        return bool(asked) and all(source.troubled for source in asked)

    @property
    def are_in_reach(self) -> bool:
        """Whether all partitions can be reached and answer, as far as is known."""
        return not any(source.troubled or not source.partition_client.connected for source in self.sources)

    def unreachable(self) -> ServiceBusError:
        """Return the error for a receive that got no messages because no partition has answered."""
        if (failure := self._failure) is not None:
            return failure.twin()
        late = any(source.late or source.partition_client.connected for source in self.sources)
        entity = self._inbox.entity
        peer = entity.connection.target
        error: ServiceBusError = (
            OperationTimeoutError(f"{peer} has not answered in time.", outcome=Outcome.UNKNOWN)
            if late  # an answer may still come
            else ServiceBusConnectionError(f"{peer} cannot be reached.", outcome=Outcome.NEVER_SENT)
        )
        error.entity = entity.name
        return error

    @property
    def seeks(self) -> bool:
        """Whether partitions that were found have not been asked."""
        return self.search is not None and self.search.rotation.seeks

    @property
    def _with_news(self) -> list[int]:
        """The seats whose partitions have messages."""
        return [seat for seat, driver in enumerate(self.drivers) if driver.credit.news]

    @property
    def next_at(self) -> float:
        """The time of the loop at which to look at a partition or to search, if nothing happens before."""
        at = min(map(_LOOK_AT, self.drivers), default=math.inf)
        if self.departing:
            at = min(at, *map(_LOOK_AT, self.departing))
        search = self.search
        return at if search is None else min(at, self._search_at(search), self._gives_at, search.changes_at)

    def touch(self) -> None:
        """Look at all partitions the next time."""
        for driver in self.drivers:
            driver.touched = True

    @property
    def coming(self) -> int:
        """The number of messages that partitions may still give. Those that are late or paused do not count."""
        return sum(self.standing(only_now=False).outstanding)

    def standing(self, *, only_now: bool) -> SeatsStanding:
        """Return how the partitions stand.

        A search says which of them have something. Callers that want only what is there need no second answer.
        """
        drivers, search, hungry = self.drivers, self.search, False
        known, outstanding, able, answering = list[CreditPlace](), list[int](), list[int](), list[int]()
        resting, under_way = AskingState.RESTING, AskingState.ASKED
        for place, driver in enumerate(drivers):
            state, credit = driver.state, driver.credit
            left = credit.outstanding
            if state is resting:
                able.append(place)
                if credit.news and not left:
                    hungry = True
            elif state is under_way:
                answering.append(place)
            else:
                left = 0
            known.append(credit)
            outstanding.append(left)
        if only_now:
            awaited = self._inbox.callers.awaited
            able = [place for place in able if drivers[place] in awaited]
        asked = able
        if search is not None and (only_now or self._seeking is Seeking.FIRST):
            asking = search.rotation.asking
            able = [place for place in able if place in asking or drivers[place].credit.news]
            asked = asked if only_now else able
        return SeatsStanding(known, hungry, outstanding, able, asked, answering)

    def want_nothing(self, state: InboxState, *, changed: bool) -> None:
        """Want nothing, everywhere if the state has ``changed``, or from the partitions where something has happened.

        If the receiver lingers, credit stays as it is. If it hears, news does. So a receiver whose callers come and go
        makes no calls to leave and to come back.
        """
        terms, lingers, hears = self._inbox.terms, state is InboxState.LINGERING, state is InboxState.HEARING
        for driver in self.drivers:
            if not (driver.touched or (changed and not lingers)):
                continue
            credit = driver.credit
            now = announced = False
            if lingers or (hears and not credit.news):  # other news must be answered, if only by a call that declines
                now, announced = credit.manner
            stock = credit.outstanding if lingers else 0
            driver.want(demand_of(0, stock, terms, now, announced))

    # -- what was found ------------------------------------------------------------------------------------------------

    def ask_now(self, caller: ReceiveCall[Any]) -> None:
        """Ask for what is there now, on behalf of a caller. A search says which partitions must be asked for it.

        One partition is asked anyway, because it says if nobody may receive; and so are those that may have pushed
        messages.
        """
        asked: list[AskedSource] = list(self.drivers)
        if self.search is not None:
            asked = [driver for driver in self.drivers if driver.credit.outstanding]
            if not asked:
                asked = [next((driver for driver in self.drivers if not driver.troubled), self.drivers[0])]
            asked.append(self.search)
        caller.unanswered = {source: source.calls for source in asked}
        for source in asked:
            source.ask_now()

    def await_answers(self, caller: ReceiveCall[Any]) -> None:
        """Let a caller whose time is over wait for the answers to the calls under way."""
        sources, search = self.sources, self.search
        caller.unanswered = {source: source.calls - source.under_way for source in sources if source.may_answer}
        others_answered = len(caller.unanswered) < sum(source.calls > 0 for source in sources)
        caller.has_answer = others_answered or (search is not None and search.is_answered)

    def found(self, place: int, *, answered: bool, told: bool) -> None:
        """Handle a partition that may have something: ask it, or give it a seat.

        Callers that want what is there do not ask a partition that has not ``answered`` the search.
        """
        search = self.search
        if search is None or (not answered and self._inbox.only_now):
            return
        rotation = search.rotation
        if place in rotation.seats:
            seat = rotation.seats.index(place)
            driver = self.drivers[seat]
            if self._inbox.callers.await_found(driver, search) or (driver.credit.silent and self._inbox.wants):
                rotation.found_at(seat, driver.calls, told=told)
                driver.look_again()
        else:
            rotation.found((place,), told=told)
        self._inbox.pump_soon()

    def is_free_for(self, place: int) -> bool:
        """Return whether the receiver would ask a partition at once if it is found: nothing else has come before."""
        search = self.search
        if search is None or not self._inbox.wants or self.seeks or self._with_news:
            return False
        seats = search.rotation.seats
        return place not in seats or self.drivers[seats.index(place)].credit.silent

    def has_more(self, driver: CreditDriver) -> None:
        """Note that a partition has more than the receiver wants."""
        if self.search is not None and driver in self.drivers:
            self.search.shared.has_more(self.search.rotation.seats[self.drivers.index(driver)], self.search)

    def searched(self) -> None:
        """Handle the end of a search."""
        self._inbox.pump_soon()

    def look(self, search: SeatSearch) -> None:
        """Search if that is needed, and give seats to partitions in which something was found."""
        wants = self._inbox.wants
        search.shared.wants(search, something=wants)
        if wants:
            self._search_if_needed(search)
            self._take_seats(search)
        else:
            self._seeking = Seeking.NOT_YET
            self._gives_at = math.inf
            if self._inbox.lingering.state(self._loop.time()) is InboxState.QUIET:
                search.shared.stop_hearing(search)
        self._see_off()
        if (
            not search.under_way
            and not search.troubled
            and not (search.rotation.waiting and any(driver.prompt for driver in self.drivers))
        ):  # all partitions have answered in which something was found
            self._inbox.callers.answered(search)

    def _search_if_needed(self, search: SeatSearch) -> None:
        """Search if the receiver has slept, or if the time has come."""
        for seat, calls in search.rotation.asking.items():
            driver = self.drivers[seat]
            if driver.calls > calls and (not driver.under_way or driver.late):
                search.rotation.answered(seat)
        asleep = self._seeking is Seeking.NOT_YET and all(driver.is_asleep for driver in self.drivers)
        if self._may_search(search) and (asleep or self._loop.time() >= self._search_at(search)):
            self._seeking = Seeking.FIRST if asleep else Seeking.DONE
            search.ask_now()

    def _may_search(self, search: SeatSearch) -> bool:
        """Return whether a search may begin: not before partitions that were found have answered. Callers that want
        only what is there have had theirs.
        """
        return self._inbox.wants and not (search.under_way or search.rotation.is_asking or self._inbox.only_now)

    def _search_at(self, search: SeatSearch) -> float:
        """Return the time of the loop at which to search again."""
        return math.inf if search.rotation.is_complete or not self._may_search(search) else search.next_at

    def _take_seats(self, search: SeatSearch) -> None:
        rotation, now, only_now = search.rotation, self._loop.time(), self._inbox.only_now
        if rotation.waiting:
            awaited, news = self._inbox.callers.awaited, self._with_news
            if only_now:  # the others are not asked again
                news = [seat for seat in news if self.drivers[seat] in awaited]
            wanted = min(self._inbox.missing, MOST_SEATS) - len({*news, *rotation.asking})
            idle, busy = self._leavers(search, only_now=only_now)
            for change in rotation.give(now, wanted, idle, busy):
                self._move(change)
                self._inbox.callers.await_found(self.drivers[change.seat], search)
        if (search.late or not search.under_way) and not rotation.seeks:
            if self._seeking is Seeking.FIRST:
                self._seeking = Seeking.DONE
            if not only_now:
                for change in (filled := rotation.fill(now)):
                    self._move(change)
                for driver in self.drivers if filled else ():
                    driver.listen_first()
                if not rotation.is_complete:
                    search.shared.hear(search)
        self._gives_at = now + _STAYING if rotation.waiting else math.inf

    def _leavers(self, search: SeatSearch, *, only_now: bool) -> tuple[list[int], list[int]]:
        """Return the seats whose partitions have nothing now, and those that have more messages."""
        awaited, buffer = self._inbox.callers.awaited, self._inbox.buffer
        idle, busy, now, asking = list[int](), list[int](), self._loop.time(), search.rotation.asking
        for seat, driver in enumerate(self.drivers):
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

    def _move(self, change: SeatChange) -> None:
        """Give a seat to another partition. The former one gets its credit back."""
        seat, driver = change.seat, self._new_driver(change.place)
        if seat == len(self.drivers):
            self.drivers.append(driver)
        else:
            former, self.drivers[seat] = self.drivers[seat], driver
            self.departing = (*self.departing, former)
            self._inbox.callers.give_up(former)

    def _see_off(self) -> None:
        staying: list[CreditDriver] = []
        for driver in self.departing:
            driver.credit.want(NO_DEMAND)
            driver.look()
            if driver.has_parted:
                driver.leave()
            else:
                staying.append(driver)
        self.departing = tuple(staying)

    # -- events --------------------------------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Ask all partitions again: something may have changed."""
        for source in self.sources:
            source.look_again()

    def begin_again(self) -> None:
        """Ask all partitions again, because they may be those of a new entity."""
        for driver in self.drivers:
            driver.failure = None
        self.look_again()

    def on_time(self, now: float) -> None:
        """Note at each partition that the time has come."""
        wanted = self._inbox.wants
        for driver in self.all_drivers:
            driver.on_time(now, wanted=wanted)
        if self.search is not None:
            self.search.pass_time(now)

    def leave(self) -> None:
        """Stop receiving from all partitions."""
        if self.search is not None:
            self.search.leave()
        for driver in self.all_drivers:
            driver.leave()

    async def aclose(self) -> None:
        """Withdraw the credit, and take what the partitions have given before, so that the inbox can give it back.

        After some seconds this goes on in the background.
        """
        if self.search is not None:
            self.search.leave()
        drivers = self.all_drivers
        for driver in drivers:
            driver.begin_to_part()
        silent = await part_from(drivers, self._loop.time() + CLOSING)
        for driver in drivers:
            if driver in silent:
                driver.part_later()
            else:
                driver.leave()

    def parted(self) -> Seats:
        """Return the seats of the inbox when it is closed: none, unless drivers still make calls.

        Seats and drivers refer to their inbox. Receivers of sessions come and go by the thousand, so they should not
        have to wait for the collector of cycles.
        """
        return _NO_SEATS if all([driver.has_left for driver in self.all_drivers]) else self  # noqa: C419 -- faster


class _NoSeats(Seats):
    """The seats of a receiver that is closed."""

    __slots__ = ()

    def __init__(self) -> None:
        self.search, self.drivers, self.departing = None, [], ()
        self.places = CreditPlaces(0)


_NO_SEATS: Final = _NoSeats()
