# pyright: reportPrivateUsage=false
"""Where the messages of a receiver come in: fetched as they are asked for, and given to those who wait in their order.

Nothing here waits but those who want messages. What happens (somebody asks, a call is answered, a partition wakes us,
a time has come) leads to :meth:`Inbox.pump`, which makes the calls that are wanted now:

* Without prefetching, no more is asked for than somebody waits for, and of one partition at a time, so no message is
  locked that nobody asked for. What nobody waits for any more when it comes is given back, uncounted.
* A partition is *lively* as long as it may have something. One that has nothing has us registered, in the same run of
  its script, and wakes us; until then it is left alone, but for a look before the registration ends or when something
  is due in it.
* Of several partitions of which nothing is known, all are looked at first, at once, which locks nothing.
* A call whose answer is late keeps its place and is answered in the end; meanwhile the other partitions are asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from sbredis.aio._buffer import Buffer
from sbredis.aio._spot import Spot
from sbredis.engine import Side
from sbredis.exceptions import MessagingEntityDisabledError, Outcome, ServiceBusError
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.aio._entity import Entity

__all__ = ["Inbox"]

_log = logging.getLogger("sbredis.client")
_GATHERING = 0.2
"""Who has got something waits no longer than this for more."""
_MOST = 1000


class _Caller:
    """Somebody who waits for messages."""

    __slots__ = ("error", "got", "missing", "news")

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.got: list[ServiceBusReceivedMessage] = []
        self.error: ServiceBusError | None = None
        self.news: asyncio.Future[None]

    def tell(self) -> None:
        if not self.news.done():
            self.news.set_result(None)


class Inbox:
    """The messages of one receiver: of the entity itself or its dead-letter queue."""

    def __init__(
        self,
        entity: Entity,
        identity: str,
        *,
        side: Side,
        mode: ServiceBusReceiveMode,
        prefetch: int,
        adaptive: bool,
        empty: bool = False,
    ) -> None:
        self.entity = entity
        self.identity = identity
        self.side: Side = side
        self.mode = mode
        self.buffer = Buffer(self, prefetch, adaptive=adaptive)
        self._loop = asyncio.get_running_loop()
        self._callers: deque[_Caller] = deque()
        self._spots = [] if empty else [Spot(self, number) for number in entity.numbers]
        self._at = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._trouble: ServiceBusError | None = None
        self._ended_moving = entity.connection.clock.when_moved(self._clock_moved)

    # -- for callers ---------------------------------------------------------------------------------------------------

    async def take(self, wanted: int, seconds: float | None) -> list[ServiceBusReceivedMessage]:
        """Up to so many messages, as soon as there are any; none if none came in so many seconds.

        Who waits and is cancelled gives back what came in the same moment.
        """
        got = self.buffer.take(wanted)
        if len(got) == wanted:
            self.pump()
            return got
        caller = _Caller(wanted - len(got))
        caller.got = got
        caller.news = self._loop.create_future()
        self._callers.append(caller)
        try:
            self.pump()
            await self._gather(caller, None if seconds is None else self._loop.time() + seconds)
        except BaseException:
            self._callers.remove(caller)
            self._take_back(caller.got)
            raise
        self._callers.remove(caller)
        if caller.error is not None:
            if not caller.got:
                raise caller.error
            _log.warning("receiving ended early: %s", caller.error)
        elif not caller.got and self._trouble is not None and all(spot.troubled for spot in self._spots):
            raise self._trouble.twin()
        self.buffer.consumed(len(caller.got))
        return caller.got

    async def _gather(self, caller: _Caller, deadline: float | None) -> None:
        """Wait for the first message until the deadline, and then for more while they come soon."""
        while caller.missing and caller.error is None:
            until = deadline
            if caller.got:
                soon = self._loop.time() + _GATHERING
                until = soon if deadline is None else min(deadline, soon)
            if not caller.news.done():
                try:
                    async with asyncio.timeout_at(until):
                        await caller.news
                except TimeoutError:
                    return
            caller.news = self._loop.create_future()

    @property
    def demand(self) -> int:
        """How many messages are waited for."""
        return sum(caller.missing for caller in self._callers)

    # -- what happens --------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Make the calls that are wanted now."""
        if self._closed:
            return
        missing = self.demand
        if not missing and not self.buffer.most:
            return
        missing += self.buffer.room(waited_for=bool(missing))
        missing -= sum(spot.asked for spot in self._spots if not spot.late)
        while missing > 0:
            spot = self._next()
            if spot is None:
                break
            unknown = [] if spot.known else [each for each in self._spots if each.idle and not each.known]
            if len(unknown) > 1:
                for each in unknown:
                    each.look()
                break
            wanted = min(missing, _MOST)
            spot.ask(wanted)
            missing -= wanted
        self._set_timer()

    def _next(self) -> Spot | None:
        """The partition to be asked next: one that is known to have something, else one that may, taking turns."""
        spots = self._spots
        if len(spots) == 1:
            return spots[0] if spots[0].idle else None
        found: Spot | None = None
        for step in range(len(spots)):
            spot = spots[(self._at + step) % len(spots)]
            if spot.idle and (found is None or (spot.known and not found.known)):
                found = spot
                if spot.known:
                    break
        if found is not None:
            self._at = (spots.index(found) + 1) % len(spots)
        return found

    def received(self, messages: list[ServiceBusReceivedMessage]) -> None:
        """A call was answered, with these."""
        self._trouble = None
        if self._closed:
            self.give_back(messages)
        elif messages:
            self._hand_out(messages)
        self.pump()

    def failed(self, spot: Spot, error: ServiceBusError) -> None:
        """A call failed: what another attempt may mend is tried again, beside the others; the rest is told to all."""
        self._trouble = error
        passing = error.is_transient and not isinstance(error, MessagingEntityDisabledError)
        if not passing:
            for caller in self._callers:
                caller.error = error.twin()
                caller.tell()
            return
        _log.info("%s: %s", spot.desk, error)
        self._set_timer()

    def woken(self, spot: Spot) -> None:
        """A partition has something, or may have: it is asked, or, if nobody wants anything, passes it on."""
        spot.rouse()
        self.pump()
        if spot.idle and not self._closed and not self.demand and not self.buffer.room(waited_for=False):
            spot.look()  # who is woken and does not come holds up those who would

    def _hand_out(self, messages: list[ServiceBusReceivedMessage]) -> None:
        at = 0
        for caller in self._callers:
            if at == len(messages):
                return
            if caller.missing and caller.error is None:
                part = messages[at : at + caller.missing]
                at += len(part)
                caller.got += part
                caller.missing -= len(part)
                caller.tell()
        self._take_back(messages[at:] if at else messages)

    def _take_back(self, messages: list[ServiceBusReceivedMessage]) -> None:
        """What nobody waits for: kept for who asks next, if it is to be kept, else given back."""
        if not messages:
            return
        if self._closed:
            self.give_back(messages)
            return
        if any(caller.missing for caller in self._callers):
            self._hand_out(messages)
            return
        kept = len(messages) if self.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE else self.buffer.space
        self.buffer.put(messages[:kept])
        self.give_back(messages[kept:])

    def give_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give messages back to the partition unread, which counts no delivery."""
        if not messages:
            return
        if self.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            self.buffer.put(messages)  # there is nobody to give them to
            return
        now = self.entity.connection.clock.now()
        for message in messages:
            if message._lock_expired(now):
                continue
            desk = self.entity.desk(self.number_of(message))
            desk.give_back(message)

    def number_of(self, message: ServiceBusReceivedMessage) -> int:
        """The partition of a message."""
        return message._base >> 48 if self.entity.partitioned else self.entity.numbers[0]

    # -- time ----------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Be called when the next partition is to be looked at, or what is kept is to be given back."""
        when = self.buffer.until
        if self._callers or self.buffer.wants_more:
            for spot in self._spots:
                look_at = spot.look_at
                if look_at is not None and (when is None or look_at < when):
                    when = look_at
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
        for spot in self._spots:
            spot.on_time(now)
        self.buffer.on_time()
        self.pump()
        self._set_timer()

    def _clock_moved(self) -> None:
        for spot in self._spots:
            spot.rouse()
        self.buffer.on_time()
        self.pump()

    # -- the end -------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Give back what is kept, wait for the answers that are under way and give back what they bring."""
        if self._closed:
            return
        self._closed = True
        self._ended_moving()
        if self._timer is not None:
            self._timer.cancel()
        for caller in self._callers:
            caller.error = ServiceBusError("The receiver was closed.", outcome=Outcome.NEVER_SENT, is_transient=False)
            caller.tell()
        self.give_back(self.buffer.empty())
        await asyncio.gather(*(spot.aclose() for spot in self._spots))
        lost = len(self.buffer.empty())
        if lost:
            _log.warning(
                "%s: %d messages that were received and deleted, and that nobody asked for before the receiver was "
                "closed, are lost",
                self.entity.name,
                lost,
            )
        for desk in {self.entity.desk(number) for number in self.entity.numbers}:
            await desk.given_back()
