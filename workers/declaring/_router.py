"""Routers, which collect handlers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta, tzinfo
from typing import Any, TypeVar, Unpack
from weakref import WeakSet

from sbredis._nearest import unexpected_keyword
from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusSubQueue, keywords_of
from sbredis.workers.declaring._checks import require_handler, require_text
from sbredis.workers.declaring._handlers import HandlerDeclaration, HandlerSource
from sbredis.workers.declaring._options import CallOptions, HandlerOptions, split
from sbredis.workers.declaring._schedules import Missed, Overlap, make_schedule
from sbredis.workers.declaring._signatures import function_name

__all__ = ["Router", "declared_on"]

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
        self._declared: list[HandlerDeclaration] = []
        self._included: list[Router] = []  # keeps them alive, because their own links to this one are weak only
        self._including: WeakSet[Router] = WeakSet()  # weak, because the router of a module outlives workers

    def queue(self, queue_name: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Handle the messages of a queue or, with ``sub_queue``, of its dead-letter queue."""
        return self._decorator("queue", "queue", queue_name, None, options)

    def subscription(
        self, topic_name: str, subscription_name: str, **options: Unpack[HandlerOptions]
    ) -> Callable[[F], F]:
        """Handle the messages of a subscription or, with ``sub_queue``, of its dead-letter queue."""
        return self._decorator("subscription", "subscription", subscription_name, topic_name, options)

    def cron(
        self,
        line: str | None = None,
        *,
        every: timedelta | None = None,
        tz: str | tzinfo = "UTC",
        name: str | None = None,
        queue: str | None = None,
        missed: Missed = "latest",
        overlap: Overlap = "skip",
        **options: Unpack[CallOptions],
    ) -> Callable[[F], F]:
        """Call a function at the times of a cron line, or ``every`` so often.

        Each tick is a message that exactly one worker sends, however many workers run; the handler takes it like any
        other message, with retries and dead letters. ``context.tick`` is its time in the zone ``tz``. The first start
        of a schedule remembers the present. From then on, ``missed`` says what happens with ticks at which no worker
        ran: only the last one is sent (``latest``), or each of them (``all``), or only the last one and only within a
        minute (``none``). With ``overlap="skip"`` a tick is passed over while the message of the tick before it is not
        finished; with ``"queue"`` it is sent in any case.

        ``name`` is the name of the schedule: the name of the function unless it is given. The messages go to a queue of
        this name, which is created if it is missing, or to the ``queue`` that is given. Raises
        :class:`~sbredis.exceptions.WorkerSetupError`.
        """
        for refused in options.keys() - CallOptions.__annotations__.keys():
            raise unexpected_keyword("cron", refused, [*keywords_of(self.cron), *CallOptions.__annotations__])
        if callable(line):
            raise TypeError('@cron needs the times of its schedule: write @….cron("0 3 * * *") or @….cron(every=…)')
        settings, entity_options = split("cron", options)
        if queue is not None:
            require_text("queue", queue)

        def declare(handler: F) -> F:
            require_handler("cron", handler)
            called = function_name(handler).rpartition(".")[2] if name is None else name
            place = f"{getattr(handler, '__module__', None) or '?'}.{function_name(handler)}"
            try:
                schedule = make_schedule(called, line, every, tz=tz, missed=missed, overlap=overlap)
            except (ValueError, TypeError) as error:
                raise WorkerSetupError(f"The schedule of {place} cannot be used: {error}") from None
            if queue is None:
                entity_options.setdefault("create_if_missing", True)
            inside = "<locals>" in function_name(handler)
            names = dict(sys._getframe(1).f_locals) if inside else {}  # pyright: ignore[reportPrivateUsage]
            own = replace(settings, subject=called)
            source = HandlerSource("queue", called if queue is None else queue)
            self._add([HandlerDeclaration(handler, source, own, entity_options, names, schedule)])
            return handler

        return declare

    def include(self, router: Router) -> None:
        """Add the handlers of another router: those that it has, and those that are added to it later."""
        if not isinstance(router, Router):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"include() takes a Router, not {type(router).__name__}")
        if router is self:
            raise ValueError("include() takes another router: this one has its handlers already")
        if router in self._all_including():
            raise ValueError("include() takes a router that does not include this one")
        self._add(router._declared)
        self._included.append(router)
        router._including.add(self)

    def _all_including(self) -> list[Router]:
        """Return the routers that include this one, and those that include them."""
        found: dict[Router, None] = {}
        for router in self._including:
            found |= dict.fromkeys([router, *router._all_including()])
        return list(found)

    def _add(self, declared: Sequence[HandlerDeclaration]) -> None:
        """Add handlers here and to all routers that include this one, or to none of them if one cannot take them."""
        routers = [self, *self._all_including()]
        for router in routers:
            router._check_new(declared)
        for router in routers:
            router._declared.extend(declared)

    def _check_new(self, declared: Sequence[HandlerDeclaration]) -> None:
        """Raise if handlers cannot be added, because two schedules have the same name."""
        known = {each.schedule.name: each.name for each in self._declared if each.schedule is not None}
        for each in declared:
            if each.schedule is not None and each.schedule.name in known:
                raise WorkerSetupError(
                    f"Two schedules have the name {each.schedule.name!r}: those of {known[each.schedule.name]} and "
                    f"{each.name}. The name is what workers remember a schedule by: give one of them another name=."
                )

    def _decorator(
        self, function: str, kind: Any, name: str, topic: str | None, options: Mapping[str, Any]
    ) -> Callable[[F], F]:
        for part in (name,) if topic is None else (topic, name):
            if callable(part):
                raise TypeError(f"@{function} needs the name of its entity: write @….{function}('NAME')")
            require_text(f"the name of a {kind}", part)
        settings, entity_options = split(function, options)
        sub_queue = settings.sub_queue
        source = HandlerSource(
            kind, name, topic, None if sub_queue is None else _SUB_QUEUES[ServiceBusSubQueue(sub_queue)]
        )

        def declare(handler: F) -> F:
            require_handler(function, handler)
            inside = "<locals>" in function_name(handler)  # annotations may name what only the outer function knows
            names = dict(sys._getframe(1).f_locals) if inside else {}  # pyright: ignore[reportPrivateUsage]
            self._add([HandlerDeclaration(handler, source, settings, entity_options, names)])
            return handler

        return declare


def declared_on(router: Router) -> list[HandlerDeclaration]:
    """Return the handlers that are declared on a router, or on a worker."""
    return router._declared  # pyright: ignore[reportPrivateUsage]  # this function is the way to it for sbredis.testing
