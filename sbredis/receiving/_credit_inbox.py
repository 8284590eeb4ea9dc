"""The inboxes that grant credit to the partitions of an entity."""

from __future__ import annotations

import asyncio
import math
import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from sbredis.engine import MAXIMUM_CALL_BYTES, MAXIMUM_CREDIT, MOST_SEATS, Delivery, lease_token
from sbredis.model import (
    MessageLease,
    Reception,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    delivered,
    hold_of,
)
from sbredis.receiving._credit import CreditDemand
from sbredis.receiving._credit_driver import CreditDriver
from sbredis.receiving._credit_places import CreditPlaces
from sbredis.receiving._inbox import Inbox, InboxSource, ReceiveCall, closed_error
from sbredis.receiving._rotation import Rotation, SeatChange
from sbredis.receiving._searching import SeatSearch

if TYPE_CHECKING:
    from collections.abc import Collection

    from sbredis.receiving._credit import HandedGift

__all__ = ["CreditInbox", "Demand", "MessageInbox"]

Item = TypeVar("Item")

_LINGERING = 0.05
"""The seconds for which credit stays without a caller. Most callers come back soon."""
_HEARING = 5.0
"""The seconds for which partitions without credit send news to a receiver without a caller."""
_STAYING = 0.1
"""The seconds for which a receiver stays at a partition that has given something."""
_FEW = 4
"""The largest number of partitions that a receiver asks for messages without a search."""


def _is_used_up(coming: int, wanted: int) -> bool:
    """Return whether at least a quarter of what is wanted is missing."""
    return 4 * coming <= 3 * wanted


class Demand(NamedTuple):
    """What is wanted from a partition."""

    callers: int
    stock: int
    now: bool
    announced: bool
    suspects: bool


_NOTHING: Final = Demand(0, 0, now=False, announced=False, suspects=True)


def _put(places: set[int], place: int, *, held: bool) -> None:
    if held:
        places.add(place)
    else:
        places.discard(place)


class _Drain:
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


