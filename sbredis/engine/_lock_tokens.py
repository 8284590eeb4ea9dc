"""The tokens of leases, and the lock tokens that applications see and that any process can read back. Pure.

The token of a lease is eleven characters of base64url, 66 bits: a random prefix of eight characters and a serial of
three. All leases that one receiver takes in a partition have its prefix, and their serials rise. After 2^18 leases
comes a fresh prefix.

A lock token is a UUID, as in Azure. It says everything that a call must name to settle a message or renew its lock:

====== ==== ============================================================
field  bits meaning
====== ==== ============================================================
lease  66   the token of the lease
number 48   the number of the message; 0 for the lock on a session
part   10   the number of the partition in its namespace
side   2    0 the main side, 1 the dead-letter queue, 2 the transfer dead-letter queue
form   2    1; any other value is not a lock token
====== ==== ============================================================

It names no entity. A token of another entity, or of one that was deleted and created again, names a lease that is not
there. The prefix cannot be guessed, but whoever sees a token can guess the tokens of neighbouring messages and leases.
"""

from __future__ import annotations

import string
from binascii import a2b_base64, b2a_base64
from os import urandom
from typing import Any, NamedTuple
from uuid import UUID

from sbredis.engine._bands import number_of, side_of
from sbredis.engine._lifecycle import SidePrefix

__all__ = ["NO_LEASE", "LockToken", "lease_place", "lease_token", "new_token", "read_lock_token"]

NO_LEASE = "-" * 11
"""The token for calls that take no lease."""

_ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
_URL_SAFE, _STANDARD = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")
_SIDES: tuple[SidePrefix, ...] = ("", "d", "t")
_FORM = 1


def new_token() -> str:
    """Return a new random token for a lease."""
    return b2a_base64(urandom(9), newline=False).translate(_URL_SAFE)[:11].decode()


def lease_token(prefix: str, serial: int) -> str:
    """Return the token of the lease with this serial."""
    return prefix + _ALPHABET[serial >> 12] + _ALPHABET[serial >> 6 & 63] + _ALPHABET[serial & 63]


def lease_place(token: str) -> tuple[str, int]:
    """Return the prefix and the serial of the token of a lease."""
    first, second, third = map(_ALPHABET.index, token[8:])
    return token[:8], first << 12 | second << 6 | third


class LockToken(NamedTuple):
    """The content of a lock token: a lock on a message, or on a session."""

    lease: str
    """The token of the lease."""
    partition: int
    """The number of the partition in its namespace."""
    name: str
    """The name of the message in its partition; empty for the lock on a session."""

    def uuid(self) -> UUID:
        """Return the lock token as applications see it."""
        lease = int.from_bytes(a2b_base64(self.lease.encode().translate(_STANDARD) + b"A")) >> 6
        number, side = (number_of(self.name), _SIDES.index(side_of(self.name))) if self.name else (0, 0)
        return UUID(int=lease << 62 | number << 14 | self.partition << 4 | side << 2 | _FORM)


def read_lock_token(token: object) -> LockToken:
    """Read a lock token, or its text. Raise :class:`ValueError` if it is not one; the error does not show it."""
    if not isinstance(token, (UUID, str)):
        raise TypeError(f"A lock token is a UUID, as message.lock_token, or its text, not {type(token).__name__}.")
    found = _read(token)
    if found is None:
        raise ValueError("This is not a lock token, or it was changed or cut on its way. Pass it on unchanged.")
    return found


def _read(token: UUID | str) -> LockToken | None:
    if isinstance(token, str):
        try:
            text, token = token, UUID(token)
        except ValueError:
            return None
        if str(token) != text.lower():  # UUID accepts other forms, such as digits of other alphabets
            return None
    value: Any = token.int
    number, side = value >> 14 & (1 << 48) - 1, value >> 2 & 3
    if value & 3 != _FORM or side == len(_SIDES) or (side and not number):
        return None
    packed = (value >> 62 << 6).to_bytes(9)
    lease = b2a_base64(packed, newline=False).translate(_URL_SAFE)[:11].decode()
    return LockToken(lease, value >> 4 & 1023, f"{_SIDES[side]}{number}" if number else "")
