"""Handlers as they were declared, and the entities that they take messages from."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from sbredis.exceptions import WorkerSetupError
from sbredis.workers.declaring._conditions import Chooser, HandlerCondition
from sbredis.workers.declaring._context import Context, SyncContext
from sbredis.workers.declaring._middleware import Middleware
from sbredis.workers.declaring._options import EntitySettings, Execution, HandlerSettings, merged
from sbredis.workers.declaring._retries import Retries
from sbredis.workers.declaring._schedules import Schedule
from sbredis.workers.declaring._signatures import (
    Signature,
    function_name,
    hides_coroutine,
    is_coroutine_function,
    read_signature,
)

__all__ = ["EntityPlan", "HandlerDeclaration", "HandlerPlan", "HandlerSource", "plan_of"]


_BECAUSE: Final[Mapping[Execution, str]] = {
    "async": "it is a coroutine function",
    "thread": "it is a plain function",
    "process": "it runs in a process",
}


@dataclass(frozen=True, slots=True)
class HandlerSource:
    """The queue, subscription or dead-letter queue from which a handler takes its messages."""

    kind: Literal["queue", "subscription"]
    name: str
    topic: str | None = None
    sub_queue: str | None = None

    @property
    def path(self) -> str:
        """The path of the queue, subscription or dead-letter queue."""
        path = self.name if self.topic is None else f"{self.topic}/subscriptions/{self.name}"
        return path if self.sub_queue is None else f"{path}/{self.sub_queue}"


@dataclass(frozen=True, slots=True)
class HandlerDeclaration:
    """A handler as its decorator was written."""

    function: Callable[..., Any]
    source: HandlerSource
    settings: HandlerSettings
    entity_options: Mapping[str, Any]
    names: Mapping[str, Any]
    """The names that the function around the handler had defined; empty if the handler is at the top of its module."""
    schedule: Schedule | None = None
    """The schedule whose ticks the handler takes."""

    def with_entity_options(self, **options: Any) -> Self:
        """Return the declaration with other options of its entity."""
        return replace(self, entity_options={**self.entity_options, **options})

    @property
    def name(self) -> str:
        """The name of the function, with its module."""
        return f"{getattr(self.function, '__module__', None) or '?'}.{function_name(self.function)}"


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """A handler that can be called."""

    name: str
    function: Callable[..., Any]
    signature: Signature
    execution: Execution
    settings: HandlerSettings
    retries: Retries
    middleware: tuple[Middleware, ...]
    """From the outside in: that of the worker, then that of the handler."""
    schedule: Schedule | None = None
    """The schedule whose ticks the handler takes."""


@dataclass(frozen=True, slots=True)
class EntityPlan:
    """An entity with its handlers."""

    source: HandlerSource
    settings: EntitySettings
    chooser: Chooser[HandlerPlan]
    handlers: tuple[HandlerPlan, ...]

    @property
    def in_batches(self) -> bool:
        """Whether the handlers take batches."""
        return self.handlers[0].settings.batch is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The worker's options for all its handlers."""

    entity: Mapping[str, Any]
    by_path: Mapping[str, Mapping[str, Any]]
    """The worker's options for an entity, and its ``retries``."""
    retries: Retries
    middleware: Sequence[Middleware] = ()
    overrides: Mapping[Callable[..., Any], Callable[..., Any]]


def plan_of(declared: Sequence[HandlerDeclaration], defaults: Defaults) -> list[EntityPlan]:
    """Return the entities of a worker with their handlers, in the order of their declaration.

    Raises :class:`~sbredis.exceptions.WorkerSetupError` for a handler that cannot be called, and for handlers that do
    not fit together.
    """
    by_path: dict[str, list[HandlerDeclaration]] = {}
    for each in declared:
        by_path.setdefault(each.source.path.lower(), []).append(each)
    for path in defaults.by_path:
        if path not in by_path:
            raise WorkerSetupError(f"The worker has options for {path!r}, but no handler of it.")
    return [_entity(own, defaults, defaults.by_path.get(path, {})) for path, own in by_path.items()]


