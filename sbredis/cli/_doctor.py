"""``sbredis doctor``: examine the servers and the entities, and say what to do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from sbredis._counting import counted
from sbredis.cli._commands import command
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import DURATION, entity_names
from sbredis.cli._passing import release_command
from sbredis.cli._progress import ProgressCounter
from sbredis.exceptions import ServerUnsuitableError, ServiceBusError
from sbredis.operating import (
    EntitySlots,
    Finding,
    Severity,
    findings_of_entities,
    findings_of_servers,
    findings_of_transaction,
    form_of,
    gathered,
    read_entities,
    version_of,
)

if TYPE_CHECKING:
    from sbredis.aio import ConnectionReport, ServerReport

__all__ = ["doctor"]

_PATIENCE = 5.0
_LONGEST = 3 * _PATIENCE
"""The time-out of a call about entities: a list may wait for silent servers, and then reads on."""
_AT_ONCE = 16
"""The number of entities that are read at the same time."""
_CODES = {Severity.NOTE: ExitCode.DONE, Severity.WARNING: ExitCode.DIFFERENT, Severity.CRITICAL: ExitCode.CRITICAL}
_STYLES = {Severity.NOTE: "blue", Severity.WARNING: "yellow", Severity.CRITICAL: "red"}


@command("doctor", examples=[
    "sbredis doctor",
    "sbredis doctor --handling-time 20s --output json",
    "sbredis doctor --together orders --together invoices",
])  # fmt: skip
@click.option(
    "--handling-time", type=DURATION, metavar="TIME", help="How long your handlers take, to compare locks with it."
)
@click.option("--servers-only", is_flag=True, help="Examine the servers, and not the entities.")
@click.option(
    "--together",
    multiple=True,
    metavar="ENTITY",
    shell_complete=entity_names,
    help="An entity that a transaction uses. Shows which of them are in other slots than the first. Repeatable.",
)
async def doctor(
    invocation: Invocation, handling_time: timedelta | None, servers_only: bool, together: tuple[str, ...]
) -> ExitCode:
    """Examine the servers and the entities, and say what to do.

    Each finding is a note, a warning or critical. The exit code is 0 if there are only notes, 3 if there are warnings,
    and 4 if something is critical. It changes nothing, except that a namespace that does not exist yet is created.
    """
    from sbredis.aio import check_connection

    if len(together) == 1:
        raise click.UsageError("Name at least two entities with --together.")
    try:
        report = await check_connection(invocation.server.url, timeout=_PATIENCE, details=True)
    except ServerUnsuitableError as error:
        found = [Finding(Severity.CRITICAL, "server", error.message.rstrip("."), "Do what this says.")]
        return _show(invocation, found, None)
    found, slots = findings_of_servers(report), list[EntitySlots]()
    try:
        if not servers_only:
            found += await _of_entities(invocation, report, handling_time)
        slots = await _slots_of(invocation, together)
    except ServiceBusError as error:
        if not (report.away and error.is_transient):
            raise
        problem = f"its entities could not be examined: {error.message.rstrip('.')}"
        found.append(Finding(Severity.CRITICAL, "namespace", problem, "Examine again when all masters can be used."))
    return _show(invocation, found + findings_of_transaction(slots) if slots else found, report, slots)


async def _slots_of(invocation: Invocation, paths: Sequence[str]) -> list[EntitySlots]:
    async with invocation.administration(timeout=_LONGEST) as administration, invocation.looking_for(*paths):
        return [
            EntitySlots(path, tuple([partition.number async for partition in administration.list_partitions(path)]))
            for path in paths
        ]


async def _of_entities(invocation: Invocation, report: ConnectionReport, handling: timedelta | None) -> list[Finding]:
    from sbredis.registry import read_to_end

    async with invocation.administration(timeout=_LONGEST) as administration:
        with ProgressCounter("examined", "entity", plural="entities") as progress:
            progress.add(0)
            (entities, incomplete), (unreadable, _), (reservations, _) = await asyncio.gather(
                read_entities(administration, at_once=_AT_ONCE, told=progress.reach),
                read_to_end(administration.list_unreadable_entities()),
                read_to_end(administration.list_reservations()),
            )
        return findings_of_entities(
            entities,
            missing="" if incomplete is None else incomplete.message,
            unreadable=unreadable,
            maintained=await administration.has_maintenance(),
            reservations=reservations,
            release_command=partial(release_command, invocation),
            handling=handling,
            moves_slots_whole=all(
                server.facts.product == "valkey" and version_of(server.facts.version) >= (9,)
                for server in report.servers
            ),
        )


def _about(server: ServerReport, report: ConnectionReport) -> dict[str, str | None]:
    form, why = form_of(server, report)
    return {"scripts": form, "why": why or None, "allocator": server.info.get("mem_allocator")}


def _said(server: ServerReport, report: ConnectionReport) -> Iterator[str]:
    form, why = form_of(server, report)
    yield f"{server.round_trip * 1000:.2f} ms"
    if allocator := server.info.get("mem_allocator"):
        yield f"allocator {allocator}"
    yield "library of functions" if form == "library" else f"single scripts ({why})"


def _show(
    invocation: Invocation,
    found: Sequence[Finding],
    report: ConnectionReport | None,
    together: Sequence[EntitySlots] = (),
) -> ExitCode:
    """Print the findings, the worst first, and return the exit code."""
    found = gathered(found)
    worst = max((finding.severity for finding in found), default=Severity.NOTE)
    if invocation.out.as_json:
        servers = [] if report is None else [str(server.facts) for server in report.servers]
        away = [] if report is None else [str(endpoint) for endpoint in report.away]
        findings = [finding._asdict() | {"severity": finding.severity.name.lower()} for finding in found]
        about = {} if report is None else {str(server.facts): _about(server, report) for server in report.servers}
        slots = {"together": {each.path: each.slots for each in together}} if together else {}
        invocation.out.json({"servers": servers, "away": away, "about": about, **slots, "findings": findings})
        return _CODES[worst]
    if report is not None:
        for server in report.servers:
            invocation.out.line(f"{server.facts}: {', '.join(_said(server, report))}")
    for each in together:
        invocation.out.line(str(each))
    for finding in found:
        invocation.out.line("")
        invocation.out.headed(finding.severity.name.lower(), _STYLES[finding.severity], finding.subject)
        invocation.out.paragraph(f"{finding.problem[0].upper()}{finding.problem[1:]}.")
        advice, _, line = finding.advice.partition("\n")
        invocation.out.paragraph(f"→ {advice}")
        if line:  # a command must stay one line
            invocation.out.line(f"    {line}")
    counts = Counter(finding.severity for finding in found)
    invocation.out.line("")
    warnings, notes = counted(counts[Severity.WARNING], "warning"), counted(counts[Severity.NOTE], "note")
    invocation.out.line(f"{counts[Severity.CRITICAL]} critical, {warnings}, {notes}")
    return _CODES[worst]
