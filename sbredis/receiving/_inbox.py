"""The inbox of a receiver: it fetches what callers ask for, and serves the callers in their order.

The inbox has no task of its own: only its callers wait. Every event (a new caller, an answer, a push, a timer) leads
to a call of :meth:`Inbox.pump`, which makes the calls that are needed now. Credit is granted anew when half of it is
used up. So a receiver whose callers come one after the other makes few calls.

If no caller waits any more when a message comes, the inbox keeps the message, or releases it without counting a
delivery if there is no room. If an answer is late, the inbox looks at all other partitions, and uses the answer when it
comes. A caller whose time is over does not wait for a late answer if another partition has answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from sbredis.client import may_recover
from sbredis.engine import MAXIMUM_CREDIT, lease_place
from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusConnectionError, ServiceBusError
from sbredis.model import MessageLease, ServiceBusReceiveMode, Taking
from sbredis.receiving._buffer import Buffer
from sbredis.receiving._callers import Callers, ReceiveCall
from sbredis.receiving._credit_driver import CreditDriver
from sbredis.receiving._fetching import Stock, keep_for
from sbredis.receiving._lingering import InboxState, Lingering
from sbredis.receiving._seats import Demand, Drain, Seats

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.engine import Delivery, SidePrefix
    from sbredis.receiving._credit import HandedGift

__all__ = ["Inbox", "InboxOptions"]

_log = logging.getLogger("sbredis.client")
_CHECKING = 1.0
"""The seconds between checks whether there is still a connection over which a partition can wake waiting callers."""
_HURRYING = 0.1
"""The seconds between checks for calls that are late for a caller whose time is over."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class InboxOptions:
    """What an inbox fetches, and how."""

    side: SidePrefix
    mode: ServiceBusReceiveMode
    prefetch: int
    """The largest number of messages to fetch ahead of the callers."""
    adaptive: bool
    """Whether the number of messages to fetch ahead follows the speed of the callers."""
    taking: Taking = field(default_factory=Taking)
    """How the application takes the messages."""