class CreditInbox(Inbox[CreditDriver, Item]):
    """What one receiver gets: messages, or sessions. :class:`CreditPlaces` divides what it wants between partitions.

    Credit is granted anew when half of it is used up. So a receiver whose callers come one after the other makes few
    calls.
    """

    _credit = 0
    """The number of messages that the application has given credit for, and that have not come."""
    _by_credit = 0
    """The number of messages in the buffer that have come by this credit. They stay there until they are received."""
    _drain: _Drain | None = None

    first = 0
    """The number of messages that come with each session, if the inbox gets sessions."""

    @property
    def yields(self) -> bool:
        """Whether the receiver lets go of an empty session if others wait."""
        return self.taking.yields

    def begin_leaving(self) -> bool:
        """Return whether the call that is made now lets go of the receiver's session, unless it has messages."""
        return False

    def refused(self, said: str) -> bool:  # noqa: ARG002 -- most refusals are errors
        """Return whether a refusal is what the receiver wanted."""
        return False

    def others_wait(self) -> None:
        """Note that the receiver's session is empty, and that others wait."""

    def held(self) -> None:
        """Note that the partition has answered a grant. If the source is a session, the receiver holds it."""

    def _new_sources(self) -> list[CreditDriver]:
        numbers = self._partitions
        self._rotation = Rotation(len(numbers), random.randrange(len(numbers)))
        """Decides at which partitions the receiver is."""
        self._search = SeatSearch(self, self.entity, self.source) if len(numbers) > _FEW else None
        """The searches for partitions that have something, if there are more than a few partitions."""
        if self._search is None:
            self._rotation.fill(0.0)
        seats = self._rotation.seats
        self._names = 0
        """The number of names that drivers have got."""
        self._departing = set[CreditDriver]()
        """The drivers without a seat that withdraw their credit."""
        self._hot: dict[int, int] = {}
        """The seats at partitions in which a search has found something and that have not answered since. Each has the
        number of calls that were made before.
        """
        self._has_searched = False
        """Whether a search was made since something is wanted."""
        self._holds_back = False
        """Whether only partitions are asked in which a search has found something."""
        self._places = CreditPlaces(0)
        self._lingers_until = self._hears_until = 0.0
        self._gives_at = math.inf
        """The time of the loop at which seats may have become idle that partitions wait for which were found."""
        self._fills = False
        """Whether the stock is being filled: from the time when it has become small until it is full."""
        self._pumping = False
        self._end_drain()
        # What is known of the partition of each seat. An entry is renewed when its driver was touched.
        self._outstanding = [0] * len(seats)
        self._free = set[int]()
        """The seats whose partitions may be asked, and have no call under way."""
        self._news, self._silent = set[int](), set[int]()
        self._asked = [0] * len(seats)
        """The messages that calls under way may bring."""
        self._next_at = [math.inf] * len(seats)
        self._demands: list[Demand | None] = [None] * len(seats)
        """What was wanted last."""
        self._due = set[int]()
        """The seats that may need a call: something has happened there, or something else is wanted."""
        self._suspects = True
        self._idle: tuple[bool, bool] | None = None
        """Whether credit stays, and news is heard, while nothing is wanted; ``None`` while something is."""
        return [self._new_driver(numbers[place]) for place in seats]

    @property
    @abstractmethod
    def source(self) -> str:
        """What the receiver wants from partitions: messages of a side or of a session, or sessions."""

    @property
    def _partitions(self) -> Sequence[int]:
        """The numbers of the partitions that have something for the receiver."""
        return self._numbers

    def _new_driver(self, number: int) -> CreditDriver:
        """Return a driver for a partition. Its name is a new one, because the partition remembers earlier ones."""
        self._names += 1
        locks = self.mode is ServiceBusReceiveMode.PEEK_LOCK
        name = f"{self.identity}.{self._names}" if self._names > 1 and self._search is not None else self.identity
        return CreditDriver(self, self.entity.partition_client(number), name, source=self.source, locks=locks)

    @property
    def drivers(self) -> list[CreditDriver]:
        """The drivers of all partitions that the receiver is at or leaves."""
        return [*self._sources, *self._departing]

    @property
    def sources(self) -> Sequence[InboxSource]:
        """The partitions, and the search if there is one."""
        return self._sources if self._search is None else [*self._sources, self._search]

    @property
    def _all_sources(self) -> Sequence[InboxSource]:
        return [*self.sources, *self._departing]

    @abstractmethod
    def opened(self, driver: CreditDriver, handed: Sequence[HandedGift[Delivery]]) -> list[Item]:
        """Return what gifts have brought. Give back what may not be locked any more."""

    def _survey(self) -> None:
        """Read what has changed since the last time."""
        if self.taking.suspects != self._suspects:  # something else is wanted everywhere
            self._suspects = self.taking.suspects
            for driver in self._sources:
                driver.touched = True
        for place, driver in enumerate(self._sources):
            if not driver.touched:
                continue
            driver.touched = False
            credit, able, under_way = driver.credit, driver.able, driver.under_way
            outstanding = self._outstanding[place] = credit.outstanding if able else 0
            self._asked[place] = outstanding if under_way else 0
            _put(self._free, place, held=able and not under_way)
            _put(self._news, place, held=credit.news)
            _put(self._silent, place, held=credit.silent)
            self._next_at[place] = driver.next_at
            self._demands[place] = None
            self._due.add(place)
        self._coming = sum(self._outstanding)

    def received(self, messages: list[Item]) -> None:
        """Distribute the messages that a reply or a push has brought.

        The callers of these messages run before the next call is made.
        """
        if messages:
            self._trouble = None
            used = min(self._credit, len(messages))
            self._credit -= used
            self._by_credit = min(self._by_credit, len(self.buffer)) + used
            self.take_back(messages)
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._pumping = False
        self.pump()

    def _space(self) -> int:
        """Return for how many more messages there is room in the buffer."""
        room = max(0, self._capacity - len(self.buffer))
        return room if self._callers or not self._lingers else max(room, self._lingering)

    @property
    def _capacity(self) -> int:
        return self.stock.target + self._by_credit

    @property
    def _wants(self) -> bool:
        return self._credit > 0 or super()._wants

    @property
    def _lingers(self) -> bool:
        return self._loop.time() < self._lingers_until

    @property
    def _hears(self) -> bool:
        return self._loop.time() < self._hears_until

    def _caller_left(self) -> None:
        if not self._callers:
            self._linger()

    def _linger(self) -> None:
        """Let credit stay for a moment, although there is no caller."""
        self._lingering = max(1, self._coming)
        self._lingers_until = self._loop.time() + _LINGERING
        self._hears_until = self._loop.time() + _HEARING
        self._set_timer()

    # -- seats ---------------------------------------------------------------------------------------------------------

    def _ask_all(self, caller: ReceiveCall[Item]) -> None:
        """Ask for the messages that are there now. A search says which partitions must be asked for them.

        One partition is asked anyway, because it says if nobody may receive; and so are those that may have pushed
        messages.
        """
        search = self._search
        if search is None:
            super()._ask_all(caller)
            return
        asked: list[InboxSource] = [driver for driver in self._sources if driver.credit.outstanding]
        if not asked:
            asked = [next((driver for driver in self._sources if not driver.troubled), self._sources[0])]
        asked.append(search)
        caller.unanswered = {source: source.calls for source in asked}
        for source in asked:
            source.ask_now()

    def found(self, place: int, *, answered: bool = True) -> None:
        """Handle a partition that may have something: ask it, or give it a seat.

        Callers that want what is there do not ask a partition that has not ``answered`` the search.
        """
        rotation = self._rotation
        if not answered and self.only_wants_what_is_there:
            return
        if place in rotation.seats:
            seat = rotation.seats.index(place)
            driver = self._sources[seat]
            if self._ask_for_callers(driver) or (driver.credit.silent and self._wants):
                self._hot[seat] = driver.calls
                driver.look_again()
        else:
            rotation.found((place,))
        self._pump_soon()

    def _ask_for_callers(self, driver: CreditDriver) -> bool:
        """Let callers that want only what is there wait for an answer of a partition. Return whether there are any."""
        some = False
        for caller in self._callers:
            if caller.unanswered is not None and self._search in caller.unanswered:
                caller.unanswered.setdefault(driver, driver.calls)
                some = True
        return some

    def _expect_no_more(self, driver: CreditDriver) -> None:
        """Let no caller wait for an answer of a driver that gives up its seat. Its partition may be found again."""
        for caller in self._callers:
            if caller.unanswered is not None and caller.unanswered.pop(driver, None) is not None:
                caller.tell()

    @property
    def seeks(self) -> bool:
        """Whether partitions that were found have not been asked."""
        return bool(self._hot or self._rotation.waiting)

    @property
    def _has_answer(self) -> bool:
        return self._search is not None and self._search.is_answered

    def searched(self) -> None:
        """Handle the end of a search."""
        self._pump_soon()

    def _take_seats(self, search: SeatSearch) -> None:
        """Search if that is needed, and give seats to partitions in which something was found."""
        if not self._wants:
            self._has_searched = self._holds_back = False
            self._gives_at = math.inf
            if not self._hears:
                search.stop_hearing()
            return
        self._survey()
        self._search_if_needed(search)
        rotation, now = self._rotation, self._loop.time()
        only_now = self.only_wants_what_is_there and not self._credit
        if rotation.waiting:
            stocked = self.stock.target if self._stocks else 0
            missing = max(self._credit, self.demand + stocked - len(self.buffer))
            wanted = min(missing, MOST_SEATS) - len({*self._news, *self._hot})
            idle, busy = self._leavers(only_now=only_now)
            for change in rotation.give(now, wanted, idle, busy):
                self._move(change, hot=True)
        if (search.late or not search.under_way) and not self._hot and not rotation.waiting:
            self._holds_back = False
            if not only_now:
                for change in rotation.fill(now):
                    self._move(change)
                if not rotation.is_complete:
                    search.hear()
        self._gives_at = now + _STAYING if rotation.waiting else math.inf

    def _search_if_needed(self, search: SeatSearch) -> None:
        """Search if the receiver has slept, or if the time has come."""
        for seat, calls in list(self._hot.items()):
            driver = self._sources[seat]
            if driver.calls > calls and (not driver.under_way or driver.late):
                del self._hot[seat]
        asleep = not self._has_searched and not self._hot and all(driver.is_asleep for driver in self._sources)
        if self._may_search(search) and (asleep or self._loop.time() >= self._search_at):
            self._holds_back, self._has_searched = asleep, True
            search.ask_now()

    def _may_search(self, search: SeatSearch) -> bool:
        """Return whether a search may begin: not before partitions that were found have answered. Callers that want
        only what is there have had theirs.
        """
        only_now = self.only_wants_what_is_there and not self._credit
        return self._wants and not search.under_way and not self._hot and not only_now

    @property
    def _search_at(self) -> float:
        """The time of the loop at which to search again."""
        search = self._search
        may = search is not None and not self._rotation.is_complete and self._may_search(search)
        return search.next_at if search is not None and may else math.inf

    def _leavers(self, *, only_now: bool) -> tuple[list[int], list[int]]:
        """Return the seats whose partitions have nothing now, and those that have more messages."""
        awaited = {source for caller in self._callers for source in caller.unanswered or ()}
        idle, busy, now = list[int](), list[int](), self._loop.time()
        for seat in self._free - self._hot.keys():
            driver = self._sources[seat]
            if self.buffer.first_token(driver.partition_client.number) is not None:
                continue  # its messages are reported as begun to the partition
            if seat in self._news:
                busy.append(seat)
            elif driver not in awaited if only_now else now >= driver.gave_at + _STAYING:
                idle.append(seat)
        return idle, busy

    def _move(self, change: SeatChange, *, hot: bool = False) -> None:
        """Give a seat to another partition. The former one gets its credit back."""
        seat, driver = change.seat, self._new_driver(self._partitions[change.place])
        if seat == len(self._sources):
            self._sources.append(driver)
            self._outstanding.append(0)
            self._asked.append(0)
            self._next_at.append(math.inf)
            self._demands.append(None)
        else:
            former, self._sources[seat] = self._sources[seat], driver
            self._departing.add(former)
            self._expect_no_more(former)
        if hot:
            self._hot[seat] = 0
            self._ask_for_callers(driver)

    def _see_off(self) -> None:
        """Withdraw the credit of partitions without a seat."""
        for driver in list(self._departing):
            driver.credit.want(CreditDemand())
            driver.call_if_needed()
            if not driver.under_way and (driver.credit.settled or driver.troubled):
                self._departing.discard(driver)
                driver.leave()

    def _end_search(self, search: SeatSearch) -> None:
        """Tell callers that want only what is there that all partitions have answered in which something was found."""
        if (
            not search.under_way
            and not search.troubled
            and not (self._rotation.waiting and any(driver.able for driver in self._sources))
        ):
            self.answered(search)

    def _make_calls(self) -> None:
        if self._search is not None:
            self._take_seats(self._search)
            self._see_off()
            self._end_search(self._search)
        drivers = self._sources
        wanted, only_now = self._set_demands()
        if not wanted and not self._lingers and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            self.give_back(self.buffer.cut(self._capacity))
        due, self._due = self._due, set[int]()
        for place in due:
            driver = drivers[place]
            driver.call_if_needed()
            if wanted and not only_now and driver.is_unheard:
                driver.listen()
        self._survey()
        if self._drain is not None:
            self._look_for_end_of(self._drain)

    def want_for_ride(self, source: CreditDriver, settled: int) -> None:  # noqa: ARG002 -- all partitions are looked at
        """Set what to want from a partition to which a call goes now. It settles this number of messages.

        A caller that iterates comes back for the next message when it has settled this one.
        """
        if self._closed:
            return
        returning = int(self.comes_back and settled > 0 and not self._callers and not len(self.buffer))
        if returning:
            self._linger()
        self._set_demands(rides=True, returning=returning)

    def ride_ended(self) -> None:
        """Let credit stay for a moment after a call that carried a grant: only now may its caller come back."""
        if self.comes_back and not self._callers and not self._closed:
            self._linger()

    def _set_demands(self, *, rides: bool = False, returning: int = 0) -> tuple[int, bool]:
        """Set what each driver wants from its partition. Return what is wanted in all, and whether only what is there.

        ``returning`` callers are not there yet. A grant that ``rides`` costs little.
        """
        drivers = self._sources
        only_now = self.only_wants_what_is_there and not self._credit
        self._survey()
        able: Collection[int] = self._free
        if only_now:  # partitions that have answered are left out
            unanswered = {driver for caller in self._callers for driver in caller.unanswered or ()}
            able = [place for place in able if drivers[place] in unanswered]
        asked = able
        if self._holds_back or (only_now and self._search is not None):
            able = [place for place in able if place in self._hot or place in self._news]
            asked = asked if only_now else able
        outstanding, news, demand = self._outstanding, self._news, self.demand + returning
        exactly = only_now or any(not outstanding[place] for place in news if place in able)
        wanted = max(self._credit, self._wanted(demand, exactly=exactly, rides=rides))
        if wanted:
            full = max(wanted, self._full(demand))
            pushes = only_now or (2 * full >= len(drivers) and not drivers[0].replies_only)
            more: Collection[int] = able if pushes else ()
            if full > wanted and pushes and (silent := self._silent.intersection(able)):
                wanted, more = full, silent  # these are called anyway
            left = max(0, wanted - sum(self._asked))
            answering = len(able) + (0 if only_now else sum([driver.under_way and driver.able for driver in drivers]))
            most = wanted if len(more) == answering else max(1, wanted // answering)
            shares = self._places.shares(left, outstanding, able, news, more=more, most=most)
            self._want(demand, shares, asked, only_now=only_now, pushes=pushes, rides=rides)
        else:
            self._want_nothing()
        return wanted, only_now

    def _wanted(self, demand: int, *, exactly: bool, rides: bool) -> int:
        """Return how many messages to want from the partitions in all. If it is not ``exactly`` what is missing, credit
        of which less than half is used up is left as it is; with ``rides``, less than a quarter.
        """
        stock, coming, kept = self.stock, self._coming, len(self.buffer)
        stock.lock = self.entity.record.settings.lock_duration / 1000
        missing = max(0, demand - kept)
        if self._stocks:
            more = stock.missing(kept, coming, demand, self._loop.time())
            room = max(0, stock.target + demand - kept)
            self._fills = bool(more) or (self._fills and bool(room))
            if rides and _is_used_up(kept + coming - demand, stock.target):
                return room
            if more:
                return coming + more
            # What partitions without messages have lost to others may not have been given: fill the stock all the same.
            return room if self._fills and exactly and not coming else min(coming, room)
        if missing and not exactly and missing <= 2 * coming <= 2 * missing:
            return missing if rides and _is_used_up(coming, missing) else coming
        return missing

    def _full(self, demand: int) -> int:
        """Return how many messages there is room for, with those that partitions may still give."""
        stocked = self.stock.target if self._stocks else 0
        return max(0, demand + stocked - len(self.buffer))

    @property
    def _stocks(self) -> bool:
        """Whether messages may be fetched ahead now."""
        return self.stock.most > 0 and not self.stock.resting

    def _want(
        self,
        demand: int,
        shares: Sequence[int],
        asked: Collection[int],
        *,
        only_now: bool,
        pushes: bool,
        rides: bool,
    ) -> None:
        self._idle = None
        callers = max(0, demand - len(self.buffer))
        for place in asked:
            share, outstanding = shares[place], self._outstanding[place]
            waiting = min(callers, share)
            callers -= waiting
            if waiting and share == outstanding:
                left = self._sources[place].credit.outstanding_for_callers
                if 0 < left < waiting and not (rides and 2 * left <= waiting):
                    waiting = left  # the partition need not know of more callers before it gets more credit
            announced = not share or not (pushes or outstanding)
            self._demand_at(place, Demand(waiting, share - waiting, only_now, announced, self.taking.suspects))

    def _demand_at(self, place: int, demand: Demand) -> None:
        if demand == self._demands[place]:
            return
        self._demands[place] = demand
        self._due.add(place)
        self._sources[place].credit.want(
            CreditDemand(
                callers=demand.callers,
                stock=demand.stock,
                room=MAXIMUM_CALL_BYTES,
                now=demand.now,
                announced=demand.announced,
                hands=self._hands(demand.callers + demand.stock),
                suspects=demand.suspects,
                first=self.first,
                first_room=MAXIMUM_CALL_BYTES if self.first else 0,
                yields=self.yields,
            )
        )

    def _want_nothing(self) -> None:
        lingers, hears = idle = self._lingers, self._hears
        same = lingers or idle == self._idle  # where nothing has happened, nothing else is wanted
        self._idle = idle
        for place in list(self._due) if same else range(len(self._sources)):
            credit = self._sources[place].credit
            if lingers or (hears and not credit.news):
                left = credit.unchanged
                stock = left.stock if lingers else 0
                self._demand_at(place, Demand(0, stock, left.now, left.announced, self.taking.suspects))
            else:  # news must be answered, if only by a call that declines
                self._demand_at(place, _NOTHING)

    @property
    def has_suspects(self) -> bool:
        return any([driver.credit.suspects_wait for driver in self._sources])  # noqa: C419 -- faster

    def _hands(self, share: int) -> int:
        """Return how many messages of a partition may be begun before the next grant, if it still gives ``share``.

        The next grant comes at the latest when the stock is small enough to be filled again.
        """
        if self.taking.hands is not None:
            return self.taking.hands
        return min(MAXIMUM_CREDIT, max(1, share + len(self.buffer) - max(0, self.stock.refill_at)))

    # -- the credit of the application ---------------------------------------------------------------------------------

    def set_credit(self, count: int) -> None:
        """Let partitions give this many messages, whether or not callers wait."""
        self._credit = count
        if not count and not self._callers:
            self._lingers_until = self._hears_until = 0.0
        self.pump()

    async def drain(self) -> int:
        """Use the credit of the application for what is ready, withdraw the rest, and return how many are kept.

        All partitions have answered then. Raise an error if a partition does not answer.
        """
        credit, self._credit = self._credit, 0
        if credit:
            there = await self.take(len(self.buffer) + credit, 0)
            self._by_credit = len(there)
            self.take_back(there, first=True)
        self.set_credit(0)
        drain = self._drain
        if drain is None:
            drain = self._drain = _Drain(self._loop.create_future())
        drain.begin(self.drivers)
        self._look_for_end_of(drain)
        done, _ = await asyncio.wait((drain.ended,), timeout=self._timings.answering)
        if not done:
            raise self._unreachable()
        if self._closed:
            raise closed_error()
        return len(self.buffer)

    async def let_go(self) -> None:
        self.end_waits()
        if self._callers:
            self._emptied = self._emptied or asyncio.Event()
            self._emptied.clear()
            await self._emptied.wait()
        await self.drain()
        await self.give_back_kept()

    def _look_for_end_of(self, drain: _Drain) -> None:
        if drain.is_over(self._clock.now()):
            self._end_drain()

    def _end_drain(self) -> None:
        drain, self._drain = self._drain, None
        if drain is not None:
            drain.ended.set_result(None)

    async def aclose(self) -> None:
        """Release the kept messages, and what the calls under way bring. A drain that waits for answers fails."""
        closing = super().aclose()
        self._end_drain()
        await closing

    # -- events --------------------------------------------------------------------------------------------------------

    def _clock_moved(self) -> None:
        """Ask the partitions again, or withdraw the credit if nothing is wanted from them."""
        if self._wants:
            for driver in self._sources:
                driver.look_again()
        else:
            self._lingers_until = self._hears_until = 0.0
        if self._search is not None:
            self._search.look_again()
        for driver in self.drivers:
            driver.touched = True
        self._give_back_late()
        self.pump()

    def _next_looks(self) -> list[float]:
        times = [first] if (first := min(self._next_at)) < math.inf else []
        times += [driver.next_at for driver in self._departing]
        if (at := self._search_at) < math.inf:
            times.append(at)
        if self._gives_at < math.inf:
            times.append(self._gives_at)
        if self._search is not None and (at := self._search.late_at) < math.inf:
            times.append(at)
        if not self._callers and self._lingers:
            times.append(self._lingers_until)
        elif not self._callers and self._hears:
            times.append(self._hears_until)
        return times

    def _on_look(self, now: float) -> None:
        wanted = self._wants
        for driver in self.drivers:
            driver.on_time(now, wanted=wanted)
        if self._search is not None:
            self._search.on_time(now)


class MessageInbox(CreditInbox[ServiceBusReceivedMessage]):
    """The messages of one receiver."""

    @property
    def source(self) -> str:
        """The side that the messages are on."""
        return self.side

    def opened(self, driver: CreditDriver, handed: Sequence[HandedGift[Delivery]]) -> list[ServiceBusReceivedMessage]:
        """Return the messages of gifts. Give those back whose lock may have ended."""
        messages: list[ServiceBusReceivedMessage] = []
        link, clock = driver.partition_client, self._clock
        for gift in handed:
            lease = None
            if self.mode is ServiceBusReceiveMode.PEEK_LOCK:
                token, ends = lease_token(gift.prefix, gift.serial), gift.ends
                if ends is None:
                    link.give_back_named(token, [each.name for each in gift.messages])
                    continue
                until_utc = clock.utc() + ends - clock.now()
                lease = MessageLease(token, ends, until_utc, gift.fence, partition=link.number)
            reception = Reception(link.base, self.mode, link.entity, rider=driver)
            messages += [delivered(each, reception, lease) for each in gift.messages]
        return messages

    def _lease_of(self, item: ServiceBusReceivedMessage) -> MessageLease | None:
        return hold_of(item).lease

    def _release(self, items: Sequence[ServiceBusReceivedMessage]) -> None:
        for hold in map(hold_of, items):
            _ = self.entity.partition_client_of(hold).give_back(hold)
