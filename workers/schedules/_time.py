"""The time by which a worker waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

__all__ = ["Time"]

_LONGEST_SLEEP = 60.0


class Time:
    """The clock of a worker. A worker reads the time here, and waits here for times to come.

    Tests replace it with the clock of their bus.
    """

    def now(self) -> float:
        """Return a time in seconds that never goes back."""
        return time.monotonic()

    def utc(self) -> datetime:
        """Return the time of day in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a number of seconds."""
        return asyncio.get_running_loop().call_later(seconds, function)

    async def until(self, when: datetime, seconds: float) -> None:
        """Wait for a time of the server that is a number of seconds away, but at most a minute: its clock may be set.

        A test counts the time from the end of this wait to the next one as work.
        """
        del when
        await self.sleep(min(seconds, _LONGEST_SLEEP))

    async def wait(self, event: asyncio.Event, seconds: float | None) -> None:
        """Wait until an event is set, or for a number of seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    @property
    def hurried(self) -> bool:
        """Whether nothing waits for further messages now: batches are handled as they are, idle sessions given back."""
        return False

    def patience(self, seconds: float) -> float:
        """Return for how many of these seconds a receiver waits for messages before it looks at the time again."""
        return max(0.0, seconds)
