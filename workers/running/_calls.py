"""One message and the call of its handler."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import Context as ContextVariables
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sbredis._quoting import quoted
from sbredis.codec import decode_body, encode_body
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
from sbredis.workers.declaring._outcomes import Abandon, Outcome
from sbredis.workers.declaring._schedules import TICK

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusReceiver, ServiceBusSession
    from sbredis.workers.observing._counts import Counts

__all__ = [
    "UNCHANGED",
    "Call",
    "Place",
    "Recorded",
    "can_be_settled",
    "decoded_state",
    "encoded_state",
    "is_too_large",
]

_log = logging.getLogger("sbredis.worker")
UNCHANGED: Final = object()
"""The state of a session that no handler has set."""
_MOST_ITEMS: Final = 100
"""The largest number of messages, session states and keys that a transaction takes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages come from and are settled: an entity or, with sessions, one session of it."""

    entity: str
    receiver: ServiceBusReceiver
    counts: Counts
    session: ServiceBusSession | None
    settle: Callable[[Call, Outcome], Awaitable[Outcome]]
    """Settles the messages of a call now."""


class Recorded(NamedTuple):
    """The parts of the completing transaction that a call has recorded at one moment."""

    sends: int
    """The number of messages to send."""
    state: object
    once: dict[str | bytes, float] | None


class Call:
    """The messages of one call of a handler: one message, or a batch.

    The call is also what the context of the handler sees (:class:`~sbredis.workers.declaring._context.Work`).
    """

    __slots__ = (
        "began",
        "bodies",
        "comes_again",
        "context",
        "cut_off",
        "dropped",
        "handler",
        "lag_noted",
        "left",
        "lock_lost",
        "lost",
        "message",
        "messages",
        "once",
        "overfull",
        "place",
        "sends",
        "settled",
        "settling",
        "state",
        "thread",
        "timed_out",
        "withdrawn",
    )

    def __init__(self, place: Place, handler: HandlerPlan, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        self.place = place
        self.handler = handler
        self.messages = messages
        self.message = messages[0]
        self.began = time.monotonic()
        self.bodies: list[Any] | None = None
        """The decoded bodies of a batch."""
        self.sends: list[tuple[str, ServiceBusMessage]] | None = None
        """The messages that the handler has sent, with the entities to which they go."""
        self.state: object = UNCHANGED
        """The new state of the session, as the handler gave it."""
        self.once: dict[str | bytes, float] | None = None
        """The keys that are remembered when the message is completed, each with its window in seconds."""
        self.overfull = False
        """Whether the messages and everything that the handler has sent do not fit into one transaction."""
        self.settled = False
        """Whether the handler has settled the message itself."""
        self.comes_again = False
        """Whether the handler has settled the message so that it comes again."""
        self.settling = False
        """Whether the outcome is decided, and its settlement is under way."""
        self.thread: Future[Any] | None = None
        """The work of a plain function in its thread."""
        self.withdrawn = False
        """Whether a plain function was waiting for a thread, and will not be called."""
        self.timed_out = False
        """Whether a plain function has run for longer than its time-out."""
        self.lag_noted = False
        """Whether the lag of the messages was counted, together with that of others."""
        self.lock_lost = False
        """Whether the lock was lost, or one of those of a batch."""
        self.lost: Sequence[ServiceBusReceivedMessage] = ()
        """The messages of a batch whose own locks were lost; empty if the lock is that of a session."""
        self.cut_off = False
        """Whether the handler was cancelled at the end of the worker. Its outcome counts only if it ends well."""
        self.dropped = False
        """Whether the call was ended from outside, and its outcome does not count."""
        self.left = False
        """Whether the worker has ended without waiting for the handler."""
        self.context: ContextVariables | None = None
        """The context variables with the span of the call, in which its messages are settled; ``None`` without one."""

    def part(self, messages: Sequence[ServiceBusReceivedMessage], *, with_sends: bool = False) -> Call:
        """Return a call for some messages of this batch, to settle them by an outcome of their own."""
        made = Call(self.place, self.handler, messages)
        made.context = self.context
        if with_sends:
            made.sends, made.state, made.once = self.sends, self.state, self.once
        return made

    @property
    def recorded(self) -> Recorded:
        """The parts of the completing transaction that are recorded now."""
        return Recorded(len(self.sends or ()), self.state, self.once)

    def restore(self, before: Recorded) -> None:
        """Forget what was recorded later, unless the handler has settled the message with it."""
        if self.settled:
            return
        if self.sends is not None:
            del self.sends[before.sends :]
            self.sends = self.sends or None
        self.state, self.once = before.state, before.once

    def withdraw(self) -> bool:
        """Prevent a plain function from being called if it still waits for a thread. Return whether it was."""
        if not self.withdrawn and self.thread is not None and self.thread.cancel():
            self.withdrawn = self.dropped = True
            return True
        return False

    def has_lost(self, message: ServiceBusReceivedMessage) -> bool:
        """Return whether the lock of this message was lost."""
        return self.lock_lost and (not self.lost or any(each is message for each in self.lost))

    @property
    def in_thread(self) -> bool:
        """Whether a plain function runs for this call now."""
        return self.thread is not None and self.thread.running()

    def left_behind(self) -> None:
        """Tell a handler that does not end that its messages are lost to it."""
        self.left = self.dropped = self.lock_lost = True
        self.lost = ()
        how = "although it was cancelled, and the worker ends without it"
        if self.in_thread:
            how = "in its thread, which cannot be ended"
        what, fate = f"message {self.message.sequence_number}", "comes again when its lock ends"
        if len(self.messages) > 1:
            what, fate = f"{what} and {len(self.messages) - 1} more", "come again when their locks end"
        if self.settled:
            fate = "settled before"
        _log.warning("%s: %s still runs %s: %s %s", self.entity, self.handler.name, how, what, fate)

    # -- for the context -----------------------------------------------------------------------------------------------

    @property
    def entity(self) -> str:
        return self.place.entity

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
        return None if self.place.session is None else self.place.session.session_id

    def send(self, entity: str, value: object, options: SendOptions) -> None:
        self._check_room(1)
        made = value if isinstance(value, ServiceBusMessage) else message_with(value, options)
        if self.sends is None:
            self.sends = []
        self.sends.append((entity, made))

    def remember(self, key: MessageId, window: float) -> None:
        if self.handler.settings.batch is not None:
            raise TypeError(
                f"A key belongs to one message, but {self.handler.name} takes batches: once() and Idempotency are for "
                "handlers of single messages."
            )
        stored, known = comparable_id(work_key(key)), {} if self.once is None else self.once
        self._check_room(0 if stored in known else 1)
        self.once = {**known, stored: window}

    async def renew(self) -> datetime:
        if self.place.session is not None:
            return await self.place.session.renew_lock()
        return await self.place.receiver.renew_message_lock(self.message)

    async def settle(self, outcome: Outcome) -> None:
        self._check_unsettled()
        if not isinstance(outcome, Outcome):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"settle() takes an outcome, such as Complete(), not {quoted(outcome)}.")
        self.settled = True
        try:
            await self.place.settle(self, outcome)
        except Exception as error:
            self.settled = not can_be_settled(error)
            raise
        self.comes_again = isinstance(outcome, Abandon)

    async def get_state(self, as_type: Any) -> Any:
        assert self.place.session is not None
        state = await self.place.session.get_state()
        return None if state is None else decoded_state(state, as_type)

    def set_state(self, value: object) -> None:
        self._check_room(1 if self.state is UNCHANGED else 0)
        self.state = None if value is None else encoded_state(value)

    def _check_unsettled(self) -> None:
        if self.settled:
            raise RuntimeError("The message was settled already, so nothing can be added to its settlement.")

    def _check_room(self, more: int) -> None:
        """Raise if the transaction that completes the messages cannot take more items."""
        self._check_unsettled()
        recorded = len(self.sends or ()) + len(self.once or ()) + (self.state is not UNCHANGED)
        if more and len(self.messages) + recorded + more > _MOST_ITEMS:
            self.overfull = True
            one = len(self.messages) == 1
            raise MessageSizeExceededError(
                f"A handler's messages go out in the transaction that completes its {'message' if one else 'batch'}. "
                f"A transaction takes up to {_MOST_ITEMS} messages, session states and keys, and has "
                f"{len(self.messages)} to complete and {recorded} from the handler already. "
                + ("Send fewer." if one else "Send fewer, or set a smaller batch=."),
                outcome=Effect.NEVER_SENT,
            )


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


def encoded_state(value: object) -> bytes:
    """Return a value as the state of a session.

    A state has no content type, so a member of an enumeration is JSON, also if it is a text.
    """
    body, content_type = encode_body(value)
    if content_type is None or not content_type.startswith("text/") or type(value) is str:
        return body
    return json.dumps(body.decode()).encode()


def decoded_state(state: bytes, as_type: Any) -> Any:
    """Return the state of a session as a value of a type. A state has no content type, so without a type it is JSON."""
    return decode_body(state, "application/json" if as_type in {Any, object} else None, as_type)
