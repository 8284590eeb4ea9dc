"""The record of a worker's deliveries during a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from sbredis.codec import decode_body
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers import Outcome
from sbredis.workers.declaring._outcomes import outcome_in
from sbredis.workers.running._calls import HandlerCall

__all__ = ["Handled", "Records", "SentMessage"]


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that a handler has sent with its context, or by what it returned."""

    entity: str
    """The queue or topic."""
    message: ServiceBusMessage

    def value(self, as_type: Any = Any) -> Any:
        """Return the body as a value of this type; by default, of the type that the content type says."""
        return decode_body(bytes(self.message.body), self.message.content_type, as_type)


@dataclass(slots=True, eq=False)
class Handled:
    """A delivery of a message to a worker, and what became of it."""

    entity: str
    """The path of the entity that the message comes from."""
    message: ServiceBusReceivedMessage
    """The message as the handler got it. Its ``delivery_count`` is the number of the attempt."""
    handler: Callable[..., Any] | None = None
    """The function that handled the message; ``None`` if no handler takes it."""
    outcome: Outcome | None = None
    """The outcome that the broker has acknowledged; ``None`` if the message was not settled."""
    error: BaseException | None = None
    """The error that the handler has raised, or that the settlement has met."""
    sends: Sequence[SentMessage] = ()
    """The messages that the handler has sent. They went out if the outcome is ``Complete()``."""
    lock_lost: bool = False
    """Whether the lock was lost while the handler ran."""
    interrupted: bool = False
    """Whether the handler was cancelled, because the worker was shut down."""
    order: int = field(default=0, repr=False)
    """The number of the delivery in its run."""

    def __repr__(self) -> str:
        name = "no handler" if self.handler is None else getattr(self.handler, "__qualname__", repr(self.handler))
        ending = f"{type(self.error).__name__}, {self.outcome!r}" if self.error is not None else repr(self.outcome)
        number, attempt = self.message.sequence_number, self.message.delivery_count
        return f"<Handled {self.entity}: message {number}, attempt {attempt}, {name}: {ending}>"


@dataclass(slots=True, eq=False)
class Working:
    """A delivery that is not finished."""

    handled: Handled
    call: HandlerCall
    began: float
    coroutine: Coroutine[Any, Any, Any]
    running: bool = True
    """Whether the handler runs; afterwards the message is being settled."""


@dataclass(slots=True)
class Records:
    """All deliveries of one run of a worker."""

    done: list[Handled] = field(default_factory=list[Handled])
    """The finished deliveries."""
    orders: dict[int, int] = field(default_factory=dict[int, int])
    """The numbers of the deliveries under way, by the identity of their messages."""
    count: int = 0
    """The number of deliveries so far."""
    working: dict[int, Working] = field(default_factory=dict[int, Working])
    """The deliveries that are not finished, by the identity of their messages."""
    left: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """Entity and number of messages that are finished but not settled, so that they may be locked still."""
    errors: list[BaseException] = field(default_factory=list[BaseException])
    """The errors that handlers have raised."""
    activity: int = 0
    """A number that rises whenever something happens."""
    held_back: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """Until when a session is held back by the delay of one of its messages, by entity and session."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def in_work(self) -> list[Handled]:
        """The deliveries that are not finished."""
        return [work.handled for work in self.working.values()]

    def received(self, message: ServiceBusReceivedMessage) -> None:
        """Note that the worker has a message, and looks for its handler."""
        self.count += 1
        self.orders[id(message)] = self.count
        self._note()

    def began(self, call: HandlerCall, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Note that a handler is called."""
        for message in call.messages:
            handled = Handled(call.entity, message, call.handler.function, order=self.orders.pop(id(message), 0))
            self.left.discard((call.entity, message.sequence_number))
            self.working[id(message)] = Working(handled, call, time.monotonic(), coroutine)
        self._note()

    def raised(self, call: HandlerCall, error: BaseException) -> None:
        """Note an exception of a handler. An outcome that was raised is no error."""
        if outcome_in(error) is not None:
            return
        self.errors.append(error)
        for message in call.messages:
            self.working[id(message)].handled.error = error
        self._note()

    def cancelled(self, call: HandlerCall) -> None:
        """Note that a call was cancelled from outside: its lock was lost, or the worker stops."""
        for message in call.messages:
            work = self.working[id(message)]
            work.handled.interrupted = not call.lock_lost
            self._finish(work)

    def ended(self, call: HandlerCall, outcomes: Sequence[Outcome | None], *, dropped: bool) -> None:
        """Note that a handler has ended. ``dropped`` says that its outcome does not count."""
        for message, outcome in zip(call.messages, outcomes, strict=True):
            work = self.working[id(message)]
            work.running = False
            if dropped or outcome is None:
                self._finish(work)
        self._note()

    def settled(self, entity: str, messages: Sequence[ServiceBusReceivedMessage], outcome: Outcome) -> None:
        """Note an outcome that was acknowledged."""
        for message in messages:
            work = self.working.get(id(message))
            if work is not None:
                work.handled.outcome = outcome
            else:  # no handler takes the message, or a batch leaves it out because its body does not fit
                order = self.orders.pop(id(message), 0)
                self.done.append(Handled(entity, message, outcome=outcome, order=order))
        self._note()

    def not_settled(self, entity: str, messages: Sequence[ServiceBusReceivedMessage], error: Exception) -> None:
        """Note that messages could not be settled, or not in the way that was wanted."""
        for message in messages:
            work = self.working.get(id(message))
            if work is not None:
                work.handled.error = error
            elif (order := self.orders.pop(id(message), None)) is not None:
                self.left.add((entity, message.sequence_number))
                self.done.append(Handled(entity, message, error=error, order=order))
        self._note()

    def given_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Note that messages were given back. Those that no handler has begun are no longer the worker's."""
        for message in messages:
            self.orders.pop(id(message), None)
        self._note()

    def finished(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Note that the settlement of messages has ended, well or not."""
        for message in messages:
            work = self.working.get(id(message))
            if work is not None and not work.running:
                self._finish(work)
        self._note()

    def of(self, entity: str | None) -> list[Handled]:
        """Return the finished deliveries of an entity, or of all entities, in the order in which they were received."""
        found = [each for each in self.done if entity is None or each.entity.lower() == entity.lower()]
        return sorted(found, key=lambda each: each.order)

    def _finish(self, work: Working) -> None:
        handled, call = work.handled, work.call
        del self.working[id(handled.message)]
        handled.lock_lost = call.lock_lost
        handled.sends = tuple(SentMessage(entity, message) for entity, message in call.additions.sends or ())
        if handled.outcome is None:
            self.left.add((handled.entity, handled.message.sequence_number))
        self.done.append(handled)

    def _note(self) -> None:
        self.activity += 1
        self.changed.set()
