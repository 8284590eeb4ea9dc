"""In-memory servers that a test bus has taken over: whoever connects to one goes by the clock of the bus, and what is
sent through it is written down. So code under test needs to know nothing but a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sbredis.transport import forget_memory, require_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.aio.calls._clock import Clock
    from sbredis.engine import Outgoing
    from sbredis.transport import Target

__all__ = ["Hooks", "dismantle", "hooks_for", "set_up"]


class Hooks(Protocol):
    """What stands beside an in-memory server."""

    @property
    def clock(self) -> Clock:
        """By which all its clients and all its queues go."""
        ...

    def sent(self, namespace: str, entity: str, messages: Sequence[Outgoing]) -> None:
        """These were taken by an entity, in this order. Called in the event loop of the client that has sent them."""
        ...


_hooks: dict[str, Hooks] = {}


def set_up(memory: str, hooks: Hooks) -> None:
    """Have all who connect to ``memory://`` of this name from now on find ``hooks`` there.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if what an in-memory server needs is not installed.
    """
    require_memory()
    _hooks[memory] = hooks


def dismantle(memory: str) -> None:
    """Give up the hooks of this name, its server, and what that holds."""
    _hooks.pop(memory, None)
    forget_memory(memory)


def hooks_for(target: Target) -> Hooks | None:
    """The hooks that a target leads to."""
    return _hooks.get(target.path) if _hooks and target.kind == "memory" else None
