"""Prepare a message for sending: its encoding, its id, and the key that chooses its partition."""

# The modules of this package use private parts of each other's messages.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable

from sbredis.engine import Content, Outgoing, Value, encode
from sbredis.model._amqp import BODY_SECTIONS, tidy
from sbredis.model._checks import MAXIMUM_PROPERTY_BYTES, require_single, require_small_header, text_keys
from sbredis.model._id_kinds import comparable_id, duplicate_key
from sbredis.model._ids import assign_id
from sbredis.model._message import ServiceBusMessage

__all__ = ["keep_id", "message_key", "outgoing", "routing_key", "use_id"]


def outgoing(message: ServiceBusMessage, *, detects_duplicates: bool) -> Outgoing:
    """Return a message in the form for a partition.

    The message gets a new id if it has none, or if another send has used the id that sbredis assigned to it.

    Raises :class:`TypeError` or :class:`ValueError` for a property that cannot be kept, and
    :class:`~sbredis.exceptions.MessageSizeExceededError` for properties that are too large.
    """
    content = message._content
    message_id = content.message_id
    if message_id is None or (content.id_used and message_id is content.assigned):
        message_id = assign_id(content)
    if content.annotations is not None:
        tidy(content)
    payload = encode(content) if content.properties is None else _with_properties(content, content.properties)
    if len(payload) > MAXIMUM_PROPERTY_BYTES and len(payload) - len(content.body) > MAXIMUM_PROPERTY_BYTES:
        require_small_header(content, BODY_SECTIONS)
    due = content.scheduled
    if due is None and content.time_to_live is None and not detects_duplicates:
        return Outgoing(payload)
    return Outgoing(
        payload,
        content.time_to_live,
        message_id=duplicate_key(message_id) if detects_duplicates else b"",
        due=None if due is None else max(due, 0),
    )


def _with_properties(content: Content, properties: dict[str, Value]) -> bytes:
    try:
        payload = encode(content)
    except TypeError:
        names: Iterable[object] = properties  # after the check, the application may have added names that are not text
        if not any(isinstance(name, bytes) for name in names):
            raise
        content.properties = properties = text_keys(properties)
        payload = encode(content)
    require_single(properties)  # the application may have changed them since they were set
    return payload


def use_id(message: ServiceBusMessage) -> str | None:
    """Mark the message as being sent under its id. Return the id if sbredis assigned it."""
    content = message._content
    content.id_used = True
    return content.assigned if content.message_id is content.assigned else None


def keep_id(message: ServiceBusMessage, message_id: str | None) -> None:
    """Record that the send under this assigned id has failed: the next send of the message uses the id again."""
    content = message._content
    if message_id is not None and content.message_id is content.assigned and content.assigned == message_id:
        content.id_used = False


def message_key(message: ServiceBusMessage) -> str | bytes | None:
    """Return the message id. It chooses the partition if the entity detects duplicates and the message has no other
    key.
    """
    message_id = message._content.message_id
    return None if message_id is None else comparable_id(message_id)


def routing_key(message: ServiceBusMessage) -> str | None:
    """Return the key that chooses the partition: the session id or the partition key; ``None`` for any partition."""
    content = message._content
    if content.annotations is not None:
        tidy(content)
    return content.partition_key if content.session_id is None else content.session_id
