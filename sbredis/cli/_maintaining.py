"""``sbredis maintain`` and ``sbredis upgrade``: the work that keeps a namespace in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sbredis import operating
from sbredis.cli._commands import command
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._output import TableColumn
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError, ServiceBusError

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient
    from sbredis.maintenance import LibrariesOfMaster, LibraryState
    from sbredis.model import UnreadableEntity
    from sbredis.operating import Existing

__all__ = ["maintain", "upgrade"]

_COLUMNS = (TableColumn("name"), TableColumn("kind", 2), TableColumn("layout", 3), TableColumn("to_do", 1))
_COLUMNS_OF_LIBRARIES = (
    TableColumn("server", 2),
    *(TableColumn("name"), TableColumn("release", 1), TableColumn("last_named", 3), TableColumn("to_do", 1)),
)


@command("maintain", examples=["sbredis maintain", "sbredis maintain --context prod"])
async def maintain(invocation: Invocation) -> None:
    """Do background maintenance until Ctrl-C.

    It publishes messages that are scheduled on topics, moves messages that are forwarded or that a transaction sent to
    another entity, and deletes entities that were idle for too long. Several processes may do this: one works at a
    time, and another one takes over. A worker does this work too.
    """
    async with invocation.client(maintenance=True), invocation.administration() as administration:
        namespace = await administration.get_namespace_properties()
        invocation.out.remark(
            f"maintaining namespace {namespace.name} of {invocation.server}: publishing scheduled messages of topics, "
            "moving messages, deleting idle entities. Ctrl-C ends it."
        )
        await asyncio.Event().wait()


@command("upgrade", examples=["sbredis upgrade --plan", "sbredis upgrade"])
@click.option("--plan", "plan_only", is_flag=True, help="Only show what there is to do. Exit code 3: there is some.")
async def upgrade(invocation: Invocation, *, plan_only: bool) -> int:
    """Show the layout of the stored data and the libraries, and finish what was interrupted.

    The namespace, each entity and each of its partitions name the layout in which their data are stored. A release
    refuses data in a layout that it does not know. Creations and deletions that were interrupted are completed.

    A server has the scripts of a release as a library of functions. The library of this release is loaded on each
    master that lacks it, so that users who may not load it can call it. A library of another release is deleted if no
    client of the namespace has named it for seven days, but only while more than four are on the master. If the user
    lacks a right, the command says so and does the rest.
    """
    from sbredis.client import connection_of
    from sbredis.engine import whole_library
    from sbredis.maintenance import examine_libraries
    from sbredis.registry import LAYOUT

    async with invocation.administration(library=False) as administration:
        connection = connection_of(administration)
        rows = [await _namespace_row(administration, connection.target.namespace)]
        masters: list[LibrariesOfMaster] = []
        if rows[0]["error"] is None:
            rows += await _entity_rows(administration)
            if invocation.server.takes_library:
                masters = await examine_libraries(connection, whole_library())
        left = [row for row in rows if row["to_do"]]
        refused: list[str] = []
        if not plan_only:
            for row in left:
                await _finish(administration, row)
            refused = [each for master in masters async for each in _refusals(master)]
    libraries = [_library_row(master, state) for master in masters for state in master.libraries]
    left += [row for row in libraries if row["to_do"]]
    _print(invocation, rows, libraries)
    unreadable = [row for row in rows if row["error"] is not None]
    for row in unreadable:
        invocation.out.remark(f"{row['name']} cannot be read: {row['error']}")
    for master in masters:
        if master.error is not None:
            invocation.out.remark(
                f"the libraries of functions on {master.server} are not shown: {master.error.message}"
            )
    for refusal in refused:
        invocation.out.remark(refusal)
    what = f"this release reads and writes layout {LAYOUT}"
    invocation.out.remark(what if left or unreadable else f"nothing to do: {what}")
    if unreadable:
        return ExitCode.FAILED
    if left and not plan_only:
        invocation.out.remark(f"done: {len(left) - len(refused)}")
    return ExitCode.DIFFERENT if left and plan_only else ExitCode.DONE


def _print(invocation: Invocation, rows: Sequence[dict[str, Any]], libraries: Sequence[dict[str, Any]]) -> None:
    shown = [{column.name: row[column.name] for column in _COLUMNS} for row in rows]
    if invocation.out.as_json:
        invocation.out.json([*shown, *libraries])
        return
    invocation.out.table(_COLUMNS, shown)
    if libraries:
        invocation.out.line("")
        invocation.out.table(_COLUMNS_OF_LIBRARIES, libraries)


def _library_row(master: LibrariesOfMaster, state: LibraryState) -> dict[str, Any]:
    named = None if state.named_at is None else datetime.fromtimestamp(state.named_at / 1000, UTC)
    to_do = None if state.to_do is None else f"{state.to_do} it"
    release = "this" if state.own else "other"
    facts = {"name": state.name, "kind": "library", "layout": None, "to_do": to_do}
    return {**facts, "server": str(master.server), "release": release, "last_named": named}


async def _refusals(master: LibrariesOfMaster) -> AsyncIterator[str]:
    """Do what there is to do about the libraries of a master, and yield what the server has refused."""
    for state in master.libraries:
        try:
            await master.carry_out(state)
        except ServiceBusError as error:
            yield f"could not {state.to_do} {state.name} on {master.server}: {error.message}"


async def _namespace_row(administration: ServiceBusAdministrationClient, name: str) -> dict[str, Any]:
    """Read the namespace. If it has a layout that this release cannot read, the row has the error."""
    from sbredis.registry import LAYOUT

    error = None
    try:
        await administration.get_namespace_properties()
    except DataLayoutError as refusal:
        error = refusal.message
    layout = LAYOUT if error is None else None
    return {"name": name, "kind": "namespace", "layout": layout, "to_do": None, "error": error, "entity": None}


async def _entity_rows(administration: ServiceBusAdministrationClient) -> list[dict[str, Any]]:
    """Return the rows of all entities, and those of the rules that cannot be read."""
    rows = [await _row(administration, each) for each in await operating.existing_in(administration, rules=False)]
    known = {row["name"].lower() for row in rows}
    listed = [each async for each in administration.list_unreadable_entities()]
    return rows + [_unreadable_row(each) for each in listed if each.path.lower() not in known]


async def _row(administration: ServiceBusAdministrationClient, entity: Existing) -> dict[str, Any]:
    """Read an entity and its partitions. If this release cannot read one of them, the row has the error."""
    from sbredis.model import EntityStatus
    from sbredis.registry import LAYOUT

    half_done = {EntityStatus.CREATING: "finish its creation", EntityStatus.DELETING: "finish its deletion"}
    to_do, error = None, None
    try:
        found = await entity.kind.call(administration, "get")(*entity.names)
        to_do = half_done.get(found.status)
        if to_do is None:
            _ = [each async for each in administration.list_partitions(entity.path)]
    except DataLayoutError as refusal:
        error = refusal
    layout = LAYOUT if error is None else None
    facts = {"name": entity.path, "kind": entity.kind.word, "layout": layout, "to_do": to_do, "error": error}
    return {**facts, "entity": entity}


def _unreadable_row(entity: UnreadableEntity) -> dict[str, Any]:
    """Return the row of an entity or a rule that lists leave out."""
    kind = "rule" if "/rules/" in entity.path else "subscription" if "/subscriptions/" in entity.path else None
    facts = {"name": entity.path, "kind": kind, "layout": entity.layout, "to_do": None, "error": entity.reason}
    return {**facts, "entity": None}


async def _finish(administration: ServiceBusAdministrationClient, row: dict[str, Any]) -> None:
    """Name the entity in a call, which continues what was interrupted."""
    entity: Existing = row["entity"]
    try:
        await entity.kind.call(administration, "get", of="_runtime_properties")(*entity.names)
    except MessagingEntityNotFoundError:
        return  # its deletion is complete
