"""The inbox of a receiver: messages are fetched as callers ask for them, and given to the callers in their order.

Nothing here waits but the callers. Whatever happens (somebody asks, a call is answered, a partition wakes us, a time
has come) leads to :meth:`Inbox.pump`, which makes the calls that are wanted now. :mod:`sbredis.aio.core._fetching`
decides which these are, by what :mod:`sbredis.aio.core._watching` knows of each partition.

A message that nobody waits for any more when it comes is kept, if there is room for it, or given back uncounted. A call
whose answer is late is answered in the end; meanwhile the other partitions are asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sbredis.aio.calls._arguments import ANSWERING
from sbredis.aio.calls._waking import may_recover
from sbredis.aio.core._fetching import Stock, fetches, keep_for, passing_looks
from sbredis.aio.receiving._buffer import Buffer
from sbredis.aio.receiving._receive_call import ReceiveCall
from sbredis.aio.receiving._watcher import PartitionWatcher
from sbredis.engine import SidePrefix
from sbredis.exceptions import (
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.aio.calls._entity import Entity
    from sbredis.aio.core._watching import Watch
    from sbredis.aio.receiving._held_session import HeldSession

__all__ = ["Inbox"]

_log = logging.getLogger("sbredis.client")
_GATHERING = 0.2
"""Who has got something waits no longer than this for more,"""
_LONGEST_GATHERING = 1.0
"""and no longer than this, or a quarter of a lock, for all of it."""
_CHECKING = 1.0
"""So often those who wait make sure that there is still a connection over which they can be woken."""


class Inbox:
    """The messages of one receiver: of the entity itself or its dead-letter queue."""

    def __init__(
        self,
        entity: Entity,
        identity: str,
        *,
        side: SidePrefix,
        mode: ServiceBusReceiveMode,
        prefetch: int,
        adaptive: bool,
        empty: bool = False,
        session: HeldSession | None = None,
    ) -> None:
        self.entity = entity
        self.identity = identity
        self.side: SidePrefix = side
        self.mode = mode
        self._loop = asyncio.get_running_loop()
        self._clock = entity.runtime.clock
        self.buffer = Buffer()
        """The messages that were fetched ahead."""
        lock = entity.record.settings.lock_duration / 1000
        self.stock = Stock(prefetch, adaptive=adaptive, lock=lock, now=self._loop.time())
        """How many are fetched ahead."""
        self._callers: deque[ReceiveCall] = deque()
        self.session = session
        """The one whose messages these are."""
        self._holds = 0
        """How many want nothing to be asked for just now."""
        self._returning: set[asyncio.Future[None]] = set()
        """What is being given back to a session, in which order matters."""
        self._empty = empty
        self._numbers = entity.numbers
        self._watchers = self._new_watchers()
        self._coming = 0
        """For how many messages calls under way ask."""
        self._turn = 0
        """With which partition to start the next time."""
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._trouble: ServiceBusError | None = None
        self._ended_moving = self._clock.when_moved(self._clock_moved)
        entity.watchers.add(self._entity_changed)

    # -- for callers ---------------------------------------------------------------------------------------------------

    async def take(self, wanted: int, seconds: float | None, *, gather: bool = True) -> list[ServiceBusReceivedMessage]:
        """Up to so many messages, as soon as there are any; none if none came in so many seconds.

        With 0 seconds, what is there now: each partition is asked, and none is waited at. Without ``gather`` no more is
        waited for than the first. Who waits and is cancelled gives back what came in the same moment.
        """
        deadline = None if seconds is None else self._loop.time() + seconds
        while True:
            got = await self._take(wanted, deadline, gather=gather, at_once=seconds == 0)
            now = self._clock.now()
            if all(lease is None or lease.until > now for lease in {hold_of(message).lease for message in got}):
                return got
            # The process was stopped, or the clock of a test was moved, while the call was under way.
            live = [message for message in got if not hold_of(message).lock_expired(now)]
            if live:
                return live

    def next_kept(self) -> ServiceBusReceivedMessage | None:
        """The oldest message that was fetched ahead, if there is one whose lock holds. Nobody waits for it."""
        message = self.buffer.pop(self._clock.now())
        if message is not None:
            self.stock.took(1)
        if len(self.buffer) + self._coming <= self.stock.refill_at:
            self.pump()
        return message

    async def _take(
        self, wanted: int, deadline: float | None, *, gather: bool, at_once: bool
    ) -> list[ServiceBusReceivedMessage]:
        kept: list[ServiceBusReceivedMessage] = []
        if len(self.buffer):
            kept = self.buffer.take(wanted, self._clock.now())
            self.stock.took(len(kept))
            if len(kept) == wanted or (kept and not gather):
                if len(self.buffer) + self._coming <= self.stock.refill_at:
                    self.pump()
                return kept
        caller = ReceiveCall(wanted - len(kept), gathers=gather)
        caller.got = kept
        if at_once:
            self._ask_all(caller)
        caller.news = self._loop.create_future()
        self._callers.append(caller)
        before = len(kept)
        try:
            for watcher in self._watchers:
                watcher.wanted()
            self.pump()
            if at_once:
                await self._answers(caller)
            else:
                await self._gather(caller, deadline)
                if caller.waits and not caller.got:
                    await self._hear_out(caller)
        except BaseException:
            self._callers.remove(caller)
            self._take_back(caller.got, first=True)
            raise
        self._callers.remove(caller)
        if caller.error is not None:
            if not caller.got:
                raise caller.error
            _log.warning("receiving ended early: %s", caller.error)
        elif not caller.got and self._watchers and all(watcher.troubled for watcher in self._watchers):
            raise self._unreachable()
        self.stock.took(len(caller.got) - before)
        return caller.got

    async def _gather(self, caller: ReceiveCall, deadline: float | None) -> None:
        """Wait for the first message until the deadline, and then for more while they come soon, though not for long:
        the first one's lock ticks.
        """
        enough: float | None = None
        while caller.waits and not caller.content:
            until = deadline
            if caller.got:
                now = self._loop.time()
                if enough is None:
                    enough = now + min(_LONGEST_GATHERING, self.entity.record.settings.lock_duration / 4000)
                    deadline = enough if deadline is None else min(deadline, enough)
                until = min(deadline or enough, now + _GATHERING)
            if not await self._news_for(caller, until):
                return

    async def _news_for(self, caller: ReceiveCall, until: float | None) -> bool:
        """Wait until a caller is told something. Returns whether it was in time."""
        if not caller.news.done():
            try:
                async with asyncio.timeout_at(until):
                    await caller.news
            except TimeoutError:
                return False
        caller.news = self._loop.create_future()
        return True

    def _ask_all(self, caller: ReceiveCall) -> None:
        """Have each partition asked for who wants what is there now."""
        caller.unanswered = {watcher: watcher.watch.calls for watcher in self._watchers}
        for watcher in self._watchers:
            watcher.watch.wanted_now()

    async def _answers(self, caller: ReceiveCall) -> None:
        """Wait until all partitions have answered, or it has what it wants."""
        until = self._loop.time() + ANSWERING
        while caller.waits and caller.unanswered and not caller.content:
            if not await self._news_for(caller, until):
                return

    async def _hear_out(self, caller: ReceiveCall) -> None:
        """Wait for the answers of the calls under way: without them, an empty list would mean nothing."""
        caller.unanswered = {
            watcher: watcher.watch.calls - watcher.watch.under_way for watcher in self._watchers if watcher.may_answer
        }
        until = self._loop.time() + ANSWERING
        while caller.waits and any(watcher.may_answer for watcher in caller.unanswered) and not caller.content:
            self._pass_over_late()
            now = self._loop.time()
            if not caller.unanswered or now >= until:
                return
            await self._news_for(caller, min(until, now + _CHECKING))

    def answered(self, watcher: PartitionWatcher) -> None:
        """A partition has nothing more, or cannot say: who wants what is there now need not wait for it."""
        for caller in self._callers:
            unanswered = caller.unanswered
            if unanswered is None or watcher not in unanswered:
                continue
            if watcher.watch.calls > unanswered[watcher]:
                del unanswered[watcher]
                caller.tell()
            else:
                watcher.watch.wanted_now()  # the call was made before the caller came

    def _pass_over_late(self) -> None:
        """Who has heard of some partitions does not wait for those that do not answer."""
        for caller in self._callers:
            unanswered = caller.unanswered
            if not unanswered or len(unanswered) == len(self._watchers):
                continue
            if all(watcher.watch.late for watcher in unanswered):
                unanswered.clear()
                caller.tell()

    @property
    def only_wants_what_is_there(self) -> bool:
        """Whether those who want messages now wait for none."""
        if self.stock.wants_more(len(self.buffer)) or not self._callers:
            return False
        return all(caller.unanswered is not None for caller in self._callers)

    def _unreachable(self) -> ServiceBusError:
        """Why nothing was received, when that says nothing about what there is."""
        if self._trouble is not None:
            return self._trouble.twin()
        target = self.entity.runtime.target
        error: ServiceBusError = ServiceBusConnectionError(f"{target} cannot be reached.", outcome=Outcome.NEVER_SENT)
        if any(watcher.watch.late for watcher in self._watchers):
            error = OperationTimeoutError(f"{target} has not answered in time.", outcome=Outcome.UNKNOWN)
        error.entity = self.entity.name
        return error

    @property
    def demand(self) -> int:
        """How many messages are waited for."""
        return sum(caller.missing for caller in self._callers if caller.waits and not caller.content)

    # -- what happens --------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Make the calls that are wanted now."""
        if self._closed or self._holds or self._returning:
            return  # it is called again when that is over
        watches = [watcher.watch for watcher in self._watchers]
        missing = self._missing(_coming(watches))
        if missing:
            only: set[int] | None = None
            if self.only_wants_what_is_there:
                # Somebody who wants what is there now does not have a partition asked again that has said so.
                unanswered = {watcher for caller in self._callers for watcher in caller.unanswered or ()}
                only = {place for place, watcher in enumerate(self._watchers) if watcher in unanswered}
            any_will_do = not self.stock.most and not any(caller.gathers for caller in self._callers)
            calls, self._turn = fetches(watches, self._turn, missing, only, any_will_do=any_will_do)
            for call in calls:
                self._watchers[call.place].make(call)
        elif not self._missing(0):  # nothing would be wanted, even if nothing were on its way
            for call in passing_looks(watches):
                self._watchers[call.place].make(call)
        self._coming = _coming(watches)
        self._set_timer()

    def _missing(self, coming: int) -> int:
        """For how many messages to ask now, if so many are on their way."""
        stock = self.stock
        stock.lock = self.entity.record.settings.lock_duration / 1000
        kept, stocks = len(self.buffer), stock.most > 0 and not self._session_ends_soon
        return stock.missing(kept, coming, self.demand, self._loop.time(), stocks=stocks)

    @property
    def _session_ends_soon(self) -> bool:
        """Whether what is fetched now could not be kept: the lock on its session is about to end."""
        if self.session is None or self.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            return False
        return self._kept_for(self.session.lease.until) <= 0

    def _kept_for(self, ends: float) -> float:
        """For how many seconds a message may still be kept, of which the lock ends at this time."""
        return keep_for(ends - self._clock.now(), self.stock.lock, in_session=self.session is not None)

    def received(self, messages: list[ServiceBusReceivedMessage]) -> None:
        """A call was answered, with these."""
        self._trouble = None
        if self._returning:
            self.give_back(messages)  # it was asked for before, and what returns to the session comes before it
        else:
            self._take_back(messages)
        self.pump()

    def failed(self, watcher: PartitionWatcher, error: ServiceBusError) -> None:
        """A call failed: what another attempt may mend is tried again, beside the others; the rest is told to all."""
        self._trouble = error
        self.answered(watcher)
        if self.session is not None and isinstance(error, SessionLockLostError):
            self.session.lose()
        if may_recover(error):
            _log.info("%s: %s", watcher.partition_client, error)
        else:
            for caller in self._callers:
                caller.error = caller.error or error.twin()
                caller.tell()
        self._set_timer()

    def _new_watchers(self) -> list[PartitionWatcher]:
        if self._empty:
            return []
        numbers = self._numbers if self.session is None else (self.session.partition_client.number,)
        return [PartitionWatcher(self, self.entity.partition_client(number), self.identity) for number in numbers]

    def _entity_changed(self) -> None:
        """The queue may have been deleted and created again, and be in other partitions now: begin anew with all."""
        if self._numbers != self.entity.numbers:
            for watcher in self._watchers:
                watcher.leave()
            self._numbers, self._turn = self.entity.numbers, 0
            self._watchers = self._new_watchers()
            for caller in self._callers:
                if caller.unanswered is not None:
                    self._ask_all(caller)
        for watcher in self._watchers:
            watcher.watch.missed()
        self._loop.call_soon(self.pump)  # after who has learnt of it

    def _take_back(self, messages: list[ServiceBusReceivedMessage], *, first: bool = False) -> None:
        """Give messages to those who wait for some; the rest is kept for who asks next, or given back.

        ``first``: those that somebody had already, and that are older than all that is kept.
        """
        at = 0
        for caller in self._callers if messages and not self._closed else ():
            if caller.waits and at < len(messages):
                part = messages[at : at + caller.missing]
                at += len(part)
                caller.got += part
                caller.missing -= len(part)
                caller.tell()
        left = messages[at:] if at else messages
        if not left:
            return
        if self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            if first:
                left = [*left, *self.buffer.empty()]  # what there is no space for are the youngest of all
            space = 0 if self._closed else max(0, self.stock.target - len(self.buffer))
            self.buffer.put(left[:space])
            self.give_back(left[space:])
        elif self._closed:
            self._lose(left)
        else:
            self.buffer.put(left, first=first)  # there is nobody to give them to

    def give_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give messages back to the partition unread, which counts no delivery."""
        now = self._clock.now()
        for message in messages:
            hold = hold_of(message)
            if hold.lock_expired(now):
                continue
            future = self.entity.partition_client_of(hold).give_back(hold)
            if self.session is not None and future is not None:
                self._returning.add(future)
                future.add_done_callback(self._returned)

    def _returned(self, future: asyncio.Future[None]) -> None:
        """What comes next in the session can be asked for when all is back that comes before it."""
        self._returning.discard(future)
        if not self._returning:
            self.pump()

    @asynccontextmanager
    async def recalled(self, deadline: float) -> AsyncGenerator[None]:
        """A while in which nothing is fetched, and nothing kept: what was is given back. For what comes before it in
        its session is about to come again, or all of it is about to go.
        """
        self._holds += 1
        try:
            for watcher in self._watchers:
                await watcher.answered(deadline)
            self.give_back(self.buffer.empty())
            if self._returning:
                await asyncio.wait(self._returning, timeout=max(0.0, deadline - self._loop.time()))
            yield
        finally:
            self._holds -= 1
            self.pump()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Have :meth:`_on_time` called when a partition is to be looked at, or what is kept is to be given back."""
        when: float | None = None
        if len(self.buffer) and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            when = self._loop.time() + max(0.0, self._kept_for(self._first_end()))
        wanted = bool(self._callers) or self.stock.wants_more(len(self.buffer))
        for watcher in self._watchers:
            watch = watcher.watch
            if watch.look_at is not None and (wanted or watch.must_look):
                when = watch.look_at if when is None else min(when, watch.look_at)
        if self._callers:
            check = self._loop.time() + _CHECKING
            when = check if when is None else min(when, check)
        timer = self._timer
        if timer is not None:
            if when is not None and timer.when() <= when:
                return  # it comes early enough, and sees then
            timer.cancel()
        self._timer = None if when is None else self._loop.call_at(when, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._closed:
            return
        now = self._loop.time()
        for watcher in self._watchers:
            watcher.on_time(now)
        self._pass_over_late()
        self._give_back_late()
        self.pump()

    def _clock_moved(self) -> None:
        for watcher in self._watchers:
            watcher.watch.missed()
        self._give_back_late()
        self.pump()

    def _give_back_late(self) -> None:
        """Give back what was kept for too long."""
        if not len(self.buffer) or self.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            return
        now = self._clock.now()
        late = self.buffer.take_until(now - self._kept_for(now) + 0.001)  # what must be left of a lock, from now on
        if late:
            self.stock.gave_back()
            self.give_back(late)

    def _first_end(self) -> float:
        """When the lock of the oldest message that is kept ends."""
        lease = hold_of(self.buffer.first).lease
        return 0.0 if lease is None else lease.until

    # -- the end -------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Give back what is kept, wait for the answers that are under way and give back what they bring."""
        if self._closed:
            return
        self._closed = True
        self._ended_moving()
        self.entity.watchers.discard(self._entity_changed)
        if self._timer is not None:
            self._timer.cancel()
        for caller in self._callers:
            caller.error = ServiceBusError("The receiver was closed.", outcome=Outcome.NEVER_SENT, is_transient=False)
            caller.tell()
        self._take_back(self.buffer.empty())
        await asyncio.gather(*(watcher.aclose() for watcher in self._watchers))
        for partition_client in {self.entity.partition_client(number) for number in self.entity.numbers}:
            await partition_client.given_back()

    def _lose(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        _log.warning(
            "%s: %d messages that were received and deleted, and that nobody asked for before the receiver was closed, "
            "are lost",
            self.entity.name,
            len(messages),
        )


def _coming(watches: Sequence[Watch]) -> int:
    """Return for how many messages calls under way ask; late ones are not counted on."""
    return sum(watch.wanted for watch in watches if not watch.late)
