"""``sbredis apply`` and ``sbredis export``: a file declares the entities of a namespace."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbredis import operating
from sbredis._counting import counted
from sbredis.cli._commands import command, wrong_arguments
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._stopping import Stop, to_a_good_end

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["apply", "export"]


@command("apply", examples=[
    "sbredis apply bus.yaml",
    "sbredis apply bus.yaml --plan",
    "sbredis apply bus.yaml --prune --yes",
    "sbredis export | sbredis apply - --context staging",
])  # fmt: skip
@click.argument("file", type=click.Path(allow_dash=True, dir_okay=False))
@click.option(
    "--plan", "plan_only", is_flag=True, help="Show the difference, and change nothing. Exit code 3: there is one."
)
@click.option("--prune", is_flag=True, help="Delete what the file does not declare, but nothing that holds messages.")
@click.option("--prune-nonempty", is_flag=True, help="With --prune, delete entities with messages too.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before something is deleted.")
async def apply(
    invocation: Invocation, file: str, *, plan_only: bool, prune: bool, prune_nonempty: bool, yes: bool
) -> int:
    """Create and update the entities that a file declares.

    FILE is YAML, or the JSON configuration of Azure's Service Bus emulator; '-' reads stdin. Properties that the file
    does not name stay as they are. Nothing is changed unless the whole plan is legal. Entities with 'protected: true'
    are never deleted. In a protected context you type what is deleted: the name of one entity, or 'delete 3' for three.
    """
    if prune_nonempty and not prune:
        raise click.UsageError("--prune-nonempty needs --prune.")
    name = "stdin" if file == "-" else file
    text = _text(file)
    try:
        declared = operating.read_declarations(text, name, invocation.server.namespace)
        async with invocation.administration() as administration:
            existing = await operating.existing_in(administration)
            await _require_readable(administration, declared)
            held = await operating.held_in(administration, operating.undeclared(declared, existing)) if prune else {}
            slots = (await administration.get_namespace_properties()).slot_count
            plan = operating.make_plan(
                name, declared, existing, prune=prune, prune_nonempty=prune_nonempty, held=held, slots=slots
            )
            _print(invocation, plan, done=plan_only or not plan.steps)
            if plan_only or not plan.steps:
                return ExitCode.DIFFERENT if plan.steps else ExitCode.DONE
            if deleted := [step.path for step in plan.steps if step.action == "delete"]:
                typed = deleted[0] if len(deleted) == 1 else f"delete {len(deleted)}"
                invocation.confirm(f"Carry out {operating.plan_summary(plan)}?", typed=typed, yes=yes)
            with wrong_arguments():
                await _carry_out(administration, plan, sparing=not prune_nonempty)
    except operating.MistakesError as error:
        invocation.out.remark(f"{error}\nnothing was changed")
        return ExitCode.USAGE
    count = len(plan.steps)
    invocation.out.done(
        f"applied {count} change{'' if count == 1 else 's'}", **operating.plan_json(plan), applied=count
    )
    return ExitCode.DONE


@command("export", examples=[
    "sbredis export > bus.yaml",
    "sbredis export --file bus.yaml --defaults",
    "sbredis export --output json | jq .queues",
])  # fmt: skip
@click.option("--file", type=click.Path(dir_okay=False), help="Write the file, and replace it if it exists.")
@click.option("--defaults", is_flag=True, help="Write also the properties that have their default values.")
async def export(invocation: Invocation, file: str | None, defaults: bool) -> int:
    """Write a file that declares the entities of the namespace, for 'sbredis apply'.

    It is YAML, or JSON with --output json. Messages are not in it; 'sbredis dump' writes them. If the record of an
    entity cannot be read, the file does not have it, and the exit code is 1.
    """
    async with invocation.administration() as administration:
        existing = await operating.existing_in(administration)
        unreadable = [each async for each in administration.list_unreadable_entities()]
    code = ExitCode.FAILED if unreadable else ExitCode.DONE
    text = operating.export_text(existing, defaults=defaults, as_json=invocation.out.as_json)
    if file is None:
        invocation.out.text(text)
    else:
        _write(file, text)
        entities = sum(each.kind is not operating.RULE for each in existing)
        invocation.out.done(f"{file}: {counted(entities, 'entity', 'entities')}", file=file, entities=entities)
    for each in unreadable:
        invocation.out.remark(f"{each.path} is not in the file, because its record cannot be read: {each.reason}")
    return code


async def _require_readable(
    administration: ServiceBusAdministrationClient, declared: Iterable[operating.DeclaredEntity]
) -> None:
    """Refuse a file that declares an entity whose record cannot be read, before anything is changed."""
    unreadable = {each.path: each async for each in administration.list_unreadable_entities()}
    for each in declared:
        found = unreadable.get(operating.path_of(each.names).lower())
        if found is not None:
            raise click.ClickException(
                f"{found.path} cannot be created or updated, because its record cannot be read: {found.reason}. "
                "'sbredis doctor' says what to do. Nothing was changed."
            )


def _print(invocation: Invocation, plan: operating.ChangePlan, *, done: bool) -> None:
    if not invocation.out.as_json:
        for line in operating.plan_lines(plan):
            invocation.out.line(line)
    elif done:
        invocation.out.json({**operating.plan_json(plan), "applied": 0})


async def _carry_out(
    administration: ServiceBusAdministrationClient, plan: operating.ChangePlan, *, sparing: bool
) -> None:
    """Do the steps. An interruption ends the work between two of them, and says how many were done."""

    async def steps(stop: Stop) -> None:
        for step in plan.steps:
            if stop:
                return
            if step.action == "delete" and sparing:
                held = await operating.messages_in(administration, step.kind, step.names)
                if held.number != 0:
                    raise click.ClickException(
                        f"{step.kind.word} {step.path} was empty when the plan was made, and has now {held}, so it was "
                        "not deleted. Apply the file again."
                    )
            await _do(administration, step)
            progress.add()

    with ProgressCounter("applied", "change", len(plan.steps)) as progress:
        await to_a_good_end(steps)


async def _do(administration: ServiceBusAdministrationClient, step: operating.PlanStep) -> None:
    from sbredis.model import RuleProperties

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


def _text(file: str) -> str:
    """Return the content of the file, or of stdin. A file that is longer than allowed is not read to its end."""
    try:
        if file == "-":
            return sys.stdin.read(operating.LONGEST_FILE + 1)
        with Path(file).open(encoding="utf-8") as stream:
            return stream.read(operating.LONGEST_FILE + 1)
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
