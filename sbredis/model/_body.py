"""The body of a received message."""

# Iteration over a body follows Azure's library, and differs from iteration over bytes.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["Body", "Sections"]


class Body(bytes):
    """Bytes that are iterated over like a body of Azure's library: as one piece.

    Code for Azure's library often has ``b"".join(body)``, ``next(body)`` and ``list(body)``. For plain bytes these fail
    or mean something else. In every other way a body is bytes: it is equal to them, has the same hash, is indexed by
    number, and works as a buffer. Objects made from it are plain bytes: ``bytes(body)``, a slice, a sum, a copy, a
    pickle.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[bytes]:  # type: ignore[override]  # see the class
        return iter((bytes(self),))

    def __next__(self) -> bytes:
        """Return the whole body at each call. In Azure's library, too, each access to ``message.body`` starts at the
        beginning.
        """
        return bytes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (bytes(self),)

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return self.__reduce__()


class Sections(list[Any]):
    """A list with the bytes of a body as its only item. As in Azure's library, ``next(sections)`` returns that item."""

    __slots__ = ()

    def __next__(self) -> Any:
        return self[0]
