"""One message and the call of its handler."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sbredis.codec import decode_body, encode_body
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers.declaring._context import SendOptions
from sbredis.workers.declaring._handlers import HandlerPlan
from sbredis.workers.declaring._outcomes import Outcome

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusReceiver, ServiceBusSession
    from sbredis.workers.observing._counts import Counts

__all__ = ["UNCHANGED", "Call", "Place", "encoded_with", "message_of"]

UNCHANGED: Final = object()
"""The state of a session that no handler has set."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages come from and are settled: an entity or, with sessions, one session of it."""

    entity: str
    receiver: ServiceBusReceiver
    counts: Counts
    session: ServiceBusSession | None
    settle: Callable[[Call, Outcome], Awaitable[Outcome]]
    """Settles the messages of a call now."""


class Call:
    """The messages of one call of a handler: one message, or a batch.

    The call is also what the context of the handler sees (:class:`~sbredis.workers.declaring._context.Work`).
    """

    __slots__ = (
        "began",
        "bodies",
        "dropped",
        "handler",
        "lock_lost",
        "message",
        "messages",
        "once",
        "place",
        "sends",
        "settled",
        "state",
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
        self.once: tuple[str, float] | None = None
        """A key that is remembered for a window when the message is completed."""
        self.settled = False
        """Whether the handler has settled the message itself."""
        self.lock_lost = False
        self.dropped = False
        """Whether the call was ended from outside, and its outcome does not count."""

    def part(self, messages: Sequence[ServiceBusReceivedMessage], *, with_sends: bool = False) -> Call:
        """Return a call for some messages of this batch, to settle them by an outcome of their own."""
        made = Call(self.place, self.handler, messages)
        if with_sends:
            made.sends, made.state, made.once = self.sends, self.state, self.once
        return made

    # -- for the context -----------------------------------------------------------------------------------------------

    @property
    def entity(self) -> str:
        return self.place.entity

    @property
    def interrupted(self) -> bool:
        return self.message.interrupted

    @property
    def tick(self) -> datetime | None:
        return None

    @property
    def session_id(self) -> str | None:
        return None if self.place.session is None else self.place.session.session_id

    def send(self, entity: str, value: object, options: SendOptions) -> None:
        self._check_unsettled()
        made = value if isinstance(value, ServiceBusMessage) else message_of(value, options)
        if self.sends is None:
            self.sends = []
        self.sends.append((entity, made))

    def remember(self, key: str, window: float) -> None:
        self._check_unsettled()
        self.once = (key, window)

    async def renew(self) -> datetime:
        if self.place.session is not None:
            return await self.place.session.renew_lock()
        return await self.place.receiver.renew_message_lock(self.message)

    async def settle(self, outcome: Outcome) -> None:
        self._check_unsettled()
        self.settled = True
        await self.place.settle(self, outcome)

    async def get_state(self, as_type: Any) -> Any:
        assert self.place.session is not None
        state = await self.place.session.get_state()
        if state is None or as_type is bytes:
            return state
        return decode_body(state, "application/json", as_type)

    def set_state(self, value: object) -> None:
        self._check_unsettled()
        self.state = None if value is None else encode_body(value).body

    def _check_unsettled(self) -> None:
        if self.settled:
            raise RuntimeError("The message was settled already, so nothing can be added to its settlement.")


def message_of(value: object, options: SendOptions) -> ServiceBusMessage:
    """Make a message from a value, with the content type of its body."""
    body, given = encoded_with(value, options)
    return ServiceBusMessage(body, **given)


def encoded_with(value: object, options: SendOptions) -> tuple[bytes, dict[str, Any]]:
    """Encode a value. Return the body, and the properties of the message with the content type of the body."""
    encoded = encode_body(value)
    given: dict[str, Any] = {**options}
    if encoded.content_type is not None:
        given.setdefault("content_type", encoded.content_type)
    return encoded.body, given
