"""Keep the locks of everything that handlers work on, from a thread that a blocked event loop does not stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from sbredis.aio import BackgroundLockRenewer, ServiceBusClient, ServiceBusSession
from sbredis.model import ServiceBusReceivedMessage

__all__ = ["Held", "Locks", "Renewable", "snapshot"]

T = TypeVar("T")

_log = logging.getLogger("sbredis.worker")
_BEAT: Final = 0.5
Renewable = ServiceBusReceivedMessage | ServiceBusSession


class Held(Protocol):
    """A consumer, as its locks see it."""

    def renewables(self) -> Iterable[Renewable]:
        """Return the messages and sessions that handlers work on now. Called in another thread."""
        ...

    def lost(self, renewable: Renewable) -> bool:
        """End the call of a message or session whose lock was lost. Return whether there is one."""
        ...


class Locks:
    """The locks of a worker.

    They are renewed for as long as the event loop turns. If it has not turned for ``stuck_after`` seconds, the worker
    counts as stuck, and its messages become free for others.
    """

    def __init__(self, client: ServiceBusClient, consumers: Iterable[Held], stuck_after: float) -> None:
        self._consumers = list(consumers)
        self._stuck_after = stuck_after
        self._turned = time.monotonic()
        self._beat: asyncio.TimerHandle | None = None
        self._renewer = BackgroundLockRenewer(client, self._held, on_lost=self._lost, while_alive=self.alive)

    async def __aenter__(self) -> None:
        self._turn()
        await self._renewer.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        if self._beat is not None:
            self._beat.cancel()
        await self._renewer.close()

    def alive(self) -> bool:
        """Return whether the event loop has turned lately."""
        return time.monotonic() - self._turned < self._stuck_after

    def _turn(self) -> None:
        self._turned = time.monotonic()
        self._beat = asyncio.get_running_loop().call_later(_BEAT, self._turn)

    def _held(self) -> list[Renewable]:
        return [renewable for consumer in self._consumers for renewable in consumer.renewables()]

    def _lost(self, renewable: Renewable, error: Exception | None) -> None:
        for consumer in self._consumers:
            if consumer.lost(renewable):
                if isinstance(renewable, ServiceBusSession):
                    what = f"session {renewable.session_id!r}"
                else:
                    what = f"message {renewable.sequence_number}"
                _log.warning("the lock on %s was lost while its handler ran: %s", what, error)
                return


def snapshot(values: Iterable[T]) -> list[T]:
    """Return the values of a dictionary that another thread may be changing."""
    while True:
        try:
            return list(values)
        except RuntimeError:  # it has changed in between
            continue
