"""Time-outs of handlers: a coroutine is cancelled, and a plain function in a thread is only told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from sbredis.workers.running._calls import HandlerCall

__all__ = ["ThreadTimeout", "limited"]

_log = logging.getLogger("sbredis.worker")


@asynccontextmanager
async def limited(seconds: float | None) -> AsyncGenerator[None]:
    """Cancel the block if a handler runs longer in it. The error says so, and has the traceback of the handler."""
    cancelled: asyncio.CancelledError | None = None
    try:
        async with asyncio.timeout(seconds):
            try:
                yield
            except asyncio.CancelledError as error:
                cancelled = error
                raise
    except TimeoutError:
        if cancelled is None:
            raise  # it is an error of the handler itself
        late = TimeoutError(f"The handler ran longer than {seconds:g} s.")
        raise late.with_traceback(cancelled.__traceback__) from None


class ThreadTimeout:
    """Tells a plain function that its time is over. Its thread cannot be ended, so it is waited for.

    The time begins with the function, and not while it waits for a thread.
    """

    def __init__(self, call: HandlerCall, seconds: float) -> None:
        call.timed_out = False
        self._call = call
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def during(self, work: Callable[[], Any]) -> Any:
        """Call a function, and count its time. Called in a thread."""
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._begin)
        return work()

    def _begin(self) -> None:
        if not self._ended:
            self._timer = self._loop.call_later(self._seconds, self._late)

    def _late(self) -> None:
        call = self._call
        call.timed_out = True
        _log.warning(
            "%s: %s has run for longer than its time-out of %g s for message %s, and runs on in its thread",
            call.entity,
            call.handler.name,
            self._seconds,
            call.message.sequence_number,
        )
