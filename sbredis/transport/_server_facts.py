"""Facts that a server reports about itself, and whether sbredis can work on it. Pure.

A managed server may not let us read some facts. An unknown fact is never a reason to refuse the server; one warning
names all unknown facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from sbredis._counting import counted
from sbredis.transport._address import Durability, Endpoint, Kind

__all__ = [
    "UNKNOWN_RUN_ID",
    "ReplicaCount",
    "ServerFacts",
    "can_lose_acknowledged",
    "durability_note",
    "not_writable",
    "parse_info",
    "problems",
    "run_id_in",
    "unconfirmable",
    "unknown_note",
]

UNKNOWN_RUN_ID = b"?"
Product = Literal["redis", "valkey"]
_OLDEST: Mapping[Product, tuple[int, int]] = {"redis": (7, 0), "valkey": (7, 2)}


class ServerFacts(NamedTuple):
    """The facts of one server process, from when a connection to it was opened. ``None`` stands for an unknown fact."""

    endpoint: Endpoint
    run_id: bytes = UNKNOWN_RUN_ID
    product: Product | None = None
    version: str | None = None
    mode: str | None = None
    role: str | None = None
    master: str | None = None
    connected_replicas: int | None = None
    eviction: str | None = None
    append_only: bool | None = None
    append_fsync: str | None = None
    scripts: Literal["allowed", "denied"] | None = None

    def __str__(self) -> str:
        product = (self.product or "unknown server").capitalize()
        return f"{product} {self.version or '(version unknown)'} at {self.endpoint}"


def parse_info(text: str) -> dict[str, str]:
    """Return the lines of INFO as a mapping."""
    pairs = (line.partition(":") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value for name, separator, value in pairs if separator}


def run_id_in(info: str) -> bytes:
    """Return the run id that INFO says."""
    return parse_info(info).get("run_id", "").encode() or UNKNOWN_RUN_ID


def server_facts(
    endpoint: Endpoint,
    info: str | None,
    append_fsync: str | None,
    scripts: Literal["allowed", "denied"] | None,
    run_id: bytes | None = None,
) -> ServerFacts:
    """Return the facts from the answers to INFO, CONFIG GET appendfsync and a trial EVALSHA.

    ``None`` stands for a question without an answer. ``run_id`` is given if it is known without INFO.
    """
    if info is None:
        return ServerFacts(endpoint, run_id or UNKNOWN_RUN_ID, append_fsync=append_fsync, scripts=scripts)
    said = parse_info(info)
    product: Product | None = "valkey" if "valkey_version" in said else "redis" if "redis_version" in said else None
    replicas = said.get("connected_slaves", "")
    role = said.get("role")
    return ServerFacts(
        endpoint,
        run_id=run_id or run_id_in(info),
        product=product,
        version=said.get("valkey_version") or said.get("redis_version"),
        mode=said.get("server_mode") or said.get("redis_mode"),
        role=role,
        master=f"{said.get('master_host')}:{said.get('master_port')}" if role == "slave" else None,
        connected_replicas=int(replicas) if replicas.isdecimal() else None,
        eviction=said.get("maxmemory_policy"),
        append_only=said["aof_enabled"] == "1" if "aof_enabled" in said else None,
        append_fsync=append_fsync,
        scripts=scripts,
    )


def problems(facts: ServerFacts, kind: Kind, durability: Durability) -> list[str]:
    """Return all reasons why sbredis cannot work on this server, each with the change that is needed."""
    found: list[str] = []
    server = str(facts)
    if facts.product and facts.version:
        oldest = _OLDEST[facts.product]
        if _numbers(facts.version) < oldest:
            found.append(f"{server} is too old: sbredis needs Redis 7.0 or Valkey 7.2 at least. Upgrade the server.")
    if facts.mode == "sentinel":  # the other facts do not matter for a Sentinel
        return [f"{server} is a Sentinel, not a data server: use redis+sentinel://{facts.endpoint}/MASTER-NAME."]
    if kind == "cluster" and facts.mode == "standalone":
        found.append(f"{server} is not part of a cluster: use redis://{facts.endpoint}.")
    elif kind in ("standalone", "unix", "sentinel") and facts.mode == "cluster":
        found.append(f"{server} is part of a cluster: use redis+cluster://{facts.endpoint}.")
    if facts.eviction and facts.eviction != "noeviction":
        found.append(
            f"{server} evicts keys when its memory is full (maxmemory-policy {facts.eviction}), which would lose "
            "messages silently. Set maxmemory-policy noeviction."
        )
    if facts.scripts == "denied":
        found.append(
            f"{server} does not let this user run scripts (EVALSHA), and the broker consists of scripts. Permit "
            "EVALSHA to "
            "the user, or undo its renaming in the server's configuration."
        )
    if durability == "fsync":
        if facts.append_only is False:
            found.append(
                f"{server} writes no append-only file: durability=fsync needs appendonly yes and appendfsync always."
            )
        elif facts.append_fsync not in (None, "always"):
            found.append(f"{server} runs appendfsync {facts.append_fsync}: durability=fsync needs appendfsync always.")
    return found


def not_writable(facts: ServerFacts, kind: Kind) -> str | None:
    """Return why a server takes no writes now, and what to do if this does not change; ``None`` if it takes writes.

    A replica may become the next master. In a cluster, a server that has become a replica redirects calls to the
    master.
    """
    if facts.role != "slave" or kind == "cluster":
        return None
    if kind == "sentinel":
        return f"{facts.endpoint} is a replica of {facts.master}"
    return (
        f"{facts} is a read-only replica of {facts.master}: connect to its master, or use "
        "redis+sentinel:// to follow it."
    )


class ReplicaCount(NamedTuple):
    """The number of replicas of a master; ``None`` means that it is unknown."""

    known: int | None
    """The number in the connection string, or the number that the cluster or Sentinel reports. It includes replicas
    that are down.
    """
    connected: int | None
    """The number of replicas that the master is connected to now."""
    steady: bool = True
    """Whether the deployment reports that no node is down and no failover is under way."""


def unconfirmable(facts: ServerFacts, copies: ReplicaCount, kind: Kind) -> tuple[str, bool] | None:
    """Return why no call can be confirmed with ``durability=replicated``, and whether that may pass by itself.

    ``None`` if calls can be confirmed.
    """
    if copies.known is None:
        return (
            f"{facts} does not let this user read how many replicas it has. Permit INFO (in a cluster CLUSTER "
            "NODES), or give replicas=N for durability=replicated."
        ), False
    if copies.known == 0:
        if not copies.steady:
            return f"{facts} has no replica at the moment: nothing can confirm with durability=replicated.", True
        return (
            f"{facts} has no replica, so nothing can confirm calls with durability=replicated. Give the server a "
            "replica, or use durability=master or fsync."
        ), False
    # in a cluster or with Sentinels, a failover may be under way
    if copies.connected == 0 and kind in ("standalone", "unix"):
        return (
            f"{facts} has no replica connected, so nothing can confirm calls with durability=replicated. The "
            f"connection string names {counted(copies.known, 'replica')} (replicas={copies.known}): connect "
            f"{'it' if copies.known == 1 else 'them'} to the server, or use durability=master or fsync."
        ), False
    return None


def can_lose_acknowledged(facts: ServerFacts, *, replicated: bool) -> bool:
    """Whether a crash of this one process loses messages that were acknowledged."""
    return facts.append_only is False and not replicated


def unknown_note(facts: ServerFacts, durability: Durability) -> str | None:
    """Return a warning that names all facts that could not be read, and the consequences; ``None`` if all were read."""
    unread: list[str] = []
    if facts.version is None:
        unread.append("its version, role and run id (INFO): a restart is not recognised as a new epoch")
    elif facts.run_id == UNKNOWN_RUN_ID:
        unread.append("its run id (INFO): a restart is not recognised as a new epoch")
    if facts.eviction is None:
        unread.append("maxmemory-policy (INFO): make sure that it is noeviction")
    if facts.append_fsync is None:
        unread.append(
            "appendfsync (CONFIG): make sure that it is always, as durability=fsync needs"
            if durability == "fsync"
            else "appendfsync (CONFIG): how much a crash loses is not known"
        )
    return f"{facts}: not permitted to read {'; '.join(unread)}." if unread else None


def durability_note(facts: ServerFacts, durability: Durability, *, replicated: bool) -> str:
    """Return a sentence for the log that says what an acknowledgement of such a server guarantees."""
    if facts.append_only is None or (facts.append_only and facts.append_fsync is None):
        crash = "what a crash of the server loses depends on its append-only file, which could not be read"
    elif not facts.append_only:
        crash = "a crash of the server loses everything since its last snapshot (it writes no append-only file)"
    elif facts.append_fsync == "always":
        crash = "a crash of the server loses nothing acknowledged"
    elif facts.append_fsync == "no":
        crash = "a crash of the machine loses what its operating system had not written yet (appendfsync no)"
    else:
        crash = (
            "a crash of the machine, or of the server while its disk is slow, loses about the last two seconds "
            "(appendfsync everysec)"
        )
    if durability == "replicated":
        failover = "a failover to any replica of the shard loses nothing acknowledged"
    elif replicated:
        failover = "a failover loses what had not reached the new master (durability=replicated waits for it)"
    else:
        failover = "there is no replica to fail over to"
    return f"{crash}; {failover}."


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)
