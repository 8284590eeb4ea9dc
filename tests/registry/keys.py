"""All that a server or a cluster holds, as it can be compared."""

from __future__ import annotations

from typing import Any

from sbredis.engine import registry_salt, salts
from sbredis.transport import Transport

__all__ = ["Snapshot", "keys_of", "snapshot"]

Snapshot = dict[bytes, tuple[bytes, Any]]

# A key on each master of up to three.
_EVERYWHERE = [salt.encode() for salt in (*salts(3), registry_salt())]

_READS: dict[bytes, tuple[str, ...]] = {
    b"hash": ("HGETALL",),
    b"zset": ("ZRANGE", "0", "-1", "WITHSCORES"),
    b"string": ("GET",),
}


async def snapshot(transport: Transport, namespace: str | None = None) -> Snapshot:
    """Every key, or every one of a namespace, with its type and its value."""
    found: Snapshot = {}
    pattern = "*" if namespace is None else f"sb:{namespace}:*"
    for key in sorted({key for place in _EVERYWHERE for key in await transport.command("KEYS", pattern, key=place)}):
        kind = await transport.command("TYPE", key, key=key)
        kind = kind.encode() if isinstance(kind, str) else kind
        command, *rest = _READS[kind]
        found[key] = (kind, await transport.command(command, key, *rest, key=key))
    return found


def keys_of(found: Snapshot, namespace: str) -> dict[str, Any]:
    """What of it belongs to a namespace, by the part of the key behind the name of the namespace."""
    prefix = f"sb:{namespace}:".encode()
    return {key.removeprefix(prefix).decode(): value for key, (_, value) in found.items() if key.startswith(prefix)}
