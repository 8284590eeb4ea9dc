"""Logging: a line for each call of a handler."""

from __future__ import annotations

import logging
import time
from typing import Any

from sbredis.workers.declaring._checks import require_instance, require_whole
from sbredis.workers.declaring._context import Context
from sbredis.workers.declaring._middleware import Proceed
from sbredis.workers.declaring._outcomes import Outcome, outcome_in

__all__ = ["Logging"]


class Logging:
    """Logs each call of a handler when it has ended: its message, its attempt, its time, and how it ended.

    Bodies and properties of messages are not logged. A worker logs errors of handlers without this middleware too. Each
    record has the attributes ``entity``, ``sequence_number``, ``attempt`` and ``seconds``, for structured logs.
    """

    def __init__(self, *, level: int = logging.INFO, logger: str | logging.Logger = "sbredis.worker.calls") -> None:
        require_whole("level", level, 0, 100)
        require_instance("logger", logger, str, logging.Logger)
        self._level = level
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger

    async def __call__(self, context: Context, proceed: Proceed) -> Any:
        """Call the handler, and log how it ended."""
        began = time.monotonic()
        ended = "cancelled"
        try:
            result = await proceed()
            ended = type(result).__name__ if isinstance(result, Outcome) else "returned"
        except Exception as error:
            outcome = outcome_in(error)
            ended = f"raised {type(error).__name__}" if outcome is None else type(outcome).__name__
            raise
        else:
            return result
        finally:
            seconds = time.monotonic() - began
            number = context.message.sequence_number
            facts = {
                "entity": context.entity,
                "sequence_number": number,
                "attempt": context.attempt,
                "seconds": seconds,
            }
            self._logger.log(
                self._level,
                "%s: message %s, attempt %d: %s after %.3f s",
                *(context.entity, number, context.attempt, ended, seconds),
                extra=facts,
            )
