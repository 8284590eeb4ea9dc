"""The names of all keys. No other module builds a key name, and neither does Lua.

A key is ``sb:<namespace>:{<salt>}:<entity id>:<kind>``. The salt alone decides the slot. The namespace comes first, so
that a user of the server can be restricted to one namespace. An entity id is never given twice, so an entity that is
deleted and created again shares no key with its former self.
"""

from __future__ import annotations

import re

from sbredis._quoting import quoted
from sbredis.engine._placement import registry_salt
from sbredis.transport import Keys

__all__ = [
    "BUCKET_KINDS",
    "ENTITIES_PATTERN",
    "KINDS",
    "SESSION_KINDS",
    "STORE_KINDS",
    "bucket_keys",
    "bucket_patterns",
    "due_channel",
    "due_key",
    "due_pattern",
    "entity_of",
    "entity_pattern",
    "head_keys",
    "head_pattern",
    "library_keys",
    "namespace_of",
    "namespace_pattern",
    "partition_keys",
    "push_channel",
    "ready_channel",
    "ready_keys",
    "role_keys",
    "slot_channel",
    "state_key",
    "tick_keys",
]

_OWN_KINDS = ("state", "order", "entries", "leases", "locks", "due", "dedup", "ops")
STORE_KINDS = ("store", "refs", *(f"m{number}" for number in range(16)))
"""The kinds of keys that store the messages. A subscription uses these keys of its topic."""

SESSION_KINDS = ("sessions", "turns", "states")
"""The kinds of keys that exist only if messages belong to sessions."""

_MEMORY_KINDS = ("lasting", "once", "settled")
"""The kinds of keys for what a partition remembers: for good, for a window, and a stream of settlements."""

_CREDIT_KINDS = ("words", "grants", "kept")
"""The kinds of keys for the receivers that grant credit."""

KINDS = _OWN_KINDS + STORE_KINDS + SESSION_KINDS + _MEMORY_KINDS + _CREDIT_KINDS
"""All kinds of keys of a partition, in the order in which every script gets them."""

_ENDS = tuple((f":{kind}".encode(), kind in STORE_KINDS) for kind in KINDS)
"""How the name of each key ends, and whether it is a key of the store."""

_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.ASCII | re.IGNORECASE)
_ENTITIES = re.compile(r"sb:([^:]+):\{[^:}]+\}:entities")


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
    own, stored = f"{prefix}:{entity}".encode(), f"{prefix}:{store or entity}".encode()
    return tuple([(stored if of_store else own) + end for end, of_store in _ENDS])


def head_keys(namespace: str, salt: str | None = None) -> tuple[bytes, ...]:
    """Return the key with the facts of a namespace, which ``register_namespace.lua`` explains.

    ``salt`` is given for a namespace that another release has put into another slot.
    """
    return (f"{_prefix(namespace, registry_salt(namespace) if salt is None else salt)}:namespace".encode(),)


BUCKET_KINDS = (
    *("bucket", "entities", "names", "subscriptions", "rules"),
    *("places", "tallies", "ids", "changes", "gone"),
)
"""The kinds of keys of a bucket of the registry, in the order of ``begin_bucket.lua``, which explains them."""


def bucket_keys(namespace: str, salt: str) -> Keys:
    """Return the keys of the bucket in the slot of ``salt``, in the order of :data:`BUCKET_KINDS`."""
    prefix = _prefix(namespace, salt)
    return Keys(f"{prefix}:{kind}".encode() for kind in BUCKET_KINDS)


ENTITIES_PATTERN = "sb:*:entities"
"""What the keys with the entities of a bucket match, for SCAN. :func:`namespace_of` checks such a key."""


def namespace_of(key: str) -> str | None:
    """Return the namespace of which this key has the entities of a bucket; ``None`` if it is another key."""
    found = _ENTITIES.fullmatch(key)
    return found[1] if found is not None else None


def role_keys(namespace: str) -> tuple[bytes, ...]:
    """Return the key of a namespace's roles. A role is a task that one client does for all clients."""
    return (f"{_prefix(namespace, registry_salt(namespace))}:roles".encode(),)


