"""Routers, which collect handlers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

from sbredis.model import ServiceBusSubQueue
from sbredis.workers.declaring._handlers import Declared, Source
from sbredis.workers.declaring._options import HandlerOptions, split
from sbredis.workers.declaring._signatures import function_name

__all__ = ["Router"]

F = TypeVar("F", bound=Callable[..., Any])

_SUB_QUEUES = {
    ServiceBusSubQueue.DEAD_LETTER: "$DeadLetterQueue",
    ServiceBusSubQueue.TRANSFER_DEAD_LETTER: "$Transfer/$DeadLetterQueue",
}


class Router:
    """Collects the handlers of a module, for a worker that includes it.

    The decorators return the function unchanged, so it can be called and tested like any other function.
    """

    def __init__(self) -> None:
        self._declared: list[Declared] = []

    def queue(self, queue_name: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Handle the messages of a queue or, with ``sub_queue``, of its dead-letter queue."""
        return self._decorator("queue", "queue", queue_name, None, options)

    def subscription(
        self, topic_name: str, subscription_name: str, **options: Unpack[HandlerOptions]
    ) -> Callable[[F], F]:
        """Handle the messages of a subscription or, with ``sub_queue``, of its dead-letter queue."""
        return self._decorator("subscription", "subscription", subscription_name, topic_name, options)

    def include(self, router: Router) -> None:
        """Add the handlers of another router."""
        if not isinstance(router, Router):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"include() takes a Router, not {type(router).__name__}")
        self._declared.extend(router._declared)

    def _decorator(
        self, function: str, kind: Any, name: str, topic: str | None, options: Mapping[str, Any]
    ) -> Callable[[F], F]:
        settings, entity_options = split(function, options)
        sub_queue = settings.sub_queue
        source = Source(kind, name, topic, None if sub_queue is None else _SUB_QUEUES[ServiceBusSubQueue(sub_queue)])

        def declare(handler: F) -> F:
            if not callable(handler):
                raise TypeError(f"@{function}(…) decorates a function, not {type(handler).__name__}")
            inside = "<locals>" in function_name(handler)  # annotations may name what only the outer function knows
            names = dict(sys._getframe(1).f_locals) if inside else {}  # pyright: ignore[reportPrivateUsage]
            self._declared.append(Declared(handler, source, settings, entity_options, names))
            return handler

        return declare
