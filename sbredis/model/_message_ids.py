"""The ids of messages: text, whole numbers, UUIDs or bytes, as in AMQP. A receiver gets the id exactly as the sender
gave it.
"""

from __future__ import annotations

from uuid import UUID

from sbredis.engine import MessageId
from sbredis.model._checks import LONGEST_ID, MAXIMUM_PROPERTY_BYTES, id_text, text

__all__ = ["MessageId", "comparable_id", "correlation", "duplicate_key", "message_identifier", "work_key"]

_MOST = (1 << 64) - 1


def message_identifier(value: object, what: str) -> MessageId:
    """Check a message id: text of up to 128 characters, up to 128 bytes, a UUID, or a whole number of 64 bits."""
    return id_text(value, what) if isinstance(value, str) else _other(value, what, 1, LONGEST_ID)


def correlation(value: object, what: str) -> MessageId:
    """Check a correlation id: it has the types of a message id, but may be as long as other properties."""
    return text(value, what) if isinstance(value, str) else _other(value, what, 0, MAXIMUM_PROPERTY_BYTES)


def work_key(value: object) -> MessageId:
    """Check a key of the work of a transaction: it is what a message id may be, and is compared like one."""
    if isinstance(value, str):
        return id_text(value, "key")
    return _other(value, "key", 1, LONGEST_ID, kinds="str, int, UUID or bytes")


def _other(
    value: object, what: str, least: int, most: int, *, kinds: str = "str, int, UUID, bytes or None"
) -> MessageId:
    """Check an id that is not text."""
    if isinstance(value, (bytes, bytearray)):
        if not least <= len(value) <= most:
            raise ValueError(f"{what} has {len(value)} bytes; it may have {least} to {most} bytes")
        return bytes(value)
    if isinstance(value, UUID):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be {kinds}, not {type(value).__name__}")
    if not 0 <= value <= _MOST:
        raise ValueError(f"{what} is a whole number that does not fit into 64 bits: it may be from 0 to 2**64 - 1")
    return int(value)


def comparable_id(value: MessageId) -> str | bytes:
    """Return the form in which ids are compared: the id as text, or the bytes if they are not valid UTF-8."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return str(value)


def duplicate_key(value: MessageId) -> bytes:
    """Return the key of a message id for duplicate detection. Ids that compare as equal have the same key."""
    return value if isinstance(value, bytes) else str(value).encode()
