"""The inbox of a receiver: it fetches the messages that callers ask for, and serves the callers in their order.

The inbox has no task of its own: only its callers wait. Every event (a new caller, an answer, a push, a timer) leads
to a call of :meth:`Inbox.pump`, which makes the calls that are needed now. There are two kinds of inboxes, which differ
in how they get messages from a partition: :mod:`sbredis.receiving._credit_inbox` grants credit, and
:mod:`sbredis.receiving._session_inbox` does so for the messages of a session.

If no caller waits any more when a message comes, the inbox keeps the message, or releases it without counting a
delivery if there is no room. If an answer is late, the inbox looks at all other partitions, and uses the answer when it
comes. A caller whose time is over does not wait for a late answer if another partition has answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sbredis.client import may_recover
from sbredis.engine import SidePrefix, lease_place
from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusConnectionError, ServiceBusError
from sbredis.model import MessageLease, ServiceBusReceiveMode, Taking
from sbredis.receiving._buffer import Buffer
from sbredis.receiving._fetching import Stock, keep_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.client import Entity, PartitionClient

__all__ = ["Inbox", "InboxOptions", "InboxSource", "ReceiveCall", "closed_error"]

_log = logging.getLogger("sbredis.client")
_CHECKING = 1.0
"""The seconds between checks whether there is still a connection over which a partition can wake waiting callers."""
_HURRYING = 0.1
"""The seconds between checks for calls that are late for a caller whose time is over."""


class InboxSource(Protocol):
    """A partition from which an inbox gets messages."""

    partition_client: PartitionClient

    @property
    def calls(self) -> int:
        """The number of calls made, including the one under way."""
        ...

    @property
    def under_way(self) -> bool:
        """Whether a call is under way."""
        ...

    @property
    def late(self) -> bool:
        """Whether the answer to the call under way is late."""
        ...

    @property
    def troubled(self) -> bool:
        """Whether the last call failed, the answer is late, or a call is under way without a connection."""
        ...

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still come, as far as the client knows."""
        ...

    def wanted(self) -> None:
        """Record that a new caller waits for messages."""
        ...

    def ask_now(self) -> None:
        """Ask the partition for what it has now, also if it was asked before."""
        ...

    def look_again(self) -> None:
        """Ask the partition again: something may have changed there."""
        ...

    def hurry(self) -> None:
        """Let the answer to the call under way be late sooner, because the time of a caller is over."""
        ...

    def leave(self) -> None:
        """Stop receiving, because the queue is in other partitions now."""
        ...

    async def aclose(self) -> None:
        """Take what is under way, and leave the partition."""
        ...


S = TypeVar("S", bound=InboxSource)
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


class ReceiveCall(Generic[Item]):
    """A receive call of the application that waits at an inbox."""

    __slots__ = ("_loop", "_news", "ended", "error", "gathers", "got", "has_answer", "missing", "unanswered")

    def __init__(self, loop: asyncio.AbstractEventLoop, missing: int, *, gathers: bool) -> None:
        self.missing = missing
        self.gathers = gathers
        """Whether the call waits for more messages when it has some."""
        self.unanswered: dict[InboxSource, int] | None = None
        """The partitions whose answer the call still needs; ``None`` while it waits for messages to come.

        A call for the messages that are there now needs an answer from each partition. A call that has waited
        long enough also needs these answers. This is a mapping from each partition to the number of its last call: only
        answers to later calls count.
        """
        self.has_answer = False
        """Whether a partition has answered the call, so that it need not wait for late ones."""
        self.got: list[Item] = []
        self.error: ServiceBusError | None = None
        self.ended = False
        """Whether the call is to end with what it has."""
        self._loop = loop
        self._news: asyncio.Future[bool] = loop.create_future()
        """Whether there is news; false if there was none until the end of a wait."""

    @property
    def waits(self) -> bool:
        """Whether the call needs more messages."""
        return self.missing > 0 and self.error is None

    @property
    def content(self) -> bool:
        """Whether the call does not wait any more, because it has messages, or is to end."""
        return self.ended or (bool(self.got) and not self.gathers)

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


