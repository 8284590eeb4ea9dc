"""Senders to the queues and topics that handlers send to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from sbredis.aio import ServiceBusClient, ServiceBusSender
from sbredis.model import ServiceBusMessage

__all__ = ["Senders"]

_UNUSED: Final = 300.0
"""The seconds after which a sender is closed that was not used. No call that uses a sender takes so long."""


class Senders:
    """The senders of a worker, one for each queue or topic that it has sent to lately."""

    def __init__(self, client: ServiceBusClient, now: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._now = now
        self._senders: dict[str, tuple[ServiceBusSender, float]] = {}
        """The senders, each with the time of its last use, in the order of these times."""
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return the number of senders."""
        return len(self._senders)

    def to(self, entity: str) -> ServiceBusSender:
        """Return the sender to a queue or topic, for one call."""
        now = self._now()
        known = self._senders.pop(entity, None)
        if known is None:
            self._close_unused(now)
            known = (self._client.get_sender(entity), now)
        self._senders[entity] = (known[0], now)
        return known[0]

    async def send_once(self, entity: str, message: ServiceBusMessage, seconds: float) -> None:
        """Send a message to a queue or topic that the worker may never send to again: that of one who asks."""
        sender = self._client.get_sender(entity)
        try:
            await sender.send_messages(message, timeout=seconds)
        finally:
            await sender.close()

    def _close_unused(self, now: float) -> None:
        while self._senders:
            entity, (sender, used) = next(iter(self._senders.items()))
            if now - used < _UNUSED:
                return
            del self._senders[entity]
            task = asyncio.get_running_loop().create_task(sender.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
