"""From a message to an outcome: call the handler, and judge what came of it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import copy_context
from time import monotonic
from typing import Any, Final, cast

from sbredis._counting import counted
from sbredis._tasks import running_loop
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers.declaring._conditions import ConditionError
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._messages import message_with
from sbredis.workers.declaring._outcomes import (
    Abandon,
    Complete,
    DeadLetter,
    GiveBack,
    Outcome,
    checked_result,
    outcome_in,
)
from sbredis.workers.declaring._retries import after_failure
from sbredis.workers.running._calls import CallOrigin, HandlerCall, is_too_large
from sbredis.workers.running._injecting import Scopes, UnfitMessage
from sbredis.workers.running._invoking import invoker
from sbredis.workers.running._limit import MessageLimit
from sbredis.workers.running._processes import HandlerProcesses, NotAgain
from sbredis.workers.schedules._time import Time

__all__ = ["Handling"]

_log = logging.getLogger("sbredis.worker")
_DONE: Final = Complete()
_SETTLED: Final = Complete()
"""Stands for the outcome of a message that its handler has settled itself, in the report of an error after that."""
_LOST: Final = 1970
"""The year of the enqueueing of a message whose stored record is lost."""
_AGAIN: Final = 5.0
"""The seconds after which a message comes again that no handler took, with ``unmatched="abandon"``."""
_PATIENCE: Final = 10.0
"""The seconds that the sending of a reply may take."""
SendTo = Callable[[str, ServiceBusMessage, float], Awaitable[None]]
"""Sends a message to a queue or topic, within a number of seconds."""
ErrorHook = Callable[[HandlerPlan, Sequence[ServiceBusReceivedMessage], BaseException, Outcome], None]
"""Called with the handler that has failed, the messages of the call, the error, and the first message's outcome."""


