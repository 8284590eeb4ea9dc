"""The rules of ``sbredis doctor`` for servers: what can lose messages, stop the service, or surprise. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sbredis.cli._findings import NEARLY_FULL, VERY_FULL, Finding, Severity

if TYPE_CHECKING:
    from sbredis.aio import ConnectionReport, ServerReport

__all__ = ["NodeLine", "findings_of_servers", "nodes_in", "version_of"]

_SLOTS = 16_384
_UNEVEN = 1.5
"""A master with this many times the slots of another one is busier than it."""
_FIXED = {
    "redis": ((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
    "valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4)),
}
"""The first releases of each line without the security flaws in Lua of October 2025. Later lines never had them."""


class NodeLine(NamedTuple):
    """One line of the answer to CLUSTER NODES."""

    id: str
    address: str
    flags: frozenset[str]
    master: str
    linked: bool
    slots: int

    @property
    def host(self) -> str:
        """The host without its port."""
        return self.address.rpartition(":")[0]


def version_of(text: str | None) -> tuple[int, ...]:
    """Return the numbers of a version; none if it is unknown."""
    return tuple(int(part) for part in (text or "").split(".")[:3] if part.isdecimal())


def nodes_in(text: str) -> list[NodeLine]:
    """Read the answer to CLUSTER NODES."""
    found: list[NodeLine] = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 8:
            continue
        ranges = [part.partition("-") for part in fields[8:] if not part.startswith("[")]
        slots = sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
        address = fields[1].partition("@")[0]
        found.append(
            NodeLine(fields[0], address, frozenset(fields[2].split(",")), fields[3], fields[7] == "connected", slots)
        )
    return found


def findings_of_servers(report: ConnectionReport) -> list[Finding]:
    """Return what is wrong with the servers."""
    found = [finding for server in report.servers for finding in _of_server(server, report)]
    found += [
        Finding(Severity.WARNING, "clocks", warning[0].upper() + warning[1:], "Synchronise the clocks with NTP.")
        for warning in report.warnings
        if "clock" in warning
    ]
    return found + list(_of_cluster(report))


def _of_server(server: ServerReport, report: ConnectionReport) -> Iterator[Finding]:
    yield from _of_version(server)
    yield from _of_persistence(server)
    yield from _of_replication(server, report)
    yield from _of_memory(server)
    yield from _of_rights(server)


def _of_version(server: ServerReport) -> Iterator[Finding]:
    facts = server.facts
    version = version_of(facts.version)
    fixed = _FIXED.get(facts.product or "", ())
    if (
        len(version) == 3
        and version < max(fixed, default=())
        and not any(version[:2] == line[:2] and version >= line for line in fixed)
    ):
        yield Finding(
            Severity.WARNING,
            str(facts),
            "this release has known security flaws in Lua (CVE-2025-49844), unless your distribution has patched them: "
            "a user who may run scripts of their own may take over the server",
            "Update the server to the newest release of its line. Give applications a user without EVAL.",
        )


def _of_persistence(server: ServerReport) -> Iterator[Finding]:
    facts, info = server.facts, server.info
    if server.can_lose_acknowledged:
        yield Finding(
            Severity.CRITICAL,
            str(facts),
            "it writes no append-only file and has no replica: a crash loses everything since its last snapshot",
            "Set appendonly yes, or give it a replica.",
        )
    elif facts.append_only is False:
        yield Finding(
            Severity.WARNING,
            str(facts),
            "it writes no append-only file: if it and its replicas stop together, messages are lost",
            "Set appendonly yes.",
        )
    elif facts.append_only and facts.append_fsync == "everysec":
        yield Finding(
            Severity.NOTE,
            str(facts),
            "a crash of the machine, or of the server while its disk is slow, loses about the last two seconds "
            "(appendfsync everysec)",
            "Where this is too much, use appendfsync always and durability=fsync, or durability=replicated.",
        )
    elif facts.append_only and facts.append_fsync == "no":
        yield Finding(
            Severity.WARNING,
            str(facts),
            "a crash of the machine loses what its operating system had not written (appendfsync no)",
            "Set appendfsync everysec or always.",
        )
    for name, what in (("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot")):
        if info.get(name, "ok") != "ok":
            yield Finding(
                Severity.CRITICAL,
                str(facts),
                f"its last {what} could not be written ({name} {info[name]})",
                "Look at its log and at the space on its disk.",
            )


def _of_replication(server: ServerReport, report: ConnectionReport) -> Iterator[Finding]:
    facts, info = server.facts, server.info
    replicas = facts.connected_replicas
    durability = report.target.durability
    if durability == "replicated" and replicas == 1:
        yield Finding(
            Severity.WARNING,
            str(facts),
            "with durability=replicated and one replica, no call is confirmed while that replica is away",
            "Give each master two replicas.",
        )
    for name, value in info.items():
        if not name.startswith("slave") or not name[5:].isdecimal():
            continue
        replica = {field: what for field, _, what in (part.partition("=") for part in value.split(","))}
        if replica.get("state") != "online":
            yield Finding(
                Severity.WARNING,
                str(facts),
                f"its replica {replica.get('ip')}:{replica.get('port')} is not in step ({replica.get('state')})",
                "Wait until it has caught up, or look at its log.",
            )


def _of_memory(server: ServerReport) -> Iterator[Finding]:
    facts, info = server.facts, server.info
    used, limit = _number(info.get("used_memory")), _number(info.get("maxmemory"))
    if used is None or limit is None:
        return
    if limit == 0:
        total = _number(info.get("total_system_memory"))
        if total and used > NEARLY_FULL * total:
            yield Finding(
                Severity.CRITICAL,
                str(facts),
                f"it uses {used / total:.0%} of the memory of its machine and has no limit: the system may kill it",
                "Set maxmemory below the memory of the machine, and add memory or masters.",
            )
        else:
            yield Finding(
                Severity.NOTE,
                str(facts),
                "it has no memory limit (maxmemory 0): it grows until the system kills it",
                "Set maxmemory. At the limit, sends are refused and receiving goes on.",
            )
    elif used >= limit:
        yield Finding(
            Severity.CRITICAL,
            str(facts),
            f"it is full: it uses {used / limit:.0%} of its memory limit, so sends and new entities are refused",
            "Receive what waits, which works as before, purge dead letters that nobody needs (sbredis dlq purge), or "
            "raise maxmemory.",
        )
    elif used > NEARLY_FULL * limit:
        yield Finding(
            Severity.CRITICAL if used > VERY_FULL * limit else Severity.WARNING,
            str(facts),
            f"it uses {used / limit:.0%} of its memory limit: at the limit, sends are refused",
            "Receive or purge what waits, add memory, or add masters.",
        )


def _of_rights(server: ServerReport) -> Iterator[Finding]:
    facts, rights = server.facts, server.rights
    if rights.get("publish") is False:
        yield Finding(
            Severity.WARNING,
            str(facts),
            "this user may not publish to channels: receivers that wait are not woken, and look at most every 25 s",
            "Grant SPUBLISH and SSUBSCRIBE on the channels of the namespace.",
        )
    dangerous = [name for name, allowed in rights.items() if name != "publish" and allowed]
    if dangerous:
        yield Finding(
            Severity.NOTE,
            str(facts),
            f"this user may run {', '.join(dangerous)}",
            "Give applications a user of their own: 'sbredis acl namespace NAME' prints the rights that it needs.",
        )
    if not server.info:
        yield Finding(
            Severity.WARNING,
            str(facts),
            "INFO may not be read, so a client cannot see whether the server evicts keys, keeps a file of its data or "
            "was restarted, and this examination lacks its facts",
            "Grant INFO, or check maxmemory-policy (noeviction) and appendonly (yes) yourself.",
        )
    elif not server.settings:
        yield Finding(
            Severity.NOTE,
            str(facts),
            "CONFIG GET may not be read, which is right for applications, so the settings are not examined",
            "Run this command as an administrator too.",
        )


def _of_cluster(report: ConnectionReport) -> Iterator[Finding]:
    nodes = nodes_in(report.nodes)
    if not nodes:
        return
    masters = [node for node in nodes if "master" in node.flags and node.slots]
    for node in nodes:
        if node.flags & {"fail", "fail?"}:
            yield Finding(
                Severity.CRITICAL if node.slots else Severity.WARNING,
                node.address,
                "the cluster considers this node failed",
                "Start it again, or replace it.",
            )
    if (covered := sum(node.slots for node in masters)) < _SLOTS:
        yield Finding(
            Severity.CRITICAL,
            "cluster",
            f"{_SLOTS - covered:,} of 16,384 slots have no master: their partitions cannot be used",
            "Bring their master back, or assign the slots.",
        )
    yield from _of_spread(masters)
    yield from _of_replicas(masters, [node for node in nodes if "slave" in node.flags])
    yield from _of_shards(nodes, report)


def _of_spread(masters: Sequence[NodeLine]) -> Iterator[Finding]:
    if len(masters) > 1:
        most, least = max(masters, key=lambda node: node.slots), min(masters, key=lambda node: node.slots)
        if most.slots > _UNEVEN * least.slots:
            yield Finding(
                Severity.WARNING,
                "cluster",
                f"the slots are uneven: {most.address} has {most.slots:,}, and {least.address} has {least.slots:,}",
                "Rebalance the slots: redis-cli --cluster rebalance.",
            )


def _of_replicas(masters: Sequence[NodeLine], replicas: Sequence[NodeLine]) -> Iterator[Finding]:
    for master in masters:
        own = [node for node in replicas if node.master == master.id and not node.flags & {"fail", "fail?"}]
        if not own:
            yield Finding(
                Severity.WARNING,
                master.address,
                "this master has no replica: while it is down, its partitions cannot be used",
                "Give it a replica on another machine.",
            )
        elif master.host and all(node.host == master.host for node in own) and not _is_loopback(master.host):
            yield Finding(
                Severity.WARNING,
                master.address,
                "its replicas run on the same machine: one failure takes all of them",
                "Move a replica to another machine.",
            )


def _of_shards(nodes: Sequence[NodeLine], report: ConnectionReport) -> Iterator[Finding]:
    if not report.shards:
        return
    shard_of = {member: number for number, shard in enumerate(report.shards) for member in shard}
    for node in nodes:
        own, its = shard_of.get(node.id), shard_of.get(node.master)
        if "slave" in node.flags and its is not None and own != its:
            yield Finding(
                Severity.CRITICAL,
                node.address,
                "the cluster does not count this replica to the shard of its master (no shard id in nodes.conf): if "
                "the master is killed, the shard can be lost",
                "Run CLUSTER REPLICATE with the id of its master on the replica again, and check CLUSTER SHARDS.",
            )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("::1", "[::1]", "localhost")
