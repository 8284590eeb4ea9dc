"""Sending: check messages, choose their partitions, and submit them to lanes."""

from __future__ import annotations

from sbredis.sending._cancelling import cancel_scheduled
from sbredis.sending._outbox import Outbox, destination, log_unread_error, size_of, views_for_rules
from sbredis.sending._sendable import require_one_key, require_sessions, scheduled, sent_key, transaction_key

__all__ = [
    "Outbox",
    "cancel_scheduled",
    "destination",
    "log_unread_error",
    "require_one_key",
    "require_sessions",
    "scheduled",
    "sent_key",
    "size_of",
    "transaction_key",
    "views_for_rules",
]
