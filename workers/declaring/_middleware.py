"""Middleware: what surrounds the call of a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from sbredis.workers.declaring._context import Context

__all__ = ["Middleware", "Proceed"]

Proceed = Callable[[], Awaitable[Any]]
"""Calls the next middleware, and at last the handler; returns what the handler returned."""


class Middleware(Protocol):
    """Something that surrounds the call of a handler: a coroutine function of two parameters, or an object with one.

    ``Worker(middleware=[…])`` surrounds the calls of all handlers, and the ``middleware`` of a handler surrounds its
    own calls, further inside. The first in a list is the outermost. A middleware runs in the event loop of the worker,
    also around a handler in a thread or in a process. It surrounds the making of the handler's arguments too, so an
    error of a dependency reaches it. One call of a batch is one call of the middleware.

    A middleware may

    - return the result of ``proceed()``, or another result: an outcome, or the value to publish or to reply with;
    - return an outcome without calling ``proceed``, so that the handler does not run;
    - raise: an exception is a failure of the handler, and an outcome is its outcome;
    - call ``proceed`` again after it has failed, to try again in the same delivery. Only the last call counts: what the
      handler has sent, set and remembered before is forgotten, and its dependencies of the message are made anew;
    - use the context like a handler, such as ``context.send`` and ``context.once``.

    It must let :class:`asyncio.CancelledError` pass: the worker cancels a call whose lock is lost, and at its end. An
    :class:`~sbredis.workers.Outcome` that the handler raises comes out of ``proceed`` as an exception and is no error.

    A middleware that also has the methods ``room``, ``wait`` and ``begin`` of
    :class:`~sbredis.workers.CircuitBreaker` is asked before messages are received, and so can pause an entity.
    """

    async def __call__(self, context: Context, proceed: Proceed) -> Any:
        """Call ``await proceed()`` and return its result; or return an outcome, or raise, instead.

        An exception of the handler comes out of ``proceed``.
        """
        ...
