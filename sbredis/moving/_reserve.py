"""The reserve of a server that has reached its memory limit: what moving and publishing stored messages may take.

Such a server refuses calls that take in data. But if a mover could not store a message at its destination, and a topic
could not make the copies of a message that is due, then nobody could receive these messages, and the server might stay
full for ever. So these calls may exceed the limit by a small share of it. They store what some server has accepted
already, and the receivers of these messages free the memory again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from sbredis.client import Connection

__all__ = ["has_reserve", "is_within_reserve"]

_SHARE = 16
"""The reserve is the memory limit divided by this number, but not less than ``_LEAST``."""
_LEAST = 8_000_000
"""The scripts and the connections of a server take some megabytes, which its data cannot have."""
_ANSWER = 5.0
_NUMBERS = re.compile(r"^(used_memory|maxmemory):(\d+)\r?$", re.MULTILINE)


def is_within_reserve(about: str) -> bool:
    """Return whether a server may still take from its reserve, according to its answer to INFO."""
    found = {name: int(number) for name, number in _NUMBERS.findall(about)}
    used, limit = found.get("used_memory"), found.get("maxmemory")
    return used is not None and limit is not None and limit > 0 and used <= limit + max(limit // _SHARE, _LEAST)


async def has_reserve(connection: Connection, key: bytes) -> bool:
    """Ask the server of a key whether it may still take from its reserve."""
    try:
        answer = await connection.transport.command("INFO", "memory", key=key, timeout=_ANSWER)
    except ServiceBusError:  # the user may not ask, or the server does not answer
        return False
    return is_within_reserve(answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer))
