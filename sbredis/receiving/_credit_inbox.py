"""The inbox of a receiver without a session: it grants credit to the partitions of an entity."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from sbredis.engine import MAXIMUM_CALL_BYTES
from sbredis.model import ServiceBusReceiveMode
from sbredis.receiving._credit import CreditDemand
from sbredis.receiving._credit_driver import CreditDriver
from sbredis.receiving._credit_places import CreditPlaces
from sbredis.receiving._inbox import Inbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.model import ServiceBusReceivedMessage

__all__ = ["CreditInbox"]

_LINGERING = 0.05
"""The seconds for which credit stays without a caller. Most callers come back soon."""
_HEARING = 5.0
"""The seconds for which partitions without credit send news to a receiver without a caller."""


def _is_used_up(coming: int, wanted: int) -> bool:
    """Return whether at least a quarter of what is wanted is missing."""
    return 4 * coming <= 3 * wanted


class CreditInbox(Inbox[CreditDriver]):
    """The messages of one receiver. :class:`CreditPlaces` divides what it wants between the partitions.

    Credit is granted anew when half of it is used up. So a receiver whose callers come one after the other makes few
    calls.
    """

    def _new_sources(self) -> list[CreditDriver]:
        self._places = CreditPlaces(random.randrange(len(self._numbers)))
        self._lingers_until = self._hears_until = 0.0
        self._fills = False
        """Whether the stock is being filled: from the time when it has become small until it is full."""
        self._pumping = False
        return [CreditDriver(self, self.entity.partition_client(number), self.identity) for number in self._numbers]

    def received(self, messages: list[ServiceBusReceivedMessage]) -> None:
        """Distribute the messages that a reply or a push has brought.

        The callers of these messages run before the next call is made.
        """
        if messages:
            self._trouble = None
            self.take_back(messages)
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._pumping = False
        self.pump()

    def _space(self) -> int:
        """Return for how many more messages there is room in the buffer."""
        room = max(0, self.stock.target - len(self.buffer))
        return room if self._callers or not self._lingers else max(room, self._lingering)

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

    def _make_calls(self) -> None:
        drivers = self._sources
        wanted, only_now = self._set_demands()
        if not wanted and not self._lingers and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            self.give_back(self.buffer.cut(self.stock.target))
        for driver in drivers:
            driver.call_if_needed()
            if wanted and not only_now and driver.is_unheard:
                driver.listen()
        self._coming = sum([driver.credit.outstanding for driver in drivers if driver.able])

    def want_for_ride(self, settled: int) -> None:
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
        only_now = self.only_wants_what_is_there
        outstanding = [driver.credit.outstanding if driver.able else 0 for driver in drivers]
        self._coming = sum(outstanding)
        able = [place for place, driver in enumerate(drivers) if driver.able and not driver.under_way]
        if only_now:  # partitions that have answered are left out
            unanswered = {driver for caller in self._callers for driver in caller.unanswered or ()}
            able = [place for place in able if drivers[place] in unanswered]
        news = [place for place in able if drivers[place].credit.news]
        demand = self.demand + returning
        exactly = only_now or any([not outstanding[place] for place in news])  # noqa: C419 -- faster
        wanted = self._wanted(demand, exactly=exactly, rides=rides)
        if wanted:
            pushes = only_now or (wanted >= len(drivers) and not drivers[0].replies_only)
            asked = sum([outstanding[place] for place, driver in enumerate(drivers) if driver.under_way])
            shares = self._places.shares(max(0, wanted - asked), outstanding, able, news, spreads=pushes)
            self._want(demand, shares, able, only_now=only_now, pushes=pushes, rides=rides)
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
        if stock.most and not stock.resting:
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

    def _want(
        self,
        demand: int,
        shares: Sequence[int],
        able: Sequence[int],
        *,
        only_now: bool,
        pushes: bool,
        rides: bool,
    ) -> None:
        callers = max(0, demand - len(self.buffer))
        for place in able:
            driver, share = self._sources[place], shares[place]
            credit, waiting = driver.credit, min(callers, share)
            callers -= waiting
            left = credit.outstanding_for_callers
            if share == credit.outstanding and 0 < left < waiting and not (rides and 2 * left <= waiting):
                waiting = left  # the partition need not know of more callers before it gets more credit
            credit.want(
                CreditDemand(
                    callers=waiting,
                    stock=share - waiting,
                    room=MAXIMUM_CALL_BYTES,
                    now=only_now,
                    announced=not share or not (pushes or credit.outstanding),
                    hands=self._hands(share),
                    suspects=self.taking.suspects,
                )
            )

    def _want_nothing(self) -> None:
        lingers, hears = self._lingers, self._hears
        for driver in self._sources:
            credit, taking = driver.credit, self.taking
            unchanged = replace(credit.unchanged, hands=self._hands(credit.outstanding), suspects=taking.suspects)
            credit.want(unchanged if lingers else replace(unchanged, stock=0) if hears else CreditDemand())

    @property
    def has_suspects(self) -> bool:
        return any([driver.credit.suspects_wait for driver in self._sources])  # noqa: C419 -- faster

    def _hands(self, share: int) -> int:
        """Return how many messages of a partition may be begun before the next grant, if it still gives ``share``.

        The next grant comes at the latest when the stock is small enough to be filled again.
        """
        if self.taking.hands is not None:
            return self.taking.hands
        return max(1, share + len(self.buffer) - max(0, self.stock.refill_at))

    # -- events --------------------------------------------------------------------------------------------------------

    def _clock_moved(self) -> None:
        """Ask the partitions again, or withdraw the credit if nothing is wanted from them."""
        if self._wants:
            for driver in self._sources:
                driver.look_again()
        else:
            self._lingers_until = self._hears_until = 0.0
        self._give_back_late()
        self.pump()

    def _next_looks(self) -> list[float]:
        wanted = self._wants
        times = [at for driver in self._sources if (at := driver.next_at(wanted=wanted)) is not None]
        if not self._callers and self._lingers:
            times.append(self._lingers_until)
        elif not self._callers and self._hears:
            times.append(self._hears_until)
        return times

    def _on_look(self, now: float) -> None:
        wanted = self._wants
        for driver in self._sources:
            driver.on_time(now, wanted=wanted)
