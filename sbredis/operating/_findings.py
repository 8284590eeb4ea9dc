"""The rules of ``sbredis doctor``: facts in, findings out. Pure.

A finding is about a server or an entity: what can lose messages, stop the service, delay messages, or surprise.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from sbredis._counting import counted

if TYPE_CHECKING:
    from sbredis.aio import ConnectionReport, ServerReport
    from sbredis.exceptions import ServiceBusError
    from sbredis.model import ReservationStatus, UnreadableEntity
    from sbredis.operating._facts import EntityFacts

__all__ = [
    "EntitySlots",
    "Finding",
    "NodeLine",
    "Severity",
    "findings_of_entities",
    "findings_of_servers",
    "findings_of_transaction",
    "form_of",
    "gathered",
    "nodes_in",
    "version_of",
]

VERY_FULL, NEARLY_FULL = 0.95, 0.8
"""The share of a limit from which a finding is critical, and from which it is a warning."""
_SLOTS = 16_384
_UNEVEN = 1.5
"""A master with this many times the slots of another one is busier than it."""
_FIXED = {
    "redis": ((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
    "valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4)),
}
"""The first releases of each line without the security flaws in Lua of October 2025. Later lines never had them."""
_LARGE = 16 * 100 * 1024 * 1024
"""The bytes of a partition from which a hash of it may take over a second to move: it has 16 hashes of records."""
_MARGIN = 2
"""A lock should last this many times as long as a handler."""


class Severity(enum.IntEnum):
    """How bad a finding is."""

    NOTE = 0
    """Worth knowing."""
    WARNING = 1
    """It can delay messages, or turn into something worse."""
    CRITICAL = 2
    """It can lose messages, or something does not work now."""


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    severity: Severity
    subject: str
    """The server or the entity."""
    problem: str
    advice: str


class EntitySlots(NamedTuple):
    """The slots of the namespace in which an entity is."""

    path: str
    slots: tuple[int, ...]

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.slots[:8])) + ", …" * (len(self.slots) > 8)
        return f"{self.path}: {counted(len(self.slots), 'slot')} of the namespace ({shown})"

    @property
    def owner(self) -> str:
        """The queue or topic that decides the slots: for a subscription its topic."""
        return self.path.partition("/subscriptions/")[0]


def gathered(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, the worst first. Subjects with the same problem share a finding."""
    subjects: dict[tuple[Severity, str, str], list[str]] = {}
    for severity, subject, problem, advice in findings:
        subjects.setdefault((severity, problem, advice), []).append(subject)
    found = [
        Finding(severity, ", ".join(dict.fromkeys(names)), problem, advice)
        for (severity, problem, advice), names in subjects.items()
    ]
    return sorted(found, key=lambda finding: -finding.severity)


# -- servers -----------------------------------------------------------------------------------------------------------


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
    found = [_of_away(str(endpoint), error) for endpoint, error in report.away.items()]
    found += [finding for server in report.servers for finding in _of_server(server, report)]
    found += [
        Finding(Severity.WARNING, "clocks", warning[0].upper() + warning[1:], "Synchronise the clocks with NTP.")
        for warning in report.warnings
        if "clock" in warning
    ]
    return found + list(_of_cluster(report))


def _of_away(server: str, error: ServiceBusError) -> Finding:
    if "CLUSTERDOWN" in error.message:
        advice = (
            "Bring the failed masters back, or let replicas take over. With cluster-require-full-coverage no, the "
            "other masters go on meanwhile."
        )
    elif error.is_transient:
        advice = "Bring it back, or let a replica take over."
    else:
        advice = "Change the server as this says."
    problem = f"this master cannot be used, so its partitions cannot either: {error.message.rstrip('.')}"
    return Finding(Severity.CRITICAL, server, problem, advice)


def _of_server(server: ServerReport, report: ConnectionReport) -> Iterator[Finding]:
    yield from _of_version(server)
    yield from _of_persistence(server)
    yield from _of_replication(server, report)
    yield from _of_memory(server)
    yield from _of_speed(server, report)
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


