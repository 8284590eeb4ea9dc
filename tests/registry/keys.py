"""The whole contents of a server or a cluster, in a form that can be compared."""

from __future__ import annotations

from typing import Any

from sbredis.engine import bucket_keys, head_keys, registry_salt, slot_for_name, slot_salt
from sbredis.transport import Transport

__all__ = ["Snapshot", "bucket_of", "keys_of", "members", "require_consistent", "snapshot"]

Snapshot = dict[bytes, tuple[bytes, Any]]

# One key on each master, for up to three masters.
_EVERYWHERE = [salt.encode() for salt in (slot_salt("ns", number, 3) for number in range(3))]

_READS: dict[bytes, tuple[str, ...]] = {
    b"hash": ("HGETALL",),
    b"zset": ("ZRANGE", "0", "-1", "WITHSCORES"),
    b"string": ("GET",),
}


def bucket_of(name: str, slots: int, namespace: str = "ns") -> tuple[bytes, ...]:
    """Return the keys of the bucket of a queue or topic."""
    return bucket_keys(namespace, slot_salt(namespace, slot_for_name(name, slots), slots))


async def snapshot(transport: Transport, namespace: str | None = None) -> Snapshot:
    """Return every key, or every key of a namespace, with its type and its value."""
    found: Snapshot = {}
    pattern = "*" if namespace is None else f"sb:{namespace}:*"
    for key in sorted({key for place in _EVERYWHERE for key in await transport.command("KEYS", pattern, key=place)}):
        kind = await transport.command("TYPE", key, key=key)
        kind = kind.encode() if isinstance(kind, str) else kind
        command, *rest = _READS[kind]
        found[key] = (kind, await transport.command(command, key, *rest, key=key))
    return found


def keys_of(found: Snapshot, namespace: str) -> dict[str, Any]:
    """Return the values that belong to a namespace, by the part of the key after the name of the namespace.

    In place of the salts are the numbers of slots, and ``registry``. So the keys of two namespaces are the same.
    """
    names = {registry_salt(namespace): "registry"}
    facts = found.get(head_keys(namespace)[0])
    if facts is not None:
        slots = int(facts[1][b"slots"])
        names |= {slot_salt(namespace, number, slots): str(number) for number in range(slots)}
    kept: dict[str, Any] = {}
    for key, (_, value) in found.items():
        _, of, place, *rest = key.decode().split(":")
        if of == namespace:
            kept[":".join((f"{{{names[place[1:-1]]}}}", *rest))] = value
    return kept


def require_consistent(kept: dict[str, Any]) -> None:
    """Check that the ids and the log of each bucket have exactly the entities of the bucket, and those that are gone.

    ``kept`` is the result of :func:`keys_of`.
    """
    buckets = {key.partition(":")[0] for key in kept if key.endswith((":changes", ":ids", ":entities"))}
    for bucket in buckets:
        records = {name: text.split()[2] for name, text in kept.get(f"{bucket}:entities", {}).items()}
        assert {path: entity for entity, path in kept.get(f"{bucket}:ids", {}).items()} == records
        gone = members(kept.get(f"{bucket}:gone", []))
        assert not gone & records.keys()
        assert members(kept.get(f"{bucket}:changes", [])) == gone | records.keys()


def members(scored: list[Any]) -> set[bytes]:
    """Return the members in the reply of ZRANGE WITHSCORES."""
    flat = [part for each in scored for part in (each if isinstance(each, list) else [each])]
    return set(flat[::2])
