"""A circuit breaker: pause an entity while a service that its handlers need fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from sbredis.workers.declaring._checks import require_seconds, require_whole
from sbredis.workers.declaring._context import Context
from sbredis.workers.declaring._middleware import Proceed
from sbredis.workers.declaring._outcomes import GiveBack, outcome_in
from sbredis.workers.declaring._retries import is_of, require_exceptions
from sbredis.workers.included._circuit import Circuit, CircuitCall

__all__ = ["CircuitBreaker"]

_log = logging.getLogger("sbredis.worker")


class CircuitBreaker:
    """Pauses entities while a service that their handlers need is failing.

    After ``failures`` calls in a row that raised one of ``opens_on``, or a group of nothing but these, the worker
    receives no more messages of the entities whose handlers have this breaker. It gives back the messages that it has
    received meanwhile, and their delivery counts do not rise. Every ``pause`` seconds the worker tries one message, or
    one batch. When a call succeeds, it receives messages again. Messages whose handlers failed come again as after
    every failure.

    Handlers that need the same service share one breaker. If several handlers share an entity, and one of them has a
    breaker, the whole entity pauses, because a receiver cannot choose among the messages. Handlers that must not wait
    for each other need entities of their own, such as subscriptions with rules. Handlers of one worker may share a
    breaker, and each process of a worker has its own.
    """

    def __init__(
        self,
        *,
        opens_on: tuple[type[Exception], ...] = (ConnectionError, TimeoutError),
        failures: int = 5,
        pause: float = 10.0,
    ) -> None:
        require_whole("failures", failures, 1, 10**9)
        require_seconds("pause", pause)
        require_exceptions("opens_on", opens_on)
        if not opens_on:
            raise ValueError("opens_on must have at least one class, because the circuit would never open")
        self._opens_on = opens_on
        self._failures = failures
        self._pause = pause
        self._circuit = Circuit(failures, pause)
        self._now: Callable[[], float] = time.monotonic

    async def __call__(self, context: Context, proceed: Proceed) -> Any:
        """Call the handler, and note whether the service has failed."""
        circuit = self._circuit
        call = circuit.begins(self._now())
        if call is None:  # it was received before the circuit opened, or while another entity tries the service
            return GiveBack()
        try:
            result = await proceed()
        except BaseException as error:
            if is_of(error, self._opens_on):
                if circuit.failed(call, self._now()):
                    _log.warning("%s: paused, because a service that its handlers need fails", context.entity)
            elif outcome_in(error) is not None:
                self._succeeded(call, context)
            else:
                circuit.ended_otherwise(call)
            raise
        self._succeeded(call, context)
        return result

    def _succeeded(self, call: CircuitCall, context: Context) -> None:
        if self._circuit.open:
            _log.info("%s: receiving again", context.entity)
        self._circuit.succeeded(call)

    def begin(self, now: Callable[[], float]) -> None:
        """Close the circuit, because a worker starts. ``now`` returns the worker's time."""
        self._circuit, self._now = Circuit(self._failures, self._pause), now

    def room(self, now: float) -> int:
        """Return the number of handlers that may start now. The worker asks before it receives."""
        return self._circuit.room(now)

    def wait(self, now: float) -> float | None:
        """Return the seconds after which a handler may start; ``None`` if time alone does not matter."""
        return self._circuit.wait(now)
