"""Being woken by a partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sbredis.transport import Transport

__all__ = ["REGISTERED", "Listening", "listen"]

REGISTERED = 25.0
"""A partition has whoever waits there registered for 30 seconds; so often it is looked at again."""


class Listening(Protocol):
    """A channel that is listened to."""

    def close(self) -> None:
        """Listen no more."""
        ...


@dataclass(frozen=True, slots=True)
class _Ear:
    """Hears what is said on a channel. It is one receiver's own, so that something was said is all that matters."""

    woken: Callable[[], None]
    missed: Callable[[], None]

    def message(self, payload: bytes) -> None:
        """The partition has something."""
        del payload
        self.woken()

    def gap(self) -> None:
        """Nobody listened for a while: it may have something."""
        self.missed()


async def listen(
    transport: Transport, channel: bytes, *, woken: Callable[[], None], missed: Callable[[], None]
) -> Listening:
    """Listen to a channel: ``woken`` is called in the event loop when there is something, ``missed`` when that may
    have gone unheard.
    """
    return await transport.subscribe(channel, _Ear(woken, missed))
