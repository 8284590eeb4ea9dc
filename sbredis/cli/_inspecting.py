"""What ``show`` finds out about an entity, and how it is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sbredis.cli._fitting import TableColumn
from sbredis.cli._kinds import QUEUE, RULE, SUBSCRIPTION, EntityKind, Names, path_of
from sbredis.cli._output import Output
from sbredis.cli._values import written
from sbredis.model import Described, PartitionRuntimeProperties

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["inspect_entity", "print_entity"]

STATES = ("active", "locked", "delayed", "deferred", "scheduled", "transfer", "dead_letter", "transfer_dead_letter")

_COLUMNS = (
    TableColumn("partition"),
    TableColumn("server", 12),
    TableColumn("active", 1),
    TableColumn("locked", 3),
    TableColumn("delayed", 6),
    TableColumn("deferred", 5),
    TableColumn("scheduled", 4),
    TableColumn("transfer", 7),
    TableColumn("dead_letter", 2),
    TableColumn("transfer_dead_letter", 8),
    TableColumn("bytes", 11),
    TableColumn("oldest", 9),
    TableColumn("waiting_receivers", 10),
)


async def inspect_entity(
    administration: ServiceBusAdministrationClient, kind: EntityKind, entity: Names
) -> dict[str, Any]:
    """Return what is known about an entity, as it is printed in JSON."""
    properties: Described = await kind.call(administration, "get")(*entity)
    path = path_of((*entity[:-1], properties.name))
    found: dict[str, Any] = {
        "kind": kind.word,
        "name": path,
        "properties": {name: written(value) for name, value in properties.items() if name != "name"},
    }
    if kind is RULE:
        return found
    partitions = [each async for each in administration.list_partitions(path)]
    found |= summed(partitions, datetime.now(UTC), sessions=properties.get("requires_session", False))
    if kind in (QUEUE, SUBSCRIPTION):
        found["reservation"] = await _reservation(administration, path)
    found["partitions"] = [_row(each, datetime.now(UTC)) for each in partitions]
    return found


def summed(partitions: Sequence[PartitionRuntimeProperties], now: datetime, *, sessions: bool) -> dict[str, Any]:
    """Return the sums over the partitions, and the age of the oldest message."""
    ages = [_age(each, now) for each in partitions if each.oldest_enqueued_at_utc is not None]
    found: dict[str, Any] = {
        "messages": {state: sum(getattr(each, f"{state}_message_count") for each in partitions) for state in STATES},
        "size_in_bytes": sum(each.size_in_bytes for each in partitions),
        "age_of_the_oldest_message": max(filter(None, ages), default=None),
        "waiting_receivers": sum(each.waiting_receiver_count for each in partitions),
    }
    if sessions:
        found["sessions"] = {
            "waiting": sum(each.waiting_session_count for each in partitions),
            "locked": sum(each.locked_session_count for each in partitions),
        }
    found["partitions_without_an_answer"] = [each.number for each in partitions if not each.available]
    return found


def _age(partition: PartitionRuntimeProperties, now: datetime) -> timedelta | None:
    oldest = partition.oldest_enqueued_at_utc
    return None if oldest is None else max(now - oldest, timedelta())


def _row(partition: PartitionRuntimeProperties, now: datetime) -> dict[str, Any]:
    return {
        "partition": partition.number,
        "server": partition.server,
        **{state: getattr(partition, f"{state}_message_count") for state in STATES},
        "bytes": partition.size_in_bytes,
        "oldest": _age(partition, now),
        "waiting_receivers": partition.waiting_receiver_count,
    }


async def _reservation(administration: ServiceBusAdministrationClient, path: str) -> dict[str, Any] | None:
    shown = ("consumer", "owner", "since", "last_seen", "state", "stale")
    found = [each async for each in administration.list_reservations(entity_path=path)]
    return {name: getattr(found[0], name) for name in shown} if found else None


def print_entity(out: Output, found: Mapping[str, Any]) -> None:
    """Print what :func:`inspect_entity` has found."""
    if out.as_json:
        out.json(found)
        return
    out.line(f"{found['kind']} {found['name']}")
    groups: dict[str, dict[str, Any]] = {name: value for name, value in found.items() if isinstance(value, dict)}
    facts = {name: value for name, value in found.items() if not isinstance(value, dict | list)}
    groups["use"] = {name: value for name, value in facts.items() if name not in {"kind", "name"}}
    for title, group in groups.items():
        if group:
            out.line(f"\n{title}")
            out.record({f"  {name}": value for name, value in group.items()})
    if partitions := found.get("partitions"):
        used = [state for state in STATES if state == "active" or found["messages"][state]]
        out.line("")
        out.table([each for each in _COLUMNS if each.name not in STATES or each.name in used], partitions)
    if lost := found.get("partitions_without_an_answer"):
        out.remark(f"these partitions do not answer, and are not counted: {', '.join(map(str, lost))}")
