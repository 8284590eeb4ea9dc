"""Message ids that sbredis assigns to messages without an id.

An assigned id belongs to one send. If the send fails, or its outcome is unknown, the message keeps the id, so that an
entity that detects duplicates recognises the repetition. If the same object is sent again in any other case, it is a
new message and gets a new id. An id that the application gave is never changed.
"""

from __future__ import annotations

import os
import secrets
from itertools import count

from sbredis.engine import Content

__all__ = ["assign_id"]


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
