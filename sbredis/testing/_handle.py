"""Call one handler as a worker does, without a bus."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from sbredis._nearest import unexpected_keyword
from sbredis._tasks import running_loop
from sbredis.client import Clock
from sbredis.engine import Delivery, new_token
from sbredis.model import (
    MessageLease,
    Reception,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    delivered,
    outgoing,
)
from sbredis.testing._records import SentMessage
from sbredis.workers import Outcome, Router, Worker
from sbredis.workers._worker import setup_of
from sbredis.workers.declaring._context import SendOptions
from sbredis.workers.declaring._handlers import (
    Defaults,
    EntityPlan,
    HandlerDeclaration,
    HandlerPlan,
    HandlerSource,
    plan_of,
)
from sbredis.workers.declaring._messages import message_with
from sbredis.workers.declaring._options import HandlerSettings
from sbredis.workers.declaring._router import declared_on
from sbredis.workers.declaring._schedules import TICK
from sbredis.workers.declaring._signatures import function_name
from sbredis.workers.declaring._worker_options import WorkerSettings
from sbredis.workers.observing._counts import EntityCounts
from sbredis.workers.running._additions import UNCHANGED, decoded_state, encoded_state
from sbredis.workers.running._batches import call_of
from sbredis.workers.running._calls import CallOrigin, HandlerCall
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._injecting import Scopes
from sbredis.workers.running._threads import Threads
from sbredis.workers.schedules._time import Time

__all__ = ["HandlerResult", "handle", "handle_sync"]

_LOCK = timedelta(seconds=60)
_MOST_DELIVERIES = 10
Overrides = Mapping[Callable[..., Any], Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerResult:
    """The result of the call of a handler."""

    outcomes: Sequence[Outcome | None]
    """The outcome of each message; ``None`` if the message is left as it is."""
    error: BaseException | None
    """The exception that the handler has raised; ``None`` if there was none, or if it was an outcome."""
    value: Any
    """The value that the handler has returned."""
    sends: Sequence[SentMessage]
    """The messages that go out if the outcome is ``Complete()``, and the replies."""
    session_state: bytes | None
    """The state of the session after the call."""

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the message, or of the first message of a batch."""
        return self.outcomes[0]

    def state(self, as_type: Any = Any) -> Any:
        """Return the state of the session as a value of this type; ``None`` if it has no state."""
        return None if self.session_state is None else decoded_state(self.session_state, as_type)


class HandleOptions(SendOptions, total=False):
    """The options of a call of a handler. Those that :meth:`Context.send` has too are the properties of its message."""

    worker: Router
    """The worker or router on which the handler is declared: the options of its decorator apply, and of a worker also
    its middleware, retries and overrides. Without it, only the function is called.
    """
    overrides: Overrides
    """Functions of dependencies, and the functions that replace them."""
    attempt: int
    """The number of the delivery. 1."""
    max_delivery_count: int
    """The number of deliveries after which a failed message becomes a dead letter. 10."""
    interrupted: bool
    """Whether the delivery before was given back, because its worker was shut down. False."""
    tick: datetime
    """The time of the schedule that has sent the message. None."""
    session_state: object
    """The state of the session before the call. None."""
    raise_errors: bool
    """Whether an error of the handler is raised, and not returned. False."""


class _LooseSession:
    """A session that belongs to no broker."""

    def __init__(self, session_id: str, state: bytes | None) -> None:
        self.session_id = session_id
        self.state = state

    async def get_state(self) -> bytes | None:
        return self.state

    async def renew_lock(self) -> datetime:
        return datetime.now(UTC) + _LOCK


class _Receiver:
    """A receiver that belongs to no broker."""

    traces = False

    async def renew_message_lock(self, message: ServiceBusReceivedMessage) -> datetime:
        del message
        return datetime.now(UTC) + _LOCK

    def process_span(self, message: ServiceBusReceivedMessage) -> nullcontext[None]:
        del message
        return nullcontext()