class Inbox(ABC, Generic[Item]):
    """What one receiver gets: messages of one side of an entity, messages of a session, or sessions."""

    __slots__ = (
        "_by_credit",
        "_clock",
        "_credit",
        "_drain",
        "_emptied",
        "_ended_moving",
        "_loop",
        "_numbers",
        "_places",
        "_pumping",
        "_seats",
        "_state",
        "_still_coming",
        "_suspects",
        "_timer",
        "_timer_at",
        "_timings",
        "_trouble",
        "buffer",
        "callers",
        "comes_back",
        "drivers",
        "entity",
        "identity",
        "lingering",
        "mode",
        "side",
        "stock",
        "taking",
    )

    first = 0
    """The number of messages that come with each session, if the inbox gets sessions."""

    def __init__(self, entity: Entity, identity: str, options: InboxOptions) -> None:
        self.entity, self.identity = entity, identity
        self.side: SidePrefix = options.side
        self.mode, self.taking = options.mode, options.taking
        self.taking.inbox = self
        self._loop = asyncio.get_running_loop()
        self._clock, self._timings = entity.connection.clock, entity.connection.timings
        self.buffer = Buffer(self._lease_of)
        """The messages that were fetched ahead."""
        lock = entity.record.settings.lock_duration / 1000
        self.stock = Stock(options.prefetch, adaptive=options.adaptive, lock=lock, now=self._loop.time())
        """Decides how many messages are fetched ahead."""
        self.callers = Callers[Item]()
        self._emptied: asyncio.Event | None = None
        """Set when the last caller leaves, if anybody waits for that."""
        self._credit = 0
        """The number of messages that the application has given credit for, and that have not come."""
        self._by_credit = 0
        """The number of messages in the buffer that have come by this credit. They stay until they are received."""
        self._drain: Drain | None = None
        self.comes_back = False
        """Whether the last caller iterates, so that it comes back when it has settled its message."""
        self._state = InboxState.QUIET
        self._pumping = False
        """Whether calls will be made in the next turn of the event loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When the timer fires. The handle of uvloop does not always tell."""
        self._trouble: ServiceBusError | None = None
        self._numbers = entity.numbers
        self._begin()
        self._ended_moving = self._clock.when_moved(self._clock_moved)
        entity.watchers.add(self._entity_changed)

    def _begin(self) -> None:
        """Begin at the partitions that the entity has now."""
        self._seats = Seats(self, self._partitions)
        self.drivers = self._seats.drivers
        """The drivers of the partitions that the receiver is at."""
        self._places = self._seats.places
        """What is known of these partitions."""
        self.lingering = Lingering()
        """Decides what to do while nothing is wanted."""
        self._suspects = True
        self._end_drain()

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
    def _lease_of(self, item: Item) -> MessageLease | None:
        """Return the lock of a message; ``None`` if it was deleted when it was received."""

    @abstractmethod
    def _release(self, items: Sequence[Item]) -> None:
        """Release messages in the background, without an increase of their delivery counts."""

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

    def first_kept(self, partition: int) -> tuple[str, int] | None:
        """Return the gift of the first message of a partition that no caller has got yet: its prefix and its serial."""
        token = self.buffer.first_token(partition)
        return None if token is None else lease_place(token)

    def _caller_left(self) -> None:
        """Note that a caller does not wait any more."""
        if not self.callers:
            self._linger()

    @property
    def _capacity(self) -> int:
        """The number of messages that may be kept for later callers."""
        return self.stock.target + self._by_credit

    def _kept_for(self, ends: float) -> float:
        """Return for how many more seconds to keep a message whose lock ends at ``ends``."""
        return keep_for(ends - self._clock.now(), self.stock.lock, in_session=False)

    # -- what is wanted ------------------------------------------------------------------------------------------------

    @property
    def wants(self) -> bool:
        """Whether callers wait, the application has given credit, or the stock has room."""
        return bool(self.callers) or self._credit > 0 or self.stock.wants_more(len(self.buffer))

    @property
    def only_now(self) -> bool:
        """Whether only messages that are there now are wanted."""
        if self._credit or not self.callers.only_want_what_is_there:
            return False
        return not self.stock.wants_more(len(self.buffer))

    @property
    def missing(self) -> int:
        """The number of messages that are wanted, with those that partitions may still give."""
        return max(self._credit, self._room(self.callers.demand))

    def _room(self, demand: int) -> int:
        """Return for how many messages there is room if callers wait for ``demand``."""
        stocked = self.stock.target if self._stocks else 0
        return max(0, demand + stocked - len(self.buffer))

    @property
    def _stocks(self) -> bool:
        """Whether messages may be fetched ahead now."""
        return self.stock.most > 0 and not self.stock.resting

    def _linger(self) -> None:
        """Let credit stay for a moment, although there is no caller."""
        self._still_coming = max(1, self._places.coming)
        self.lingering.begin(self._loop.time())
        if not self._pumping:
            self._set_timer()

    @property
    def has_suspects(self) -> bool:
        """Whether a partition has suspects that the application does not take, as far as is known."""
        return any([driver.credit.suspects_wait for driver in self.drivers])  # noqa: C419 -- faster

    def suspects_wait(self) -> None:
        """Note that a partition has suspects that the application does not take."""
        if not self.taking.suspects:
            self.taking.told()

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
        self.comes_back = comes_back
        deadline = None if seconds is None else self._loop.time() + seconds
        while True:
            got = await self._take(wanted, deadline, gather=gather, at_once=seconds == 0, latest=latest)
            now = self._clock.now()
            if all(lease is None or lease.until > now for lease in {*map(self._lease_of, got)}):
                return got
            # Locks ended during the call. In the partition they may hold a little longer, so release their messages.
            self._release([message for message in got if self.has_ended(message)])
            if live := [message for message in got if not self.has_ended(message)]:
                return live

    def has_ended(self, item: Item, /) -> bool:
        """Return whether the lock of an item has ended."""
        lease = self._lease_of(item)
        return lease is not None and lease.ended(self._clock.now())

    def next_kept(self) -> Item | None:
        """Return the oldest message in the buffer whose lock holds, or ``None``. Do not wait."""
        message = self.buffer.pop(self._clock.now())
        if message is not None:
            self.stock.took(1)
        if len(self.buffer) + self._places.coming <= self.stock.refill_at:
            self.pump()
        return message

    async def _take(
        self, wanted: int, deadline: float | None, *, gather: bool, at_once: bool, latest: float
    ) -> list[Item]:
        kept: list[Item] = []
        if len(self.buffer):
            kept = self.buffer.take(wanted, self._clock.now())
            self.stock.took(len(kept))
            if len(kept) == wanted or (kept and not gather):
                if len(self.buffer) + self._places.coming <= self.stock.refill_at:
                    self.pump()
                return kept
        caller = ReceiveCall[Item](self._loop, wanted - len(kept), gathers=gather)
        caller.got = kept
        if at_once:
            self._seats.ask_now(caller)
        self.callers.append(caller)
        self.stock.resting = False
        before = len(kept)
        try:
            for driver in self.drivers:
                driver.wanted()
            self.pump()
            if at_once:
                await self._wait_for_all(caller, latest)
            else:
                await self._gather(caller, deadline)
                if caller.wants and not caller.got:
                    await self._wait_for_answers(caller, latest)
        except BaseException:
            self._remove(caller)
            self.take_back(caller.got, first=True)
            raise
        self._remove(caller)
        if caller.error is not None:
            if not caller.got:
                raise caller.error
            _log.warning("a receive ended early because of an error: %s", caller.error)
        elif not caller.got and not caller.ended and self._seats.are_cut_off:
            raise self._unreachable()
        self.stock.took(len(caller.got) - before)
        return caller.got

    def _remove(self, caller: ReceiveCall[Item]) -> None:
        self.callers.remove(caller)
        if not self.callers:
            self.entity.connection.resting.leave(self.entity, self._on_turn)
            if self._emptied is not None:
                self._emptied.set()
        self._caller_left()

    async def _gather(self, caller: ReceiveCall[Item], deadline: float | None) -> None:
        """Wait until the deadline for a message, then only briefly for more: the first message is locked already."""
        enough: float | None = None
        while caller.wants:
            until = deadline
            if caller.got:
                now = self._loop.time()
                if enough is None:
                    enough = now + min(self._timings.gathering_all, self.entity.record.settings.lock_duration / 4000)
                    deadline = enough if deadline is None else min(deadline, enough)
                until = min(deadline or enough, now + self._timings.gathering)
            if not await caller.wait(until):
                return

    async def _wait_for_all(self, caller: ReceiveCall[Item], latest: float) -> None:
        """Wait until all partitions have answered, or the caller has all messages that it asked for."""
        until = min(latest, self._loop.time() + self._timings.answering)
        while caller.wants and caller.unanswered:
            if not await caller.wait(until):
                return

    async def _wait_for_answers(self, caller: ReceiveCall[Item], latest: float) -> None:
        """Wait for the answers to the calls under way, because they may still bring messages.

        If one partition has answered, wait only for calls that are not late, and these are late sooner than usual.
        """
        sources = self._seats.sources
        caller.unanswered = {source: source.calls - source.under_way for source in sources if source.may_answer}
        asked = sum(source.calls > 0 for source in sources)
        caller.has_answer = self._seats.is_answered or len(caller.unanswered) < asked
        until = min(latest, self._loop.time() + self._timings.answering)
        while caller.wants and any(source.may_answer for source in caller.unanswered):
            for source in caller.unanswered:
                source.hurry()
            self._look_after_calls()
            now = self._loop.time()
            if not caller.unanswered or now >= until:
                return
            await caller.wait(min(until, now + _HURRYING))

    def _unreachable(self) -> ServiceBusError:
        """Return the error for a receive that got no messages because no partition has answered."""
        if self._trouble:
            return self._trouble.twin()
        late = any(source.late or source.partition_client.connected for source in self._seats.sources)
        peer = self.entity.connection.target
        error: ServiceBusError = (
            OperationTimeoutError(f"{peer} has not answered in time.", outcome=Outcome.UNKNOWN)
            if late  # an answer may still come
            else ServiceBusConnectionError(f"{peer} cannot be reached.", outcome=Outcome.NEVER_SENT)
        )
        error.entity = self.entity.name
        return error

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
        seats, drivers = self._seats, self.drivers
        if seats.search is not None:
            seats.look(seats.search)
        only_now = self._set_demands()
        wants = self._state is InboxState.WANTING
        if not wants and self._state is not InboxState.LINGERING and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            self.give_back(self.buffer.cut(self._capacity))
        due, seats.due = seats.due, set[int]()
        for place in due:
            driver = drivers[place]
            if wants and not only_now:
                driver.listen_if_heard()
            driver.call_if_needed()
            if not driver.touched:  # a grant may wait
                self._places.next_at[place] = driver.next_at
            if wants and not only_now and driver.is_unheard:
                driver.listen()
        seats.survey()
        if self._drain is not None:
            self._look_for_end_of(self._drain)

    def want_for_ride(self, source: CreditDriver, settled: int) -> None:  # noqa: ARG002 -- all partitions are looked at
        """Set what to want from a partition to which a call goes now. It settles this number of messages.

        A caller that iterates comes back for the next message when it has settled this one.
        """
        if self._state is InboxState.CLOSED:
            return
        returning = int(self.comes_back and settled > 0 and not self.callers and not len(self.buffer))
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
        if self.taking.suspects != self._suspects:  # something else is wanted everywhere
            self._suspects = self.taking.suspects
            self._seats.touch()
        self._seats.survey()
        stock = self.stock
        stock.lock = self.entity.record.settings.lock_duration / 1000
        if not (self.callers or returning or self._credit or stock.most):
            self._want_nothing()
            return False
        only_now, places = self.only_now, self._places
        able, asked = self._seats.askable(only_now=only_now)
        demand, kept = self.callers.demand + returning, len(self.buffer)
        exactly = only_now or not all(map(places.outstanding.__getitem__, places.news & able))
        wanted = max(
            self._credit,
            stock.wanted(
                kept, places.coming, demand, self._loop.time(), stocks=self._stocks, exactly=exactly, rides=rides
            ),
        )
        if wanted:
            full = max(wanted, self._room(demand))
            shares, pushing = places.divide(wanted, full, able, now=only_now, replies_only=self.drivers[0].replies_only)
            self._state = InboxState.WANTING
            callers = max(0, demand - kept)
            for place in asked:
                share, outstanding = shares[place], places.outstanding[place]
                waiting = min(callers, share)
                callers -= waiting
                if waiting and share == outstanding:
                    left = self.drivers[place].credit.outstanding_for_callers
                    if 0 < left < waiting and not (rides and 2 * left <= waiting):
                        waiting = left  # the partition need not know of more callers before it gets more credit
                announced = not share or place not in pushing
                self._seats.want(place, Demand(waiting, share - waiting, only_now, announced, self._suspects))
        else:
            self._want_nothing()
        return only_now

    def _want_nothing(self) -> None:
        before, self._state = self._state, self.lingering.state(self._loop.time())
        lingers = self._state is InboxState.LINGERING
        changed = not lingers and self._state is not before  # otherwise, nothing else is wanted where nothing happened
        self._seats.want_nothing(lingers=lingers, hears=self._state is InboxState.HEARING, everywhere=changed)

    def hands(self, share: int) -> int:
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
        if not count and not self.callers:
            self.lingering.end()
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
            drain = self._drain = Drain(self._loop.create_future())
        drain.begin(self._seats.all_drivers)
        self._look_for_end_of(drain)
        done, _ = await asyncio.wait((drain.ended,), timeout=self._timings.answering)
        if not done:
            raise self._unreachable()
        if self._state is InboxState.CLOSED:
            raise _closed_error()
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
        await self._given_back()

    def _look_for_end_of(self, drain: Drain) -> None:
        if drain.is_over(self._clock.now()):
            self._end_drain()

    def _end_drain(self) -> None:
        drain, self._drain = self._drain, None
        if drain is not None:
            drain.ended.set_result(None)

    # -- events --------------------------------------------------------------------------------------------------------

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
        self.pump_soon()

    def failed(self, driver: CreditDriver, error: ServiceBusError) -> None:
        """Record that a call failed. If another attempt cannot succeed, give the error to all callers."""
        self._trouble = error
        self.callers.answered(driver)
        if may_recover(error):
            _log.info("%s: %s", driver.partition_client, error)
        else:
            self.callers.fail(error)
        self._set_timer()

    def _entity_changed(self) -> None:
        """Start again if the queue is in other partitions now, for example after it was deleted and created again."""
        if self._numbers != self.entity.numbers:
            self._seats.leave()
            self._numbers = self.entity.numbers
            self._begin()
            for caller in self.callers:
                if caller.unanswered is not None:
                    self._seats.ask_now(caller)
        self._seats.look_again()
        self.entity.connection.turns.soon(self.pump)  # later, so that the entity's other watchers run first

    def take_back(self, messages: list[Item], *, first: bool = False) -> None:
        """Give messages to waiting callers. Keep the rest for later callers, or release them.

        With ``first``, a caller had these messages already, so they are older than all messages in the buffer.
        """
        closed = self._state is InboxState.CLOSED
        left = messages if closed else self.callers.serve(messages)
        if not left:
            return
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

    def _space(self) -> int:
        """Return for how many more messages there is room in the buffer."""
        room = max(0, self._capacity - len(self.buffer))
        lingers = not self.callers and self.lingering.state(self._loop.time()) is InboxState.LINGERING
        return max(room, self._still_coming) if lingers else room

    def give_back(self, messages: Sequence[Item]) -> None:
        """Release messages that no caller has received, without an increase of their delivery counts."""
        if messages:
            self._release([message for message in messages if not self.has_ended(message)])

    # -- time ----------------------------------------------------------------------------------------------------------

    def _set_timer(self, *, checks: bool = True) -> None:
        """Set the timer for the next time to look at a partition, or to release kept messages.

        While callers wait, look soon whether the partitions can be reached, unless the receiver rests.
        """
        when = self._next_look()
        if len(self.buffer) and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            when = min(when, self._loop.time() + max(0.0, self._kept_for(self.buffer.first_end)))
        if checks and self.callers:
            when = min(when, self._loop.time() + _CHECKING)
        timer = self._timer
        if timer is not None:
            if self._timer_at <= when < math.inf:
                return  # the present timer fires early enough, and is set again after that
            timer.cancel()
        self._timer_at = when
        self._timer = None if when == math.inf else self._loop.call_at(when, self._on_time)

    def _next_look(self) -> float:
        """Return the time at which to look at partitions, or to withdraw credit."""
        at = self._seats.next_at
        return at if self.callers else min(at, self.lingering.next_at(self._loop.time()))

    def _on_time(self) -> None:
        self._timer = None
        if self._state is InboxState.CLOSED:
            return
        if self._is_calm:
            self._set_timer(checks=False)
            self.entity.connection.resting.rest(self.entity, self._on_turn)
        else:  # the time may have come for very many receivers at once
            self.entity.connection.turns.soon(self._on_turn)

    def _on_turn(self) -> None:
        if self._state is not InboxState.CLOSED:
            self._look_after_calls()

    @property
    def _is_calm(self) -> bool:
        """Whether callers only wait: nothing is due, nothing is kept, and all partitions can be reached.

        Without callers there may be credit to withdraw.
        """
        if not self.callers or len(self.buffer) or self.callers.awaited:
            return False
        return self._next_look() > self._loop.time() and not any(
            source.troubled or not source.partition_client.connected for source in self._seats.sources
        )

    def _look_after_calls(self) -> None:
        """Make the calls whose time has come, and pass over answers that are late from now on."""
        self._on_look(self._loop.time())
        self.callers.pass_over_late()
        self._give_back_late()
        self.pump()

    def _on_look(self, now: float) -> None:
        """Note that the time has come."""
        self._seats.on_time(now)

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
        if not len(self.buffer) or self.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            return
        now = self._clock.now()
        late = self.buffer.take_until(now - self._kept_for(now) + 0.001)  # these locks end too soon
        if late:
            self.stock.gave_back()
            self.give_back(late)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Release the kept messages, wait for the calls under way, and release the messages that these calls bring.

        A drain that waits for answers fails.
        """
        if self._state is InboxState.CLOSED:
            return
        self._close()
        self.take_back(self.buffer.empty())
        await self.entity.connection.turns.take()  # very many receivers may be closed at once
        await self._seats.aclose()
        await self._given_back()

    async def _given_back(self) -> None:
        """Wait until what was given back is in the partitions."""
        for partition_client in {self.entity.partition_client(number) for number in self.entity.numbers}:
            await partition_client.given_back()

    def _close(self) -> None:
        """Stop everything that makes calls, and tell the callers."""
        self._state = InboxState.CLOSED
        self._end_drain()
        self._ended_moving()
        self.entity.watchers.discard(self._entity_changed)
        self.entity.connection.resting.leave(self.entity, self._on_turn)
        if self._timer is not None:
            self._timer.cancel()
        self.callers.fail(_closed_error())

    def leave(self) -> None:
        """Stop receiving at once. What the receiver has returns when its locks end, or with the session."""
        if self._state is not InboxState.CLOSED:
            self._close()
            self._seats.leave()


def _closed_error() -> ServiceBusError:
    """Return the error for a call that waits at a receiver when it is closed."""
    return ServiceBusError("The receiver was closed.", outcome=Outcome.NEVER_SENT, is_transient=False)
