"""The seats of a receiver: the partitions that it is at.

Each seat has a driver. When a seat goes to another partition (:mod:`sbredis.receiving._searching`), its driver departs:
it withdraws its credit first.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
)
from sbredis.receiving._asking import AskingState
from sbredis.receiving._credit import NO_DEMAND
from sbredis.receiving._credit_driver import CreditDriver, part_from, part_later
from sbredis.receiving._credit_places import CreditPlace, CreditPlaces, SeatsStanding, demand_of
from sbredis.receiving._fetching import InboxState
from sbredis.receiving._rotation import Rotation, SeatChange
from sbredis.receiving._searching import SeatSearch, Seeking

if TYPE_CHECKING:
    from sbredis.receiving._asking import AskedSource
    from sbredis.receiving._callers import ReceiveCall
    from sbredis.receiving._inbox import Inbox

__all__ = ["Seats", "failure_to_tell"]

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


class Seats:
    """The drivers of one receiver, and its search if the entity has more than a few partitions."""

    __slots__ = (
        "_inbox",
        "_names",
        "_numbers",
        "departing",
        "drivers",
        "places",
        "search",
    )

    def __init__(self, inbox: Inbox[Any], numbers: Sequence[int]) -> None:
        self._inbox, self._numbers = inbox, numbers
        """The numbers of the partitions that have something for the receiver."""
        self.search: SeatSearch | None = None
        """The searches for partitions that have something, if there are more than a few partitions."""
        self._names = 0
        """The number of names that drivers have got."""
        count = len(numbers)
        first = random.randrange(count) if count > 1 else 0
        seats = [(first + place) % count for place in range(count)]
        if count > _FEW:
            rotation = Rotation(count, first)
            self.search, seats = SeatSearch(self, inbox, rotation), rotation.seats
        self.drivers = [self._new_driver(place) for place in seats]
        """The driver of each seat."""
        self.departing: tuple[CreditDriver, ...] = ()
        """The drivers without a seat that withdraw their credit."""
        self.places = CreditPlaces(0)
        """Divides what is wanted between the partitions that have seats."""

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
        late, entity = any(source.late for source in self.sources), self._inbox.entity
        peer = entity.connection.target
        error = next((said for each in self.drivers if (said := each.partition_client.obstacle)), None)
        if error is not None:
            error.outcome = Outcome.UNKNOWN  # the call goes on, and an answer may still come
        elif any(entity.partition_client(number).connected for number in entity.numbers):  # the same
            error = OperationTimeoutError(f"{peer} has not answered in time.", outcome=Outcome.UNKNOWN)
        else:
            outcome = Outcome.UNKNOWN if late else Outcome.NEVER_SENT
            error = ServiceBusConnectionError(f"{peer} cannot be reached.", outcome=outcome)
        error.entity = entity.name
        return error

    @property
    def with_news(self) -> list[int]:
        """The seats whose partitions have messages."""
        return [seat for seat, driver in enumerate(self.drivers) if driver.credit.news]

    @property
    def next_at(self) -> float:
        """The time of the loop at which to look at a partition or to search, if nothing happens before."""
        at = min(map(_LOOK_AT, self.drivers), default=math.inf)
        if self.departing:
            at = min(at, *map(_LOOK_AT, self.departing))
        return at if self.search is None else min(at, self.search.look_at)

    def touch(self) -> None:
        """Look at all partitions the next time."""
        for driver in self.drivers:
            driver.touched = True

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
        if search is not None and (only_now or search.seeking is Seeking.FIRST):
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
            driver.touched = True
            credit.want(demand_of(0, stock, terms, now, announced))

    # -- for callers ---------------------------------------------------------------------------------------------------

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

    def move(self, change: SeatChange) -> None:
        """Give a seat to another partition. The former one gets its credit back."""
        seat, driver = change.seat, self._new_driver(change.place)
        if seat == len(self.drivers):
            self.drivers.append(driver)
        else:
            former, self.drivers[seat] = self.drivers[seat], driver
            self.departing = (*self.departing, former)
            self._inbox.callers.give_up(former)

    def see_off(self) -> None:
        """Withdraw the credit of drivers that have lost their seats."""
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

    async def aclose(self, until: float) -> None:
        """Withdraw the credit, and take what the partitions have given before, so that the inbox can give it back.

        After the time ``until`` of the loop this goes on in the background.
        """
        if self.search is not None:
            self.search.leave()
        drivers = self.all_drivers
        for driver in drivers:
            driver.begin_to_part()
        silent = await part_from(drivers, until)
        part_later(silent)
        for driver in drivers:
            if driver not in silent:
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
