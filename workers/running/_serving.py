"""Serve one entity for as long as the worker runs: open it, consume, pause while it cannot be consumed, and end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from sbredis.exceptions import ServiceBusError
from sbredis.workers.declaring._handlers import EntityPlan
from sbredis.workers.running._gates import Gates
from sbredis.workers.running._locks import LockHolder
from sbredis.workers.schedules._time import Time

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusReceiver

__all__ = ["Consuming", "Service"]

_log = logging.getLogger("sbredis.worker")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STEADY = 1.0
"""The seconds after which a service that receives again counts as steady."""


class Consuming(LockHolder, Protocol):
    """A consumer of an entity, with or without sessions."""

    @property
    def gates(self) -> Gates:
        """The middleware that may hold the handlers back."""
        ...

    @property
    def left(self) -> set[asyncio.Task[None]]:
        """The tasks that did not end although they were cancelled, and for which the worker does not wait."""
        ...

    async def consume(self) -> None:
        """Receive messages and call handlers until cancelled."""
        ...

    def cancel(self) -> None:
        """Cancel the running handlers."""
        ...

    async def finish(self, seconds: float, cancelling: float) -> None:
        """Let the running handlers finish. Cancel the rest, and give their messages back uncounted."""
        ...


class Service:
    """The service of one entity. It never ends the worker.

    An entity that is disabled, deleted or cannot be reached pauses its handlers. So does an error that should not
    happen: a defect of sbredis, which is logged with its traceback. The service looks again, each time after a longer
    pause. It counts as paused until it has received for a second without a further error, so that an error that comes
    at once again is logged only once.
    """

    def __init__(self, plan: EntityPlan, consumer: Consuming, receiver: ServiceBusReceiver, time: Time) -> None:
        self.plan = plan
        self.entity = plan.source.path
        self.consumer = consumer
        self._receiver = receiver
        self._time = time
        self.paused_by: Exception | None = None
        """Why the entity is not consumed now; ``None`` if it is."""
        self._pause = _FIRST_PAUSE

    @property
    def why_paused(self) -> str | None:
        """The reason why the entity is not consumed now, in words."""
        error = self.paused_by
        if error is None or isinstance(error, ServiceBusError):
            return None if error is None else str(error)
        return f"{type(error).__name__}: {error} (an error that was not expected)"

    async def serve(self) -> None:
        """Consume until cancelled."""
        while True:
            resuming: asyncio.TimerHandle | None = None
            try:
                if self.paused_by is not None:
                    await self._receiver.peek_messages(1)
                    resuming = self._time.call_later(_STEADY, self._resumed)
                await self.consumer.consume()
            except Exception as error:  # noqa: BLE001 -- no error may end the service of an entity
                self._paused(error)
            finally:
                if resuming is not None:
                    resuming.cancel()
            await self._time.sleep(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _paused(self, error: Exception) -> None:
        before, self.paused_by = self.paused_by, error
        if isinstance(error, ServiceBusError):
            if before is None:
                _log.warning("%s: paused, and tried again until it works: %s", self.entity, error)
        elif type(before) is not type(error):
            _log.error("%s: paused, and tried again, after an error that was not expected", self.entity, exc_info=error)

    def _resumed(self) -> None:
        self.paused_by, self._pause = None, _FIRST_PAUSE
        _log.info("%s: receiving again", self.entity)
