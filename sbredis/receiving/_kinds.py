"""Check that a receiver can receive from an entity, with or without sessions. Pure."""

from __future__ import annotations

from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.registry import EntityRecord

__all__ = ["require_messages", "require_no_sessions", "require_not_forwarding", "require_sessions"]


def require_messages(record: EntityRecord) -> None:
    """Refuse a topic, because it keeps no messages."""
    if record.kind == "topic":
        raise _named(
            record,
            MessagingEntityNotFoundError(
                f"{record.path!r} is a topic, which keeps no messages. Receive from one of its subscriptions, with "
                "get_subscription_receiver.",
                outcome=Outcome.NEVER_SENT,
            ),
        )


def require_sessions(record: EntityRecord) -> None:
    """Refuse an entity without sessions, for a receiver of a session."""
    if not record.settings.sessions:
        raise _named(
            record,
            ServiceBusError(
                f"{record.path!r} has no sessions. Leave out session_id, or create the entity with "
                "requires_session=True.",
                outcome=Outcome.NEVER_SENT,
            ),
        )


def require_no_sessions(record: EntityRecord) -> None:
    """Refuse an entity with sessions, for a receiver without a session."""
    if record.settings.sessions:
        raise _named(
            record,
            ServiceBusError(
                "It is not possible for an entity that requires sessions to create a non-sessionful message receiver. "
                f"Receive from one of the sessions of {record.path!r}, with session_id. To peek or purge the "
                "messages of all sessions, call peek_messages or purge_messages without opening the receiver.",
                outcome=Outcome.NEVER_SENT,
            ),
        )


def require_not_forwarding(record: EntityRecord) -> None:
    """Refuse an entity whose messages are forwarded, for a receiver of its messages."""
    if record.settings.forwards:
        raise _named(
            record,
            ServiceBusError(
                "Cannot create a message receiver on an entity with auto-forwarding enabled. "
                f"{record.path!r} forwards its messages to {record.properties.get('forward_to')!r}: receive from "
                "there, or remove forward_to. To peek or purge the messages, call peek_messages or purge_messages "
                "without opening the receiver.",
                outcome=Outcome.NEVER_SENT,
            ),
        )


def _named(record: EntityRecord, error: ServiceBusError) -> ServiceBusError:
    error.entity = record.path
    return error
