"""The work of ``sbredis upgrade``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._fitting import TableColumn
from sbredis.cli._invocation import Invocation
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError
from sbredis.model import EntityStatus
from sbredis.operating import QUEUE, SUBSCRIPTION, TOPIC, EntityKind, Names, path_of
from sbredis.registry import LAYOUT

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient
    from sbredis.model import UnreadableEntity

__all__ = ["upgrade_entities"]

_HALF_DONE = {EntityStatus.CREATING: "finish its creation", EntityStatus.DELETING: "finish its deletion"}


async def upgrade_entities(invocation: Invocation, *, plan_only: bool) -> int:
    """Show the layout of each entity, and finish what was interrupted. Return the exit code."""
    async with invocation.administration() as administration:
        rows = [await _row(administration, kind, names) for kind, names in await _entities(administration)]
        known = {row["name"].lower() for row in rows}
        listed = [each async for each in administration.list_unreadable_entities()]
        rows += [_unreadable_row(each) for each in listed if each.path.lower() not in known]
        left = [row for row in rows if row["to_do"]]
        if not plan_only:
            for row in left:
                await _finish(administration, row)
    shown = [{name: row[name] for name in ("name", "kind", "layout", "to_do")} for row in rows]
    columns = [TableColumn("name"), TableColumn("kind", 2), TableColumn("layout", 3), TableColumn("to_do", 1)]
    invocation.out.table(columns, shown, empty="no entities")
    unreadable = [row for row in rows if row["error"] is not None]
    for row in unreadable:
        invocation.out.remark(f"{row['name']} cannot be read: {row['error']}")
    if unreadable:
        return ExitCode.FAILED
    if not left:
        invocation.out.remark(f"nothing to do: this release reads and writes layout {LAYOUT}")
    elif not plan_only:
        invocation.out.remark(f"done: {len(left)}")
    return ExitCode.DIFFERENT if left and plan_only else ExitCode.DONE


async def _entities(administration: ServiceBusAdministrationClient) -> list[tuple[EntityKind, Names]]:
    found: list[tuple[EntityKind, Names]] = [(QUEUE, (each.name,)) async for each in administration.list_queues()]
    topics = [each.name async for each in administration.list_topics()]
    for topic in topics:
        found.append((TOPIC, (topic,)))
        found += [(SUBSCRIPTION, (topic, each.name)) async for each in administration.list_subscriptions(topic)]
    return found


async def _row(administration: ServiceBusAdministrationClient, kind: EntityKind, names: Names) -> dict[str, Any]:
    """Read an entity and its partitions. If this release cannot read one of them, the row has the error."""
    to_do, error = None, None
    try:
        found = await kind.call(administration, "get")(*names)
        to_do = _HALF_DONE.get(found.status)
        if to_do is None:
            _ = [each async for each in administration.list_partitions(path_of(names))]
    except DataLayoutError as refusal:
        error = refusal
    layout = LAYOUT if error is None else None
    facts = {"name": path_of(names), "kind": kind.word, "layout": layout, "to_do": to_do, "error": error}
    return {**facts, "names": names, "of": kind}


def _unreadable_row(entity: UnreadableEntity) -> dict[str, Any]:
    """Return the row of an entity or a rule that lists leave out."""
    kind = "rule" if "/rules/" in entity.path else "subscription" if "/subscriptions/" in entity.path else None
    facts = {"name": entity.path, "kind": kind, "layout": entity.layout, "to_do": None, "error": entity.reason}
    return {**facts, "names": (), "of": None}


async def _finish(administration: ServiceBusAdministrationClient, row: dict[str, Any]) -> None:
    """Name the entity in a call, which continues what was interrupted."""
    kind: EntityKind = row["of"]
    try:
        await kind.call(administration, "get", of="_runtime_properties")(*row["names"])
    except MessagingEntityNotFoundError:
        return  # its deletion is complete
