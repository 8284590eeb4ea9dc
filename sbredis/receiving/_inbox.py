"""The inbox of a receiver: it fetches what callers ask for, and serves the callers in their order.

The inbox has no task of its own: only its callers wait. Every event (a new caller, an answer, a push, a timer) leads
to a call of :meth:`Inbox.pump`, which makes the calls that are needed now; a push that brings all that is wanted needs
none. Credit is granted anew when half of it is used up, so callers that come one after the other make few calls.

If no caller waits any more when a message comes, the inbox keeps the message, or releases it without counting a
delivery if there is no room. If an answer is late, the inbox looks at all other partitions, and uses the answer when it
comes. A caller whose time is over does not wait for a late answer if another partition has answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from sbredis.client import OTHER_LOOP, may_recover
from sbredis.engine import MAXIMUM_CREDIT, lease_place
from sbredis.exceptions import ServiceBusConnectionError, ServiceBusError
from sbredis.model import MessageLease, ServiceBusReceiveMode
from sbredis.receiving._callers import ApplicationCredit, Callers, ReceiveCall, closed_error
from sbredis.receiving._credit import CreditState
from sbredis.receiving._credit_driver import CLOSING, CreditDriver
from sbredis.receiving._fetching import Buffer, InboxOptions, InboxState, Lingering, Stock, keep_for
from sbredis.receiving._seats import Seats

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.engine import Delivery
    from sbredis.receiving._credit import HandedGift

__all__ = ["Inbox"]

_log = logging.getLogger("sbredis.client")
_CHECKING = 1.0
"""The seconds between checks whether there is still a connection over which a partition can wake waiting callers."""
_PASSING_OVER = 2
"""After this many times of a late answer, a call for what is there does without the answers that it lacks. Each of them
may be late only in its turn: the search, the partitions that it has found, and those that then get their seats.
"""
_HURRYING = 0.1
"""The seconds between checks for calls that are late for a caller whose time is over."""

Item = TypeVar("Item")


class Inbox(ABC, Generic[Item]):
    """What one receiver gets: messages of one side of an entity, messages of a session, or sessions."""

    __slots__ = (
        "_application",
        "_clock",
        "_emptied",
        "_ended_moving",
        "_id",
        "_loop",
        "_numbers",
        "_pumping",
        "_rests",
        "_seats",
        "_state",
        "_terms",
        "_timer",
        "_timer_at",
        "_timings",
        "buffer",
        "callers",
        "comes_back",
        "drivers",
        "entity",
        "identity",
        "lingering",
        "mode",
        "refills_at",
        "side",
        "stock",
        "taking",
    )

    is_one_of_many = True
    """Whether other receivers may want the same."""
    first = 0
    """The number of messages that come with each session, if the inbox gets sessions."""

    def __init__(
        self, entity: Entity, identity: str, options: InboxOptions, lease_of: Callable[[Item], MessageLease | None]
    ) -> None:
        """``lease_of`` returns the lock of a message; ``None`` if it was deleted when it was received."""
        self.entity, self.identity = entity, identity
        self.side = options.side
        self.mode, self.taking = options.mode, options.taking
        self.taking.inbox = self
        self._loop = asyncio.get_running_loop()
        self._clock, self._timings = entity.connection.clock, entity.connection.timings
        self.buffer = Buffer(lease_of)
        """The messages that were fetched ahead."""
        lock = entity.record.settings.lock_duration / 1000
        self.stock = Stock(options.prefetch, options.adaptive, lock, self._loop.time())
        """Decides how many messages are fetched ahead."""
        self.callers: Callers[Item] = Callers()
        self._emptied: asyncio.Event | None = None
        """Set when the last caller leaves, if anybody waits for that."""
        self._application = ApplicationCredit()
        self.comes_back = False
        """Whether the last caller iterates, so that it comes back when it has settled its message."""
        self._state = InboxState.QUIET
        self._pumping = False
        """Whether calls will be made in the next turn of the event loop."""
        self._rests = False
        """Whether the receiver only waits, and is woken if a partition cannot be reached."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When the timer fires. The handle of uvloop does not always tell."""
        self.refills_at: int | None = None
        """The number of kept messages at which the next decision is needed; ``None`` if that was not found out since
        the last event or call.
        """
        self._numbers, self._id = entity.numbers, entity.record.id
        self._begin()
        self._ended_moving = self._clock.when_moved(self._clock_moved)
        entity.watchers.add(self)

    def _begin(self) -> None:
        """Begin at the partitions that the entity has now."""
        self._sit(Seats(self, self._partitions))
        self.lingering = Lingering()
        """Decides what to do while nothing is wanted."""
        self._terms = self.terms
        self._application.end_drain()

    def _sit(self, seats: Seats) -> None:
        self._seats, self.drivers = seats, seats.drivers
        self.refills_at = None

    # -- what the kinds of inboxes do differently ----------------------------------------------------------------------

    @property
    @abstractmethod
    def source(self) -> str:
        """What the receiver wants from partitions: messages of a side or of a session, or sessions."""

    @property
    def _partitions(self) -> Sequence[int]:
        """The numbers of the partitions that have something for the receiver."""
        return self._numbers

    def new_driver(self, number: int, name: str) -> CreditDriver:
        """Return a driver for a partition, in which the receiver has this name."""
        locks = self.mode is ServiceBusReceiveMode.PEEK_LOCK
        return CreditDriver(self, self.entity.partition_client(number), name, source=self.source, locks=locks)

    @abstractmethod
    def opened(self, driver: CreditDriver, handed: Sequence[HandedGift[Delivery]]) -> list[Item]:
        """Return what gifts have brought. Give back what may not be locked any more."""

    @abstractmethod
    def _release(self, items: Sequence[Item]) -> None:
        """Release messages in the background, without an increase of their delivery counts."""

    @property
    def terms(self) -> tuple[bool, int, bool]:
        """Whether suspects are wanted, how many messages with each session, and whether the receiver *yields*: whether
        it lets go of an empty session if others wait.
        """
        return self.taking.suspects, self.first, self.taking.yields

    def refused(self, said: str) -> bool:  # noqa: ARG002 -- most refusals are errors
        """Return whether a refusal is what the receiver wanted."""
        return False

    def others_wait(self) -> None:
        """Note that the receiver's session is empty, and that others wait."""

    def held(self) -> None:
        """Note that the partition has answered a grant. If the source is a session, the receiver holds it."""

    def call_begins(self, partition: int, share: int) -> tuple[tuple[str, int] | None, int, bool]:
        """Note that a call is made now to a partition that may give a ``share``. Return what its grant says.

        This is the gift of the first message that no caller has got yet, by its prefix and its serial; the hands; and
        whether the call lets go of the receiver's session, unless it has messages.
        """
        token = self.buffer.first_token(partition) if self.buffer else None
        hands = self.taking.hands
        if hands is None:  # the next grant comes at the latest when the stock is small enough to be filled again
            hands = min(MAXIMUM_CREDIT, max(1, share + len(self.buffer) - max(0, self.stock.refill_at)))
        return None if token is None else lease_place(token), hands, False

    @property
    def _capacity(self) -> int:
        """The number of messages that may be kept for later callers."""
        return self.stock.target + self._application.kept

    def _kept_for(self, ends: float) -> float:
        """Return for how many more seconds to keep a message whose lock ends at ``ends``."""
        return keep_for(ends - self._clock.now(), self.stock.lock, in_session=False)

    # -- what is wanted ------------------------------------------------------------------------------------------------

    @property
    def wants(self) -> bool:
        """Whether callers wait, the application has given credit, or the stock has room."""
        return bool(self.callers) or self._application.wanted > 0 or self.stock.wants_more(len(self.buffer))

    @property
    def only_now(self) -> bool:
        """Whether only messages that are there now are wanted."""
        if self._application.wanted or not self.callers.only_want_what_is_there:
            return False
        return not self.stock.wants_more(len(self.buffer))

    @property
    def missing(self) -> int:
        """The number of messages that are wanted, with those that partitions may still give."""
        stocked = self.stock.target if self._stocks else 0
        return max(self._application.wanted, self.callers.demand + stocked - len(self.buffer))

    @property
    def _stocks(self) -> bool:
        """Whether messages may be fetched ahead now."""
        return self.stock.most > 0 and not self.stock.resting

    def _linger(self) -> None:
        """Let credit stay for a moment, although there is no caller."""
        self.entity.connection.later.at(self.lingering.begin(self._loop.time()), self._look_after_calls)

    @property
    def has_suspects(self) -> bool:
        """Whether a partition has suspects that the application does not take, as far as is known."""
        return any([driver.credit.suspects_wait for driver in self.drivers])  # noqa: C419 -- faster

    # -- for callers ---------------------------------------------------------------------------------------------------

    async def take(
        self,
        wanted: int,
        seconds: float | None,
        *,
        gather: bool = True,
        comes_back: bool = False,
        latest: float = math.inf,
    ) -> list[Item]:
        """Return up to ``wanted`` messages as soon as there are any, or an empty list when ``seconds`` have passed.

        With 0 seconds, ask each partition once, and return the messages that are there now. Without ``gather``, do not
        wait for more messages after the first ones. If the caller is cancelled when messages have just arrived for it,
        keep them for other callers or release them. A caller that iterates ``comes_back`` when it has settled its
        message. After the time ``latest``, do not wait for answers either.
        """
        self.check_loop()
        self.comes_back = comes_back
        came = self._loop.time()
        deadline = None if seconds is None else came + seconds
        turns = self.entity.connection.turns
        if turns.crowded and not await self.callers.wait_for_turn(turns.take(), self._caller_left):
            return []
        while self._state is not InboxState.CLOSED:
            got: list[Item] = []
            if self.buffer:
                got = self.buffer.take(wanted, self._clock.now())
                self.stock.took(len(got))
            if got and (len(got) == wanted or not gather):
                self._refill()
            else:
                kept = len(got)
                caller = ReceiveCall(wanted - kept, gather, got)
                self._caller_came(caller, at_once=seconds == 0)
                try:
                    if seconds == 0:
                        await self._wait_for_all(caller, latest)
                    elif kept or (await self.callers.wait(caller, deadline) and caller.wants):
                        longest = min(self._timings.gathering_all, self.entity.record.settings.lock_duration / 4000)
                        await self.callers.gather(caller, deadline, self._timings.gathering, longest)
                    if seconds != 0 and caller.wants and not caller.got:
                        await self._wait_for_answers(caller, came, latest)
                except BaseException:
                    self._caller_left(caller)
                    self.take_back(caller.got, first=True)
                    raise
                self._caller_left(caller)
                got = caller.got
                if caller.error is not None or not got:
                    self._check_outcome(caller)
                self.stock.took(len(got) - kept)
            live, ended = self.buffer.split(got, self._clock.now())
            if not ended:
                return got
            self._release(ended)  # in the partition these locks may hold a little longer
            if live:
                return [*live]
        raise closed_error()

    def check_loop(self) -> None:
        """Raise if the caller is in another event loop, for example in that of a process that was forked."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(OTHER_LOOP)

    def has_ended(self, item: Item, /) -> bool:
        """Return whether the lock of an item has ended."""
        return bool(self.buffer.split((item,), self._clock.now())[1])

    def take_kept(self, wanted: int) -> list[Item]:
        """Return up to ``wanted`` messages from the buffer whose locks hold. Do not wait."""
        self.check_loop()
        messages = self.buffer.take(wanted, self._clock.now())
        self.stock.took(len(messages))
        self._refill()
        return messages

    def _refill(self) -> None:
        if self._is_used_up:
            self.pump()
            if self._is_used_up:  # no partition is to get more credit before an event, or the next caller
                self.refills_at = -1

    @property
    def _is_used_up(self) -> bool:
        """Whether the stock is to be filled again."""
        kept, refill_at = len(self.buffer), self.stock.refill_at
        if kept > refill_at:
            return False
        if self.refills_at is None:
            self.refills_at = refill_at - sum(self._seats.standing(only_now=False).outstanding)
        return kept <= self.refills_at

    def _caller_came(self, caller: ReceiveCall[Item], *, at_once: bool) -> None:
        if at_once:
            self._seats.ask_now(caller)
        self.callers.append(caller)
        self.stock.resting = False
        for driver in self.drivers:
            if driver.credit.state is CreditState.ENDED:  # the caller has not seen an earlier refusal
                driver.look_again()
        if not self._pumping:
            if self.entity.connection.turns.takes():
                self.pump()
            else:  # very many receivers want something
                self.pump_soon()

    def _caller_left(self, caller: ReceiveCall[Item]) -> None:
        self.callers.remove(caller)
        if not self.callers:
            if self._rests:
                self._rests = False
                self.entity.connection.resting.leave(self.entity, self._look_after_calls)
            if self._emptied is not None:
                self._emptied.set()
            if self._state is not InboxState.CLOSED:
                self._linger()

    def _check_outcome(self, caller: ReceiveCall[Item]) -> None:
        """Raise the error of a call that has got no messages, if it has one; otherwise log it."""
        if caller.error is not None:
            if not caller.got:
                raise caller.error
            _log.warning("a receive ended early because of an error: %s", caller.error)
        elif not caller.ended and self._seats.are_cut_off:
            raise self._seats.unreachable()

    async def _wait_for_all(self, caller: ReceiveCall[Item], latest: float) -> None:
        now, timings = self._loop.time(), self._timings
        enough_at, until = now + _PASSING_OVER * timings.late, min(latest, now + timings.answering)
        await self.callers.wait_for_all(caller, enough_at, timings.late, until)

    async def _wait_for_answers(self, caller: ReceiveCall[Item], came: float, latest: float) -> None:
        """Wait for the answers to the calls under way, because they may still bring messages.

        If one partition has answered, wait only for calls that are not late, and these are late sooner than usual. If
        nothing was asked for a caller that ``came`` a moment ago, ask once.
        """
        if self._pumping or not self._seats.were_asked(came):
            self._seats.ask_now(caller)
            self.pump_soon()
            await self._wait_for_all(caller, latest)
            return
        self._seats.await_answers(caller)
        until = min(latest, self._loop.time() + self._timings.answering)
        while caller.wants and (any(source.may_answer for source in caller.unanswered or ()) or self._pumping):
            for source in caller.unanswered or ():
                source.hurry()
            self._look_after_calls()
            now = self._loop.time()
            if not caller.unanswered or now >= until:
                return
            await self.callers.wait(caller, min(until, now + _HURRYING))

    def end_waits(self) -> None:
        """End the waiting calls with what they have."""
        self.callers.end()

    def resize(self, most: int) -> None:
        """Fetch up to ``most`` messages ahead from now on. Release the kept messages that are too many."""
        self.stock.resize(most)
        if self.mode is ServiceBusReceiveMode.PEEK_LOCK:  # messages that were deleted in the queue wait for callers
            self.give_back(self.buffer.cut(self._capacity))
        self.pump()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Make the calls that are needed now."""
        if self._state is not InboxState.CLOSED:
            self.refills_at = None
            self._make_calls()
            self._set_timer()

    def pump_soon(self) -> None:
        """Make the calls that are needed in the next turn of the event loop."""
        if not self._pumping:
            self._pumping = True
            self.entity.connection.turns.soon(self._pump_now)

    def _pump_now(self) -> None:
        self._pumping = False
        self.pump()

    def _make_calls(self) -> None:
        seats = self._seats
        if seats.search is not None:
            seats.search.look()
        only_now = self._set_demands()
        wants = self._state is InboxState.WANTING
        if not wants and self._state is not InboxState.LINGERING and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            self.give_back(self.buffer.cut(self._capacity))
        for driver in self.drivers:
            if driver.touched:
                driver.look(listens=wants and not only_now)
        if self._application.drained is not None:
            self._application.look(self._clock.now())

    def want_for_ride(self, source: CreditDriver, settled: int) -> None:  # noqa: ARG002 -- all partitions are looked at
        """Set what to want from a partition to which a call goes now. It settles this number of messages.

        A caller that iterates comes back for the next message when it has settled this one.
        """
        if self._state is InboxState.CLOSED:
            return
        returning = int(self.comes_back and settled > 0 and not self.callers and not self.buffer)
        if returning:
            self._linger()
        self._set_demands(rides=True, returning=returning)

    def ride_ended(self) -> None:
        """Let credit stay for a moment after a call that carried a grant: only now may its caller come back."""
        if self.comes_back and not self.callers and self._state is not InboxState.CLOSED:
            self._linger()

    def _set_demands(self, *, rides: bool = False, returning: int = 0) -> bool:
        """Set what each driver wants from its partition. Return whether only messages that are there are wanted.

        ``returning`` callers are not there yet. A grant that ``rides`` costs little.
        """
        stock, seats, terms = self.stock, self._seats, self.terms
        if terms != self._terms:  # something else is wanted everywhere
            self._terms = terms
            seats.touch()
        stock.lock = self.entity.record.settings.lock_duration / 1000
        now, only_now = self._loop.time(), False
        if self.callers or returning or self._application.wanted or stock.most:
            only_now = self.only_now
            standing = seats.standing(only_now=only_now)
            coming = sum(standing.outstanding)
            demand, kept, stocks = self.callers.demand + returning, len(self.buffer), self._stocks
            exactly = only_now or standing.hungry
            wanted = max(
                self._application.wanted,
                stock.wanted(kept, coming, demand, now, stocks=stocks, exactly=exactly, rides=rides),
            )
            if wanted:
                full = max(wanted, demand + (stock.target if stocks else 0) - kept)
                callers, replies_only = max(0, demand - kept), self.drivers[0].replies_only
                self._state = InboxState.WANTING
                for place, wish in seats.places.changes(
                    wanted, full, callers, standing, terms, now=only_now, rides=rides, replies_only=replies_only
                ):
                    driver = self.drivers[place]
                    driver.touched = True
                    driver.credit.want(wish)
                return only_now
        before, self._state = self._state, self.lingering.state
        seats.want_nothing(self._state, changed=self._state is not before)
        return only_now

    # -- the credit of the application ---------------------------------------------------------------------------------

    def set_credit(self, count: int) -> None:
        """Let partitions give this many messages, whether or not callers wait."""
        self._application.wanted = count
        if not count and not self.callers:
            self.lingering.end()
        self.pump()

    async def drain(self) -> int:
        """Use the credit of the application for what is ready, withdraw the rest, and return how many are kept.

        All partitions have answered then. Raise an error if a partition does not answer.
        """
        application = self._application
        wanted, application.wanted = application.wanted, 0
        if wanted:
            there = await self.take(len(self.buffer) + wanted, 0)
            application.kept = len(there)
            self.take_back(there, first=True)
        self.set_credit(0)
        drained = application.drain(self._seats.all_drivers, self._clock.now())
        done, _ = await asyncio.wait((drained,), timeout=self._timings.answering)
        if not done:
            raise self._seats.unreachable()
        if self._state is InboxState.CLOSED:
            raise closed_error()
        return len(self.buffer)

    async def let_go(self) -> None:
        """End the waiting calls, give back what was fetched ahead, and return when no more can come."""
        self.end_waits()
        if self.callers:
            self._emptied = self._emptied or asyncio.Event()
            self._emptied.clear()
            await self._emptied.wait()
        await self.drain()
        self.give_back(self.buffer.empty())
        _ = await self.entity.given_back()

    # -- events --------------------------------------------------------------------------------------------------------

    def received(self, messages: list[Item], *, pushed: bool = False) -> None:
        """Distribute the messages that a reply has brought, or that were ``pushed``.

        The callers of these messages run before the next call is made. If they have got all that is wanted, the next
        caller makes it, or the one that leaves sets the time for it. A reply also tells how much the stock still gets.
        """
        left: Sequence[Item] = ()
        application = self._application
        self.refills_at = None
        if messages:
            if application.wanted or application.kept:
                application.came(len(messages), len(self.buffer))
            left = self.take_back(messages)
            if left and self.buffer and self._stocks:
                self._linger()  # the application takes them before long, and then there is room for more
        if messages and not left and (pushed or not self.stock.most):
            drains, searches = application.drained is not None, self._seats.search is not None
            if not (application.wanted or drains or searches or self.callers.demand or self._is_used_up):
                return
        self.pump_soon()

    def has_more(self, driver: CreditDriver) -> None:
        """Note that a partition has more messages than it has given."""
        search = self._seats.search
        if search is not None and not self.missing:
            search.has_more(driver)

    def failed(self, driver: CreditDriver, error: ServiceBusError, *, of_all: bool = False) -> None:
        """Record that a call failed. If no other one can succeed, tell its callers, or those ``of_all`` receivers."""
        self.refills_at = None
        self.callers.answered(driver)
        if may_recover(error):
            unreachable = isinstance(error, ServiceBusConnectionError)  # the transport logs once that it is
            _log.log(logging.DEBUG if unreachable else logging.INFO, "%s: %s", driver.partition_client, error)
        else:
            waits = self.is_one_of_many and any(caller.error is None for caller in self.callers)
            if not (of_all and waits and self.entity.refused(self.source, error)):
                self.callers.fail(error)
        self._set_timer()

    def telling(self, error: ServiceBusError) -> Callable[[], None]:
        """Return a function that gives an error to the callers that wait now."""
        return partial(Callers(self.callers).fail, error)

    def entity_changed(self) -> None:
        """Start again if the queue is in other partitions now, for example after it was deleted and created again.

        What was fetched from a queue that is gone has no lock any more.
        """
        if self._id != self.entity.record.id:
            self._id = self.entity.record.id
            if self.mode is ServiceBusReceiveMode.PEEK_LOCK:
                self.buffer.clear()
        if self._numbers != self.entity.numbers:
            self._seats.leave()
            self._numbers = self.entity.numbers
            self._begin()
            for caller in self.callers:
                if caller.unanswered is not None:
                    self._seats.ask_now(caller)
        self._seats.begin_again()
        self.entity.connection.turns.soon(self.pump)  # later, so that the entity's other watchers run first

    def take_back(self, messages: list[Item], *, first: bool = False) -> Sequence[Item]:
        """Give messages to waiting callers. Keep the rest for later callers, or release them. Return this rest.

        With ``first``, a caller had these messages already, so they are older than all that the receiver still has.
        """
        closed = self._state is InboxState.CLOSED
        left = messages if closed else self.callers.serve(messages, first=first)
        if not left:
            return left
        if self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            if first:
                left = [*left, *self.buffer.empty()]  # without room for all, the newest messages are released
            space = 0 if closed else self._space()
            self.buffer.put(left[:space])
            self.give_back(left[space:])
        elif closed:
            _log.warning(
                "%s: %d messages are lost: they were received and deleted, but no caller asked for them before the "
                "receiver was closed",
                self.entity.name,
                len(left),
            )
        else:
            self.buffer.put(left, first=first)  # these messages are deleted in the queue, so they cannot be released
        return left

    def _space(self) -> int:
        """Return for how many more messages there is room in the buffer."""
        if not self.callers and self.lingering.state is InboxState.LINGERING:
            return MAXIMUM_CREDIT  # most callers come back at once for what comes by credit that was left
        return max(0, self._capacity - len(self.buffer))

    def give_back(self, messages: Sequence[Item]) -> None:
        """Release messages that no caller has received, without an increase of their delivery counts."""
        if messages:
            self._release(self.buffer.split(messages, self._clock.now())[0])

    # -- time ----------------------------------------------------------------------------------------------------------

    def _set_timer(self, *, checks: bool = True) -> None:
        """Set the timer for the next time to look at a partition, or to release kept messages.

        While callers wait, look soon whether the partitions can be reached, unless the receiver rests.
        """
        when = self._next_look()
        if self.buffer and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            when = min(when, self._loop.time() + max(0.0, self._kept_for(self.buffer.first_end)))
        if checks and self.callers:
            when = min(when, self._loop.time() + _CHECKING)
        timer = self._timer
        if timer is not None:
            if self._timer_at <= when < math.inf:
                return  # it is set again when it fires
            timer.cancel()
        self._timer = None if when == math.inf else self._loop.call_at(when, self._on_time)
        self._timer_at = when

    def _next_look(self) -> float:
        """Return the time at which to look at partitions, or to withdraw credit."""
        at = self._seats.next_at
        return at if self.callers else min(at, self.lingering.next_at)

    def _on_time(self) -> None:
        self._timer = None
        if self._state is InboxState.CLOSED:
            return
        if self._is_calm:
            self._set_timer(checks=False)
            self._rests = True
            self.entity.connection.resting.rest(self.entity, self._look_after_calls)
        else:  # the time may have come for very many receivers at once
            self.entity.connection.turns.soon(self._look_after_calls)

    @property
    def _is_calm(self) -> bool:
        """Whether callers only wait: nothing is due, nothing is kept, and all partitions can be reached.

        Without callers there may be credit to withdraw.
        """
        if not self.callers or self.buffer or self.callers.awaited:
            return False
        return self._next_look() > self._loop.time() and self._seats.are_in_reach

    def _look_after_calls(self) -> None:
        """Make the calls whose time has come, and pass over answers that are late from now on."""
        if self._state is not InboxState.CLOSED:
            now = self._loop.time()
            self.lingering.pass_time(now)
            self._seats.on_time(now)
            self.callers.pass_over_late()
            self._give_back_late()
            self.pump()

    def _clock_moved(self) -> None:
        """Ask the partitions again, or withdraw the credit if nothing is wanted from them."""
        if self.wants:
            self._seats.look_again()
        else:
            self.lingering.end()
        self._seats.touch()
        self._give_back_late()
        self.pump()

    def _give_back_late(self) -> None:
        """Release messages that were kept for too long."""
        if not self.buffer or self.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            return
        now = self._clock.now()
        late = self.buffer.take_until(now - self._kept_for(now) + 0.001)  # these locks end too soon
        if late:
            self.stock.gave_back()
            self.give_back(late)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Release the kept messages, wait for the calls under way, and release the messages that these calls bring.

        After some seconds this goes on in the background. A drain that waits for answers fails.
        """
        if self._state is InboxState.CLOSED:
            return
        self._close()
        self.take_back(self.buffer.empty())
        until = self._loop.time() + CLOSING
        await self._seats.aclose(until)
        self._sit(self._seats.parted())
        if not await self.entity.given_back(until - self._loop.time()):
            _log.warning(
                "%s: a receiver was closed, but messages that were given back are not released yet: a partition has "
                "taken no call for %.0f s. They stay locked until it takes one, or until their locks end",
                self.entity.name,
                CLOSING,
            )

    def _close(self) -> None:
        """Stop everything that makes calls, and tell the callers."""
        self._state = InboxState.CLOSED
        self._application.end_drain()
        self._ended_moving()
        self.entity.watchers.discard(self)
        self.entity.connection.resting.leave(self.entity, self._look_after_calls)
        if self._timer is not None:
            self._timer.cancel()
        self.callers.close()

    def leave(self) -> None:
        """Stop receiving at once. What the receiver has returns when its locks end, or with the session."""
        if self._state is not InboxState.CLOSED:
            self._close()
            self._seats.leave()
            self._sit(self._seats.parted())
