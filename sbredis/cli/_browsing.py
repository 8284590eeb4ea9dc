"""Looking through the messages of an entity without changing them, and showing them as a table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from sbredis.cli._fitting import TableColumn
from sbredis.cli._invocation import Invocation
from sbredis.exceptions import MessageNotFoundError, Outcome
from sbredis.operating import fields_of, shown_body

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo, ServiceBusClient, ServiceBusReceiver
    from sbredis.model import ServiceBusReceivedMessage

__all__ = ["browse", "found_by_number", "show_messages", "source_of"]

PAGE = 500
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


async def source_of(client: ServiceBusClient, path: str) -> EntityInfo:
    """Return what is at a path. A topic is refused, because it keeps no messages."""
    info = await client.describe_entity(path)
    if info.kind == "topic":
        raise click.UsageError(f"{info.path} is a topic: name one of its subscriptions, as in topic/subscriptions/all.")
    return info


async def browse(
    receiver: ServiceBusReceiver, *, start: int = 0, session: str | None = None, page: int = PAGE
) -> AsyncIterator[ServiceBusReceivedMessage]:
    """Yield the messages of a receiver that is not opened, from a sequence number on, in the order of the numbers."""
    while found := await receiver.peek_messages(page, sequence_number=start, session_id=session):
        start = 0  # the receiver goes on where it is
        for message in found:
            yield message


async def found_by_number(receiver: ServiceBusReceiver, numbers: Sequence[int]) -> list[ServiceBusReceivedMessage]:
    """Return the messages with these numbers, in any state. Raises an error that names the missing ones."""
    found: list[ServiceBusReceivedMessage] = []
    for number in numbers:
        messages = await receiver.peek_messages(1, sequence_number=number)
        found += [message for message in messages if message.sequence_number == number]
    missing = sorted({*numbers} - {message.sequence_number for message in found})
    if missing:
        text = f"{receiver.entity_path} has no message {', '.join(map(str, missing))}."
        raise MessageNotFoundError(text, outcome=Outcome.REFUSED)
    return found


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
