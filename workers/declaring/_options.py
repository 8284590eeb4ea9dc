"""The keywords of the decorators that declare handlers, and what they mean when they are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from sbredis._nearest import unexpected_keyword
from sbredis._quoting import quoted
from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage, ServiceBusSubQueue
from sbredis.workers.declaring._checks import (
    require_bool,
    require_instance,
    require_middleware,
    require_one_of,
    require_paths,
    require_plain_function,
    require_seconds,
    require_text,
    require_whole,
)
from sbredis.workers.declaring._retries import Retries

if TYPE_CHECKING:
    from sbredis.workers.declaring._middleware import Middleware

__all__ = [
    "CallOptions",
    "EntityOptions",
    "EntitySettings",
    "HandlerOptions",
    "HandlerSettings",
    "checked",
    "merged",
]

Execution = Literal["async", "thread", "process"]


class EntityOptions(TypedDict, total=False):
    """The options of an entity. All handlers of one entity share them."""

    max_concurrent_calls: int
    """How many messages of the entity are handled at once; of an entity with sessions, how many sessions.

    16, or the number of processors if a handler of the entity runs in processes.
    """
    prefetch: int | None
    """How many messages are fetched ahead; ``None`` to adapt to the speed of the handlers, 0 for none.

    Nothing is fetched ahead of sessions and of batches, which can have no other number than 0.
    """
    unmatched: Literal["dead-letter", "abandon"]
    """The treatment of a message that no handler takes: it becomes a dead letter, or comes again after a delay."""
    max_auto_lock_renewal_duration: float | None
    """For how many seconds locks are renewed; ``None`` for as long as the handler runs."""
    session_idle_timeout: float
    """For how many seconds a worker keeps a session that has no message. 1."""
    max_session_time: float
    """After how many seconds a worker gives a session back between two messages, so that others have their turn. 30.

    If no other session waits, the worker accepts the same one again at once.
    """
    max_session_messages: int | None
    """After how many messages a worker gives a session back in the same way; ``None`` for no limit."""
    create_if_missing: bool | Mapping[str, Any]
    """Whether to create the entity if it does not exist, or the properties of the new entity."""


class CallOptions(EntityOptions, total=False):
    """The options of the calls of a handler, and the options of its entity."""

    execution: Execution
    """Where the handler runs: ``async`` for a coroutine function, ``thread`` for a plain one, or ``process``."""
    auto_complete: bool
    """Whether a message is completed when its handler returns. True."""
    retries: Retries
    """When a message comes again after the handler has failed."""
    no_retry: tuple[type[Exception], ...]
    """A message whose handler raises one of these is dead-lettered at once."""
    publishes: str
    """The handler's result is sent to this queue or topic."""
    replies: bool | Sequence[str]
    """Whether what the handler returns is sent to the ``reply_to`` of the message, or the entities that it may name."""
    timeout: float | None
    """How many seconds a call of the handler may take.

    A coroutine function is then cancelled at its next ``await``, and a process is killed: the call has failed with a
    :class:`TimeoutError`, which names the time. A plain function in a thread cannot be ended: it is told
    (``context.timed_out``), runs on, keeps its lock, and its outcome counts.
    """
    middleware: Sequence[Middleware]
    """The middleware around the calls of this handler, from the outside in."""