def _entity(declared: Sequence[HandlerDeclaration], defaults: Defaults, said: Mapping[str, Any]) -> EntityPlan:
    path = declared[0].source.path
    handlers = tuple(_handler(each, defaults, said.get("retries")) for each in declared)
    options = {name: value for name, value in said.items() if name != "retries"}
    in_processes = any(each.execution == "process" for each in handlers)
    settings = merged(
        path,
        [("the worker", options), *((each.name, each.entity_options) for each in declared)]
        if options
        else [(each.name, each.entity_options) for each in declared],
        {**({"max_concurrent_calls": os.cpu_count() or 1} if in_processes else {}), **defaults.entity},
    )
    single = [each.name for each in handlers if each.settings.batch is None]
    if single and len(single) < len(handlers):
        raise WorkerSetupError(
            f"{single[0]} takes single messages of {path!r}, and another handler takes batches. All handlers of an "
            "entity take batches, or none."
        )
    if not single:
        _check_batches(path, handlers, settings)
    conditions = [(plan.name, HandlerCondition(plan.settings.subject, plan.settings.when), plan) for plan in handlers]
    return EntityPlan(declared[0].source, settings, Chooser(path, conditions), handlers)


def _check_batches(path: str, handlers: Sequence[HandlerPlan], settings: EntitySettings) -> None:
    """Raise if the handlers of batches of one entity say different things, or something that batches cannot have."""
    first = handlers[0]
    for name in ("batch", "batch_wait"):
        value = getattr(first.settings, name)
        for other in handlers[1:]:
            if (another := getattr(other.settings, name)) != value:
                raise WorkerSetupError(
                    f"{first.name} says {name}={value} for {path!r}, and {other.name} says {name}={another}. A batch "
                    f"is received for all handlers of an entity together: give all of them the same {name}=."
                )
    if settings.prefetch:
        raise WorkerSetupError(
            f"{first.name} takes batches of {path!r}, for which nothing is fetched ahead: leave out prefetch=, and set "
            "batch= to the number of messages to receive at once."
        )


def _handler(declared: HandlerDeclaration, defaults: Defaults, of_entity: Retries | None) -> HandlerPlan:
    settings = declared.settings
    execution = settings.execution
    waits = is_coroutine_function(declared.function)
    if execution is None:
        execution = "async" if waits else "thread"
    if waits and execution == "thread":
        raise WorkerSetupError(f"{declared.name} is a coroutine function, which cannot run in a thread: write a def.")
    if not waits and execution == "async":
        raise WorkerSetupError(
            f"{declared.name} is a plain function, which would block the event loop: write an async def, or leave out "
            "execution='async'."
        )
    if inspect.isgeneratorfunction(declared.function) or inspect.isasyncgenfunction(declared.function):
        raise WorkerSetupError(f"{declared.name} is a generator function. A handler returns its outcome.")
    if execution == "thread" and hides_coroutine(declared.function):
        raise WorkerSetupError(
            f"{declared.name} is a plain function around a coroutine function, whose coroutine would never be awaited: "
            "let its decorator make an async def. If the decorator runs the coroutine itself, let it make a function "
            "without __wrapped__."
        )
    signature = read_signature(
        declared.function,
        batch=settings.batch is not None,
        overrides=defaults.overrides,
        names=declared.names,
        context=Context if execution == "async" else SyncContext,
        because=_BECAUSE[execution],
    )
    retries = settings.retries or of_entity or defaults.retries
    if settings.no_retry:
        retries = replace(retries, no_retry=(*retries.no_retry, *settings.no_retry))
    middleware = (*defaults.middleware, *settings.middleware)
    function, schedule = declared.function, declared.schedule
    return HandlerPlan(declared.name, function, signature, execution, settings, retries, middleware, schedule)
