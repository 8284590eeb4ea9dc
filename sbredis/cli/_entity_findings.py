"""The rules of ``sbredis doctor`` for entities: what can lose messages, delay them, or surprise. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sbredis._counting import counted
from sbredis.cli._findings import NEARLY_FULL, VERY_FULL, Finding, Severity

if TYPE_CHECKING:
    from sbredis.model import PartitionRuntimeProperties, ReservationStatus, UnreadableEntity

__all__ = ["EntityFacts", "findings_of_entities"]

_LARGE = 16 * 100 * 1024 * 1024
"""The bytes of a partition from which a hash of it may take over a second to move: it has 16 hashes of records."""
_MARGIN = 2
"""A lock should last this many times as long as a handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFacts:
    """What the rules need to know of a queue, topic or subscription."""

    path: str
    kind: str
    status: str = "Active"
    lock_duration: timedelta | None = None
    time_to_live: timedelta | None = None
    max_size_in_bytes: int | None = None
    forwards: bool = False
    removed_when_idle: bool = False
    partitions: tuple[PartitionRuntimeProperties, ...] = ()

    def total(self, field: str) -> int:
        """Return the sum of a count over the partitions."""
        return sum(getattr(partition, field) for partition in self.partitions)


def findings_of_entities(
    entities: Sequence[EntityFacts],
    *,
    maintained: bool,
    unreadable: Sequence[UnreadableEntity] = (),
    reservations: Sequence[ReservationStatus] = (),
    release_command: Callable[[str], str] = lambda path: shlex.join(["sbredis", "spark", "release", path]),
    handling: timedelta | None = None,
    moves_slots_whole: bool = False,
) -> list[Finding]:
    """Return what is wrong with the entities of a namespace.

    ``unreadable`` are the entities whose records cannot be read. ``release_command`` returns the command that ends the
    reservation of an entity. ``handling`` is how long handlers take. ``moves_slots_whole`` says that the servers move a
    slot as one change.
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
    size = entity.total("size_in_bytes") if entity.kind != "subscription" else 0
    limit = entity.max_size_in_bytes
    if limit and size > NEARLY_FULL * limit:
        yield Finding(
            Severity.CRITICAL if size > VERY_FULL * limit else Severity.WARNING,
            entity.path,
            f"it has used {size / limit:.0%} of its size: when it is full, sends are refused",
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