class Handling:
    """Calls the handlers of one entity."""

    def __init__(
        self,
        plan: EntityPlan,
        *,
        max_delivery_count: int,
        app: Scopes,
        threads: Executor,
        on_error: ErrorHook,
        send: SendTo,
        handled: Callable[[float], None],
        time: Time,
        draw: Callable[[], float] = random.random,
        limit: MessageLimit | None = None,
    ) -> None:
        self._plan = plan
        self._most = max_delivery_count
        self._app = app
        self._on_error = on_error
        self._handled = handled
        self._loop = asyncio.get_running_loop()
        self.time = time
        self.draw = draw
        self.limit = MessageLimit() if limit is None else limit
        """The number of messages that the process may still begin."""
        self._dead = plan.source.sub_queue is not None
        self._processes = {
            id(handler): HandlerProcesses(handler, plan.settings.max_concurrent_calls)
            for handler in plan.handlers
            if handler.execution == "process"
        }
        self._replies = {
            id(handler): _Replies(send, handler.settings.replies)
            for handler in plan.handlers
            if handler.settings.replies
        }
        self._invokers = {
            id(handler): invoker(handler, threads, self._processes.get(id(handler))) for handler in plan.handlers
        }

    async def close(self) -> None:
        """End the processes of the handlers."""
        for processes in self._processes.values():
            await processes.close()

    async def prepare(self) -> None:
        """Have a process for each handler that needs one: its start may take longer than the turn of a suspect."""
        for processes in self._processes.values():
            await processes.prepare()

    @property
    def ready(self) -> bool:
        """Whether the next message begins at once, because no process is to be started for it."""
        return all([processes.ready for processes in self._processes.values()])  # noqa: C419 -- faster

    def choose(self, message: ServiceBusReceivedMessage) -> HandlerPlan | Outcome:
        """Return the handler that takes a message, or the outcome of a message that no handler takes."""
        try:
            handler = self._plan.chooser.choose(message)
        except ConditionError as failed:
            asked, error = failed.handler, failed.error
            outcome = self._allowed(outcome_in(error))
            if outcome is None:
                outcome = self.after_failure(asked, message, error)
                self._on_error(asked, (message,), error, outcome)
            return outcome
        if handler is not None:
            return handler
        if self._plan.settings.unmatched == "abandon" or self._dead:
            return Abandon(_AGAIN)
        return self.unfit(
            message, DeadLetter("NoHandler", f"No handler takes a message with the subject {message.subject!r}.")
        )

    def unfit(self, message: ServiceBusReceivedMessage, outcome: DeadLetter) -> Outcome:
        """Return the outcome of a message that no handler gets, and log why if it becomes a dead letter."""
        allowed = self._allowed(DeadLetter(outcome.reason, outcome.description))
        assert allowed is not None
        if isinstance(allowed, DeadLetter):
            _log.warning(
                "%s: message %s is dead-lettered: %s: %s",
                self._plan.source.path,
                message.sequence_number,
                allowed.reason,
                allowed.description,
            )
        return allowed

    def outcomes_of(
        self, call: HandlerCall, scopes: Scopes | None = None
    ) -> Coroutine[Any, Any, Sequence[Outcome | None]]:
        """Run a call, and return an outcome for each message; ``None`` for a message that the worker does not settle.

        The steps: call the handler, check its result, send the result on, read the outcomes. What a step raises is
        judged, be it an error of the handler or not.
        """
        return self._outcomes(call, self._app if scopes is None else scopes, in_span=False)

    async def _outcomes(self, call: HandlerCall, scopes: Scopes, *, in_span: bool) -> Sequence[Outcome | None]:
        handler, counts = call.handler, call.origin.counts
        own = counts.handlers.get(handler.name) or counts.of(handler.name)
        try:
            if call.origin.traces and not in_span:
                with _span(call):
                    return await self._outcomes(call, scopes, in_span=True)
            own.running += 1
            began = monotonic()
            try:
                result = await self._invokers[id(handler)](call, scopes)
            finally:
                own.running -= 1
                took = monotonic() - began
                own.handling.observe(took)
                self._handled(took)
            if result is not None or handler.settings.replies:
                result = checked_result(result)
                await self._pass_on(call, result)
            return self._read(call, result)
        except BaseException as error:
            if in_span:  # which records it first
                raise
            return self.judged(call, error)

    async def _pass_on(self, call: HandlerCall, result: object) -> None:
        """Send what a handler has returned: to where it publishes, or as the reply.

        If the lock was lost, the outcome is dropped, and so is the reply: the message is handled again. A result that
        cannot be encoded is a failure of the handler.
        """
        settings = call.handler.settings
        if isinstance(result, Outcome) or call.state.is_settled:
            return
        if settings.publishes is not None:
            call.send(settings.publishes, result, {})
        replies = self._replies.get(id(call.handler))
        if replies is not None and not call.state.is_dropped:
            await replies.reply(call.message, result)

    def _read(self, call: HandlerCall, result: object) -> Sequence[Outcome | None]:
        """Return the outcomes that the result of a handler says."""
        count = len(call.messages)
        if result is None and not call.state.is_settled:
            return [_DONE if call.handler.settings.auto_complete else None] * count
        if isinstance(result, (list, tuple)) and call.handler.settings.batch is not None:
            outcomes = self._each_allowed(call, cast("Sequence[Any]", result))
        elif isinstance(result, Outcome) and not call.state.is_settled:
            outcomes = [self._allowed(result)] * count
        else:
            outcomes = [_DONE if call.handler.settings.auto_complete else None] * count
        return [None] * count if call.state.is_settled else outcomes

    def _each_allowed(self, call: HandlerCall, result: Sequence[Any]) -> list[Outcome | None]:
        """Return the outcomes that a handler has returned, one for each message of its batch."""
        if len(result) != len(call.messages) or not all(each is None or isinstance(each, Outcome) for each in result):
            raise TypeError(
                f"{call.handler.name} returned a list that is not one outcome, or None, for each of its "
                f"{counted(len(call.messages), 'message')}."
            )
        default = _DONE if call.handler.settings.auto_complete else None
        return [default if each is None else self._allowed(each) for each in result]

    def judged(self, call: HandlerCall, error: BaseException) -> list[Outcome | None]:
        """Return what becomes of each message of a call whose handler has raised something.

        A cancellation that comes from the worker is raised again. One that the handler let out by itself is a failure,
        and so is the exception of ``sys.exit()``.
        """
        if isinstance(error, KeyboardInterrupt) or (
            isinstance(error, GeneratorExit) and running_loop() is not self._loop
        ):
            raise error  # the program is interrupted, or the coroutine is closed after the end of its event loop
        if isinstance(error, asyncio.CancelledError) and not call.state.is_free:
            raise error
        outcome = outcome_in(error)
        if call.state.is_settled:
            if outcome is None:
                call.origin.counts.of(call.handler.name).errors += 1
                self._on_error(call.handler, call.messages, error, _SETTLED)
            return [None] * len(call.messages)
        if isinstance(outcome, UnfitMessage):
            return [self.unfit(message, outcome) for message in call.messages]
        outcome = self._allowed(outcome)
        if outcome is not None:
            return [outcome] * len(call.messages)
        if call.additions.overfull and len(call.messages) > 1:
            return [GiveBack()] * len(call.messages)  # they come again in smaller batches
        call.origin.counts.of(call.handler.name).errors += 1
        outcomes = [
            self.after_failure(call.handler, message, error, final=call.additions.overfull) for message in call.messages
        ]
        if kept := [each for each in zip(call.messages, outcomes, strict=True) if not call.has_lost(each[0])]:
            self._on_error(call.handler, [message for message, _ in kept], error, kept[0][1])
        return [*outcomes]

    def note_beginning(self, origin: CallOrigin, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Note that messages begin now: whether spans are recorded, and how long the messages have waited.

        The wait counts if this is their first delivery. Messages that come together are as old as the first and the
        last of them, if these two fall into one bucket.
        """
        counts, origin.traces = origin.counts, origin.receiver.traces
        fresh = [message for message in messages if message.delivery_count == 1]
        if len(fresh) > 2:
            first, last = self._lag(fresh[0]), self._lag(fresh[-1])
            if counts.lag.observe_between(first, last, len(fresh)):
                return
        for message in fresh:
            counts.lag.observe(self._lag(message))

    def _lag(self, message: ServiceBusReceivedMessage) -> float:
        enqueued = message.enqueued_time_utc
        return 0.0 if enqueued.year == _LOST else max(0.0, (self.time.utc() - enqueued).total_seconds())

    def _allowed(self, outcome: Outcome | None) -> Outcome | None:
        """Return the outcome, or another one for a dead letter, which cannot become one again."""
        if self._dead and isinstance(outcome, DeadLetter):
            _log.warning("A dead letter of %s cannot be dead-lettered again: it stays.", self._plan.source.path)
            return Abandon(_AGAIN)
        return outcome

    def after_failure(
        self, handler: HandlerPlan, message: ServiceBusReceivedMessage, error: BaseException, *, final: bool = False
    ) -> Outcome:
        """Return the outcome of a message whose handling has failed; if it is ``final``, no other attempt can help."""
        final = final or isinstance(error, NotAgain)
        count, most = message.delivery_count, self._most
        return after_failure(error, count, most, handler.retries, self.draw, dead=self._dead, final=final)

    def after_refusal(self, handler: HandlerPlan, message: ServiceBusReceivedMessage, error: Exception) -> Outcome:
        """Return the outcome of a message whose settlement was refused."""
        return self.after_failure(handler, message, error, final=is_too_large(error))


@contextmanager
def _span(call: HandlerCall) -> Generator[None]:
    """Record a span of the call while the block runs. A raised outcome is no error of the span.

    Everything that follows from the call is done in its context: the settlement, and what goes out with it.
    """
    raised: BaseException | None = None
    before = copy_context()
    with call.origin.receiver.process_span(call.messages):
        within = copy_context()
        if within != before:  # else only the log is at the level DEBUG
            call.context = within
        try:
            yield
        except Exception as error:
            if outcome_in(error) is None:
                raise
            raised = error
    if raised is not None:
        raise raised


class _Replies:
    """Sends the replies of one handler.

    A reply goes out before its message is completed, so that it is not lost when the worker dies. If it dies in
    between, the message comes again, and the asker gets a second reply with the same correlation id. A reply that
    cannot be sent is only logged: the asker may be gone, and the message was handled.
    """

    def __init__(self, send: SendTo, permitted: bool | Sequence[str]) -> None:
        self._send = send
        self._permitted = None if permitted is True else {path.lower() for path in permitted or ()}

    async def reply(self, message: ServiceBusReceivedMessage, result: object) -> None:
        """Reply to a message, if it asks for a reply."""
        to = message.reply_to
        if not to:
            return
        if self._permitted is not None and to.lower() not in self._permitted:
            _log.warning("message %s asks for a reply to %r, which is not permitted", message.sequence_number, to)
            return
        made = result if isinstance(result, ServiceBusMessage) else message_with(result, {})
        made.correlation_id = message.message_id if message.correlation_id is None else message.correlation_id
        if message.reply_to_session_id is not None:
            made.session_id = message.reply_to_session_id
        try:
            await self._send(to, made, _PATIENCE)
        except (ServiceBusError, ValueError) as error:
            _log.warning("the reply to message %s was not sent to %r: %s", message.sequence_number, to, error)
