"""``sbredis maintain`` and ``sbredis upgrade``: the work that keeps a namespace in order."""

from __future__ import annotations

import asyncio

import click

from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation

__all__ = ["maintain", "upgrade"]


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
    """Show the layout of the stored data, and finish what was interrupted.

    Each entity and each of its partitions name the layout in which their data are stored. A release refuses data in a
    layout that it does not know. Creations and deletions that were interrupted are completed.
    """
    from sbredis.cli._upgrading import upgrade_entities

    return await upgrade_entities(invocation, plan_only=plan_only)
