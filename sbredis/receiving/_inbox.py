"""The inbox of a receiver: it fetches the messages that callers ask for, and serves the callers in their order.

The inbox has no task of its own: only its callers wait. Every event (a new caller, an answer, a wake-up, a timer) leads
to a call of :meth:`Inbox.pump`, which makes the calls that are needed now. :mod:`sbredis.receiving._fetching` decides
on these calls. It uses the state of each partition that :mod:`sbredis.client._watching` records.

If no caller waits any more when a message comes, the inbox keeps the message, or releases it without counting a
delivery if there is no room. If an answer is late, the inbox looks at all other partitions, and uses the answer when it
comes. A caller whose time is over does not wait for a late answer if another partition has answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sbredis.client import may_recover
from sbredis.engine import SidePrefix
from sbredis.exceptions import (
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of
from sbredis.receiving._buffer import Buffer
from sbredis.receiving._fetching import Fetch, Stock, fetches, keep_for, passing_looks
from sbredis.receiving._watcher import PartitionWatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.client import Entity, Watch
    from sbredis.receiving._held_session import HeldSession

__all__ = ["Inbox", "ReceiveCall"]

_log = logging.getLogger("sbredis.client")
_CHECKING = 1.0
"""The seconds between checks whether there is still a connection over which a partition can wake waiting callers."""
_HURRYING = 0.1
"""The seconds between checks for calls that are late for a caller whose time is over."""


class ReceiveCall:
    """A receive call of the application that waits at an inbox."""

    __slots__ = ("_loop", "_news", "error", "gathers", "got", "missing", "unanswered")

    def __init__(self, loop: asyncio.AbstractEventLoop, missing: int, *, gathers: bool) -> None:
        self.missing = missing
        self.gathers = gathers
        """Whether the call waits for more messages when it has some."""
        self.unanswered: dict[PartitionWatcher, int] | None = None
        """The partitions whose answer the call still needs; ``None`` while it waits for messages to come.

        A call for the messages that are there now needs an answer from each partition. A call that has waited
        long enough also needs these answers. This is a mapping from each partition to the number of its last call: only
        answers to later calls count.
        """
        self.got: list[ServiceBusReceivedMessage] = []
        self.error: ServiceBusError | None = None
        self._loop = loop
        self._news: asyncio.Future[bool] = loop.create_future()
        """Whether there is news; false if there was none until the end of a wait."""

    @property
    def waits(self) -> bool:
        """Whether the call needs more messages."""
        return self.missing > 0 and self.error is None

    @property
    def content(self) -> bool:
        """Whether the call has messages and does not wait for more."""
        return bool(self.got) and not self.gathers

    def tell(self) -> None:
        """Record that there is news."""
        self._end_wait(news=True)

    async def wait(self, until: float | None) -> bool:
        """Wait until there is news. Return ``False`` if there was no news until the time ``until`` of the loop."""
        timer = None
        if until is not None and not self._news.done():
            timer = self._loop.call_at(until, self._end_wait)
        try:
            return await self._news
        finally:
            if timer is not None:
                timer.cancel()
            self._news = self._loop.create_future()

    def _end_wait(self, *, news: bool = False) -> None:
        if not self._news.done():
            self._news.set_result(news)


class Inbox:
    """The messages of one receiver, from an entity itself or from its dead-letter queue."""

    def __init__(
        self,
        entity: Entity,
        identity: str,
        *,
        side: SidePrefix,
        mode: ServiceBusReceiveMode,
        prefetch: int,
        adaptive: bool,
        session: HeldSession | None = None,
    ) -> None:
        self.entity = entity
        self.identity = identity
        self.side: SidePrefix = side
        self.mode = mode
        self._loop = asyncio.get_running_loop()
        self._clock = entity.connection.clock
        self._timings = entity.connection.timings
        self.buffer = Buffer()
        """The messages that were fetched ahead."""
        lock = entity.record.settings.lock_duration / 1000
        self.stock = Stock(prefetch, adaptive=adaptive, lock=lock, now=self._loop.time())
        """Decides how many messages are fetched ahead."""
        self._callers: deque[ReceiveCall] = deque()
        self.session = session
        """The session that the messages belong to, if the receiver has one."""
        self._recalls = 0
        """The number of open contexts of :meth:`recalled`. If there is one, the inbox fetches nothing."""
        self._returning: set[asyncio.Future[None]] = set()
        """The releases of messages of a session that are under way. They must end before the inbox fetches again."""
        self._numbers = entity.numbers
        self._watchers = self._new_watchers()
        self._coming = 0
        """The number of messages for which the calls under way ask."""
        self._turn = 0
        """The partition to ask first next time."""
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._trouble: ServiceBusError | None = None
        self._ended_moving = self._clock.when_moved(self._clock_moved)
        entity.watchers.add(self._entity_changed)

    # -- for callers ---------------------------------------------------------------------------------------------------

    async def take(self, wanted: int, seconds: float | None, *, gather: bool = True) -> list[ServiceBusReceivedMessage]:
        """Return up to ``wanted`` messages as soon as there are any, or an empty list when ``seconds`` have passed.

        With 0 seconds, ask each partition once, and return the messages that are there now. Without ``gather``, do not
        wait for more messages after the first ones. If the caller is cancelled when messages have just arrived for it,
        keep them for other callers or release them.
        """
        deadline = None if seconds is None else self._loop.time() + seconds
        while True:
            got = await self._take(wanted, deadline, gather=gather, at_once=seconds == 0)
            now = self._clock.now()
            if all(lease is None or lease.until > now for lease in {hold_of(message).lease for message in got}):
                return got
            # Locks ended during the call. In the partition they may hold a little longer, so release their messages.
            self._release([message for message in got if hold_of(message).lock_expired(now)])
            if live := [message for message in got if not hold_of(message).lock_expired(now)]:
                return live

    def next_kept(self) -> ServiceBusReceivedMessage | None:
        """Return the oldest message in the buffer whose lock holds, or ``None``. Do not wait."""
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
        caller = ReceiveCall(self._loop, wanted - len(kept), gathers=gather)
        caller.got = kept
        if at_once:
            self._ask_all(caller)
        self._callers.append(caller)
        self.stock.resting = False
        before = len(kept)
        try:
            for watcher in self._watchers:
                watcher.wanted()
            self.pump()
            if at_once:
                await self._wait_for_all(caller)
            else:
                await self._gather(caller, deadline)
                if caller.waits and not caller.got:
                    await self._wait_for_answers(caller)
        except BaseException:
            self._callers.remove(caller)
            self.take_back(caller.got, first=True)
            raise
        self._callers.remove(caller)
        if caller.error is not None:
            if not caller.got:
                raise caller.error
            _log.warning("a receive ended early because of an error: %s", caller.error)
        elif not caller.got and self._watchers and all(watcher.troubled for watcher in self._watchers):
            raise self._unreachable()
        self.stock.took(len(caller.got) - before)
        return caller.got

    async def _gather(self, caller: ReceiveCall, deadline: float | None) -> None:
        """Wait until the deadline for a message, then only briefly for more: the first message is locked already."""
        enough: float | None = None
        while caller.waits and not caller.content:
            until = deadline
            if caller.got:
                now = self._loop.time()
                if enough is None:
                    enough = now + min(self._timings.gathering_all, self.entity.record.settings.lock_duration / 4000)
                    deadline = enough if deadline is None else min(deadline, enough)
                until = min(deadline or enough, now + self._timings.gathering)
            if not await caller.wait(until):
                return

    def _ask_all(self, caller: ReceiveCall) -> None:
        """Ask each partition for the messages that it has now, on behalf of a caller."""
        caller.unanswered = {watcher: watcher.watch.calls for watcher in self._watchers}
        for watcher in self._watchers:
            watcher.watch.wanted_now()

    async def _wait_for_all(self, caller: ReceiveCall) -> None:
        """Wait until all partitions have answered, or the caller has all messages that it asked for."""
        until = self._loop.time() + self._timings.answering
        while caller.waits and caller.unanswered and not caller.content:
            if not await caller.wait(until):
                return

    async def _wait_for_answers(self, caller: ReceiveCall) -> None:
        """Wait for the answers to the calls under way, because they may still bring messages.

        If one partition has answered, wait only for calls that are not late, and these are late sooner than usual.
        """
        caller.unanswered = {
            watcher: watcher.watch.calls - watcher.watch.under_way for watcher in self._watchers if watcher.may_answer
        }
        until = self._loop.time() + self._timings.answering
        while caller.waits and any(watcher.may_answer for watcher in caller.unanswered) and not caller.content:
            for watcher in caller.unanswered:
                watcher.watch.hurry()
            self._look_after_calls()
            now = self._loop.time()
            if not caller.unanswered or now >= until:
                return
            await caller.wait(min(until, now + _HURRYING))

    def answered(self, watcher: PartitionWatcher) -> None:
        """Record that a partition has no more messages, or cannot answer. Callers stop waiting for its answer."""
        for caller in self._callers:
            unanswered = caller.unanswered
            if unanswered is None or watcher not in unanswered:
                continue
            if watcher.watch.calls > unanswered[watcher]:
                del unanswered[watcher]
                caller.tell()
            else:
                watcher.watch.wanted_now()  # the call was made before this caller came
        self._pass_over_late()

    def _pass_over_late(self) -> None:
        """Stop waiting for late partitions on behalf of each caller that has an answer of another partition."""
        for caller in self._callers:
            unanswered = caller.unanswered
            if not unanswered or len(unanswered) == len(self._watchers):
                continue
            if all(watcher.watch.late for watcher in unanswered):
                unanswered.clear()
                caller.tell()

    @property
    def only_wants_what_is_there(self) -> bool:
        """Whether all callers want only messages that are there now."""
        if self.stock.wants_more(len(self.buffer)) or not self._callers:
            return False
        return all(caller.unanswered is not None for caller in self._callers)

    @property
    def _late(self) -> int:
        """The number of calls under way whose answer is late."""
        return sum(watcher.watch.late for watcher in self._watchers)

    def _unreachable(self) -> ServiceBusError:
        """Return the error for a receive that got no messages because no partition has answered."""
        return self._trouble.twin() if self._trouble else _unanswered(self.entity, late=self._late > 0)

    @property
    def demand(self) -> int:
        """The number of messages that callers wait for."""
        return sum(caller.missing for caller in self._callers if caller.waits and not caller.content)

    def resize(self, most: int) -> None:
        """Fetch up to ``most`` messages ahead from now on. Release the kept messages that are too many."""
        self.stock.resize(most)
        if self.mode is ServiceBusReceiveMode.PEEK_LOCK:  # messages that were deleted in the queue wait for callers
            self.give_back(self.buffer.cut(self.stock.target))
        self.pump()

    # -- events --------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Make the calls that are needed now."""
        if self._closed or self._recalls or self._returning:
            return  # `pump` is called again when the recall or the releases end
        watches = [watcher.watch for watcher in self._watchers]
        self._coming = _asked_for(watches)
        if any(watch.may_ask for watch in watches):
            for call in self._needed(watches):
                self._watchers[call.place].make(call)
            self._coming = _asked_for(watches)
        self._set_timer()

    def _needed(self, watches: Sequence[Watch]) -> list[Fetch]:
        """Return the calls that are needed now."""
        missing = self._missing(self._coming)
        if not missing:  # if no more messages are needed even if the calls under way bring none, only look
            return [] if self._missing(0) else passing_looks(watches)
        only: set[int] | None = None
        if self.only_wants_what_is_there:
            # All callers want only messages that are there now, so partitions that have answered are left out.
            unanswered = {watcher for caller in self._callers for watcher in caller.unanswered or ()}
            only = {place for place, watcher in enumerate(self._watchers) if watcher in unanswered}
        any_will_do = not self.stock.most and not any(caller.gathers for caller in self._callers)
        calls, self._turn = fetches(watches, self._turn, missing, only, any_will_do=any_will_do)
        return calls

    def _missing(self, coming: int) -> int:
        """Return how many messages to ask for now, if the calls under way ask for ``coming`` messages."""
        stock = self.stock
        stock.lock = self.entity.record.settings.lock_duration / 1000
        kept, stocks = len(self.buffer), stock.most > 0 and not self._session_ends_soon
        return stock.missing(kept, coming, self.demand, self._loop.time(), stocks=stocks)

    @property
    def _session_ends_soon(self) -> bool:
        """Whether the lock on the session ends too soon to fetch messages ahead now."""
        if self.session is None or self.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            return False
        return self._kept_for(self.session.lease.until) <= 0

    def _kept_for(self, ends: float) -> float:
        """Return for how many more seconds to keep a message whose lock ends at ``ends``."""
        return keep_for(ends - self._clock.now(), self.stock.lock, in_session=self.session is not None)

    def received(self, messages: list[ServiceBusReceivedMessage]) -> None:
        """Distribute the messages that a call has brought."""
        self._trouble = None
        if self._returning:  # earlier messages of the session are being released, and must be received first
            self.give_back(messages)
        else:
            self.take_back(messages)
        self.pump()

    def failed(self, watcher: PartitionWatcher, error: ServiceBusError) -> None:
        """Record that a call failed. If another attempt cannot succeed, give the error to all callers."""
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
        numbers = self._numbers if self.session is None else (self.session.partition_client.number,)
        return [PartitionWatcher(self, self.entity.partition_client(number), self.identity) for number in numbers]

    def _entity_changed(self) -> None:
        """Start again if the queue is in other partitions now, for example after it was deleted and created again."""
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
        self._loop.call_soon(self.pump)  # called later, so that the entity's other watchers run first

    def take_back(self, messages: list[ServiceBusReceivedMessage], *, first: bool = False) -> None:
        """Give messages to waiting callers. Keep the rest for later callers, or release them.

        With ``first``, a caller had these messages already, so they are older than all messages in the buffer.
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
                left = [*left, *self.buffer.empty()]  # without room for all, the newest messages are released
            space = 0 if self._closed else max(0, self.stock.target - len(self.buffer))
            self.buffer.put(left[:space])
            self.give_back(left[space:])
        elif self._closed:
            self._log_lost(left)
        else:
            self.buffer.put(left, first=first)  # these messages are deleted in the queue, so they cannot be released

    def give_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Release messages that no caller has received, without an increase of their delivery counts."""
        now = self._clock.now()
        self._release([message for message in messages if not hold_of(message).lock_expired(now)])

    def _release(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        for message in messages:
            hold = hold_of(message)
            future = self.entity.partition_client_of(hold).give_back(hold)
            if self.session is not None and future is not None:
                self._returning.add(future)
                future.add_done_callback(self._returned)

    def _returned(self, future: asyncio.Future[None]) -> None:
        """Record the end of a release. When all releases have ended, fetch messages of the session again."""
        self._returning.discard(future)
        if not self._returning:
            self.pump()

    @asynccontextmanager
    async def recalled(self, deadline: float) -> AsyncGenerator[None]:
        """Release all messages in the buffer. Fetch and keep no messages as long as this context is open.

        It is used before an earlier message of the session returns to the queue, or all its messages leave the queue.
        """
        self._recalls += 1
        try:
            for watcher in self._watchers:
                await watcher.answered(deadline)
            self.give_back(self.buffer.empty())
            if self._returning:
                await asyncio.wait(self._returning, timeout=max(0.0, deadline - self._loop.time()))
            yield
        finally:
            self._recalls -= 1
            self.pump()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Set the timer for the next time to look at a partition, or to release kept messages."""
        when: float | None = None
        if len(self.buffer) and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            when = self._loop.time() + max(0.0, self._kept_for(self.buffer.first_end))
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
                return  # the present timer fires early enough, and is set again after that
            timer.cancel()
        self._timer = None if when is None else self._loop.call_at(when, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if not self._closed:
            self._look_after_calls()

    def _look_after_calls(self) -> None:
        """Make the calls whose time has come. If an answer is late from now on, look at all other partitions."""
        now, late = self._loop.time(), self._late
        for watcher in self._watchers:
            watcher.on_time(now)
        if self._late > late:
            for watcher in self._watchers:
                watcher.watch.doubted()
        self._pass_over_late()
        self._give_back_late()
        self.pump()

    def _clock_moved(self) -> None:
        for watcher in self._watchers:
            watcher.watch.moved()
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
        """Release the kept messages, wait for the calls under way, and release the messages that these calls bring."""
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
        self.take_back(self.buffer.empty())
        await asyncio.gather(*(watcher.aclose() for watcher in self._watchers))
        for partition_client in {self.entity.partition_client(number) for number in self.entity.numbers}:
            await partition_client.given_back()

    def _log_lost(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        _log.warning(
            "%s: %d messages are lost: they were received and deleted, but no caller asked for them before the "
            "receiver was closed",
            self.entity.name,
            len(messages),
        )


def _asked_for(watches: Sequence[Watch]) -> int:
    """Return the number of messages for which the calls under way ask. Late calls are left out."""
    return sum([watch.wanted for watch in watches if not watch.late])


def _unanswered(entity: Entity, *, late: bool) -> ServiceBusError:
    """Return the error for a receive that no partition has answered; ``late`` if an answer may still come."""
    peer = entity.connection.target
    error: ServiceBusError = (
        OperationTimeoutError(f"{peer} has not answered in time.", outcome=Outcome.UNKNOWN)
        if late
        else ServiceBusConnectionError(f"{peer} cannot be reached.", outcome=Outcome.NEVER_SENT)
    )
    error.entity = entity.name
    return error
