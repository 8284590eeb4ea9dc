"""Check messages before they are sent: their times, their session, their partition key, and their size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, cast

from sbredis.engine import MAXIMUM_CALL_BYTES, MAXIMUM_CALL_MESSAGES, MAXIMUM_MESSAGE_BYTES, SessionIdMissingError
from sbredis.exceptions import MessageSizeExceededError, Outcome
from sbredis.model import ServiceBusMessage, content_of, copied, due_time, from_content, message_key, routing_key

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.registry import EntityRecord

__all__ = ["key_of", "require_one_key", "require_sessions", "scheduled", "sent_key", "too_large", "transaction_key"]


def scheduled(messages: list[ServiceBusMessage], when: object) -> list[ServiceBusMessage]:
    """Return the messages with their scheduled times. If one of the times is invalid, no message is changed.

    If the same object is in the list twice, it is sent as a copy the second time, because its scheduled time may
    differ.
    """
    if isinstance(when, datetime):
        for message in messages:
            message.scheduled_enqueue_time_utc = when
        return messages
    if isinstance(when, (str, bytes)) or not isinstance(when, Iterable):
        raise TypeError(
            "schedule_time_utc must be a datetime, or a list with a datetime for each message, not "
            f"{type(when).__name__}"
        )
    times = list(cast("Iterable[object]", when))
    if len(times) != len(messages):
        raise ValueError(
            f"schedule_time_utc has {len(times)} times for {len(messages)} messages. Give one time for all messages, "
            "or a list with a time for each message."
        )
    checked = [due_time(time) for time in times]
    listed: list[ServiceBusMessage] = []
    seen: set[int] = set()
    for message, due in zip(messages, checked, strict=True):
        one = from_content(copied(content_of(message))) if id(message) in seen else message
        seen.add(id(message))
        content_of(one).scheduled = due
        listed.append(one)
    return listed


async def require_sessions(entity: Entity, messages: Sequence[ServiceBusMessage], deadline: float) -> None:
    """Refuse a message without a session, if the entity requires sessions."""

    def check(record: EntityRecord) -> None:
        if record.settings.sessions and any(message.session_id is None for message in messages):
            error = SessionIdMissingError(
                f"The SessionId was not set on a message, so it cannot be sent to {entity.name!r}. The entity requires "
                "sessions: set session_id on each message.",
                outcome=Outcome.NEVER_SENT,
            )
            error.entity = entity.name
            raise error

    await entity.require(check, deadline)


def key_of(entity: Entity, messages: Sequence[ServiceBusMessage]) -> str | bytes | None:
    """Return the key that decides the partition of these messages, or ``None`` if they may go to any partition."""
    if len(messages) == 1:
        return sent_key(entity, messages[0])
    keys = list(dict.fromkeys(key for message in messages if (key := sent_key(entity, message)) is not None))
    if len(keys) > 1:
        raise ValueError(
            f"The messages have different keys ({_shown(keys)}), so they belong to different partitions of "
            f"{entity.name!r} and cannot be sent all or none. Give all messages the same partition_key, or send each "
            "message by itself, for instance with send_stream()."
        )
    return keys[0] if keys else None


def transaction_key(entity: Entity, messages: Sequence[ServiceBusMessage]) -> str | bytes:
    """Return the key of all messages that a transaction sends to a partitioned entity."""
    keys = [sent_key(entity, message) for message in messages]
    if None in keys:
        raise ValueError(
            f"A message that a transaction sends to the partitioned {entity.record.kind} {entity.name!r} needs a key, "
            "which decides its partition: set session_id, partition_key or, if duplicates are detected, message_id."
        )
    return require_one_key(entity, keys)


def require_one_key(entity: Entity, keys: Iterable[str | bytes | None]) -> str | bytes:
    """Return the key of all messages of a transaction that are on a partitioned entity."""
    keys = list(dict.fromkeys(keys))
    if len(keys) > 1:
        raise ValueError(
            f"The messages of the transaction have different keys ({_shown(keys)}), so they belong to different "
            f"partitions of {entity.name!r}. Give them the same session_id or partition_key, or use a transaction for "
            "each key."
        )
    (key,) = keys
    assert key is not None
    return key


def sent_key(entity: Entity, message: ServiceBusMessage) -> str | bytes | None:
    """Return the key that decides the partition of a message, or ``None`` if it may go to any partition."""
    key: str | bytes | None = routing_key(message)
    return message_key(message) if key is None and entity.detects_duplicates else key


def _shown(keys: Sequence[str | bytes | None]) -> str:
    return ", ".join([*map(repr, keys[:3]), "…"][: len(keys)])


def too_large(entity: Entity, count: int, size: int) -> MessageSizeExceededError:
    kind, largest = entity.record.kind, entity.largest_message
    together = min(largest, MAXIMUM_CALL_BYTES)
    if count > MAXIMUM_CALL_MESSAGES:
        text = f"{count} messages are too many for one call, which takes up to {MAXIMUM_CALL_MESSAGES}. "
        text += "Send fewer messages at once, for instance each message by itself with send_stream()."
    elif count == 1:
        text = (
            f"The message has {size} bytes; the {kind} takes messages of up to {largest} bytes, properties included. "
        )
        text += "Make it smaller"
        text += ", or raise max_message_size_in_kilobytes." if size <= MAXIMUM_MESSAGE_BYTES else "."
    else:
        text = f"The {count} messages have {size} bytes together, properties included; the {kind} takes up to "
        text += f"{together} bytes at once. Send fewer messages at once"
        text += ", or raise max_message_size_in_kilobytes." if size <= MAXIMUM_CALL_BYTES else "."
    error = MessageSizeExceededError(text, outcome=Outcome.NEVER_SENT)
    error.entity = entity.name
    return error