class Inbox(ABC, Generic[S, Item]):
    """The messages of one receiver, from an entity itself or from its dead-letter queue; or sessions."""

    def __init__(self, entity: Entity, identity: str, options: InboxOptions) -> None:
        self.entity = entity
        self.identity = identity
        self.side: SidePrefix = options.side
        self.mode = options.mode
        self.taking = options.taking
        self.taking.inbox = self
        self._loop = asyncio.get_running_loop()
        self._clock = entity.connection.clock
        self._timings = entity.connection.timings
        self.buffer = Buffer(self._lease_of)
        """The messages that were fetched ahead."""
        lock = entity.record.settings.lock_duration / 1000
        self.stock = Stock(options.prefetch, adaptive=options.adaptive, lock=lock, now=self._loop.time())
        """Decides how many messages are fetched ahead."""
        self._callers: list[ReceiveCall[Item]] = []
        self._emptied: asyncio.Event | None = None
        """Set when the last caller leaves, if anybody waits for that."""
        self._numbers = entity.numbers
        self._sources = self._new_sources()
        self._coming = 0
        """The number of messages that were asked for and have not come."""
        self.comes_back = False
        """Whether the last caller iterates, so that it comes back when it has settled its message."""
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When the timer fires. The handle of uvloop does not always tell."""
        self._trouble: ServiceBusError | None = None
        self._ended_moving = self._clock.when_moved(self._clock_moved)
        entity.watchers.add(self._entity_changed)

    # -- what the kinds of inboxes do differently ----------------------------------------------------------------------

    @abstractmethod
    def _new_sources(self) -> list[S]:
        """Return an object for each partition."""

    @property
    def _has_answer(self) -> bool:
        """Whether partitions have answered that are none of the sources."""
        return False

    @property
    def sources(self) -> Sequence[InboxSource]:
        """All sources of messages."""
        return self._sources

    @property
    def _all_sources(self) -> Sequence[InboxSource]:
        """The sources, and those that have not ended yet."""
        return self.sources

    @abstractmethod
    def _make_calls(self) -> None:
        """Make the calls that are needed now."""

    @abstractmethod
    def _next_looks(self) -> list[float]:
        """Return times at which to look at partitions."""

    @abstractmethod
    def _on_look(self, now: float) -> None:
        """Note at each partition that the time has come."""

    @abstractmethod
    def received(self, messages: list[Item]) -> None:
        """Distribute the messages that a partition has brought."""

    def want_for_ride(self, source: S, settled: int) -> None:
        """Set what to want from a partition to which a call goes now. It settles this number of messages."""

    def ride_ended(self) -> None:
        """Note that a call with a grant has ended."""

    @property
    def has_suspects(self) -> bool:
        """Whether a partition has suspects that the application does not take, as far as is known."""
        return False

    def suspects_wait(self) -> None:
        """Note that a partition has suspects that the application does not take."""
        if not self.taking.suspects:
            self.taking.told()

    def first_kept(self, partition: int) -> tuple[str, int] | None:
        """Return the gift of the first message of a partition that no caller has got yet: its prefix and its serial."""
        token = self.buffer.first_token(partition)
        return None if token is None else lease_place(token)

    @abstractmethod
    def _lease_of(self, item: Item) -> MessageLease | None:
        """Return the lock of a message; ``None`` if it was deleted when it was received."""

    @abstractmethod
    def _release(self, items: Sequence[Item]) -> None:
        """Release messages in the background, without an increase of their delivery counts."""

    def _caller_left(self) -> None:
        """Note that a caller does not wait any more."""

    @property
    def _capacity(self) -> int:
        """The number of messages that may be kept for later callers."""
        return self.stock.target

    def _space(self) -> int:
        """Return for how many more messages there is room in the buffer."""
        return max(0, self._capacity - len(self.buffer))

    def _kept_for(self, ends: float) -> float:
        """Return for how many more seconds to keep a message whose lock ends at ``ends``."""
        return keep_for(ends - self._clock.now(), self.stock.lock, in_session=False)

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
        message.
        After the time ``latest``, do not wait for answers either.
        """
        self.comes_back = comes_back
        deadline = None if seconds is None else self._loop.time() + seconds
        while True:
            got = await self._take(wanted, deadline, gather=gather, at_once=seconds == 0, latest=latest)
            now = self._clock.now()
            if all(lease is None or lease.until > now for lease in {*map(self._lease_of, got)}):
                return got
            # Locks ended during the call. In the partition they may hold a little longer, so release their messages.
            self._release([message for message in got if self._expired(message, now)])
            if live := [message for message in got if not self._expired(message, now)]:
                return live

    async def give_back_kept(self) -> None:
        """Give back what was fetched ahead, and wait until that is done."""
        self.give_back(self.buffer.empty())
        for partition_client in {self.entity.partition_client(number) for number in self.entity.numbers}:
            await partition_client.given_back()

    @abstractmethod
    async def let_go(self) -> None:
        """End the waiting calls, give back what was fetched ahead, and return when no more can come."""

    def end_waits(self) -> None:
        """End the waiting calls with what they have."""
        for caller in self._callers:
            caller.ended = True
            caller.tell()

    def has_ended(self, item: Item, /) -> bool:
        """Return whether the lock of an item that was received has ended."""
        return self._expired(item, self._clock.now())

    def _expired(self, item: Item, now: float) -> bool:
        lease = self._lease_of(item)
        return lease is not None and lease.ended(now)

    def next_kept(self) -> Item | None:
        """Return the oldest message in the buffer whose lock holds, or ``None``. Do not wait."""
        message = self.buffer.pop(self._clock.now())
        if message is not None:
            self.stock.took(1)
        if len(self.buffer) + self._coming <= self.stock.refill_at:
            self.pump()
        return message

    def _remove(self, caller: ReceiveCall[Item]) -> None:
        self._callers.remove(caller)
        if not self._callers and self._emptied is not None:
            self._emptied.set()
        self._caller_left()

    async def _take(
        self, wanted: int, deadline: float | None, *, gather: bool, at_once: bool, latest: float
    ) -> list[Item]:
        kept: list[Item] = []
        if len(self.buffer):
            kept = self.buffer.take(wanted, self._clock.now())
            self.stock.took(len(kept))
            if len(kept) == wanted or (kept and not gather):
                if len(self.buffer) + self._coming <= self.stock.refill_at:
                    self.pump()
                return kept
        caller = ReceiveCall[Item](self._loop, wanted - len(kept), gathers=gather)
        caller.got = kept
        if at_once:
            self._ask_all(caller)
        self._callers.append(caller)
        self.stock.resting = False
        before = len(kept)
        try:
            for source in self._sources:
                source.wanted()
            self.pump()
            if at_once:
                await self._wait_for_all(caller, latest)
            else:
                await self._gather(caller, deadline)
                if caller.waits and not caller.got:
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
        elif not caller.got and not caller.ended and self._is_cut_off:
            raise self._unreachable()
        self.stock.took(len(caller.got) - before)
        return caller.got

    async def _gather(self, caller: ReceiveCall[Item], deadline: float | None) -> None:
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

    def _ask_all(self, caller: ReceiveCall[Item]) -> None:
        """Ask each partition for the messages that it has now, on behalf of a caller."""
        caller.unanswered = {source: source.calls for source in self._sources}
        for source in self._sources:
            source.ask_now()

    async def _wait_for_all(self, caller: ReceiveCall[Item], latest: float) -> None:
        """Wait until all partitions have answered, or the caller has all messages that it asked for."""
        until = min(latest, self._loop.time() + self._timings.answering)
        while caller.waits and caller.unanswered and not caller.content:
            if not await caller.wait(until):
                return

    async def _wait_for_answers(self, caller: ReceiveCall[Item], latest: float) -> None:
        """Wait for the answers to the calls under way, because they may still bring messages.

        If one partition has answered, wait only for calls that are not late, and these are late sooner than usual.
        """
        sources = self.sources
        caller.unanswered = {source: source.calls - source.under_way for source in sources if source.may_answer}
        asked = sum(source.calls > 0 for source in sources)
        caller.has_answer = self._has_answer or len(caller.unanswered) < asked
        until = min(latest, self._loop.time() + self._timings.answering)
        while caller.waits and any(source.may_answer for source in caller.unanswered) and not caller.content:
            for source in caller.unanswered:
                source.hurry()
            self._look_after_calls()
            now = self._loop.time()
            if not caller.unanswered or now >= until:
                return
            await caller.wait(min(until, now + _HURRYING))

    def answered(self, source: InboxSource) -> None:
        """Record that a partition has no more messages, or cannot answer. Callers stop waiting for its answer."""
        for caller in self._callers:
            unanswered = caller.unanswered
            if unanswered is None or source not in unanswered:
                continue
            if source.calls > unanswered[source]:
                del unanswered[source]
                caller.has_answer = True
                caller.tell()
            else:
                source.ask_now()  # the call was made before this caller came
        self._pass_over_late()

    def _pass_over_late(self) -> None:
        """Stop waiting for late partitions on behalf of each caller that has an answer of another partition."""
        for caller in self._callers:
            unanswered = caller.unanswered
            if unanswered and caller.has_answer and all(source.late for source in unanswered):
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
        return sum(source.late for source in self.sources)

    @property
    def _is_cut_off(self) -> bool:
        """Whether no source answers that was asked."""
        asked = [source for source in self.sources if source.calls]
        return bool(asked) and all(source.troubled for source in asked)

    def _unreachable(self) -> ServiceBusError:
        """Return the error for a receive that got no messages because no partition has answered."""
        if self._trouble:
            return self._trouble.twin()
        late = self._late > 0 or any(source.partition_client.connected for source in self.sources)
        return _unanswered(self.entity, late=late)

    @property
    def demand(self) -> int:
        """The number of messages that callers wait for."""
        return sum(caller.missing for caller in self._callers if caller.waits and not caller.content)

    def resize(self, most: int) -> None:
        """Fetch up to ``most`` messages ahead from now on. Release the kept messages that are too many."""
        self.stock.resize(most)
        if self.mode is ServiceBusReceiveMode.PEEK_LOCK:  # messages that were deleted in the queue wait for callers
            self.give_back(self.buffer.cut(self._capacity))
        self.pump()

    # -- events --------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Make the calls that are needed now."""
        if not self._closed:
            self._make_calls()
            self._set_timer()

    @property
    def _wants(self) -> bool:
        """Whether callers wait, or the stock has room."""
        return bool(self._callers) or self.stock.wants_more(len(self.buffer))

    def failed(self, source: InboxSource, error: ServiceBusError) -> None:
        """Record that a call failed. If another attempt cannot succeed, give the error to all callers."""
        self._trouble = error
        self.answered(source)
        if may_recover(error):
            _log.info("%s: %s", source.partition_client, error)
        else:
            for caller in self._callers:
                caller.error = caller.error or error.twin()
                caller.tell()
        self._set_timer()

    def _entity_changed(self) -> None:
        """Start again if the queue is in other partitions now, for example after it was deleted and created again."""
        if self._numbers != self.entity.numbers:
            self._leave_all()
            self._numbers = self.entity.numbers
            self._sources = self._new_sources()
            for caller in self._callers:
                if caller.unanswered is not None:
                    self._ask_all(caller)
        for source in self.sources:
            source.look_again()
        self._loop.call_soon(self.pump)  # called later, so that the entity's other watchers run first

    def take_back(self, messages: list[Item], *, first: bool = False) -> None:
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
            space = 0 if self._closed else self._space()
            self.buffer.put(left[:space])
            self.give_back(left[space:])
        elif self._closed:
            self._log_lost(left)
        else:
            self.buffer.put(left, first=first)  # these messages are deleted in the queue, so they cannot be released

    def give_back(self, messages: Sequence[Item]) -> None:
        """Release messages that no caller has received, without an increase of their delivery counts."""
        now = self._clock.now()
        self._release([message for message in messages if not self._expired(message, now)])

    # -- time ----------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Set the timer for the next time to look at a partition, or to release kept messages."""
        when: float | None = None
        if len(self.buffer) and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            when = self._loop.time() + max(0.0, self._kept_for(self.buffer.first_end))
        for at in self._next_looks():
            when = at if when is None else min(when, at)
        if self._callers:
            check = self._loop.time() + _CHECKING
            when = check if when is None else min(when, check)
        timer = self._timer
        if timer is not None:
            if when is not None and self._timer_at <= when:
                return  # the present timer fires early enough, and is set again after that
            timer.cancel()
        self._timer_at = when or 0.0
        self._timer = None if when is None else self._loop.call_at(when, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._closed:
            return
        if self._is_calm:
            self._set_timer()
        else:
            self._look_after_calls()

    @property
    def _is_calm(self) -> bool:
        """Whether callers only wait: nothing is due, nothing is kept, and all partitions can be reached.

        Without callers there may be credit to withdraw.
        """
        if not self._callers or len(self.buffer) or any(caller.unanswered for caller in self._callers):
            return False
        now = self._loop.time()
        return all(at > now for at in self._next_looks()) and not any(
            source.troubled or not source.partition_client.connected for source in self.sources
        )

    def _look_after_calls(self) -> None:
        """Make the calls whose time has come, and pass over answers that are late from now on."""
        self._on_look(self._loop.time())
        self._pass_over_late()
        self._give_back_late()
        self.pump()

    def _clock_moved(self) -> None:
        for source in self._sources:
            source.look_again()
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
        self._close()
        self.take_back(self.buffer.empty())
        await self._close_sources()
        for partition_client in {self.entity.partition_client(number) for number in self.entity.numbers}:
            await partition_client.given_back()

    async def _close_sources(self) -> None:
        await asyncio.gather(*(source.aclose() for source in self._all_sources))

    def _leave_all(self) -> None:
        """Stop receiving from all partitions."""
        for source in self._all_sources:
            source.leave()

    def _close(self) -> None:
        """Stop everything that makes calls, and tell the callers."""
        self._closed = True
        self._ended_moving()
        self.entity.watchers.discard(self._entity_changed)
        if self._timer is not None:
            self._timer.cancel()
        for caller in self._callers:
            caller.error = closed_error()
            caller.tell()

    def _log_lost(self, messages: Sequence[Item]) -> None:
        _log.warning(
            "%s: %d messages are lost: they were received and deleted, but no caller asked for them before the "
            "receiver was closed",
            self.entity.name,
            len(messages),
        )


def closed_error() -> ServiceBusError:
    """Return the error for a call that waits at a receiver when it is closed."""
    return ServiceBusError("The receiver was closed.", outcome=Outcome.NEVER_SENT, is_transient=False)


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
