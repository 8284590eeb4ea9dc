"""From a message to an outcome: call the handler, and judge what came of it."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._outcomes import Abandon, Complete, DeadLetter, Outcome, outcome_in
from sbredis.workers.declaring._retries import after_failure
from sbredis.workers.running._calls import Call
from sbredis.workers.running._injecting import Scopes
from sbredis.workers.running._invoking import invoker
from sbredis.workers.running._processes import HandlerProcesses
from sbredis.workers.running._replying import Replies, SendTo

if TYPE_CHECKING:
    from sbredis.model import ServiceBusReceivedMessage

__all__ = ["Handling"]

_log = logging.getLogger("sbredis.worker")
_DONE: Final = Complete()
_AGAIN: Final = 5.0
"""The seconds after which a message comes again that no handler took, with ``unmatched="abandon"``."""
ErrorHook = Callable[[Sequence["ServiceBusReceivedMessage"], BaseException], None]


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
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._plan = plan
        self._most = max_delivery_count
        self._app = app
        self._on_error = on_error
        self._handled = handled
        self._draw = draw
        self._now = time.monotonic
        self._dead = plan.source.sub_queue is not None
        self._processes = {
            id(handler): HandlerProcesses(handler, plan.settings.max_concurrent_calls)
            for handler in plan.handlers
            if handler.execution == "process"
        }
        self._replies = {
            id(handler): Replies(send, handler.settings.replies)
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

    def choose(self, message: ServiceBusReceivedMessage) -> HandlerPlan | Outcome:
        """Return the handler that takes a message, or the outcome of a message that no handler takes."""
        try:
            handler = self._plan.chooser.choose(message)
        except Exception as error:  # noqa: BLE001 -- a `when` function of the application may raise anything
            self._on_error((message,), error)
            return self.after_failure(self._plan.handlers[0], message, error)
        if handler is not None:
            return handler
        if self._plan.settings.unmatched == "abandon" or self._dead:
            return Abandon(_AGAIN)
        return DeadLetter("NoHandler", f"No handler takes a message with the subject {message.subject!r}.")

    async def outcome_of(self, call: Call, scopes: Scopes | None = None) -> Outcome | None:
        """Call the handler, and return the outcome; ``None`` if the message is settled, or is not to be settled."""
        handler = call.handler
        try:
            result = await self._invoked(call, scopes or self._app)
        except Exception as error:  # noqa: BLE001 -- a handler of the application may raise anything
            return self._judged(call, error)[0]
        if call.settled:
            return None
        if isinstance(result, Outcome):
            return self._allowed(result)
        if result is not None:
            try:
                await self._passed_on(call, result)
            except Exception as error:  # noqa: BLE001 -- a result that cannot be encoded is a failure of the handler
                return self._judged(call, error)[0]
        return _DONE if handler.settings.auto_complete else None

    async def _passed_on(self, call: Call, result: object) -> None:
        """Send what a handler has returned: to where it publishes, or as the reply."""
        settings = call.handler.settings
        if settings.publishes is not None:
            call.send(settings.publishes, result, {})
        replies = self._replies.get(id(call.handler))
        if replies is not None:
            await replies.reply(call.message, result)

    async def outcomes_of(self, call: Call, scopes: Scopes | None = None) -> Sequence[Outcome | None]:
        """Call the handler of a batch, and return the outcome of each message."""
        count = len(call.messages)
        try:
            result = await self._invoked(call, scopes or self._app)
            if isinstance(result, list):
                outcomes: Any = result
                return self._each_allowed(call, outcomes)
        except Exception as error:  # noqa: BLE001 -- a handler of the application may raise anything
            return self._judged(call, error)
        if call.settled:
            return [None] * count
        if isinstance(result, Outcome):
            return [self._allowed(result)] * count
        return [_DONE if call.handler.settings.auto_complete else None] * count

    def _each_allowed(self, call: Call, result: list[Any]) -> list[Outcome | None]:
        """Return the outcomes that a handler has returned, one for each message of its batch."""
        if len(result) != len(call.messages) or not all(each is None or isinstance(each, Outcome) for each in result):
            raise TypeError(
                f"{call.handler.name} returned a list that is not one outcome, or None, for each of its "
                f"{len(call.messages)} messages."
            )
        default = _DONE if call.handler.settings.auto_complete else None
        return [default if each is None else self._allowed(each) for each in result]

    def _judged(self, call: Call, error: Exception) -> list[Outcome | None]:
        """Return what becomes of each message of a call whose handler has raised something."""
        if call.settled:
            _log.warning("%s raised an error after it had settled its message: %r", call.handler.name, error)
            return [None] * len(call.messages)
        outcome = self._allowed(outcome_in(error))
        if outcome is not None:
            return [outcome] * len(call.messages)
        call.place.counts.errors += 1
        self._on_error(call.messages, error)
        return [self.after_failure(call.handler, message, error) for message in call.messages]

    async def _invoked(self, call: Call, outer: Scopes) -> Any:
        counts, now = call.place.counts, self._now
        counts.running += 1
        began = now()
        try:
            if not call.place.receiver.traces or len(call.messages) > 1:
                return await self._result(call, outer)
            with call.place.receiver.process_span(call.message):
                return await self._result(call, outer)
        finally:
            counts.running -= 1
            took = now() - began
            counts.handling.observe(took)
            self._handled(took)

    async def _result(self, call: Call, outer: Scopes) -> Any:
        invoke = self._invokers[id(call.handler)]
        if not call.handler.signature.injects:
            return await invoke(call, outer)
        scopes = outer.inner("message")
        try:
            result = await invoke(call, scopes)
        except BaseException as error:
            await scopes.close(error)
            raise
        await scopes.close()
        return result

    def _allowed(self, outcome: Outcome | None) -> Outcome | None:
        """Return the outcome, or another one for a dead letter, which cannot become one again."""
        if self._dead and isinstance(outcome, DeadLetter):
            _log.warning("A dead letter of %s cannot be dead-lettered again: it stays.", self._plan.source.path)
            return Abandon(_AGAIN)
        return outcome

    def after_failure(self, handler: HandlerPlan, message: ServiceBusReceivedMessage, error: BaseException) -> Outcome:
        """Return the outcome of a message whose handling has failed."""
        return after_failure(error, message.delivery_count, self._most, handler.retries, self._draw, dead=self._dead)
