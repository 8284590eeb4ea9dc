"""The callers of an inbox: receive calls of the application that wait, in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from sbredis.receiving._credit_driver import CreditDriver
    from sbredis.receiving._searching import SeatSearch

__all__ = ["Callers", "ReceiveCall"]

Item = TypeVar("Item")


class ReceiveCall(Generic[Item]):
    """A receive call of the application that waits at an inbox."""

    __slots__ = ("_loop", "_news", "ended", "error", "gathers", "got", "has_answer", "missing", "unanswered")

    def __init__(self, loop: asyncio.AbstractEventLoop, missing: int, *, gathers: bool) -> None:
        self.missing = missing
        self.gathers = gathers
        """Whether the call waits for more messages when it has some."""
        self.unanswered: dict[CreditDriver | SeatSearch, int] | None = None
        """The partitions whose answer the call still needs, and the search; ``None`` while it waits for messages.

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
    def wants(self) -> bool:
        """Whether the call waits for more messages."""
        if self.ended or self.error is not None or not self.missing:
            return False
        return self.gathers or not self.got

    def tell(self, *, news: bool = True) -> None:
        """End a wait: there is ``news``, or its time is over."""
        if not self._news.done():
            self._news.set_result(news)

    async def wait(self, until: float | None) -> bool:
        """Wait until there is news. Return ``False`` if there was no news until the time ``until`` of the loop."""
        timer = None
        if until is not None and not self._news.done():
            timer = self._loop.call_at(until, partial(self.tell, news=False))
        try:
            return await self._news
        finally:
            if timer is not None:
                timer.cancel()
            self._news = self._loop.create_future()


class Callers(list[ReceiveCall[Item]]):
    """The receive calls that wait at an inbox, in their order."""

    __slots__ = ()

    @property
    def demand(self) -> int:
        """The number of messages that calls wait for."""
        count = 0
        for caller in self:
            if caller.wants:
                count += caller.missing
        return count

    @property
    def awaited(self) -> set[CreditDriver | SeatSearch]:
        """The partitions whose answers calls still need."""
        return {source for caller in self for source in caller.unanswered or ()}

    @property
    def only_want_what_is_there(self) -> bool:
        """Whether there are calls, and all of them want only messages that are there now."""
        for caller in self:
            if caller.unanswered is None:
                return False
        return bool(self)

    def serve(self, items: Sequence[Item]) -> Sequence[Item]:
        """Give items to the calls that want some, in their order. Return those that are left."""
        at = 0
        for caller in self:
            if at == len(items):
                break
            if caller.missing and caller.error is None:
                part = items[at : at + caller.missing]
                at += len(part)
                caller.got += part
                caller.missing -= len(part)
                caller.tell()
        return items[at:] if at else items

    def fail(self, error: ServiceBusError) -> None:
        """End all calls with an error."""
        for caller in self:
            caller.error = caller.error or error.twin()
            caller.tell()

    def end(self) -> None:
        """End all calls with what they have."""
        for caller in self:
            caller.ended = True
            caller.tell()

    def answered(self, source: CreditDriver | SeatSearch) -> None:
        """Note that a partition has no more messages, or cannot answer. Calls stop waiting for its answer."""
        for caller in self:
            unanswered = caller.unanswered
            if unanswered is None or source not in unanswered:
                continue
            if source.calls > unanswered[source]:
                del unanswered[source]
                caller.has_answer = True
                caller.tell()
            else:
                source.ask_now()  # the partition was asked before this caller came
        self.pass_over_late()

    def pass_over_late(self) -> None:
        """Stop waiting for late partitions on behalf of each call that has an answer of another partition."""
        for caller in self:
            unanswered = caller.unanswered
            if unanswered and caller.has_answer and all(source.late for source in unanswered):
                unanswered.clear()
                caller.tell()

    def await_found(self, driver: CreditDriver, search: SeatSearch) -> bool:
        """Let calls that need the answer to a search wait for a partition that was found. Return whether any do."""
        some = False
        for caller in self:
            if caller.unanswered is not None and search in caller.unanswered:
                caller.unanswered.setdefault(driver, driver.calls)
                some = True
        return some

    def give_up(self, driver: CreditDriver) -> None:
        """Let no call wait for an answer of a driver that gives up its seat. Its partition may be found again."""
        for caller in self:
            if caller.unanswered is not None and caller.unanswered.pop(driver, None) is not None:
                caller.tell()
