"""The credit of the application: messages that are wanted without callers, until they have come or are drained."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbredis.receiving._credit_driver import CreditDriver

__all__ = ["ApplicationCredit"]


class ApplicationCredit:
    """The number of messages that the application wants, whether or not callers wait."""

    __slots__ = ("_awaited", "drained", "kept", "wanted")

    def __init__(self) -> None:
        self.wanted = 0
        """The number of messages that are wanted and have not come."""
        self.kept = 0
        """The number of messages in the buffer that have come by this credit. They stay until they are received."""
        self.drained: asyncio.Future[None] | None = None
        """The future that is done at the end of the drain; ``None`` while nothing is drained."""
        self._awaited: dict[CreditDriver, int] | None = None
        """The partitions that the drain waits for, each with the number of earlier calls."""

    def came(self, messages: int, in_buffer: int) -> None:
        """Count messages that have come, while the buffer had some already."""
        used = min(self.wanted, messages)
        self.wanted -= used
        self.kept = min(self.kept, in_buffer) + used

    def end(self) -> int:
        """Want no more messages. Return how many were wanted."""
        wanted, self.wanted = self.wanted, 0
        return wanted

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
