"""A limit on the messages and on the bytes under way, like a semaphore for both."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from sbredis._quoting import quoted
from sbredis.exceptions import OperationTimeoutError, Outcome

__all__ = ["Throttle"]


@dataclass(slots=True, eq=False)
class _Waiter:
    """A caller that waits for its allowance of the throttle, and the size of that allowance."""

    messages: int
    size: int
    admitted: asyncio.Future[None]


class Throttle:
    """A limit on messages and bytes under way. Callers that would exceed it wait, in the order in which they came.

    An allowance that is larger than the whole limit is admitted when nothing else is under way.
    """

    __slots__ = ("_bytes", "_idle", "_messages", "_most_bytes", "_most_messages", "_waiters")

    def __init__(self, messages: int, size: int) -> None:
        for name, value in (("max_in_flight", messages), ("max_in_flight_bytes", size)):
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number from 1 on, not {quoted(value)}")
        self._most_messages = messages
        self._most_bytes = size
        self._messages = 0
        self._bytes = 0
        self._waiters: deque[_Waiter] = deque()
        self._idle: asyncio.Future[None] | None = None

    @property
    def messages(self) -> int:
        """The number of messages that are under way."""
        return self._messages

    def try_take(self, messages: int, size: int, *, first: bool = False) -> bool:
        """Take an allowance if this is possible without waiting. Return whether it was taken.

        An allowance that is the ``first`` does not wait for those that came before.
        """
        under_way, held = self._messages + messages, self._bytes + size
        if self._messages and (under_way > self._most_messages or held > self._most_bytes):
            return False
        if self._waiters and not first:
            return False
        self._messages, self._bytes = under_way, held
        return True

    async def take(self, messages: int, size: int, deadline: float) -> None:
        """Wait for the callers that came before, and then take an allowance."""
        if self.try_take(messages, size):
            return
        waiter = _Waiter(messages, size, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter.admitted
        except BaseException as error:
            if waiter.admitted.done() and not waiter.admitted.cancelled():
                self.release(messages, size)
            else:
                with suppress(ValueError):  # the waiter may have left the queue already
                    self._waiters.remove(waiter)
                self._admit()
            if isinstance(error, TimeoutError):
                raise OperationTimeoutError(
                    f"There was no room for more messages before the deadline: {self._messages} messages of "
                    f"{self._bytes} bytes were under way. Send more slowly, or raise max_in_flight or "
                    "max_in_flight_bytes.",
                    outcome=Outcome.NEVER_SENT,
                ) from None
            raise

    def release(self, messages: int, size: int) -> None:
        """Return an allowance."""
        self._messages -= messages
        self._bytes -= size
        if self._waiters:
            self._admit()
        if self._idle is not None and not self._messages and not self._idle.done():
            self._idle.set_result(None)

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._messages:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _admit(self) -> None:
        while self._waiters:
            waiter = self._waiters[0]
            if not waiter.admitted.done():  # otherwise its caller was cancelled
                if not self.try_take(waiter.messages, waiter.size, first=True):
                    return
                waiter.admitted.set_result(None)
            self._waiters.popleft()
