"""What the application wants of an inbox: receive calls that wait, in their order, and credit without callers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sbredis.exceptions import Outcome, ServiceBusError

if TYPE_CHECKING:
    from sbredis.receiving._asking import AskedSource
    from sbredis.receiving._credit_driver import CreditDriver

__all__ = ["ApplicationCredit", "Callers", "ReceiveCall", "closed_error"]

Item = TypeVar("Item")


@dataclass(slots=True, eq=False, repr=False)
class ReceiveCall(Generic[Item]):
    """A receive call of the application that waits at an inbox."""

    missing: int
    gathers: bool
    """Whether the call waits for more messages when it has some."""
    got: list[Item] = field(default_factory=list[Any])
    wants: bool = True
    """Whether the call waits for more messages."""
    unanswered: dict[AskedSource, int] | None = None
    """The partitions whose answer the call still needs, and the search; ``None`` while it waits for messages.

    A call for the messages that are there now needs an answer from each partition. A call that has waited long enough
    also needs these answers. This is a mapping from each partition to the number of its last call: only answers to
    later calls count.
    """
    has_answer: bool = False
    """Whether a partition has answered the call, so that it need not wait for late ones."""
    error: ServiceBusError | None = None
    ended: bool = False
    """Whether the call is to end with what it has."""
    waiter: asyncio.Future[bool] | None = None
    """Tells the call whether there is news; ``None`` if the call does not wait."""
    told: bool = False
    """Whether there was news while the call did not wait."""
    until: float = math.inf
    """The time of the loop at which the wait ends."""

    def tell(self, *, news: bool = True) -> None:
        """End a wait: there is ``news``, or its time is over."""
        waiter, self.waiter = self.waiter, None
        if waiter is None or waiter.done():
            self.told = self.told or news
        else:
            waiter.set_result(news)


class Callers(list[ReceiveCall[Item]]):
    """The receive calls that wait at an inbox, in their order.

    One timer ends their waits. It goes on when a call leaves before its time, because the next call mostly has a later
    time, so that it needs no timer of its own.
    """

    __slots__ = ("_timer", "_timer_at")

    def __init__(self, calls: Iterable[ReceiveCall[Item]] = ()) -> None:
        super().__init__(calls)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def wait(self, caller: ReceiveCall[Item], until: float | None) -> asyncio.Future[bool]:
        """Return a future that is done when there is news, or at the time ``until`` of the loop without news."""
        waiter = caller.waiter = asyncio.get_running_loop().create_future()
        caller.until = math.inf if until is None else until
        if caller.told:
            caller.told = False
            caller.tell()
        elif caller.until < self._timer_at:
            self._set_timer(caller.until)
        return waiter

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if when == math.inf else asyncio.get_running_loop().call_at(when, self._on_time)
        self._timer_at = when

    def _on_time(self) -> None:
        """End the waits whose time is over."""
        now = max(asyncio.get_running_loop().time(), self._timer_at)  # the timer may fire a little early
        for caller in self:
            if caller.until <= now:
                caller.until = math.inf
                caller.tell(news=False)
        self._set_timer(min([caller.until for caller in self], default=math.inf))

    @property
    def demand(self) -> int:
        """The number of messages that calls wait for."""
        count = 0
        for caller in self:
            if caller.wants:
                count += caller.missing
        return count

    @property
    def awaited(self) -> set[AskedSource]:
        """The partitions whose answers calls still need."""
        return {source for caller in self for source in caller.unanswered or ()}

    @property
    def only_want_what_is_there(self) -> bool:
        """Whether there are calls, and all of them want only messages that are there now."""
        for caller in self:
            if caller.unanswered is None:
                return False
        return bool(self)

    async def wait_for_turn(self, turn: Awaitable[None], left: Callable[[ReceiveCall[Item]], None]) -> bool:
        """Wait in a crowd for a turn, as a call that wants nothing yet. Return whether the call may go on.

        It may not if waits were ended meanwhile. ``left`` is called when this wait is over.
        """
        caller: ReceiveCall[Item] = ReceiveCall(0, gathers=False, wants=False)
        self.append(caller)
        try:
            await turn
        finally:
            left(caller)
        if caller.error is not None:
            raise caller.error
        return not caller.ended

    async def gather(self, caller: ReceiveCall[Item], deadline: float | None, pause: float, longest: float) -> None:
        """Wait until the deadline for a message, then only briefly for more: the first message is locked already.

        A ``pause`` between messages ends the wait, and so does the ``longest`` time after the first one.
        """
        loop, enough = asyncio.get_running_loop(), math.inf
        while caller.wants:
            until = deadline
            if caller.got:
                now = loop.time()
                enough = min(enough, now + longest, math.inf if deadline is None else deadline)
                until = min(enough, now + pause)
            if not await self.wait(caller, until):
                return

    async def wait_for_all(self, caller: ReceiveCall[Item], enough_at: float, moment: float, until: float) -> None:
        """Wait until all partitions have answered, or the caller has all messages that it asked for.

        From the time ``enough_at`` on, an answer of one partition is enough that came a ``moment`` ago: if the server
        has stalled, the others answer now.
        """
        loop, enough = asyncio.get_running_loop(), math.inf
        while caller.wants and caller.unanswered:
            if enough == math.inf and (caller.got or caller.has_answer):
                enough = max(enough_at, loop.time() + moment)
            if not await self.wait(caller, min(enough, until)):
                return

    def serve(self, items: Sequence[Item], *, first: bool = False) -> Sequence[Item]:
        """Give items to the calls that want some, in their order. Return those that are left.

        With ``first``, the items are older than those that these calls have.
        """
        at = 0
        for caller in self:
            if at == len(items):
                break
            if caller.missing and caller.error is None:
                part = items[at : at + caller.missing]
                at += len(part)
                if first:
                    caller.got[:0] = part
                else:
                    caller.got += part
                caller.missing -= len(part)
                caller.wants = caller.wants and caller.gathers and caller.missing > 0
                caller.tell()
        return items[at:] if at else items

    def fail(self, error: ServiceBusError) -> None:
        """End all calls with an error."""
        for caller in self:
            caller.error, caller.wants = caller.error or error.twin(), False
            caller.tell()
        self._set_timer(math.inf)

    def close(self) -> None:
        """End all calls with the error for a receiver that is closed, and their timer."""
        if self:
            self.fail(closed_error())
        else:
            self._set_timer(math.inf)

    def end(self) -> None:
        """End all calls with what they have."""
        for caller in self:
            caller.ended, caller.wants = True, False
            caller.tell()
        self._set_timer(math.inf)

    def answered(self, source: AskedSource) -> None:
        """Note that a partition has no more messages, or cannot answer. Calls stop waiting for its answer."""
        some = False
        for caller in self:
            unanswered = caller.unanswered
            if unanswered is None:
                continue
            some = True
            if source not in unanswered:
                continue
            if source.calls > unanswered[source]:
                del unanswered[source]
                caller.has_answer = True
                caller.tell()
            else:
                source.ask_now()  # the partition was asked before this caller came
        if some:
            self.pass_over_late()

    def pass_over_late(self) -> None:
        """Stop waiting for late partitions on behalf of each call that has an answer of another partition."""
        for caller in self:
            unanswered = caller.unanswered
            if unanswered and caller.has_answer and all(source.late for source in unanswered):
                unanswered.clear()
                caller.tell()

    def await_found(self, driver: AskedSource, search: AskedSource) -> bool:
        """Let calls that need the answer to a search wait for a partition that was found. Return whether any do."""
        some = False
        for caller in self:
            if caller.unanswered is not None and search in caller.unanswered:
                caller.unanswered.setdefault(driver, driver.calls)
                some = True
        return some

    def give_up(self, driver: AskedSource) -> None:
        """Let no call wait for an answer of a driver that gives up its seat. Its partition may be found again."""
        for caller in self:
            if caller.unanswered is not None and caller.unanswered.pop(driver, None) is not None:
                caller.tell()


@dataclass(slots=True, eq=False, repr=False)
class ApplicationCredit:
    """The number of messages that the application wants, whether or not callers wait."""

    wanted: int = 0
    """The number of messages that are wanted and have not come."""
    kept: int = 0
    """The number of messages in the buffer that have come by this credit. They stay until they are received."""
    drained: asyncio.Future[None] | None = None
    """The future that is done at the end of the drain; ``None`` while nothing is drained."""
    _awaited: dict[CreditDriver, int] | None = None
    """The partitions that the drain waits for, each with the number of earlier calls."""

    def came(self, messages: int, in_buffer: int) -> None:
        """Count messages that have come, while the buffer had some already."""
        used = min(self.wanted, messages)
        self.wanted -= used
        self.kept = min(self.kept, in_buffer) + used

    def drain(self, drivers: Sequence[CreditDriver], now: float) -> asyncio.Future[None]:
        """Return a future that is done when each partition needs no call, or has answered one that is made from now on.

        Earlier callers of the drain wait for these calls, too.
        """
        drained = self.drained = self.drained or asyncio.get_running_loop().create_future()
        self._awaited = {driver: driver.calls for driver in drivers}
        self.look(now)
        return drained

    def look(self, now: float) -> None:
        """End the drain if it is over."""
        awaited = self._awaited or {}
        for driver, calls in list(awaited.items()):
            later = driver.calls - calls
            if driver.troubled:
                continue  # its last call was no answer
            if later > 1 or (not driver.under_way and (later or not driver.credit.needs_call(now))):
                del awaited[driver]
        if not awaited:
            self.end_drain()

    def end_drain(self) -> None:
        """End the drain, because there is nothing to wait for any more."""
        drained, self.drained, self._awaited = self.drained, None, None
        if drained is not None:
            drained.set_result(None)


def closed_error() -> ServiceBusError:
    """Return the error for a call that waits at a receiver when it is closed."""
    return ServiceBusError("The receiver was closed.", outcome=Outcome.NEVER_SENT, is_transient=False)
