"""Receiving: the inbox of a receiver, credit, sessions, settling."""

from __future__ import annotations

from sbredis.receiving._accepting import NoSessionError, accept_named, accept_next, free_sessions
from sbredis.receiving._deferred import Deferred
from sbredis.receiving._entity_lookup import (
    EntityLookup,
    require_messages,
    require_no_sessions,
    require_not_forwarding,
    require_receivable,
    require_sessions,
)
from sbredis.receiving._fetching import InboxOptions
from sbredis.receiving._held_session import HeldSession, is_failed_delivery, lane_for, state_bytes
from sbredis.receiving._inbox import Inbox
from sbredis.receiving._message_inbox import MessageInbox, SessionInbox
from sbredis.receiving._peeking import Peeking, Peekings, purge
from sbredis.receiving._settling import (
    MessageSettler,
    changes_of,
    delay_of,
    lock_ended,
    renewal,
    require_lock,
    require_modification,
    require_reason,
)

__all__ = [
    "Deferred",
    "EntityLookup",
    "HeldSession",
    "Inbox",
    "InboxOptions",
    "MessageInbox",
    "MessageSettler",
    "NoSessionError",
    "Peeking",
    "Peekings",
    "SessionInbox",
    "accept_named",
    "accept_next",
    "changes_of",
    "delay_of",
    "free_sessions",
    "is_failed_delivery",
    "lane_for",
    "lock_ended",
    "purge",
    "renewal",
    "require_lock",
    "require_messages",
    "require_modification",
    "require_no_sessions",
    "require_not_forwarding",
    "require_reason",
    "require_receivable",
    "require_sessions",
    "state_bytes",
]
