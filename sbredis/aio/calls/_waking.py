"""Being woken by a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sbredis.aio.core._watching import REGISTERED
from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from sbredis.aio.calls._partition_link import PartitionLink
    from sbredis.transport import Transport

__all__ = ["REGISTERED", "Listening", "WakeChannel", "listen"]


class Listening(Protocol):
    """A channel that is listened to."""

    def close(self) -> None:
        """Listen no more."""
        ...


@dataclass(frozen=True, slots=True)
class _Ear:
    """Hears what is said on a channel. It is one receiver's own, so that something was said is all that matters."""

    woken: Callable[[], None]
    missed: Callable[[], None]

    def message(self, payload: bytes) -> None:
        """The partition has something."""
        del payload
        self.woken()

    def gap(self) -> None:
        """Nobody listened for a while: it may have something."""
        self.missed()


async def listen(
    transport: Transport, channel: bytes, *, woken: Callable[[], None], missed: Callable[[], None]
) -> Listening:
    """Listen to a channel: ``woken`` is called in the event loop when there is something, ``missed`` when that may
    have gone unheard.
    """
    return await transport.subscribe(channel, _Ear(woken, missed))


class WakeChannel:
    """The channel over which a partition wakes one waiter. It is opened when it is first needed."""

    def __init__(
        self,
        link: PartitionLink,
        identity: str,
        *,
        woken: Callable[[], None],
        missed: Callable[[], None],
        heard: Callable[[], None],
        failed: Callable[[ServiceBusError], None],
    ) -> None:
        self._link = link
        self._identity = identity
        self._told = woken, missed, heard, failed
        self._listening: Listening | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.name = b""
        """What the partition is told to wake; empty until the channel can be heard."""

    @property
    def opening(self) -> bool:
        """Whether it is being opened."""
        return self._task is not None and not self._task.done()

    def open(self) -> None:
        """Begin to listen. Tells ``heard`` when the channel can be heard, or ``failed``."""
        if not self._closed and self._listening is None and not self.opening:
            self._task = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        woken, missed, heard, failed = self._told
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
        """Open it no more, and wait until nothing of that is left."""
        self._closed = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))

    def abandon(self) -> None:
        """Listen no more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._listening is not None:
            self._listening.close()
            self._listening, self.name = None, b""
