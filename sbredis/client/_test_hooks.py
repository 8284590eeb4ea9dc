"""Hooks with which a test bus controls in-memory servers.

All clients of such a server use the clock of the bus, and the bus records all messages that are sent. So code under
test needs only a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sbredis.transport import forget_memory, require_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.client._clock import Clock
    from sbredis.engine import Outgoing
    from sbredis.transport import Target

__all__ = ["Hooks", "dismantle", "hooks_for", "set_up"]


class Hooks(Protocol):
    """The part of a test bus that clients of an in-memory server use."""

    @property
    def clock(self) -> Clock:
        """The clock of all clients and queues on the server."""
        ...

    def sent(self, namespace: str, entity: str, messages: Sequence[Outgoing]) -> None:
        """Record messages that an entity has accepted, in their order. Runs in the event loop of the sending client."""
        ...


_hooks: dict[str, Hooks] = {}


def set_up(memory: str, hooks: Hooks) -> None:
    """Install ``hooks`` for all later connections to ``memory://`` with this name.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if a package that an in-memory server needs is missing.
    """
    require_memory()
    _hooks[memory] = hooks


def dismantle(memory: str) -> None:
    """Remove the hooks of this name, and the server with all its data."""
    _hooks.pop(memory, None)
    forget_memory(memory)


def hooks_for(target: Target) -> Hooks | None:
    """Return the hooks for a target, if it has any."""
    return _hooks.get(target.path) if _hooks and target.kind == "memory" else None
