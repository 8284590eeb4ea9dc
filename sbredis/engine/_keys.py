"""The names of all keys. No other module builds a key name, and neither does Lua.

A key is ``sb:<namespace>:{<salt>}:<entity id>:<kind>``. The salt alone decides the slot. The namespace comes first, so
that a user of the server can be restricted to one namespace. An entity id is never given twice, so an entity that is
deleted and created again shares no key with its former self.
"""

from __future__ import annotations

import re

from sbredis._quoting import quoted

__all__ = [
    "KINDS",
    "SESSION_KINDS",
    "STORE_KINDS",
    "due_channel",
    "entity_of",
    "partition_keys",
    "registry_keys",
    "role_keys",
    "state_key",
    "tick_keys",
    "waiting_channel",
]

_OWN_KINDS = ("state", "order", "entries", "leases", "locks", "due", "dedup", "ops", "waiters")
STORE_KINDS = ("store", "refs", *(f"m{number}" for number in range(16)))
"""The kinds of keys that store the messages. A subscription uses these keys of its topic."""

SESSION_KINDS = ("sessions", "turns", "states")
"""The kinds of keys that exist only if messages belong to sessions."""

_MEMORY_KINDS = ("lasting", "once", "settled")
"""The kinds of keys for what a partition remembers: for good, for a window, and a stream of settlements."""

KINDS = _OWN_KINDS + STORE_KINDS + SESSION_KINDS + _MEMORY_KINDS
"""All kinds of keys of a partition, in the order in which every script gets them."""

_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.ASCII | re.IGNORECASE)


def _prefix(namespace: str, salt: str) -> str:
    for word in (namespace, salt):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{quoted(word)} cannot be part of a key")
    return f"sb:{namespace}:{{{salt}}}"


def partition_keys(namespace: str, salt: str, entity: str, store: str | None = None) -> tuple[bytes, ...]:
    """Return the keys of an entity's partition in the slot of ``salt``, in the order of :data:`KINDS`.

    ``store`` is given for a subscription: its topic, which stores the messages.
    """
    prefix = _prefix(namespace, salt)
    for word in (entity, store or entity):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{quoted(word)} is not an entity id")
    return tuple(f"{prefix}:{store or entity if kind in STORE_KINDS else entity}:{kind}".encode() for kind in KINDS)


def registry_keys(namespace: str, salt: str) -> tuple[bytes, ...]:
    """Return the keys of a namespace's registry, in the order of ``register_namespace.lua``, which explains them."""
    prefix = _prefix(namespace, salt)
    kinds = ("namespace", "entities", "names", "subscriptions", "rules", "places", "tallies")
    return tuple(f"{prefix}:{kind}".encode() for kind in kinds)


def role_keys(namespace: str, salt: str) -> tuple[bytes, ...]:
    """Return the key of a namespace's roles. A role is a task that one client does for all clients."""
    return (f"{_prefix(namespace, salt)}:roles".encode(),)


def tick_keys(namespace: str, salt: str) -> tuple[bytes, ...]:
    """Return the key that remembers the ticks of a namespace. A tick is a time at which one client does something."""
    return (f"{_prefix(namespace, salt)}:ticks".encode(),)


def waiting_channel(namespace: str, salt: str, client: str) -> bytes:
    """Return the channel on which a client is woken, in the slot of the partitions at which it waits."""
    if not _WORD.fullmatch(client):
        raise ValueError(f"{quoted(client)} is not a client id")
    return f"{_prefix(namespace, salt)}:wake:{client}".encode()


def due_channel(namespace: str, salt: str) -> bytes:
    """Return the channel on which the partitions of a slot announce when something will be due."""
    return waiting_channel(namespace, salt, "due")


def state_key(namespace: str, salt: str, entity: str) -> bytes:
    """Return the key that identifies an entity's partition in the slot of ``salt``."""
    if not _WORD.fullmatch(entity):
        raise ValueError(f"{quoted(entity)} is not an entity id")
    return f"{_prefix(namespace, salt)}:{entity}:state".encode()


def entity_of(state: bytes) -> str:
    """Return the id of a partition's entity, from the key that identifies the partition."""
    _, entity, kind = state.rsplit(b":", 2)
    if kind != b"state":
        raise ValueError(f"{quoted(state)} does not name a partition")
    return entity.decode()