class _LooseOrigin(CallOrigin):
    """The origin of messages that belong to no broker."""

    def __init__(self, entity: str, session: _LooseSession | None) -> None:
        receiver: Any = _Receiver()
        held: Any = session
        super().__init__(entity, receiver, EntityCounts(), held)
        self.settled: list[Outcome] = []
        """The outcomes by which the handler has settled its messages itself."""

    async def settle(self, call: HandlerCall, outcome: Outcome) -> Outcome:
        """Keep the outcome."""
        del call
        self.settled.append(outcome)
        return outcome


def handle(
    handler: Callable[..., Any], value: object = b"", **options: Unpack[HandleOptions]
) -> Coroutine[Any, Any, HandlerResult]:
    """Call one handler as a worker does, but without a bus.

    ``result = await handle(place, Order(1))`` calls the handler ``place`` with a message that has this body.

    ``value`` becomes the body of a message, and the options that :meth:`Context.send` has too become the properties of
    that message. The value may also be a :class:`~sbredis.ServiceBusMessage`. A handler of batches gets a list of
    values, one for each message.
    """
    return _handle(_plan(handler, options, _locals_of_caller()), value, options)


def handle_sync(handler: Callable[..., Any], value: object = b"", **options: Unpack[HandleOptions]) -> HandlerResult:
    """Do the same as :func:`handle` in a test without an event loop. Raises :class:`RuntimeError` in an event loop."""
    if running_loop() is not None:
        raise RuntimeError("handle_sync() is for tests without an event loop: write `await handle(…)` here.")
    return asyncio.run(_handle(_plan(handler, options, _locals_of_caller()), value, options))


def _locals_of_caller() -> Mapping[str, Any]:
    """Return the local names where :func:`handle` or :func:`handle_sync` is called."""
    return sys._getframe(2).f_locals  # pyright: ignore[reportPrivateUsage]  # as in sbredis._call_site


def _plan(handler: Callable[..., Any], options: HandleOptions, names: Mapping[str, Any]) -> EntityPlan:
    """Return the handler with the options of its decorator, if a worker is given, and otherwise without options."""
    known = HandleOptions.__annotations__
    for name in options.keys() - known.keys():
        raise unexpected_keyword("handle", name, known)
    router = options.get("worker")
    overrides = options.get("overrides", {})
    settings, by_path = WorkerSettings(), dict[str, Mapping[str, Any]]()
    if router is None:
        declared = HandlerDeclaration(handler, HandlerSource("queue", "queue"), HandlerSettings(), {}, dict(names))
    else:
        found = [each for each in declared_on(router) if each.function is handler]
        if not found:
            raise ValueError(f"{function_name(handler)} is not a handler of {router!r}.")
        declared = found[0]
        if isinstance(router, Worker):
            setup = setup_of(router)
            settings = setup.settings
            overrides = {**setup.overrides, **overrides}
            path = declared.source.path.lower()
            by_path = {path: setup.by_path[path]} if path in setup.by_path else {}
    defaults = Defaults(
        entity={},
        by_path=by_path,
        retries=settings.retries,
        middleware=tuple(settings.middleware),
        overrides=overrides,
    )
    return plan_of([declared], defaults)[0]


