"""Lock handles: texts with which another process can use the lock on a message or session. Pure.

A program stores or sends a handle, and does not read its content. A handle contains the token of the lock. The token
cannot be guessed, and it is the only proof of the right to settle the message. So no error and no log line shows a
handle.
"""

from __future__ import annotations

import re
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from itertools import pairwise
from typing import NamedTuple

from sbredis.engine import identifier

__all__ = ["LockHandle", "read_handle"]

_VERSION = 1
_HEAD = struct.Struct(">BBHBB")
"""The start of a handle: the version, the length of the incarnation, the partition, the lengths of token and name.

The texts follow, and the session comes last.
"""
_INCARNATION = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{12}", re.ASCII)
_NAME = re.compile(r"d?[1-9][0-9]{0,14}", re.ASCII)
_LONGEST = 1024
_SESSION, _NO_SESSION = b"+", b"-"


class LockHandle(NamedTuple):
    """The content of a lock handle: a lock on a message, or on a session."""

    incarnation: str
    """The incarnation of the entity."""
    partition: int
    token: str
    name: str
    """The name of the message; empty in the handle of a session."""
    session: str | None
    """The session, if the entity has sessions. The lock is then the lock on the session."""

    def text(self) -> str:
        """Return the handle as text: letters, digits, ``-`` and ``_``."""
        texts = [part.encode() for part in (self.incarnation, self.token, self.name)]
        incarnation, token, name = map(len, texts)
        head = _HEAD.pack(_VERSION, incarnation, self.partition, token, name)
        session = _NO_SESSION if self.session is None else _SESSION + self.session.encode()
        return urlsafe_b64encode(head + b"".join(texts) + session).rstrip(b"=").decode()


def read_handle(text: str, what: str) -> LockHandle:
    """Parse the handle of a message or session (``what``); raise :class:`ValueError` if the text is not a handle."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(
            f"A handle is text, as get_lock_handle() or session.lock_handle returns it, not {type(text).__name__}."
        )
    try:
        handle = _parsed(text)
    except (ValueError, struct.error):
        handle = None
    if handle is None:
        raise ValueError("This is not a lock handle, or it was changed or cut on its way. Pass it on unchanged.")
    if (what == "message") != bool(handle.name):
        made = "get_lock_handle(message)" if what == "message" else "session.lock_handle"
        raise ValueError(f"This is not the handle of a {what}. Use the handle that {made} returns.")
    return handle


def _parsed(text: str) -> LockHandle | None:
    if len(text) > _LONGEST:
        return None
    packed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    version, incarnation, partition, token, name = _HEAD.unpack_from(packed)
    if version != _VERSION:
        return None
    ends = [_HEAD.size]
    for length in (incarnation, token, name):
        ends.append(ends[-1] + length)
    parts = [packed[begin:end].decode("ascii") for begin, end in pairwise(ends)]
    rest = packed[ends[-1] :]
    session = None if rest == _NO_SESSION else rest.removeprefix(_SESSION).decode()
    found = LockHandle(parts[0], partition, parts[1], parts[2], session)
    if session is not None:
        identifier(session, "session", may_be_empty=True)
    fits = _INCARNATION.fullmatch(parts[0]) and _TOKEN.fullmatch(parts[1])
    named = session is not None if not parts[2] else _NAME.fullmatch(parts[2])
    return found if fits and named and found.text() == text else None
