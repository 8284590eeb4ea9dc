"""The ids of messages: text, whole numbers, UUIDs or bytes, as in AMQP. A receiver gets the id exactly as the sender
gave it.

sbredis assigns an id to a message without one. An assigned id belongs to one send. If the send fails, or its outcome is
unknown, the message keeps the id, so that an entity that detects duplicates recognises the repetition. If the same
object is sent again in any other case, it is a new message and gets a new id. An id that the application gave is never
changed.
"""

from __future__ import annotations

import os
import secrets
from itertools import count
from uuid import UUID

from sbredis.engine import Content, MessageId
from sbredis.model._checks import LONGEST_ID, MAXIMUM_PROPERTY_BYTES, id_text, text

__all__ = ["MessageId", "assign_id", "comparable_id", "correlation", "duplicate_key", "message_identifier", "work_key"]

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


# -- ids that sbredis assigns to messages without an id ----------------------------------------------------------------


class _Ids:
    """Message ids that no other process makes: 72 random bits of this process, and a number."""

    __slots__ = ("number", "prefix")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Draw the random part: at the start, and in a forked process, which must not repeat its parent's ids."""
        self.prefix = secrets.token_urlsafe(9)
        self.number = count(1)


_ids = _Ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.begin)


def assign_id(content: Content) -> str:
    """Assign a new id to a message, and return the id."""
    content.message_id = content.assigned = message_id = f"{_ids.prefix}{next(_ids.number):x}"
    content.id_used = False
    return message_id
