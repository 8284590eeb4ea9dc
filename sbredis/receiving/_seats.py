"""The seats of a receiver: the partitions that it is at, and the search for others that have something for it.

:mod:`sbredis.receiving._rotation` decides which partition has a seat. Each seat has a driver. When a seat goes to
another partition, its driver departs: it withdraws its credit first.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sbredis.engine import MAXIMUM_CALL_BYTES, MOST_SEATS
from sbredis.receiving._credit import CreditDemand
from sbredis.receiving._credit_driver import CreditDriver
from sbredis.receiving._credit_places import CreditPlaces
from sbredis.receiving._lingering import InboxState
from sbredis.receiving._rotation import Rotation, SeatChange
from sbredis.receiving._searching import SeatSearch

if TYPE_CHECKING:
    from sbredis.receiving._callers import ReceiveCall
    from sbredis.receiving._inbox import Inbox

__all__ = ["Demand", "Drain", "Seats"]

_STAYING: Final = 0.02
"""The seconds for which a receiver stays at a partition that has given something."""
_FEW: Final = 4
"""The largest number of partitions that a receiver asks for messages without a search."""


class Demand(NamedTuple):
    """What is wanted from a partition."""

    callers: int
    stock: int
    now: bool
    announced: bool
    suspects: bool


_NOTHING: Final = Demand(0, 0, now=False, announced=False, suspects=True)


class Drain:
    """A withdrawal of credit that waits for the answers of all partitions."""

    __slots__ = ("_waiting", "ended")

    def __init__(self, ended: asyncio.Future[None]) -> None:
        self._waiting: dict[CreditDriver, int] = {}
        self.ended = ended

    def begin(self, drivers: Sequence[CreditDriver]) -> None:
        """Wait for answers to calls that are made from now on. Earlier callers of the drain wait for them, too."""
        self._waiting = {driver: driver.calls for driver in drivers}

    def is_over(self, now: float) -> bool:
        """Return whether each partition needs no call, or has answered one that was made since the drain began."""
        for driver, calls in list(self._waiting.items()):
            later = driver.calls - calls
            if driver.troubled:
                continue  # its last call was no answer
            if later > 1 or (not driver.under_way and (later or not driver.credit.needs_call(now))):
                del self._waiting[driver]
        return not self._waiting


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
        "_hot",
        "_inbox",
        "_loop",
        "_names",
        "_numbers",
        "_seeking",
        "demands",
        "departing",
        "drivers",
        "due",
        "places",
        "rotation",
        "search",
    )

    def __init__(self, inbox: Inbox[Any], numbers: Sequence[int]) -> None:
        self._inbox, self._numbers = inbox, numbers
        """The numbers of the partitions that have something for the receiver."""
        self._loop = asyncio.get_running_loop()
        self.rotation = Rotation(len(numbers), random.randrange(len(numbers)))
        """Decides at which partitions the receiver is."""
        self.search = SeatSearch(self, inbox.entity, inbox.source) if len(numbers) > _FEW else None
        """The searches for partitions that have something, if there are more than a few partitions."""
        if self.search is None:
            self.rotation.fill(0.0)
        self._names = 0
        """The number of names that drivers have got."""
        self.drivers = [self._new_driver(place) for place in self.rotation.seats]
        """The driver of each seat."""
        self.departing = list[CreditDriver]()
        """The drivers without a seat that withdraw their credit."""
        self.places = CreditPlaces(0, len(self.drivers))
        """What is known of the partition of each seat."""
        self.demands: list[Demand | None] = [None] * len(self.drivers)
        """What was wanted last from the partition of each seat, if nothing has happened there since."""
        self.due = set[int]()
        """The seats that may need a call: something has happened there, or something else is wanted."""
        self._hot: dict[int, int] = {}
        """The seats at partitions in which a search has found something and that have not answered since. Each has the
        number of calls that were made before.
        """
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
    def sources(self) -> Sequence[CreditDriver | SeatSearch]:
        """The partitions, and the search if there is one: what callers may wait for."""
        return self.drivers if self.search is None else [*self.drivers, self.search]

    @property
    def is_answered(self) -> bool:
        """Whether partitions have answered a search."""
        return self.search is not None and self.search.is_answered

    @property
    def are_cut_off(self) -> bool:
        """Whether no partition answers that was asked."""
        asked = [source for source in self.sources if source.calls]
        return bool(asked) and all(source.troubled for source in asked)

    @property
    def seeks(self) -> bool:
        """Whether partitions that were found have not been asked."""
        return bool(self._hot or self.rotation.waiting)

    @property
    def next_at(self) -> float:
        """The time of the loop at which to look at a partition or to search, if nothing happens before."""
        at = min(self.places.next_at)
        if self.departing:
            at = min(at, *[driver.next_at for driver in self.departing])
        search = self.search
        return at if search is None else min(at, self._search_at(search), self._gives_at, search.late_at)

    def touch(self) -> None:
        """Look at all partitions with the next survey."""
        for driver in self.all_drivers:
            driver.touched = True

    def survey(self) -> None:
        """Read what has changed at the partitions since the last time."""
        places = self.places
        for place, driver in enumerate(self.drivers):
            if not driver.touched:
                continue
            driver.touched = False
            credit, able, under_way = driver.credit, driver.able, driver.under_way
            outstanding = places.outstanding[place] = credit.outstanding if able else 0
            places.asked[place] = outstanding if under_way else 0
            places.next_at[place] = driver.next_at
            for among, held in (
                (places.free, able and not under_way),
                (places.answering, able and under_way),
                (places.news, credit.news),
                (places.silent, credit.silent),
                (places.spent, credit.spent),
            ):
                if held:
                    among.add(place)
                else:
                    among.discard(place)
            self.demands[place] = None
            self.due.add(place)
        places.coming = sum(places.outstanding)

    def askable(self, *, only_now: bool) -> tuple[set[int], set[int]]:
        """Return the seats whose partitions may get credit, and those that are told what is wanted from them.

        A search says which partitions have something. Callers that want only what is there need no second answer.
        """
        able = self.places.free
        if only_now:
            awaited = self._inbox.callers.awaited
            able = {place for place in able if self.drivers[place] in awaited}
        asked = able
        if self._seeking is Seeking.FIRST or (only_now and self.search is not None):
            able = {place for place in able if place in self._hot or place in self.places.news}
            asked = asked if only_now else able
        return able, asked

    def want(self, place: int, demand: Demand) -> None:
        """Set what is wanted from the partition of a seat."""
        if demand == self.demands[place]:
            return
        self.demands[place] = demand
        self.due.add(place)
        inbox = self._inbox
        self.drivers[place].credit.want(
            CreditDemand(
                callers=demand.callers,
                stock=demand.stock,
                room=MAXIMUM_CALL_BYTES,
                now=demand.now,
                announced=demand.announced,
                hands=inbox.hands(demand.callers + demand.stock),
                suspects=demand.suspects,
                first=inbox.first,
                first_room=MAXIMUM_CALL_BYTES if inbox.first else 0,
                yields=inbox.yields,
            )
        )

    def want_nothing(self, *, lingers: bool, hears: bool, everywhere: bool) -> None:
        """Want nothing, ``everywhere`` or from the partitions where something has happened.

        If the receiver ``lingers``, credit stays as it is. If it ``hears``, news does.
        """
        for place in range(len(self.drivers)) if everywhere else list(self.due):
            credit = self.drivers[place].credit
            if lingers or (hears and not credit.news):
                left = credit.unchanged
                stock = left.stock if lingers else 0
                self.want(place, Demand(0, stock, left.now, left.announced, self._inbox.taking.suspects))
            else:  # news must be answered, if only by a call that declines
                self.want(place, _NOTHING)

    # -- what was found ------------------------------------------------------------------------------------------------

    def ask_now(self, caller: ReceiveCall[Any]) -> None:
        """Ask for what is there now, on behalf of a caller. A search says which partitions must be asked for it.

        One partition is asked anyway, because it says if nobody may receive; and so are those that may have pushed
        messages.
        """
        asked: list[CreditDriver | SeatSearch] = list(self.drivers)
        if self.search is not None:
            asked = [driver for driver in self.drivers if driver.credit.outstanding]
            if not asked:
                asked = [next((driver for driver in self.drivers if not driver.troubled), self.drivers[0])]
            asked.append(self.search)
        caller.unanswered = {source: source.calls for source in asked}
        for source in asked:
            source.ask_now()

    def found(self, place: int, *, answered: bool = True) -> None:
        """Handle a partition that may have something: ask it, or give it a seat.

        Callers that want what is there do not ask a partition that has not ``answered`` the search.
        """
        rotation, search = self.rotation, self.search
        if search is None or (not answered and self._inbox.only_now):
            return
        if place in rotation.seats:
            seat = rotation.seats.index(place)
            driver = self.drivers[seat]
            if self._inbox.callers.await_found(driver, search) or (driver.credit.silent and self._inbox.wants):
                self._hot[seat] = driver.calls
                driver.look_again()
        else:
            rotation.found((place,))
        self._inbox.pump_soon()

    def searched(self) -> None:
        """Handle the end of a search."""
        self._inbox.pump_soon()

    def look(self, search: SeatSearch) -> None:
        """Search if that is needed, and give seats to partitions in which something was found."""
        if self._inbox.wants:
            self.survey()
            self._search_if_needed(search)
            self._take_seats(search)
        else:
            self._seeking = Seeking.NOT_YET
            self._gives_at = math.inf
            if self._inbox.lingering.state(self._loop.time()) is InboxState.QUIET:
                search.stop_hearing()
        self._see_off()
        if (
            not search.under_way
            and not search.troubled
            and not (self.rotation.waiting and any(driver.able for driver in self.drivers))
        ):  # all partitions have answered in which something was found
            self._inbox.callers.answered(search)

    def _search_if_needed(self, search: SeatSearch) -> None:
        """Search if the receiver has slept, or if the time has come."""
        for seat, calls in list(self._hot.items()):
            driver = self.drivers[seat]
            if driver.calls > calls and (not driver.under_way or driver.late):
                del self._hot[seat]
        asleep = self._seeking is Seeking.NOT_YET and all(driver.is_asleep for driver in self.drivers)
        if self._may_search(search) and (asleep or self._loop.time() >= self._search_at(search)):
            self._seeking = Seeking.FIRST if asleep else Seeking.DONE
            search.ask_now()

    def _may_search(self, search: SeatSearch) -> bool:
        """Return whether a search may begin: not before partitions that were found have answered. Callers that want
        only what is there have had theirs.
        """
        return self._inbox.wants and not search.under_way and not self._hot and not self._inbox.only_now

    def _search_at(self, search: SeatSearch) -> float:
        """Return the time of the loop at which to search again."""
        return math.inf if self.rotation.is_complete or not self._may_search(search) else search.next_at

    def _take_seats(self, search: SeatSearch) -> None:
        rotation, now, only_now = self.rotation, self._loop.time(), self._inbox.only_now
        if rotation.waiting:
            awaited, news = self._inbox.callers.awaited, self.places.news
            if only_now:  # the others are not asked again
                news = {seat for seat in news if self.drivers[seat] in awaited}
            wanted = min(self._inbox.missing, MOST_SEATS) - len({*news, *self._hot})
            idle, busy = self._leavers(only_now=only_now)
            for change in rotation.give(now, wanted, idle, busy):
                self._move(change)
                self._hot[change.seat] = 0
                self._inbox.callers.await_found(self.drivers[change.seat], search)
        if (search.late or not search.under_way) and not self._hot and not rotation.waiting:
            if self._seeking is Seeking.FIRST:
                self._seeking = Seeking.DONE
            if not only_now:
                for change in (filled := rotation.fill(now)):
                    self._move(change)
                for driver in self.drivers if filled else ():
                    driver.listen_first()
                if not rotation.is_complete:
                    search.hear()
        self._gives_at = now + _STAYING if rotation.waiting else math.inf

    def _leavers(self, *, only_now: bool) -> tuple[list[int], list[int]]:
        """Return the seats whose partitions have nothing now, and those that have more messages."""
        awaited, buffer = self._inbox.callers.awaited, self._inbox.buffer
        idle, busy, now = list[int](), list[int](), self._loop.time()
        for seat in self.places.free - self._hot.keys():
            driver = self.drivers[seat]
            if buffer.first_token(driver.partition_client.number) is not None:
                continue  # its messages are reported as begun to the partition
            if only_now and driver not in awaited:
                idle.append(seat)
            elif seat in self.places.news:
                busy.append(seat)
            elif not only_now and now >= driver.gave_at + _STAYING:
                idle.append(seat)
        return idle, busy

    def _move(self, change: SeatChange) -> None:
        """Give a seat to another partition. The former one gets its credit back."""
        seat, driver = change.seat, self._new_driver(change.place)
        if seat == len(self.drivers):
            self.drivers.append(driver)
            self.places.add()
            self.demands.append(None)
        else:
            former, self.drivers[seat] = self.drivers[seat], driver
            self.departing.append(former)
            self._inbox.callers.give_up(former)

    def _see_off(self) -> None:
        """Withdraw the credit of partitions without a seat."""
        for driver in list(self.departing):
            driver.credit.want(CreditDemand())
            driver.call_if_needed()
            if driver.has_parted:
                self.departing.remove(driver)
                driver.leave()

    # -- events --------------------------------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Ask all partitions again: something may have changed."""
        for source in self.sources:
            source.look_again()

    def on_time(self, now: float) -> None:
        """Note at each partition that the time has come."""
        wanted = self._inbox.wants
        for driver in self.all_drivers:
            driver.on_time(now, wanted=wanted)
        if self.search is not None:
            self.search.on_time(now)

    def leave(self) -> None:
        """Stop receiving from all partitions."""
        if self.search is not None:
            self.search.leave()
        for driver in self.all_drivers:
            driver.leave()

    async def aclose(self) -> None:
        """Withdraw the credit, and take what the partitions have given before."""
        if self.search is not None:
            self.search.leave()
        await asyncio.gather(*(driver.aclose() for driver in self.all_drivers))
