"""A circuit breaker: pause an entity while a service that its handlers need fails."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from sbredis.workers.declaring._context import Context
from sbredis.workers.declaring._middleware import Proceed
from sbredis.workers.declaring._outcomes import Outcome
from sbredis.workers.declaring._retries import require_exceptions
from sbredis.workers.included._circuit import Circuit

__all__ = ["CircuitBreaker"]

_log = logging.getLogger("sbredis.worker")


class CircuitBreaker:
    """Pauses the handlers that have it while a service fails that they need.

    After ``failures`` calls in a row that raised one of ``opens_on``, the worker receives no more messages for these
    handlers. Every ``pause`` seconds it tries one message. When a call succeeds, all goes on. Messages whose handlers
    failed come again as after every failure. Handlers that need the same service share one breaker.
    """

    def __init__(
        self,
        *,
        opens_on: tuple[type[Exception], ...] = (ConnectionError, TimeoutError),
        failures: int = 5,
        pause: float = 10.0,
    ) -> None:
        if type(failures) is not int or failures < 1:
            raise ValueError(f"failures must be a whole number from 1 on, not {failures!r}")
        if not pause > 0:
            raise ValueError(f"pause must be more than 0 seconds, not {pause!r}")
        require_exceptions("opens_on", opens_on)
        self._opens_on = opens_on
        self._circuit = Circuit(failures, pause)

    async def __call__(self, context: Context, proceed: Proceed) -> Any:
        """Call the handler, and note whether the service has failed."""
        circuit = self._circuit
        circuit.began()
        try:
            result = await proceed()
        except self._opens_on:
            if circuit.failed(asyncio.get_running_loop().time()):
                _log.warning("%s: paused, because a service that its handlers need fails", context.entity)
            raise
        except Outcome:
            self._succeeded(context)
            raise
        except BaseException:
            circuit.ended_otherwise()
            raise
        self._succeeded(context)
        return result

    def _succeeded(self, context: Context) -> None:
        if self._circuit.open:
            _log.info("%s: receiving again", context.entity)
        self._circuit.succeeded()

    def room(self, now: float) -> int:
        """Return the number of handlers that may start now. The worker asks before it receives."""
        return self._circuit.room(now)

    def wait(self, now: float) -> float | None:
        """Return the seconds after which a handler may start; ``None`` if time alone does not matter."""
        return self._circuit.wait(now)
