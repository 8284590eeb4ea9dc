"""Whether an entity is of a kind that can be received from as a receiver was asked to. Pure."""

from __future__ import annotations

from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.registry import EntityRecord

__all__ = ["require_messages", "require_no_sessions", "require_sessions"]


def require_messages(record: EntityRecord) -> None:
    """Refuse a topic, which keeps no messages."""
    if record.kind == "topic":
        raise _named(
            record,
            MessagingEntityNotFoundError(
                f"{record.path!r} is a topic, which keeps no messages: receive from one of its subscriptions, with "
                "get_subscription_receiver.",
                outcome=Outcome.NEVER_SENT,
            ),
        )


def require_sessions(record: EntityRecord) -> None:
    """Refuse, for a receiver of a session, an entity that has none."""
    if not record.settings.sessions:
        raise _named(
            record,
            ServiceBusError(
                f"{record.path!r} has no sessions: leave out session_id, or create it with requires_session=True.",
                outcome=Outcome.NEVER_SENT,
            ),
        )


def require_no_sessions(record: EntityRecord) -> None:
    """Refuse, for a receiver without a session, an entity whose messages are received by session."""
    if record.settings.sessions:
        raise _named(
            record,
            ServiceBusError(
                "It is not possible for an entity that requires sessions to create a non-sessionful message receiver. "
                f"Receive from one of the sessions of {record.path!r}, with session_id. To peek or purge all of them, "
                "call peek_messages or purge_messages without opening the receiver.",
                outcome=Outcome.NEVER_SENT,
            ),
        )


def _named(record: EntityRecord, error: ServiceBusError) -> ServiceBusError:
    error.entity = record.path
    return error