def _of_speed(server: ServerReport, report: ConnectionReport) -> Iterator[Finding]:
    if server.library_refusal and report.target.scripts == "auto":
        yield Finding(
            Severity.NOTE,
            str(server.facts),
            f"it gets single scripts, because it takes no library of functions: {server.library_refusal}. So its calls "
            "take up to 1.8 times the processor time",
            "Run 'sbredis upgrade' as a user who may load functions, or give the server free memory and enough "
            "replicas. Clients try the library again after a minute, or after an hour if they lacked a right.",
        )
    if server.info.get("mem_allocator") == "libc" and report.target.kind != "embedded":  # sbredis gives it the best one
        yield Finding(
            Severity.NOTE,
            str(server.facts),
            "it is built with the memory allocator of the C library: for the same calls, jemalloc takes 1.2 to 1.4 "
            "times less processor time than that of glibc",
            "Use a server that is built with jemalloc, or start it with LD_PRELOAD=libjemalloc.so.2, which INFO does "
            "not show. With glibc, GLIBC_TUNABLES=glibc.malloc.tcache_count=2000 saves a part of it.",
        )


def form_of(server: ServerReport, report: ConnectionReport) -> tuple[str, str]:
    """Return the form in which a server gets the scripts, ``library`` or ``single``, and why if it is no library."""
    if server.has_library:
        return "library", ""
    if server.library_refusal:
        return "single", f"it takes no library of functions: {server.library_refusal}"
    if report.target.kind == "memory":
        return "single", "a server in memory has no functions"
    return "single", f"the connection string says scripts={report.target.scripts}"


