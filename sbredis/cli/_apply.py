"""``sbredis apply`` and ``sbredis export``: a file declares the entities of a namespace."""

from __future__ import annotations

import click

from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation

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
    from sbredis.cli._applying import apply_file  # it needs YAML and all properties, which help does not

    return await apply_file(invocation, file, plan_only=plan_only, prune=prune, prune_nonempty=prune_nonempty, yes=yes)


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
    from sbredis.cli._applying import export_file

    return await export_file(invocation, file, defaults=defaults)
