"""One message, or a batch, and the call of its handler."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from contextvars import Context as ContextVariables
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sbredis._quoting import quoted
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusError,
    SessionLockLostError,
)
from sbredis.exceptions import Outcome as Effect
from sbredis.model import MessageId, ServiceBusMessage, ServiceBusReceivedMessage, comparable_id, work_key
from sbredis.workers.declaring._context import SendOptions
from sbredis.workers.declaring._handlers import HandlerPlan
from sbredis.workers.declaring._messages import message_with
from sbredis.workers.declaring._outcomes import Abandon, Complete, Outcome
from sbredis.workers.declaring._schedules import TICK
from sbredis.workers.running._additions import UNCHANGED, Additions, AdditionsMark, decoded_state, encoded_state
from sbredis.workers.running._call_states import CallCondition, CallEvent, CallState, CallTask, decide

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusReceiver, ServiceBusSession
    from sbredis.workers.observing._counts import EntityCounts

__all__ = ["CallOrigin", "HandlerCall", "can_be_settled", "is_too_large"]

_log = logging.getLogger("sbredis.worker")
_ENDED = frozenset({CallState.DECIDED, CallState.DECIDED_LATE})
"""The states in which the worker carries out the outcome of a handler that has ended."""
_COMPLETED, _DECIDED = (CallCondition.COMPLETES, CallCondition.OUTCOME), (CallCondition.OUTCOME,)


class CallOrigin(ABC):
    """The origin of messages, where they are settled too: an entity or, with sessions, one session of it."""

    __slots__ = ("counts", "entity", "receiver", "session", "traces")

    def __init__(
        self, entity: str, receiver: ServiceBusReceiver, counts: EntityCounts, session: ServiceBusSession | None
    ) -> None:
        self.entity, self.receiver, self.counts, self.session = entity, receiver, counts, session
        self.traces = False
        """Whether spans of the calls that begin now are recorded."""

    @abstractmethod
    async def settle(self, call: HandlerCall, outcome: Outcome) -> Outcome:
        """Settle the messages of a call now. Return the outcome that they have got."""


class HandlerCall:
    """The messages of one call of a handler: one message, or a batch.

    Whatever happens to the call goes through its :attr:`state` (:mod:`sbredis.workers.running._call_states`). Each
    method for an event returns the task of the caller. The call is also what the context of the handler sees
    (:class:`~sbredis.workers.declaring._context.ContextCall`).
    """

    __slots__ = (
        "additions",
        "began",
        "bodies",
        "context",
        "handler",
        "lost_messages",
        "message",
        "messages",
        "origin",
        "settled_by_handler",
        "state",
        "thread",
        "timed_out",
    )

    def __init__(self, origin: CallOrigin, handler: HandlerPlan, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        self.origin = origin
        self.handler = handler
        self.messages = messages
        self.message = messages[0]
        self.state = CallState.OPEN
        self.began = time.monotonic()
        self.bodies: list[Any] | None = None
        """The decoded bodies of a batch."""
        self.additions = Additions()
        """The additions of the handler to the completion of the messages."""
        self.settled_by_handler: Outcome | None = None
        """The outcome with which the handler has settled the messages itself."""
        self.thread: Future[Any] | None = None
        """The run of a plain function in its thread."""
        self.timed_out = False
        """Whether a plain function has run for longer than its time-out."""
        self.lost_messages: Sequence[ServiceBusReceivedMessage] = ()
        """The messages of a batch whose own locks were lost. The others are not affected."""
        self.context: ContextVariables | None = None
        """The context variables with the span of the call, in which its messages are settled; ``None`` without one."""

    def part(self, messages: Sequence[ServiceBusReceivedMessage], *, with_additions: bool = False) -> HandlerCall:
        """Return a call for some messages of this batch, to settle them by an outcome of their own."""
        made = HandlerCall(self.origin, self.handler, messages)
        made.context = self.context
        if with_additions:
            made.additions = self.additions
        return made

    def leave_out(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Leave messages out of this batch, which no handler has begun."""
        kept = [place for place, each in enumerate(self.messages) if not any(each is one for one in messages)]
        self.messages = [self.messages[place] for place in kept]
        self.message = self.messages[0] if kept else self.message
        if self.bodies is not None:
            self.bodies = [self.bodies[place] for place in kept]

    # -- what happens to the call --------------------------------------------------------------------------------------

    def end(self, outcomes: Sequence[Outcome | None]) -> CallTask:
        """Note that the handler has ended, with an outcome for each message. Log that it is dropped if it is."""
        if len(outcomes) == 1:  # the most frequent call has one message
            first = outcomes[0]
            completes, decides = isinstance(first, Complete), first is not None
        else:
            completes = all([isinstance(outcome, Complete) for outcome in outcomes])  # noqa: C419 -- faster
            decides = any([outcome is not None for outcome in outcomes])  # noqa: C419 -- faster
        return self._happens(CallEvent.END, _COMPLETED if completes else _DECIDED if decides else ())

    def lose_lock(self) -> CallTask:
        """Note that the lock of all messages was lost. A plain function that waits for a thread is not called."""
        waits = self.thread is not None and self.thread.cancel()
        plain = self.handler.execution == "thread" and not waits
        return self._happens(CallEvent.LOSE, (CallCondition.PLAIN,) if plain else ())

    def unqueue(self) -> bool:
        """Prevent a plain function from being called if it still waits for a thread. Return whether it was."""
        if self.thread is None or not self.thread.cancel():
            return False
        before = self.state
        self._happens(CallEvent.UNQUEUE)
        return self.state is CallState.UNQUEUED is not before

    def cut_off(self) -> CallTask:
        """Note that the worker ends, and that the time of its handlers is over."""
        return self._happens(CallEvent.CUT_OFF, self._in_thread_condition)

    def leave(self) -> bool:
        """Leave a handler that does not end. Return whether it is left now."""
        return self._happens(CallEvent.LEAVE) is CallTask.LEAVE

    def stop(self) -> CallTask:
        """Note that the worker ends, and that the work on the call is over. A function that waits is not called."""
        self.unqueue()
        return self._happens(CallEvent.STOP, self._in_thread_condition)

    def broken(self) -> CallTask:
        """Note that an error has ended the work on the session of the call."""
        return self._happens(CallEvent.BREAK)

    def _happens(self, event: CallEvent, holding: tuple[CallCondition, ...] = ()) -> CallTask:
        step = decide(self.state, event, holding)
        if step.task is CallTask.DROP:
            _log.warning("%s: the result of a handler is dropped, because its lock was lost", self.entity)
        elif step.task is CallTask.LEAVE:
            self._say_left()
        self.state = step.state
        return step.task

    def _say_left(self) -> None:
        """Log that the messages are lost to a handler that does not end."""
        how = "although it was cancelled, and the worker ends without it"
        if self.in_thread:
            how = "in its thread, which cannot be ended"
        what, fate = f"message {self.message.sequence_number}", "comes again when its lock ends"
        if len(self.messages) > 1:
            what, fate = f"{what} and {len(self.messages) - 1} more", "come again when their locks end"
        if self.state.is_settled:
            fate = "settled before"
        _log.warning("%s: %s still runs %s: %s %s", self.entity, self.handler.name, how, what, fate)

    @property
    def _in_thread_condition(self) -> tuple[CallCondition, ...]:
        return (CallCondition.IN_THREAD,) if self.in_thread else ()

    # -- what is known of it -------------------------------------------------------------------------------------------

    @property
    def in_thread(self) -> bool:
        """Whether a plain function runs for this call now."""
        return self.thread is not None and self.thread.running()

    @property
    def lock_lost(self) -> bool:
        """Whether the lock was lost, or one of those of a batch."""
        return self.state.has_lost_lock or bool(self.lost_messages)

    def has_lost(self, message: ServiceBusReceivedMessage) -> bool:
        """Return whether the lock of this message was lost."""
        return self.state.has_lost_lock or any(each is message for each in self.lost_messages)

    @property
    def comes_again(self) -> bool:
        """Whether the handler has settled the messages so that they come again."""
        return isinstance(self.settled_by_handler, Abandon)

    def restore(self, mark: AdditionsMark) -> None:
        """Forget what was added after a mark, unless the handler has settled the messages with it."""
        if not self.state.is_settled:
            self.additions.restore(mark)

    # -- for the context -----------------------------------------------------------------------------------------------

    @property
    def entity(self) -> str:
        return self.origin.entity

    @property
    def interrupted(self) -> bool:
        return self.message.interrupted

    @property
    def tick(self) -> datetime | None:
        time = (self.message.application_properties or {}).get(TICK)
        if not isinstance(time, str):
            return None
        schedule = self.handler.schedule
        return datetime.fromisoformat(time).astimezone(UTC if schedule is None else schedule.zone)

    @property
    def session_id(self) -> str | None:
        return None if self.origin.session is None else self.origin.session.session_id

    def send(self, entity: str, value: object, options: SendOptions) -> None:
        self._check_room(1)
        self.additions.send(entity, value if isinstance(value, ServiceBusMessage) else message_with(value, options))

    def remember(self, key: MessageId, window: float) -> None:
        if self.handler.settings.batch is not None:
            raise TypeError(
                f"A key belongs to one message, but {self.handler.name} takes batches: once() and Idempotency are for "
                "handlers of single messages."
            )
        stored, known = comparable_id(work_key(key)), self.additions.keys or {}
        self._check_room(0 if stored in known else 1)
        self.additions.keys = {**known, stored: window}

    async def renew(self) -> datetime:
        if self.origin.session is not None:
            return await self.origin.session.renew_lock()
        return await self.origin.receiver.renew_message_lock(self.message)

    async def settle(self, outcome: Outcome) -> None:
        self._check_unsettled()
        if not isinstance(outcome, Outcome):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"settle() takes an outcome, such as Complete(), not {quoted(outcome)}.")
        self._happens(CallEvent.SETTLE)
        try:
            await self.origin.settle(self, outcome)
        except Exception as error:
            if can_be_settled(error):
                self._happens(CallEvent.REFUSE)
            raise
        self.settled_by_handler = outcome

    async def get_state(self, as_type: Any) -> Any:
        assert self.origin.session is not None
        state = await self.origin.session.get_state()
        return None if state is None else decoded_state(state, as_type)

    def set_state(self, value: object) -> None:
        self._check_room(1 if self.additions.session_state is UNCHANGED else 0)
        self.additions.session_state = None if value is None else encoded_state(value)

    def _check_unsettled(self) -> None:
        if self.state in _ENDED:
            raise RuntimeError("The handler has ended, so nothing can be added to the settlement of its message.")
        if self.state.is_settled:
            raise RuntimeError("The message was settled already, so nothing can be added to its settlement.")

    def _check_room(self, more: int) -> None:
        """Raise if the transaction that completes the messages cannot take more items."""
        self._check_unsettled()
        self.additions.require_room(more, len(self.messages))


def can_be_settled(error: Exception) -> bool:
    """Return whether a message can be settled in another way after a settlement has failed with this error."""
    if isinstance(error, (MessageLockLostError, SessionLockLostError, MessageAlreadySettled)):
        return False
    if isinstance(error, ServiceBusError):
        return error.outcome is not Effect.UNKNOWN
    return isinstance(error, (ValueError, TypeError))  # it was refused before it was sent


def is_too_large(error: Exception) -> bool:
    """Return whether a settlement was refused with this error because no transaction can take it."""
    return isinstance(error, MessageSizeExceededError) and error.outcome is Effect.NEVER_SENT
