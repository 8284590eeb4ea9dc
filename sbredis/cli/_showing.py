"""How the messages that a command has found are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sbredis.cli._invocation import Invocation
from sbredis.cli._output import TableColumn
from sbredis.operating import fields_of, shown_body

if TYPE_CHECKING:
    from sbredis.model import ServiceBusReceivedMessage

__all__ = ["FEW", "remark_more", "show_messages"]

FEW = 20
"""The number of messages that are shown if the user gives no number."""
_COLUMNS = (
    TableColumn("number"),
    TableColumn("state"),
    TableColumn("due", 6),
    TableColumn("enqueued", 8),
    TableColumn("deliveries", 7),
    TableColumn("message_id", 9),
    TableColumn("session", 4),
    TableColumn("subject", 5, shortest=12),
    TableColumn("reason", 3, shortest=24),  # MaxDeliveryCountExceeded
    TableColumn("body", 2, shortest=16),
)
_OPTIONAL = {"due", "session", "subject", "reason"}
"""The columns that are left out if no message has a value."""


def show_messages(invocation: Invocation, messages: Sequence[ServiceBusReceivedMessage]) -> None:
    """Print messages as a table, or as one JSON object a line."""
    if invocation.out.as_json:
        for message in messages:
            invocation.out.json(fields_of(message))
        return
    rows = [_row(message) for message in messages]
    columns = [
        each for each in _COLUMNS if each.name not in _OPTIONAL or any(row[each.name] is not None for row in rows)
    ]
    invocation.out.table(columns, rows, empty="no messages")


def _row(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    from sbredis.model import ServiceBusMessageState

    scheduled = message.state is ServiceBusMessageState.SCHEDULED
    return {
        "number": str(message.sequence_number),
        "state": message.state.name.lower(),
        "due": message.scheduled_enqueue_time_utc if scheduled else None,
        "enqueued": None if scheduled else message.enqueued_time_utc,
        "deliveries": message.delivery_count,
        "message_id": None if message.message_id is None else str(message.message_id),
        "session": message.session_id,
        "subject": message.subject,
        "reason": message.dead_letter_reason,
        "body": shown_body(message),
    }


def remark_more(invocation: Invocation, *, chosen: bool) -> None:
    """Say that only some messages were shown. If the user has ``chosen`` them, the others may not match."""
    verb = "may be" if chosen else "are"
    invocation.out.remark(f"only the first {FEW} messages are shown, and there {verb} more: see --count")
