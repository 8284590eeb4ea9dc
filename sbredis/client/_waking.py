"""Listen to the channel over which a partition wakes a waiter, and keep the watch of that partition up to date."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from sbredis.client._watching import Watch
from sbredis.exceptions import MessagingEntityDisabledError, ServiceBusError

if TYPE_CHECKING:
    from sbredis.client._partition_client import PartitionClient
    from sbredis.transport import Subscription, Transport

__all__ = ["LiveWatch", "WakeChannel", "listen", "may_recover"]

_log = logging.getLogger("sbredis.client")


class _WakeListener(NamedTuple):
    """Reports the events of a channel. The content of a message says nothing more than that the message came."""

    woken: Callable[[], None]
    missed: Callable[[], None]

    def message(self, payload: bytes) -> None:
        """Record that the partition has woken the waiter."""
        del payload
        self.woken()

    def gap(self) -> None:
        """Record that the client did not listen for a while, so a wake-up may have been lost."""
        self.missed()


async def listen(
    transport: Transport, channel: bytes, *, woken: Callable[[], None], missed: Callable[[], None]
) -> Subscription:
    """Listen to a channel. Call ``woken`` for each message, and ``missed`` if one may be lost, in the event loop."""
    return await transport.subscribe(channel, _WakeListener(woken, missed))


class WakeChannel:
    """The channel over which a partition wakes one waiter. It is opened when it is first needed."""

    def __init__(
        self,
        link: PartitionClient,
        identity: str,
        *,
        woken: Callable[[], None],
        missed: Callable[[], None],
        heard: Callable[[], None],
        failed: Callable[[ServiceBusError], None],
    ) -> None:
        self._link = link
        self._identity = identity
        self._callbacks = woken, missed, heard, failed
        self._listening: Subscription | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.name = b""
        """The name by which the partition can wake this waiter; empty until the client can hear the channel."""

    @property
    def opening(self) -> bool:
        """Whether the channel is being opened."""
        return self._task is not None and not self._task.done()

    def open(self) -> None:
        """Start to listen. Call ``heard`` when the client can hear the channel, or ``failed`` if this fails."""
        if not self._closed and self._listening is None and not self.opening:
            self._task = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        woken, missed, heard, failed = self._callbacks
        name = self._link.channel(self._identity)
        try:
            listening = await listen(self._link.transport, name, woken=woken, missed=missed)
        except ServiceBusError as error:
            failed(error)
            return
        if self._closed:
            listening.close()
            return
        self._listening, self.name = listening, name
        heard()

    async def stop_opening(self) -> None:
        """Stop opening the channel, and wait until the attempt has ended."""
        self._closed = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))

    def abandon(self) -> None:
        """Stop listening, without waiting."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._listening is not None:
            self._listening.close()
            self._listening, self.name = None, b""


class LiveWatch:
    """A partition that is watched. The object reports each event to its :class:`Watch`, and then to its owner.

    The owner makes the calls, and reports the end of each call. This class does everything else, because it is the same
    for all owners.
    """

    def __init__(
        self,
        link: PartitionClient,
        identity: str,
        *,
        changed: Callable[[], None],
        failed: Callable[[ServiceBusError], None],
    ) -> None:
        """``changed`` is called when the owner may have something to do, and ``failed`` when listening has failed."""
        self._link = link
        self.watch = Watch(link.connection.timings)
        """The decisions about this partition."""
        self._changed = changed
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._channel = WakeChannel(
            link,
            identity,
            woken=self._woken,
            missed=self._missed,
            heard=self._heard,
            failed=self._cannot_listen,
        )

    @property
    def waiter(self) -> bytes:
        """The channel on which the partition wakes the owner; empty while the client does not listen."""
        return self._channel.name

    @property
    def opening(self) -> bool:
        """Whether the channel is being opened."""
        return self._channel.opening

    @property
    def troubled(self) -> bool:
        """Whether the last call failed, the answer is late, or a call is under way without a connection."""
        return self.watch.troubled or (self.watch.under_way and not self._link.connected)

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still come: a call is under way or allowed, the last calls did not fail, and there is a
        connection.
        """
        watch = self.watch
        return (watch.under_way or watch.may_ask) and not watch.failing and self._link.connected

    # -- how calls end -------------------------------------------------------------------------------------------------

    def nothing(self, due: int, *, registered: bool) -> None:
        """End a call that found nothing. ``due`` is the time in ms until work is due; 0 means never."""
        self.watch.nothing(self._loop.time(), due / 1000, registered=registered)
        if self.watch.unheard and self.waiter:
            self.watch.heard()

    def failed(self, error: BaseException) -> None:
        """End a call that failed."""
        self.watch.failed(self._loop.time(), refused=not may_recover(error))

    # -- events --------------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Start to listen if the partition has nothing and cannot wake us yet."""
        if self.watch.unheard:
            self._channel.open()

    def on_time(self, now: float) -> None:
        """Look again if it is time for a look, or if the partition has no connection over which it can wake us."""
        watch = self.watch
        watch.time_passed(now)
        if not watch.under_way and not watch.may_ask and not watch.troubled and not self._link.connected:
            watch.disconnected()

    def _woken(self) -> None:
        self.watch.woken()
        self._changed()

    def _missed(self) -> None:
        self.watch.missed()
        self._changed()

    def _heard(self) -> None:
        self.watch.heard()
        self._changed()

    def _cannot_listen(self, error: ServiceBusError) -> None:
        self.watch.cannot_listen(self._loop.time(), refused=not may_recover(error))
        self._failed(error)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def stop_opening(self) -> None:
        """Stop opening the channel."""
        await self._channel.stop_opening()

    async def unregister(self, tell: Callable[[], Awaitable[object]]) -> None:
        """End the watch. First call ``tell`` if the partition may have registered the owner."""
        if self.waiter and self.watch.may_be_registered and self._link.connected:
            try:
                await tell()
            except ServiceBusError as error:
                _log.debug("%s could not be informed that a receiver no longer waits: %s", self._link, error)
        self.leave()

    def leave(self) -> None:
        """End the watch."""
        self.watch.leave()
        self._channel.abandon()


def may_recover(error: BaseException) -> bool:
    """Return whether another attempt may succeed."""
    if not isinstance(error, ServiceBusError):
        return True
    return error.is_transient and not isinstance(error, MessagingEntityDisabledError)