async def _handle(plan: EntityPlan, value: object, options: HandleOptions) -> HandlerResult:
    values_returned = list[Any]()
    handler = _keeping(plan.handlers[0], values_returned)
    plan = replace(plan, handlers=(handler,))
    given: Any = {name: each for name, each in options.items() if name in SendOptions.__annotations__}
    values = _values(value) if handler.settings.batch is not None else [value]
    messages = [_received(each, given, options, number) for number, each in enumerate(values, 1)]
    if not messages:
        raise ValueError("A batch has at least one message: the list of values is empty.")
    session_id, state = options.get("session_id", messages[0].session_id), options.get("session_state")
    if state is not None and session_id is None:
        raise ValueError("The message has no session: give a session_id together with session_state.")
    session = None
    if session_id is not None:
        session = _LooseSession(session_id, None if state is None else encoded_state(state))
    errors, replies = list[BaseException](), list[SentMessage]()

    async def reply(entity: str, message: ServiceBusMessage, _: float) -> None:
        replies.append(SentMessage(entity, message))

    threads, app = Threads(4, "sbredis-handler"), Scopes()
    handling = Handling(
        plan,
        max_delivery_count=options.get("max_delivery_count", _MOST_DELIVERIES),
        app=app,
        threads=threads,
        on_error=lambda _, __, error, ___: errors.append(error),
        send=reply,
        handled=lambda _: None,
        time=Time(),
        draw=lambda: 1.0,
    )
    origin = _LooseOrigin(plan.source.path, session)
    call, unfit = HandlerCall(origin, handler, messages), list[tuple[HandlerCall, Outcome]]()
    if handler.settings.batch is not None:
        fit, unfit = call_of(handler, messages, handling, origin)
        call = call if fit is None else fit
    try:
        outcomes = await handling.outcomes_of(call) if len(unfit) < len(messages) else ()
    finally:
        await app.close()
        await handling.close()
        threads.shutdown(wait=False, cancel_futures=True)
    if errors and options.get("raise_errors", False):
        raise errors[0]
    sends = [SentMessage(entity, message) for entity, message in call.additions.sends or ()]
    new_state: Any = (
        call.additions.session_state if call.additions.session_state is not UNCHANGED else session and session.state
    )
    own = iter(origin.settled * len(call.messages) if origin.settled else outcomes)
    dead = {id(each.message): outcome for each, outcome in unfit}
    return HandlerResult(
        outcomes=[dead[id(message)] if id(message) in dead else next(own) for message in messages],
        error=errors[0] if errors else None,
        value=values_returned[-1] if values_returned else None,
        sends=[*sends, *replies],
        session_state=new_state,
    )


def _values(value: Any) -> list[Any]:
    """Return the values for a handler of batches: those of a list, or the only one."""
    if isinstance(value, list):
        return list(value)  # pyright: ignore[reportUnknownArgumentType]  # the values may be anything
    return [value]


def _keeping(plan: HandlerPlan, values: list[Any]) -> HandlerPlan:
    """Return a handler that adds what its function returns to a list. A process of a handler keeps its result."""
    function: Callable[..., Any] = plan.function

    async def waiting(*arguments: Any, **named: Any) -> Any:
        values.append(await function(*arguments, **named))
        return values[-1]

    def plain(*arguments: Any, **named: Any) -> Any:
        values.append(function(*arguments, **named))
        return values[-1]

    if plan.execution == "process":
        return plan
    return replace(plan, function=waiting if plan.execution == "async" else plain)


def _received(value: Any, given: SendOptions, options: HandleOptions, number: int) -> ServiceBusReceivedMessage:
    """Return a message as a receiver gets it."""
    if isinstance(value, ServiceBusReceivedMessage):
        received: ServiceBusReceivedMessage = value
        return received
    message = value if isinstance(value, ServiceBusMessage) else message_with(value, given)
    if (tick := options.get("tick")) is not None:
        message.application_properties = {**(message.application_properties or {}), TICK: tick.isoformat()}
    now = time.time()
    record = b"a0" + str(int(now * 1000)).encode() + outgoing(message, detects_duplicates=False).payload
    failures = options.get("attempt", 1) - 1
    delivery = Delivery(str(number), record, failures, interrupted=options.get("interrupted", False))
    until = _LOCK.total_seconds()
    session_id = options.get("session_id", message.session_id)
    lease = MessageLease(new_token(), Clock().now() + until, now + until, 1, session_id)
    return delivered(delivery, Reception(0, ServiceBusReceiveMode.PEEK_LOCK, None), lease)
