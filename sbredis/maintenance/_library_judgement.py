"""Which libraries of functions may be deleted from a server. Pure.

Each release has a library of its own, whose name has the hash of its text. Nobody knows when the last client of a
release has ended, so libraries would gather on a server, and each one makes the server a little slower. But a library
belongs to a server, and a client sees only its own namespace. So a library is deleted only if all of this is true:

- The registry of the namespace knows it: a client of this namespace has called it.
- No client of the namespace has named it for seven days. Each client names its library once a day.
- More than four libraries of releases are on the server. The one that was named longest ago goes first.
- It is not the library of the client that deletes.

If clients of another namespace still call it, they load it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from sbredis.engine import LIBRARY_NAME

if TYPE_CHECKING:
    from sbredis.registry import NamedLibraries

__all__ = ["LibraryState", "judge_libraries"]

_KEPT = 4
_UNNAMED = 7 * 86_400_000


class LibraryState(NamedTuple):
    """A library of a release, as it concerns one server."""

    name: str
    own: bool
    """Whether it is the library of this release."""
    named_at: int | None
    """The time in ms when a client of the namespace named it last; ``None`` if none ever did."""
    to_do: Literal["load", "delete"] | None
    """What there is to do on this server."""


def judge_libraries(loaded: Iterable[str], known: NamedLibraries, own: str) -> list[LibraryState]:
    """Return the libraries of releases that are loaded on a server, and the library ``own`` of this release."""
    present = sorted(name for name in loaded if LIBRARY_NAME.fullmatch(name))
    old = [name for name in present if name != own and known.now - known.named.get(name, known.now) > _UNNAMED]
    old.sort(key=known.named.__getitem__)
    deleted = old[: max(0, len(present) - _KEPT)]
    states = [
        LibraryState(name, name == own, known.named.get(name), "delete" if name in deleted else None)
        for name in present
    ]
    return states if own in present else [LibraryState(own, True, known.named.get(own), "load"), *states]
