"""The names of all keys: nobody else builds one, Lua least of all.

``sb:<namespace>:{<salt>}:<entity id>:<kind>``. The salt alone decides the slot. The namespace stands in front, so that
a user of the server can be confined to it. The entity id is given once and never again, so that a deleted and
recreated entity shares no key with what it was before.
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
    "waiting_channel",
]

_OWN_KINDS = ("state", "order", "entries", "leases", "locks", "due", "dedup", "ops", "waiters")
STORE_KINDS = ("store", "refs", *(f"m{number}" for number in range(16)))
"""The kinds that hold messages themselves: a subscription uses those of its topic."""

SESSION_KINDS = ("sessions", "turns", "states")
"""The kinds that are there where messages belong to sessions."""

KINDS = _OWN_KINDS + STORE_KINDS + SESSION_KINDS
"""All kinds of keys of a partition, in the order in which every script is given them."""

_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.ASCII | re.IGNORECASE)


def _prefix(namespace: str, salt: str) -> str:
    for word in (namespace, salt):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{quoted(word)} cannot be part of a key")
    return f"sb:{namespace}:{{{salt}}}"


def partition_keys(namespace: str, salt: str, entity: str, store: str | None = None) -> tuple[bytes, ...]:
    """The keys of an entity's partition in the slot of ``salt``, in the order of :data:`KINDS`.

    ``store`` is the entity that holds the messages, if it is another one: the topic of a subscription.
    """
    prefix = _prefix(namespace, salt)
    for word in (entity, store or entity):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{quoted(word)} is no entity id")
    return tuple(f"{prefix}:{store or entity if kind in STORE_KINDS else entity}:{kind}".encode() for kind in KINDS)


def registry_keys(namespace: str, salt: str) -> tuple[bytes, ...]:
    """The keys of a namespace's registry, in the order of ``register_namespace.lua``, which says what they hold."""
    prefix = _prefix(namespace, salt)
    kinds = ("namespace", "entities", "names", "subscriptions", "rules", "places", "tallies")
    return tuple(f"{prefix}:{kind}".encode() for kind in kinds)


def role_keys(namespace: str, salt: str) -> tuple[bytes, ...]:
    """The key of a namespace's roles: what one client does for all, and which."""
    return (f"{_prefix(namespace, salt)}:roles".encode(),)


def waiting_channel(namespace: str, salt: str, client: str) -> bytes:
    """The channel on which a client is woken, in the slot of the partitions it waits at."""
    if not _WORD.fullmatch(client):
        raise ValueError(f"{quoted(client)} is no client id")
    return f"{_prefix(namespace, salt)}:wake:{client}".encode()


def due_channel(namespace: str, salt: str) -> bytes:
    """The channel on which the partitions in a slot announce when something will be due."""
    return waiting_channel(namespace, salt, "due")


def state_key(namespace: str, salt: str, entity: str) -> bytes:
    """The key by which an entity's partition in the slot of ``salt`` names itself."""
    if not _WORD.fullmatch(entity):
        raise ValueError(f"{quoted(entity)} is no entity id")
    return f"{_prefix(namespace, salt)}:{entity}:state".encode()


def entity_of(state: bytes) -> str:
    """The id of the entity that a partition belongs to, by the key by which it names itself."""
    _, entity, kind = state.rsplit(b":", 2)
    if kind != b"state":
        raise ValueError(f"{quoted(state)} does not name a partition")
    return entity.decode()
