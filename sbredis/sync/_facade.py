"""The base of the synchronous objects: an asynchronous twin that does the work, and the bridge to its event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sbredis._public import public_name

if TYPE_CHECKING:
    from sbredis.sync._bridge import Bridge

__all__ = ["Facade", "bridge_of", "twin_for", "twin_of"]

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


def twin_for(argument: Facade[A], kind: type[Facade[A]], refusal: str) -> A:
    """Return the asynchronous twin of an argument. Refuse objects that are not of this class, such as those of the
    asynchronous API, with an error that begins with ``refusal`` and names the class of the object.
    """
    if not isinstance(argument, kind):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"{refusal} {public_name(argument)}. Asynchronous and synchronous objects cannot be mixed.")
    return twin_of(argument)


def bridge_of(facade: Facade[Any]) -> Bridge:
    """Return the bridge of an object, for other modules of this package."""
    return facade._bridge  # pyright: ignore[reportPrivateUsage]
