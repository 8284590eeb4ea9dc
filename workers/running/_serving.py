"""Serve one entity for as long as the worker runs: open it, consume, pause while it cannot be consumed, and end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from sbredis.exceptions import ServiceBusError
from sbredis.workers.declaring._handlers import EntityPlan
from sbredis.workers.running._locks import Held

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusReceiver

__all__ = ["Consuming", "Service"]

_log = logging.getLogger("sbredis.worker")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class Consuming(Held, Protocol):
    """A consumer of an entity, with or without sessions."""

    async def consume(self) -> None:
        """Receive messages and call handlers until cancelled."""
        ...

    async def finish(self, seconds: float) -> None:
        """Let the running handlers finish. Cancel the rest, and give their messages back uncounted."""
        ...


class Service:
    """The service of one entity.

    An entity that is disabled, deleted or cannot be reached pauses its handlers. The service looks again, each time
    after a longer pause, and never ends the worker.
    """

    def __init__(self, plan: EntityPlan, consumer: Consuming, receiver: ServiceBusReceiver) -> None:
        self.plan = plan
        self.entity = plan.source.path
        self.consumer = consumer
        self._receiver = receiver
        self.paused_by: Exception | None = None
        """Why the entity is not consumed now; ``None`` if it is."""

    async def serve(self) -> None:
        """Consume until cancelled."""
        pause = _FIRST_PAUSE
        while True:
            loop = asyncio.get_running_loop()
            began = loop.time()
            try:
                if self.paused_by is not None:
                    await self._receiver.peek_messages(1)
                    _log.info("%s: receiving again", self.entity)
                    self.paused_by = None
                await self.consumer.consume()
            except ServiceBusError as error:
                if self.paused_by is None:
                    _log.warning("%s: paused, and tried again until it works: %s", self.entity, error)
                self.paused_by = error
            if loop.time() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
