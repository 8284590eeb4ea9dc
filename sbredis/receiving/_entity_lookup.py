"""The entity that a receiver or settler works on: look it up, and check that messages can be received from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis.engine import REFUSALS
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError

if TYPE_CHECKING:
    from sbredis.client import Connection, Creation, Entity
    from sbredis.registry import EntityRecord

__all__ = [
    "EntityLookup",
    "require_messages",
    "require_no_sessions",
    "require_not_forwarding",
    "require_receivable",
    "require_sessions",
]


class EntityLookup:
    """Looks the entity up when it is first needed, and again after it was deleted. It can be closed."""

    def __init__(self, connection: Connection, name: str, *, create: Creation | None = None, when_closed: str) -> None:
        self.connection = connection
        self.name = name
        """The path of the entity, without a sub-queue."""
        self.found: Entity | None = None
        """The entity, after the first look-up."""
        self.closed = False
        self._create = create
        self._when_closed = when_closed
        """The text of the error for a call after the closing."""

    async def entity(self, deadline: float) -> Entity:
        """Return the entity. Look it up in the registry if this was not done yet, or if the entity was deleted."""
        self.check_open()
        entity = self.found
        if entity is None or entity.gone:
            entity = self.found = await self.connection.entity(self.name, deadline, self._create)
            self.check_open()
        return entity

    def check_open(self) -> None:
        """Raise if the receiver, the settler or the client is closed."""
        if self.closed:
            raise ValueError(self._when_closed)
        self.connection.check_open()


def require_messages(record: EntityRecord) -> None:
    """Refuse a topic, because it keeps no messages."""
    if record.kind == "topic":
        raise _refused(
            record,
            f"{record.path!r} is a topic, which keeps no messages. Receive from one of its subscriptions, with "
            "get_subscription_receiver.",
            MessagingEntityNotFoundError,
        )


def require_sessions(record: EntityRecord) -> None:
    """Refuse an entity without sessions, for a receiver of a session."""
    if not record.settings.sessions:
        raise _refused(
            record,
            f"{record.path!r} has no sessions. Get its receiver without session_id, or create the entity with "
            "requires_session=True.",
        )


def require_no_sessions(record: EntityRecord) -> None:
    """Refuse an entity with sessions, for a receiver without a session."""
    if record.settings.sessions:
        raise _refused(
            record,
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver. "
            f"Receive from one of the sessions of {record.path!r}, with session_id. To peek or purge the messages of "
            "all sessions, call peek_messages or purge_messages without opening the receiver.",
        )


def require_not_forwarding(record: EntityRecord) -> None:
    """Refuse an entity whose messages are forwarded, for a receiver of its messages."""
    if record.settings.forwards:
        raise _refused(
            record,
            "Cannot create a message receiver on an entity with auto-forwarding enabled. "
            f"{record.path!r} forwards its messages to {record.properties.get('forward_to')!r}: receive from there, or "
            "remove forward_to. To peek or purge the messages, call peek_messages or purge_messages without opening "
            "the receiver.",
        )


def require_receivable(record: EntityRecord) -> None:
    """Refuse an entity whose status does not permit receiving."""
    status = record.settings.status
    if status in {"Disabled", "ReceiveDisabled"}:
        kind, text = REFUSALS["DISABLED"](status)
        raise _refused(record, text, kind, Outcome.REFUSED)


def _refused(
    record: EntityRecord,
    text: str,
    kind: type[ServiceBusError] = ServiceBusError,
    outcome: Outcome = Outcome.NEVER_SENT,
) -> ServiceBusError:
    error = kind(text, outcome=outcome)
    error.entity = record.path
    return error
