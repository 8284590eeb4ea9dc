"""The body of a message, as its receiver has it."""

# A body is gone through as Azure's are, which is not how bytes are.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["Body", "Sections"]


class Body(bytes):
    """Bytes that are also gone through as a body of Azure's library: in one piece, which is all of it.

    ``b"".join(body)``, ``next(body)`` and ``list(body)`` are written for Azure's library everywhere, and mean nothing
    for bytes, or something else. In all else these are bytes: equal to them, of the same hash, indexed by number, read
    by whatever takes a buffer. What is made of them is plain bytes: ``bytes(body)``, a slice, a sum, a copy, a pickle.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[bytes]:  # type: ignore[override]  # see the class
        return iter((bytes(self),))

    def __next__(self) -> bytes:
        """All of it, each time: Azure's library begins anew as well with each ``message.body``."""
        return bytes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (bytes(self),)

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return self.__reduce__()


class Sections(list[Any]):
    """A body of bytes in the terms of AMQP: its only section. ``next(sections)`` is that, as with Azure's library."""

    __slots__ = ()

    def __next__(self) -> Any:
        return self[0]