def _of_rights(server: ServerReport) -> Iterator[Finding]:
    facts, rights = server.facts, server.rights
    if rights.get("publish") is False:
        yield Finding(
            Severity.CRITICAL,
            str(facts),
            "this user may not publish to channels: a call that must tell a receiver something fails halfway, and what "
            "it has written until then stays",
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


# -- entities ----------------------------------------------------------------------------------------------------------


def findings_of_entities(
    entities: Sequence[EntityFacts],
    *,
    maintained: bool,
    missing: str = "",
    unreadable: Sequence[UnreadableEntity] = (),
    reservations: Sequence[ReservationStatus] = (),
    release_command: Callable[[str], str] = lambda path: shlex.join(["sbredis", "spark", "release", path]),
    handling: timedelta | None = None,
    moves_slots_whole: bool = False,
) -> list[Finding]:
    """Return what is wrong with the entities of a namespace.

    ``missing`` says which entities are missing among them; it is empty if none is. ``unreadable`` are the entities
    whose records cannot be read. ``release_command`` returns the command that ends the reservation of an entity.
    ``handling`` is how long handlers take. ``moves_slots_whole`` says that the servers move a slot as one change.
    """
    found = [
        finding
        for entity in entities
        for finding in (
            *_of_locks(entity, handling),
            *_of_contents(entity),
            *_of_size(entity, moves_slots_whole=moves_slots_whole),
        )
    ]
    if missing:
        problem = f"{missing[0].lower()}{missing[1:].rstrip('.')}"
        found.append(Finding(Severity.CRITICAL, "registry", problem, "Make these slots readable, and examine again."))
    found += map(_of_record, unreadable)
    if not maintained:
        found += _of_maintenance(entities)
    return found + [
        Finding(
            Severity.WARNING,
            status.path,
            f"it is reserved for the consumer {status.consumer!r}, which shows no sign of life",
            f"Start the consumer again, or end the reservation:\n{release_command(status.path)}",
        )
        for status in reservations
        if status.stale
    ]


def _of_record(entity: UnreadableEntity) -> Finding:
    if entity.layout is not None:
        return Finding(
            Severity.WARNING,
            entity.path,
            f"its record cannot be read by this release: {entity.reason}",
            "Install a release that can read this layout, in all services of the namespace.",
        )
    names = shlex.join(entity.path.replace("/subscriptions/", " ").replace("/rules/", " ").split(" "))
    words = ["rule"] if "/rules/" in entity.path else ["subscription"] if "/subscriptions/" in entity.path else []
    commands = [f"sbredis {word} delete {names}" for word in words or ["queue", "topic"]]
    return Finding(
        Severity.CRITICAL,
        entity.path,
        f"its record cannot be read: {entity.reason}",
        f"Delete it, and create it again:\n{' or '.join(commands)}",
    )


def _of_locks(entity: EntityFacts, handling: timedelta | None) -> Iterator[Finding]:
    lock, life = entity.lock_duration, entity.time_to_live
    if lock is None:
        return
    if life is not None and life <= lock:
        yield Finding(
            Severity.WARNING,
            entity.path,
            f"its messages live {_seconds(life)}, and a lock lasts {_seconds(lock)}: a message whose lock lapses has "
            "expired, and is not handled again",
            "Make the time to live longer, or the lock shorter.",
        )
    if handling is not None and lock < _MARGIN * handling:
        yield Finding(
            Severity.WARNING,
            entity.path,
            f"a lock lasts {_seconds(lock)}, and handling takes {_seconds(handling)}: without renewal, locks are lost "
            "and messages come twice",
            "Make the lock longer, or let a renewer or a worker renew it.",
        )


def _of_contents(entity: EntityFacts) -> Iterator[Finding]:
    away = [partition.number for partition in entity.partitions if not partition.available]
    if away:
        yield Finding(
            Severity.CRITICAL,
            entity.path,
            f"{len(away)} of {counted(len(entity.partitions), 'partition')} {'does' if len(away) == 1 else 'do'} not "
            f"answer: {', '.join(map(str, away[:8]))}",
            "Bring their servers back.",
        )
    if entity.status != "Active":
        yield Finding(
            Severity.NOTE, entity.path, f"its status is {entity.status}", "Set it to Active when it should work."
        )
    if dead := entity.total("dead_letter_message_count"):
        yield Finding(
            Severity.NOTE,
            entity.path,
            f"{counted(dead, 'message')} {'is' if dead == 1 else 'are'} on its dead-letter queue",
            f"Look at them: sbredis dlq report {entity.path}",
        )
    if stuck := entity.total("transfer_dead_letter_message_count"):
        yield Finding(
            Severity.WARNING,
            entity.path,
            f"{counted(stuck, 'message')} could not be moved to another entity (transfer dead-letter queue)",
            "Find out from their reason why, and redrive them.",
        )


def _of_size(entity: EntityFacts, *, moves_slots_whole: bool) -> Iterator[Finding]:
    sizes = [partition.size_in_bytes for partition in entity.partitions if entity.kind != "subscription"]
    size, limit = max(sizes, default=0), entity.max_size_in_bytes  # each partition has the limit
    if limit and size > NEARLY_FULL * limit:
        what = "it" if len(sizes) == 1 else "its fullest partition"
        yield Finding(
            Severity.CRITICAL if size > VERY_FULL * limit else Severity.WARNING,
            entity.path,
            f"{what} has used {size / limit:.0%} of its size: when it is full, sends are refused",
            "Receive faster, purge what is not needed, or raise max_size_in_megabytes.",
        )
    large = [partition.number for partition in entity.partitions if partition.size_in_bytes > _LARGE]
    if large and entity.kind != "subscription" and not moves_slots_whole:
        yield Finding(
            Severity.WARNING,
            entity.path,
            f"{len(large)} of its partitions have more than {_LARGE // 2**20:,} MB: moving their slots stops their "
            "server for seconds",
            "Empty them before you move slots, or use Valkey 9, which moves slots in the background.",
        )


def _of_maintenance(entities: Sequence[EntityFacts]) -> list[Finding]:
    waiting = [
        entity.path
        for entity in entities
        if entity.forwards
        or entity.removed_when_idle
        or entity.total("transfer_message_count")
        or (entity.kind == "topic" and entity.total("scheduled_message_count"))
    ]
    if not waiting:
        return []
    names = ", ".join(waiting[:5]) + (f" and {len(waiting) - 5} more" if len(waiting) > 5 else "")
    return [
        Finding(
            Severity.WARNING,
            "maintenance",
            f"no client does maintenance, and these entities need it: {names}",
            "Open a client with maintenance=True, run a worker, or run: sbredis maintain",
        )
    ]


def _seconds(time: timedelta) -> str:
    return f"{time.total_seconds():g} s"


# -- transactions ------------------------------------------------------------------------------------------------------


def findings_of_transaction(entities: Sequence[EntitySlots]) -> list[Finding]:
    """Return which of the entities that a transaction uses together are in other slots than the first one."""
    home, *others = entities
    found = [_apart(home, other) for other in others if other.slots != home.slots]
    if len(home.slots) > 1 and any(other.slots == home.slots for other in others):
        found.append(
            Finding(
                Severity.NOTE,
                ", ".join(each.path for each in entities if each.slots == home.slots),
                "they are in the same slots, and the key of a message decides in which one it is",
                "Give all messages of a transaction the same key: session_id or partition_key.",
            )
        )
    return found


def _apart(home: EntitySlots, other: EntitySlots) -> Finding:
    partitioned = len(home.slots) > 1
    form = "" if partitioned == (len(other.slots) > 1) else f", and {'with' if partitioned else 'without'} partitions"
    what = "it" if other.owner == other.path else f"its topic {other.owner}"
    return Finding(
        Severity.WARNING,
        other.path,
        f"it is not in the same slots as {home.path}: a transaction cannot settle messages of both, and a message that "
        "it sends from one to the other waits until a client with maintenance moves it",
        f"If this matters, create {what} again with colocate_with={home.owner!r}{form}.",
    )
