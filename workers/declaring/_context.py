"""The context of a handler: what it is told beside its message, and what it can do."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, TypedDict, Unpack

from sbredis.model import MessageId, PrimitiveTypes, ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers.declaring._checks import require_seconds, require_text
from sbredis.workers.declaring._outcomes import Outcome

__all__ = ["Context", "ContextCall", "RunInLoop", "SendOptions", "Session", "SyncContext", "SyncSession"]


class SendOptions(TypedDict, total=False):
    """The properties of a message that is made from a value. They are those of :class:`~sbredis.ServiceBusMessage`."""

    application_properties: Mapping[str, PrimitiveTypes]
    session_id: str
    message_id: str
    scheduled_enqueue_time_utc: datetime
    time_to_live: timedelta
    content_type: str
    correlation_id: str
    subject: str
    partition_key: str
    to: str
    reply_to: str
    reply_to_session_id: str


class ContextCall(Protocol):
    """The part of a running call that a context needs. All its methods may be called in the worker's event loop."""

    @property
    def entity(self) -> str:
        """The path of the entity."""
        ...

    @property
    def message(self) -> ServiceBusReceivedMessage:
        """The message."""
        ...

    @property
    def lock_lost(self) -> bool:
        """Whether the lock was lost."""
        ...

    @property
    def timed_out(self) -> bool:
        """Whether a plain function has run for longer than its time-out."""
        ...

    @property
    def interrupted(self) -> bool:
        """Whether the delivery before was given back."""
        ...

    @property
    def tick(self) -> datetime | None:
        """The time of the schedule."""
        ...

    @property
    def session_id(self) -> str | None:
        """The id of the session."""
        ...

    def send(self, entity: str, value: object, options: SendOptions) -> None:
        """Add a message to those that go out when the message is settled."""
        ...

    def remember(self, key: MessageId, window: float) -> None:
        """Complete the message only if no other message was completed with this key, within a window in seconds."""
        ...

    async def renew(self) -> datetime:
        """Renew the lock of the message or its session."""
        ...

    async def settle(self, outcome: Outcome) -> None:
        """Settle the message now."""
        ...

    async def get_state(self, as_type: Any) -> Any:
        """Return the state of the session."""
        ...

    def set_state(self, value: object) -> None:
        """Set the state of the session when the message is settled."""
        ...


RunInLoop = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine in the worker's event loop, and returns its result. Called in the thread of a plain function."""


class _Told:
    """The facts about a message that both contexts have."""

    __slots__ = ("_call",)

    def __init__(self, call: ContextCall) -> None:
        self._call = call

    @property
    def entity(self) -> str:
        """The path of the queue or subscription that the message comes from."""
        return self._call.entity

    @property
    def message(self) -> ServiceBusReceivedMessage:
        """The message."""
        return self._call.message

    @property
    def attempt(self) -> int:
        """The number of this delivery: 1 for the first. Crashes of a worker count too."""
        return self._call.message.delivery_count

    @property
    def fence(self) -> int | None:
        """A number that rises with each lock of the message or of its session, to guard outside resources with."""
        return self._call.message.fence

    @property
    def tick(self) -> datetime | None:
        """The time of the schedule that sent the message; ``None`` for other messages."""
        return self._call.tick

    @property
    def lock_lost(self) -> bool:
        """Whether the lock was lost. Another worker may have the message by now, and the outcome will be dropped."""
        return self._call.lock_lost

    @property
    def timed_out(self) -> bool:
        """Whether a plain function has run for longer than its ``timeout``.

        A thread cannot be ended. So the function runs on, keeps its lock, and its outcome counts. It may look here now
        and then, and end early by an exception.
        """
        return self._call.timed_out

    @property
    def interrupted(self) -> bool:
        """Whether the delivery before this one was given back, because its worker was shut down."""
        return self._call.interrupted

    def send(self, entity: str, value: object, **options: Unpack[SendOptions]) -> None:
        """Send a value, or a :class:`~sbredis.ServiceBusMessage`, together with the completion of this message.

        The message goes out in the transaction that completes the message, or not at all. The call only records it.
        """
        if isinstance(value, ServiceBusMessage) and options:
            raise TypeError("The message has properties of its own: send() takes options only for other values.")
        require_text("the name of a queue or topic", entity)
        self._call.send(entity, value, options)

    def once(self, key: MessageId, window: timedelta | float) -> None:
        """Remember a key for a window, in the transaction that completes the message.

        If an earlier message was completed with this key, nothing that the handler has sent goes out: the message is
        only completed. ``key`` is what a message id may be: keys with the same text are the same key. A call may
        remember several keys, and a handler of batches none.
        """
        seconds = window.total_seconds() if isinstance(window, timedelta) else window
        require_seconds("window", seconds)
        self._call.remember(key, float(seconds))


class Session:
    """The session of the message, for a coroutine function."""

    __slots__ = ("_call",)

    def __init__(self, call: ContextCall) -> None:
        self._call = call

    @property
    def session_id(self) -> str:
        """The id of the session."""
        assert self._call.session_id is not None
        return self._call.session_id

    async def get_state(self, as_type: Any = bytes) -> Any:
        """Return the state as a value of this type; ``None`` if the session has no state."""
        return await self._call.get_state(as_type)

    def set_state(self, value: object) -> None:
        """Set the state in the transaction that completes the message. ``None`` removes the state."""
        self._call.set_state(value)


class Context(_Told):
    """The context of a coroutine function: facts about its message, and calls that belong to the message."""

    __slots__ = ()

    @property
    def session(self) -> Session | None:
        """The session of the message; ``None`` if the entity has no sessions."""
        return None if self._call.session_id is None else Session(self._call)

    async def renew(self) -> datetime:
        """Renew the lock now, and return when it ends. The worker renews locks by itself."""
        return await self._call.renew()

    async def settle(self, outcome: Outcome) -> None:
        """Settle the message now, together with everything that was sent. The handler's result is then ignored."""
        await self._call.settle(outcome)


class SyncSession:
    """The session of the message, for a plain function."""

    __slots__ = ("_call", "_run_in_loop")

    def __init__(self, call: ContextCall, run_in_loop: RunInLoop) -> None:
        self._call = call
        self._run_in_loop = run_in_loop

    @property
    def session_id(self) -> str:
        """The id of the session."""
        assert self._call.session_id is not None
        return self._call.session_id

    def get_state(self, as_type: Any = bytes) -> Any:
        """Return the state as a value of this type; ``None`` if the session has no state."""
        return self._run_in_loop(self._call.get_state(as_type))

    def set_state(self, value: object) -> None:
        """Set the state in the transaction that completes the message. ``None`` removes the state."""
        self._call.set_state(value)


class SyncContext(_Told):
    """The context of a plain function: facts about its message, and calls that belong to the message."""

    __slots__ = ("_run_in_loop",)

    def __init__(self, call: ContextCall, run_in_loop: RunInLoop) -> None:
        super().__init__(call)
        self._run_in_loop = run_in_loop

    @property
    def session(self) -> SyncSession | None:
        """The session of the message; ``None`` if the entity has no sessions."""
        return None if self._call.session_id is None else SyncSession(self._call, self._run_in_loop)

    def renew(self) -> datetime:
        """Renew the lock now, and return when it ends. The worker renews locks by itself."""
        until: datetime = self._run_in_loop(self._call.renew())
        return until

    def settle(self, outcome: Outcome) -> None:
        """Settle the message now, together with everything that was sent. The handler's result is then ignored."""
        self._run_in_loop(self._call.settle(outcome))
