"""A caller's request for messages that waits at an inbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusConnectionError, ServiceBusError
from sbredis.model import ServiceBusReceivedMessage

if TYPE_CHECKING:
    from sbredis.client._entity import Entity
    from sbredis.receiving._watcher import PartitionWatcher

__all__ = ["ReceiveCall", "unanswered"]


def unanswered(entity: Entity, *, late: bool) -> ServiceBusError:
    """Return the error for a receive that no partition has answered; ``late`` if an answer may still come."""
    peer = entity.connection.target
    error: ServiceBusError = (
        OperationTimeoutError(f"{peer} has not answered in time.", outcome=Outcome.UNKNOWN)
        if late
        else ServiceBusConnectionError(f"{peer} cannot be reached.", outcome=Outcome.NEVER_SENT)
    )
    error.entity = entity.name
    return error


class ReceiveCall:
    """A request for messages that waits at an inbox."""

    __slots__ = ("_loop", "_news", "error", "gathers", "got", "missing", "unanswered")

    def __init__(self, loop: asyncio.AbstractEventLoop, missing: int, *, gathers: bool) -> None:
        self.missing = missing
        self.gathers = gathers
        """Whether the request waits for more messages when it has some."""
        self.unanswered: dict[PartitionWatcher, int] | None = None
        """The partitions whose answer the request still needs; ``None`` while it waits for messages to come.

        A request for the messages that are there now needs an answer from each partition. A request that has waited
        long enough also needs these answers. This is a mapping from each partition to the number of a call: only
        answers to later calls count.
        """
        self.got: list[ServiceBusReceivedMessage] = []
        self.error: ServiceBusError | None = None
        self._loop = loop
        self._news: asyncio.Future[bool] = loop.create_future()
        """Whether there is news; false if there was none until the end of a wait."""

    @property
    def waits(self) -> bool:
        """Whether the request needs more messages."""
        return self.missing > 0 and self.error is None

    @property
    def content(self) -> bool:
        """Whether the request has messages and does not wait for more."""
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
