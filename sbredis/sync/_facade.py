"""The base of the synchronous objects: an asynchronous twin that does the work, and the bridge to its event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from sbredis.sync._bridge import Bridge

__all__ = ["Facade", "bridge_of", "twin_of"]

A = TypeVar("A")


class Facade(Generic[A]):
    """An object for code without an event loop. Its calls go over the bridge to its asynchronous twin."""

    def __init__(self, bridge: Bridge, twin: A) -> None:
        self._bridge = bridge
        self._aio = twin

    def __repr__(self) -> str:
        return repr(self._aio)


def twin_of(facade: Facade[A]) -> A:
    """Return the asynchronous twin of an object, for other modules of this package."""
    return facade._aio  # pyright: ignore[reportPrivateUsage]


def bridge_of(facade: Facade[Any]) -> Bridge:
    """Return the bridge of an object, for other modules of this package."""
    return facade._bridge  # pyright: ignore[reportPrivateUsage]