class HandlerOptions(CallOptions, total=False):
    """The options of a handler, and the options of its entity."""

    subject: str
    """The handler takes only messages with this subject."""
    when: Callable[[ServiceBusReceivedMessage], bool]
    """The handler takes only messages for which this function returns true."""
    batch: int
    """The handler takes lists of up to this many messages."""
    batch_wait: float
    """How many seconds a batch waits to be filled, at most half of the entity's lock. 0.2."""
    sub_queue: ServiceBusSubQueue | str | None
    """The sub-queue to take messages from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntitySettings:
    """The options of an entity, with their defaults."""

    max_concurrent_calls: int = 16
    prefetch: int | None = None
    unmatched: Literal["dead-letter", "abandon"] = "dead-letter"
    max_auto_lock_renewal_duration: float | None = None
    session_idle_timeout: float = 1.0
    max_session_time: float = 30.0
    max_session_messages: int | None = None
    create_if_missing: bool | Mapping[str, Any] = False

    def __post_init__(self) -> None:
        require_whole("max_concurrent_calls", self.max_concurrent_calls, 1, 10_000)
        if self.prefetch is not None:
            require_whole("prefetch", self.prefetch, 0, 50_000)
        require_one_of("unmatched", self.unmatched, ("dead-letter", "abandon"))
        if self.max_auto_lock_renewal_duration is not None:
            require_seconds("max_auto_lock_renewal_duration", self.max_auto_lock_renewal_duration)
        require_seconds("session_idle_timeout", self.session_idle_timeout)
        require_seconds("max_session_time", self.max_session_time)
        if self.max_session_messages is not None:
            require_whole("max_session_messages", self.max_session_messages, 1, 10**9)
        if not isinstance(self.create_if_missing, Mapping):
            require_bool("create_if_missing", self.create_if_missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSettings:
    """The options of a handler, with their defaults."""

    subject: str | None = None
    when: Callable[[ServiceBusReceivedMessage], bool] | None = None
    execution: Execution | None = None
    batch: int | None = None
    batch_wait: float = 0.2
    auto_complete: bool = True
    retries: Retries | None = None
    no_retry: tuple[type[Exception], ...] = ()
    publishes: str | None = None
    replies: bool | Sequence[str] = False
    timeout: float | None = None
    middleware: Sequence[Middleware] = ()
    sub_queue: ServiceBusSubQueue | str | None = None

    def __post_init__(self) -> None:
        if self.subject is not None:
            require_instance("subject", self.subject, str)
        if self.when is not None:
            require_plain_function("when", self.when, "a message")
        if self.execution is not None:
            require_one_of("execution", self.execution, ("async", "thread", "process"))
        if self.batch is not None:
            require_whole("batch", self.batch, 1, 10_000)
        require_seconds("batch_wait", self.batch_wait, zero=True)
        if self.timeout is not None:
            require_seconds("timeout", self.timeout)
        require_bool("auto_complete", self.auto_complete)
        if self.retries is not None:
            require_instance("retries", self.retries, Retries)
        if self.publishes is not None:
            require_text("publishes", self.publishes)
        require_paths("replies", self.replies)
        require_middleware("middleware", self.middleware)
        if self.batch is not None and self.execution == "process":
            raise WorkerSetupError(
                "A handler in a process takes one message at a time: leave out batch=, or execution='process'."
            )
        if self.batch is not None and (self.publishes is not None or self.replies):
            given = "replies" if self.replies else "publishes"
            raise WorkerSetupError(
                f"A handler of batches has no result of its own for each message, so it cannot have {given}=: use "
                "context.send."
            )
        if self.publishes is not None and self.replies:
            raise WorkerSetupError("The result of a handler goes to one place: leave out publishes=, or replies=.")
        if not self.auto_complete and (self.publishes is not None or self.replies):
            given = "replies" if self.replies else "publishes"
            raise WorkerSetupError(
                f"With auto_complete=False the result of a handler settles nothing and goes nowhere, so it cannot have "
                f"{given}=: leave out one of them, or use context.send."
            )
        Retries(no_retry=self.no_retry)  # refuse what is not a tuple of exception classes

    @property
    def targets(self) -> list[str]:
        """The queues and topics that get the results or the replies of the handler."""
        permitted = [] if isinstance(self.replies, bool) else self.replies
        return [*permitted] if self.publishes is None else [self.publishes]


ENTITY_NAMES: Final = tuple(each.name for each in fields(EntitySettings))
HANDLER_NAMES: Final = tuple(each.name for each in fields(HandlerSettings))


def split(function: str, given: Mapping[str, Any]) -> tuple[HandlerSettings, dict[str, Any]]:
    """Return the options of the handler, and the given options of its entity."""
    for name in given:
        if name not in HANDLER_NAMES and name not in ENTITY_NAMES:
            raise unexpected_keyword(function, name, HANDLER_NAMES + ENTITY_NAMES)
    own = {name: value for name, value in given.items() if name in HANDLER_NAMES}
    of_entity = {name: value for name, value in given.items() if name in ENTITY_NAMES}
    EntitySettings(**of_entity)  # refuse wrong values here, where the application has written them
    return HandlerSettings(**own), of_entity


def checked(function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an entity."""
    for name in given:
        if name not in ENTITY_NAMES:
            raise unexpected_keyword(function, name, (*ENTITY_NAMES, "retries"))
    EntitySettings(**given)
    return dict(given)


def merged(entity: str, given: Sequence[tuple[str, Mapping[str, Any]]], defaults: Mapping[str, Any]) -> EntitySettings:
    """Return the settings of an entity from what its handlers say. Raise if two of them say different things."""
    said: dict[str, tuple[str, Any]] = {}
    for handler, options in given:
        for name, value in options.items():
            other, before = said.setdefault(name, (handler, value))
            if before != value:
                raise WorkerSetupError(
                    f"{other} says {name}={quoted(before)} for {entity!r}, and {handler} says {name}={quoted(value)}. "
                    "All handlers of an entity share this option: say it once."
                )
    return EntitySettings(**{**defaults, **{name: value for name, (_, value) in said.items()}})
