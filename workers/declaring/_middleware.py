"""Middleware: what surrounds the call of a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from sbredis.workers.declaring._context import Context

__all__ = ["Middleware", "Proceed"]

Proceed = Callable[[], Awaitable[Any]]
"""Calls the next middleware, and at last the handler; returns what the handler returned."""


class Middleware(Protocol):
    """Something that surrounds the call of a handler."""

    async def __call__(self, context: Context, proceed: Proceed) -> Any:
        """Call ``await proceed()`` and return its result; or return an outcome, or raise, instead.

        An exception of the handler comes out of ``proceed``.
        """
        ...
