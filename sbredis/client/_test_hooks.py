"""Hooks with which a test bus controls in-memory servers.

All clients of such a server use the clock of the bus. The bus records all messages that are sent, and all entities
that any of its clients has used. So code under test needs only a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis.engine import name_key
from sbredis.transport import forget_memory, memory_has, require_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.client._clock import Clock
    from sbredis.engine import Outgoing
    from sbredis.registry import EntityRecord
    from sbredis.transport import Target

__all__ = ["BusHooks", "hooks_for", "install_hooks", "remove_hooks"]


class BusHooks:
    """The hooks of all clients that connect to the URL of a test bus."""

    def __init__(self, clock: Clock, slots: int) -> None:
        self.clock = clock
        """The clock of all clients and queues on the server."""
        self.slots = slots
        """The number of slots of a new namespace."""
        self._sent: dict[tuple[str, str], list[bytes]] = {}
        self._used: dict[tuple[str, str], EntityRecord] = {}

    def sent(self, namespace: str, entity: str, messages: Sequence[Outgoing]) -> None:
        """Record messages that an entity has accepted, in their order. Runs in the event loop of the sending client."""
        self._sent.setdefault((namespace, name_key(entity)), []).extend(message.payload for message in messages)

    def sent_to(self, namespace: str, entity: str) -> list[bytes] | None:
        """Return the payloads of all messages that an entity has accepted; ``None`` if it has accepted none."""
        return self._sent.get((namespace, name_key(entity)))

    def used(self, namespace: str, record: EntityRecord) -> None:
        """Record an entity that a client uses from now on. Runs in the event loop of the client."""
        self._used[namespace, record.id] = record

    def used_in(self, namespace: str) -> list[EntityRecord]:
        """Return the last known records of all entities of a namespace that clients have used.

        No other entity has messages, because the server is in this process alone.
        """
        return [record for (each, _), record in list(self._used.items()) if each == namespace]

    @staticmethod
    def has(target: Target, key: bytes) -> bool:
        """Return whether the server has a key, without a call."""
        return memory_has(target.path, target.database, key)


_hooks: dict[str, BusHooks] = {}


def install_hooks(memory: str, hooks: BusHooks) -> None:
    """Install ``hooks`` for all later connections to ``memory://`` with this name.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if a package that an in-memory server needs is missing.
    """
    require_memory()
    _hooks[memory] = hooks


def remove_hooks(memory: str) -> None:
    """Remove the hooks of this name, and the server with all its data."""
    _hooks.pop(memory, None)
    forget_memory(memory)


def hooks_for(target: Target) -> BusHooks | None:
    """Return the hooks for a target, if it has any."""
    return _hooks.get(target.path) if _hooks and target.kind == "memory" else None
