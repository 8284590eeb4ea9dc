"""Carrying out what a file declares, and writing a file that declares what exists."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbredis._counting import counted
from sbredis.cli._declared import LONGEST, DeclaredEntity, Key, MistakesError, read_declarations
from sbredis.cli._entities import messages_in, wrong_arguments
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._exporting import export_text
from sbredis.cli._invocation import Invocation
from sbredis.cli._kinds import QUEUE, RULE, SUBSCRIPTION, TOPIC, EntityKind, Names, path_of
from sbredis.cli._plan_text import plan_json, plan_lines, plan_summary
from sbredis.cli._planning import ChangePlan, Existing, PlanStep, make_plan, undeclared
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.model import Described, RuleProperties

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["apply_file", "export_file"]


async def apply_file(
    invocation: Invocation, file: str, *, plan_only: bool, prune: bool, prune_nonempty: bool, yes: bool
) -> ExitCode:
    """Plan what the file declares, and carry it out. Return the exit code."""
    if prune_nonempty and not prune:
        raise click.UsageError("--prune-nonempty needs --prune.")
    name = "stdin" if file == "-" else file
    text = _text(file)
    try:
        declared = read_declarations(text, name, invocation.server.namespace)
        async with invocation.administration() as administration:
            existing = await _read(administration)
            await _require_readable(administration, declared)
            held = await _held(administration, undeclared(declared, existing)) if prune else {}
            plan = make_plan(name, declared, existing, prune=prune, prune_nonempty=prune_nonempty, held=held)
            _print(invocation, plan, done=plan_only or not plan.steps)
            if plan_only or not plan.steps:
                return ExitCode.DIFFERENT if plan.steps else ExitCode.DONE
            if deleted := [step.path for step in plan.steps if step.action == "delete"]:
                typed = deleted[0] if len(deleted) == 1 else f"delete {len(deleted)}"
                invocation.confirm(f"Carry out {plan_summary(plan)}?", typed=typed, yes=yes)
            with wrong_arguments():
                await _carry_out(administration, plan, sparing=not prune_nonempty)
    except MistakesError as error:
        invocation.out.remark(f"{error}\nnothing was changed")
        return ExitCode.USAGE
    count = len(plan.steps)
    invocation.out.done(f"applied {count} change{'' if count == 1 else 's'}", **plan_json(plan), applied=count)
    return ExitCode.DONE


async def _require_readable(administration: ServiceBusAdministrationClient, declared: Iterable[DeclaredEntity]) -> None:
    """Refuse a file that declares an entity whose record cannot be read, before anything is changed."""
    unreadable = {each.path: each async for each in administration.list_unreadable_entities()}
    for each in declared:
        found = unreadable.get(path_of(each.names).lower())
        if found is not None:
            raise click.ClickException(
                f"{found.path} cannot be created or updated, because its record cannot be read: {found.reason}. "
                "'sbredis doctor' says what to do. Nothing was changed."
            )


def _print(invocation: Invocation, plan: ChangePlan, *, done: bool) -> None:
    if not invocation.out.as_json:
        for line in plan_lines(plan):
            invocation.out.line(line)
    elif done:
        invocation.out.json({**plan_json(plan), "applied": 0})


async def _carry_out(administration: ServiceBusAdministrationClient, plan: ChangePlan, *, sparing: bool) -> None:
    """Do the steps. An interruption ends the work between two of them, and says how many were done."""

    async def steps(stop: Stop) -> None:
        for step in plan.steps:
            if stop:
                return
            if step.action == "delete" and sparing:
                held = await messages_in(administration, step.kind, step.names)
                if held.number != 0:
                    raise click.ClickException(
                        f"{step.kind.word} {step.path} was empty when the plan was made, and has now {held}, so it was "
                        "not deleted. Apply the file again."
                    )
            await _do(administration, step)
            progress.add()

    with ProgressCounter("applied", "change", len(plan.steps)) as progress:
        await to_a_good_end(steps)


async def _do(administration: ServiceBusAdministrationClient, step: PlanStep) -> None:
    call = step.kind.call(administration, step.action)
    if step.action == "delete":
        await call(*step.names)
    elif step.action == "update":
        await call(*step.names[:-1], {"name": step.names[-1]}, **step.values)
    elif step.rules is not None:
        rules = [RuleProperties(rule.names[-1], **rule.properties) for rule in step.rules]
        await call(*step.names, rules=rules, **step.values)
    else:
        await call(*step.names, **step.values)


async def export_file(invocation: Invocation, file: str | None, *, defaults: bool) -> ExitCode:
    """Write the entities of the namespace to the file, or to stdout. Return the exit code.

    It is not a success if some entities cannot be read, because the file then does not have them.
    """
    async with invocation.administration() as administration:
        existing = await _read(administration)
        unreadable = [each async for each in administration.list_unreadable_entities()]
    code = ExitCode.FAILED if unreadable else ExitCode.DONE
    text = export_text(existing, defaults=defaults, as_json=invocation.out.as_json)
    if file is None:
        invocation.out.text(text)
    else:
        _write(file, text)
        entities = sum(each.kind is not RULE for each in existing)
        invocation.out.done(f"{file}: {counted(entities, 'entity', 'entities')}", file=file, entities=entities)
    for each in unreadable:
        invocation.out.remark(f"{each.path} is not in the file, because its record cannot be read: {each.reason}")
    return code


def _text(file: str) -> str:
    """Return the content of the file, or of stdin. What is longer than a file may be is not read to its end."""
    try:
        if file == "-":
            return sys.stdin.read(LONGEST + 1)
        with Path(file).open(encoding="utf-8") as stream:
            return stream.read(LONGEST + 1)
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not text in UTF-8: {error.reason} at byte {error.start}.") from error


def _write(file: str, text: str) -> None:
    """Replace the file as a whole."""
    path = Path(file)
    made = path.with_name(f".{path.name}.new")
    try:
        made.write_text(text, "utf-8")
        made.replace(path)
    except OSError as error:
        error.filename = file  # the user knows nothing of the other name
        raise


async def _read(administration: ServiceBusAdministrationClient) -> list[Existing]:
    """Return all entities and rules of the namespace."""
    found: list[Existing] = []

    async def add(kind: EntityKind, parents: Names) -> list[Names]:
        listed: list[Described] = [each async for each in kind.call(administration, "list")(*parents)]
        new = [Existing(kind, (*parents, each.name), dict(each)) for each in listed]
        found.extend(new)
        return [each.names for each in new]

    await add(QUEUE, ())
    for topic in await add(TOPIC, ()):
        for subscription in await add(SUBSCRIPTION, topic):
            await add(RULE, subscription)
    return found


async def _held(administration: ServiceBusAdministrationClient, entities: Iterable[Existing]) -> dict[Key, int | None]:
    """Return the number of messages in each of these entities, or ``None`` if it may have some that do not answer."""
    found = {each.key: await messages_in(administration, each.kind, each.names) for each in entities}
    return {key: held.count or held.number for key, held in found.items()}
