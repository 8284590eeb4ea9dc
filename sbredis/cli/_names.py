"""The names of entities for the completion of a shell: quick, and silent if there is no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from sbredis.cli._invocation import Invocation, Settings

if TYPE_CHECKING:
    from sbredis.operating import EntityKind

__all__ = ["entity_names", "names_of"]

_PATIENCE = 2.0  # seconds that a server has for its answer

Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def entity_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the path of a queue, a topic or a subscription."""
    del parameter
    return _matching(ctx, incomplete, _all_paths)


def names_of(kind: EntityKind) -> Completion:
    """Return the completion of the names in the arguments of a command for this kind of entity."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from sbredis.operating import SUBSCRIPTION, TOPIC

        words = kind.arguments
        at = words.index(parameter.name or "name")
        before = tuple(str(ctx.params.get(word) or "") for word in words[:at])
        listed = kind if at == len(kind.parents) else (TOPIC, SUBSCRIPTION)[at]

        async def names(invocation: Invocation) -> list[str]:
            async with invocation.administration() as administration:
                return [each.name async for each in listed.call(administration, "list")(*before)]

        return _matching(ctx, incomplete, names)

    return complete


async def _all_paths(invocation: Invocation) -> list[str]:
    async with invocation.administration() as administration:
        found = [each.name async for each in administration.list_queues()]
        async for topic in administration.list_topics():
            found.append(topic.name)
            async for each in administration.list_subscriptions(topic.name):
                found.append(f"{topic.name}/subscriptions/{each.name}")  # noqa: PERF401 -- an async iterator
        return found


def _matching(ctx: click.Context, incomplete: str, names: Callable[[Invocation], Any]) -> list[str]:
    async def within_time(invocation: Invocation) -> list[str]:
        async with asyncio.timeout(_PATIENCE):
            found: list[str] = await names(invocation)
            return found

    options, program = ctx.params, ctx.find_root().params
    settings = {name: options.get(f"common_{name}") or program.get(f"common_{name}") for name in Settings.NAMES}
    if settings["url"] == "-":  # the connection string would be read from the terminal
        return []
    try:
        import_module("sbredis.aio.management")  # before the time begins
        found = asyncio.run(within_time(Invocation(Settings(**settings))))
    except Exception:  # noqa: BLE001 -- there is nobody to tell
        return []
    return [name for name in found if name.lower().startswith(incomplete.lower())]