def tick_keys(namespace: str) -> tuple[bytes, ...]:
    """Return the key that remembers the ticks of a namespace. A tick is a time at which one client does something."""
    return (f"{_prefix(namespace, registry_salt(namespace))}:ticks".encode(),)


def library_keys(namespace: str) -> tuple[bytes, ...]:
    """Return the key that remembers which libraries of functions the clients of a namespace call."""
    return (f"{_prefix(namespace, registry_salt(namespace))}:libraries".encode(),)


def slot_channel(namespace: str, salt: str, subject: str) -> bytes:
    """Return the channel of a slot for a subject that concerns clients of all its entities, such as a role."""
    if not _WORD.fullmatch(subject):
        raise ValueError(f"{quoted(subject)} cannot be part of a channel")
    return f"{_prefix(namespace, salt)}:wake:{subject}".encode()


def due_channel(namespace: str, salt: str) -> bytes:
    """Return the channel on which the partitions of a slot announce when something will be due."""
    return slot_channel(namespace, salt, "due")


def push_channel(namespace: str, salt: str, entity: str, client: str) -> bytes:
    """Return the channel on which an entity's partition in the slot of ``salt`` pushes messages and news to a client.

    The entity's id is in its name, because messages travel on it: a user of another entity must not listen to it.
    """
    for word in (entity, client):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{quoted(word)} is not the id of an entity or a client")
    return f"{_prefix(namespace, salt)}:{entity}:push:{client}".encode()


def state_key(namespace: str, salt: str, entity: str) -> bytes:
    """Return the key that identifies an entity's partition in the slot of ``salt``."""
    return _own_key(namespace, salt, entity, "state")


def due_key(namespace: str, salt: str, entity: str) -> bytes:
    """Return the key with the events of an entity's partition in the slot of ``salt``."""
    return _own_key(namespace, salt, entity, "due")


def ready_channel(namespace: str, salt: str, entity: str) -> bytes:
    """Return the channel on which an entity's partition in the slot of ``salt`` calls receivers."""
    return state_key(namespace, salt, entity)


def ready_keys(namespace: str, salt: str, entity: str) -> tuple[bytes, ...]:
    """Return the keys that show whether an entity's partition in the slot of ``salt`` has something for a receiver."""
    state = state_key(namespace, salt, entity)
    own = state.removesuffix(b"state")
    return state, own + b"order", own + b"turns"


def _own_key(namespace: str, salt: str, entity: str, kind: str) -> bytes:
    if not _WORD.fullmatch(entity):
        raise ValueError(f"{quoted(entity)} is not an entity id")
    return f"{_prefix(namespace, salt)}:{entity}:{kind}".encode()


def entity_of(state: bytes) -> str:
    """Return the id of a partition's entity, from the key that identifies the partition."""
    _, entity, kind = state.rsplit(b":", 2)
    found = entity.decode()
    if kind != b"state" or not _WORD.fullmatch(found):
        raise ValueError(f"{quoted(state)} does not name a partition")
    return found


def namespace_pattern(namespace: str) -> str:
    """Return the pattern of all keys and channels of a namespace, as rules of access have it."""
    _prefix(namespace, "x")
    return f"sb:{namespace}:*"


def head_pattern(namespace: str) -> str:
    """Return the pattern of the keys of a namespace that concern all its entities: facts, roles, ticks, libraries."""
    return f"{_prefix(namespace, registry_salt(namespace))}:*"


def bucket_patterns(namespace: str) -> list[str]:
    """Return the patterns of the keys of all buckets of a namespace. No key of a partition matches."""
    return [f"{_in_any_slot(namespace)}:{kind}" for kind in BUCKET_KINDS]


def entity_pattern(namespace: str, entity: str) -> str:
    """Return the beginning of the patterns of an entity's keys and channels, in all slots."""
    if not _WORD.fullmatch(entity):
        raise ValueError(f"{quoted(entity)} is not an entity id")
    return f"{_in_any_slot(namespace)}:{entity}:"


def due_pattern(namespace: str) -> str:
    """Return the pattern of the channels on which the partitions of a namespace make announcements."""
    return f"{_in_any_slot(namespace)}:wake:due"


def _in_any_slot(namespace: str) -> str:
    return _prefix(namespace, "x").replace("{x}", "{*}")
