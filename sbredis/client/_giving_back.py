"""The locks that a client gives back to a partition: those of messages and sessions that no caller has got.

Nobody else can have these messages while their locks hold, and nobody here would see an error. So a release that has
failed is tried again as long as its lock may hold, whatever the error: the server may take the user's credentials again
in a moment, or have memory again. Only an answer about the lock itself ends this sooner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sbredis.client._delivering import DefectError
from sbredis.client._pauses import Pauses
from sbredis.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    SessionLockLostError,
)

if TYPE_CHECKING:
    from sbredis.client._partition_client import PartitionClient

__all__ = ["GivingBack"]

_log = logging.getLogger("sbredis.client")
_SHORTEST: Final = 10.0
"""The seconds for which a release is tried again at least."""
_AGAIN: Final = (0.1, 1.0)
"""The first and the longest pause before releases that have failed are made again."""
_ENDS: Final = (
    MessageLockLostError,
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    SessionLockLostError,
    DefectError,
)
"""The errors after which a release is not made again: there is no such lock any more, or the call cannot be made."""

Release = Callable[[float], asyncio.Future[Any]]
"""Begins to release a lock, until a time of the loop, and returns the future outcome."""


class _Failed(NamedTuple):
    """A release that has failed and is made again."""

    given: asyncio.Future[None]
    release: Release
    until: float
    error: BaseException


class GivingBack:
    """The releases at one partition that have not ended."""

    __slots__ = ("_failed", "_link", "_loop", "_open", "_pauses", "_timer")

    def __init__(self, link: PartitionClient) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._open: set[asyncio.Future[None]] = set()
        self._failed: list[_Failed] = []
        """The releases that are made again when the timer fires, all of them together."""
        self._timer: asyncio.TimerHandle | None = None
        self._pauses = Pauses(*_AGAIN)

    def give(self, release: Release) -> asyncio.Future[None]:
        """Release a lock in the background, and return the future outcome. Nobody has to read it."""
        until = self._loop.time() + max(_SHORTEST, self._link.entity.record.settings.lock_duration / 1000)
        given: asyncio.Future[None] = self._loop.create_future()
        self._make(given, release, until)
        self._open.add(given)
        return given

    async def ended(self, until: float) -> bool:
        """Wait until all releases have ended, but not longer than until this time. Return whether they have ended."""
        while self._open and (left := until - self._loop.time()) > 0:
            await asyncio.wait(list(self._open), timeout=left)
        return not self._open

    def close(self) -> None:
        """End the releases that have failed, because the client is closed."""
        if self._timer is not None:
            self._timer.cancel()
        failed, self._failed = self._failed, []
        for each in failed:
            self._end(each.given, each.error)

    def _make(self, given: asyncio.Future[None], release: Release, until: float) -> None:
        release(until).add_done_callback(partial(self._made, given, release, until))

    def _made(self, given: asyncio.Future[None], release: Release, until: float, made: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if made.cancelled() else made.exception()
        if error is None:
            self._pauses.reset()
            self._end(given, None)
        elif isinstance(error, _ENDS) or self._link.connection.closed or self._loop.time() >= until:
            self._end(given, error)
        else:
            self._failed.append(_Failed(given, release, until, error))
            if self._timer is None:
                self._timer = self._loop.call_later(self._pauses.next(), self._make_again)

    def _make_again(self) -> None:
        self._timer = None
        failed, self._failed = self._failed, []
        for given, release, until, error in failed:
            if self._loop.time() < until:
                self._make(given, release, until)
            else:
                self._end(given, error)

    def _end(self, given: asyncio.Future[None], error: BaseException | None) -> None:
        self._open.discard(given)
        if given.done():
            return
        if error is None:
            given.set_result(None)
            return
        _log.debug("%s: a lock could not be released, and holds until it lapses: %s", self._link, error)
        given.set_exception(error)
        given.exception()  # asyncio would report an error that is never read
