"""The options of a worker, and everything that was declared for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypedDict

from sbredis._http_server import address_of
from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.declaring._checks import (
    require_arguments,
    require_bool,
    require_function,
    require_instance,
    require_middleware,
    require_one_of,
    require_plain_function,
    require_seconds,
    require_text,
    require_whole,
)
from sbredis.workers.declaring._handlers import Defaults, EntityPlan, HandlerDeclaration, plan_of
from sbredis.workers.declaring._middleware import Middleware
from sbredis.workers.declaring._retries import Retries

__all__ = ["Lifespan", "Setup", "WorkerOptions", "WorkerSettings"]

_NAMESPACE = re.compile(r"[?&]namespace=")
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""A function that gets the worker, and returns what surrounds its work."""
ErrorHook = Callable[[ServiceBusReceivedMessage, BaseException], None]


class WorkerOptions(TypedDict, total=False):
    """The options of a worker. Each has a default."""

    namespace: str
    """The namespace, instead of the one in the connection string."""
    credential: Any
    """A user and a password, or a credential provider, as :class:`~sbredis.aio.ServiceBusClient` takes it."""
    max_concurrent_calls: int
    """The default for all entities. 16."""
    retries: Retries
    """The default for all handlers."""
    middleware: Sequence[Middleware]
    """The middleware around the calls of all handlers, from the outside in."""
    maintenance: bool
    """Whether the worker takes part in maintenance. True."""
    shutdown_timeout: float
    """How many seconds running handlers get to finish at the end. 25."""
    stuck_after: float
    """After how many seconds without a turn of its event loop the worker counts as stuck. 300.

    Then readiness fails, locks are no longer renewed, and a supervisor replaces the process. Liveness fails after a
    quarter of that time more.
    """
    renewal: Literal["thread", "process"]
    """Who renews the locks of running handlers: a thread (the default), or also a process.

    The process renews locks while code of a handler keeps the GIL for long, such as a slow regular expression. It costs
    some 30 MB of memory and a connection.
    """
    threads: int
    """How many plain functions run at once. 40."""
    http: str
    """``HOST:PORT`` of an HTTP server for ``/live``, ``/ready`` and ``/metrics``. None unless it is given."""
    lifespan: Lifespan
    """A function that returns a context manager, which surrounds the work of the worker."""
    lifespan_timeout: float
    """How many seconds the lifespan may take to begin, and how many to end. 60. Then the worker ends with an error."""
    on_error: ErrorHook
    """A plain function that is called with the message and the error when a handler or a settlement fails.

    It runs in the event loop, so it must return at once. An error that it raises is logged.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The options of a worker, with their defaults."""

    namespace: str | None = None
    credential: Any = None
    max_concurrent_calls: int | None = None
    retries: Retries = field(default_factory=Retries)
    middleware: Sequence[Middleware] = ()
    maintenance: bool = True
    shutdown_timeout: float = 25.0
    stuck_after: float = 300.0
    renewal: Literal["thread", "process"] = "thread"
    threads: int = 40
    http: str | None = None
    lifespan: Lifespan | None = None
    lifespan_timeout: float = 60.0
    on_error: ErrorHook | None = None

    def __post_init__(self) -> None:
        if self.max_concurrent_calls is not None:
            require_whole("max_concurrent_calls", self.max_concurrent_calls, 1, 10_000)
        require_instance("retries", self.retries, Retries)
        require_middleware("middleware", self.middleware)
        require_bool("maintenance", self.maintenance)
        if self.namespace is not None:
            require_instance("namespace", self.namespace, str)
        if self.http is not None:
            require_text("http", self.http)
            address_of(self.http)  # this raises if it is none
        if self.lifespan is not None:
            require_function("lifespan", self.lifespan)
            require_arguments("lifespan", self.lifespan, "the worker")
        if self.on_error is not None:
            require_plain_function("on_error", self.on_error, "a message", "an error")
        require_seconds("shutdown_timeout", self.shutdown_timeout, zero=True)
        require_seconds("lifespan_timeout", self.lifespan_timeout)
        require_seconds("stuck_after", self.stuck_after)
        if self.stuck_after < 1:
            raise ValueError(f"stuck_after must be from 1 second on, not {self.stuck_after}")
        require_one_of("renewal", self.renewal, ("thread", "process"))
        require_whole("threads", self.threads, 1, 10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The declarations for a worker: its handlers and options, as they are when the worker starts."""

    url: str | None
    """The connection string; ``None`` for that of the variable ``SBREDIS_URL``."""
    settings: WorkerSettings
    declared: tuple[HandlerDeclaration, ...]
    by_path: Mapping[str, Mapping[str, Any]]
    """The worker's options for an entity, and its ``retries``."""
    overrides: Mapping[Callable[..., Any], Callable[..., Any]]
    replaces_own: bool = False
    """Whether the worker runs on another server or namespace than it names itself."""
    entity_defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of all entities for which the handlers and the worker say nothing."""

    def narrowed(self, queues: Sequence[str], concurrency: int | None, http: str | None) -> Self:
        """Return the setup with only these entities, and with this concurrency and HTTP port if they are given."""
        declared = self.declared
        by_path = {path: {**options} for path, options in self.by_path.items()}
        if queues:
            wanted = {path.lower() for path in queues}
            known = {each.source.path.lower() for each in declared}
            if unknown := sorted(wanted - known):
                listed = ", ".join(sorted(known)) or "none"
                raise WorkerSetupError(f"The worker has no handler of {unknown[0]!r}. It handles: {listed}.")
            declared = tuple(each for each in declared if each.source.path.lower() in wanted)
            by_path = {path: options for path, options in by_path.items() if path in wanted}
        if concurrency is not None:
            declared = tuple(each.with_entity_options(max_concurrent_calls=concurrency) for each in declared)
            for options in by_path.values():
                options.pop("max_concurrent_calls", None)
        settings = self.settings if http is None else replace(self.settings, http=http)
        return replace(self, settings=settings, declared=declared, by_path=by_path)

    def with_server(self, url: str | None, namespace: str | None) -> Self:
        """Return the setup with another server, with another namespace, or with both, as far as they are given.

        The worker's ``namespace`` and ``credential`` stay, unless the connection string has its own.
        """
        settings = self.settings
        if url is not None:
            if _NAMESPACE.search(url):
                settings = replace(settings, namespace=None)
            if "@" in url.partition("?")[0]:
                settings = replace(settings, credential=None)
        if namespace is not None:
            settings = replace(settings, namespace=namespace)
        before, after = (self.url, self.settings.namespace), (self.url if url is None else url, settings.namespace)
        return replace(self, url=after[0], settings=settings, replaces_own=before not in {(None, None), after})

    def plans(self) -> list[EntityPlan]:
        """Return the entities with their handlers. Raise if they do not fit together."""
        settings = self.settings
        concurrency = settings.max_concurrent_calls
        defaults = Defaults(
            entity={**self.entity_defaults, **({} if concurrency is None else {"max_concurrent_calls": concurrency})},
            by_path=self.by_path,
            retries=settings.retries,
            middleware=tuple(settings.middleware),
            overrides=self.overrides,
        )
        return plan_of(self.declared, defaults)
