"""The types of options and arguments that several commands have, and how a shell completes the names of entities.

Completion is quick, and silent if there is no answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from sbredis import operating
from sbredis._arguments import CheckedType, ParamType
from sbredis.cli._invocation import Invocation, Settings
from sbredis.operating import duration_of

__all__ = [
    "DURATION",
    "MOMENT",
    "PROPERTY",
    "RULE_VALUE",
    "NumberRange",
    "WholeRange",
    "confirmed",
    "dead_letters",
    "entity_argument",
    "entity_names",
    "existing_file",
    "names_of",
]

F = TypeVar("F", bound=Callable[..., Any])
_PATIENCE = 2.0  # seconds that a server has for its answer

Completion = Callable[[click.Context, click.Parameter, str], list[str]]

if TYPE_CHECKING:
    from sbredis.operating import EntityKind


class WholeRange(click.IntRange):
    """A range of whole numbers. A refusal speaks of a whole number, and not of an 'integer range'."""

    name = "whole number"


class NumberRange(click.FloatRange):
    """Numbers of a range, with fractions."""

    name = "number"


class _TimeType(ParamType):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        try:
            return datetime.now(UTC) + duration_of(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time: write '10m' for in ten minutes, or '2030-01-31T12:00Z'", param, ctx)


class _PropertyType(ParamType):
    name = "property"

    def __init__(self, *, of_rule: bool = False) -> None:
        self.of_rule = of_rule

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return cast("tuple[str, Any]", value)
        name, sign, text = str(value).partition("=")
        if not sign or not name.removesuffix(":"):
            self.fail(f"{value!r} is not a property: write name=text, or name:=JSON as in size:=3", param, ctx)
        if not name.endswith(":"):
            return name, text
        from sbredis.operating import from_json, rule_value_from_json

        try:
            return name[:-1], (rule_value_from_json if self.of_rule else from_json)(json.loads(text))
        except (OverflowError, RecursionError, ValueError) as error:
            self.fail(f"{value!r}: the value behind ':=' must be JSON: {error}", param, ctx)


DURATION: Any = CheckedType("duration", duration_of)
"""``90s``, ``5m``, ``1h30m``, ``0.5`` (seconds), or ISO 8601: a timedelta."""
MOMENT: Any = _TimeType()
"""A time in ISO 8601, in UTC unless it has an offset, or a duration from now on: a datetime."""
PROPERTY: Any = _PropertyType()
"""``name=text``, or ``name:=JSON`` for a number, a truth value or null: a name and a value."""
RULE_VALUE: Any = _PropertyType(of_rule=True)
"""The same for a value of a rule, which can also be a duration: ``age:={"$duration": "5m"}``."""
existing_file = click.Path(exists=True, dir_okay=False, readable=True)


dead_letters = click.option("--dead-letters", is_flag=True, help="Work on the dead-letter queue of the entity.")


def confirmed(function: F) -> F:
    """Add the options of a command that destroys something: ``--dry-run`` and ``--yes``."""
    yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    return click.option("--dry-run", is_flag=True, help="Only say what would be done.")(yes(function))


def entity_argument(name: str = "entity") -> Callable[[F], F]:
    """Add the argument that names an entity."""
    return click.argument(name, metavar=name.upper(), shell_complete=entity_names)


# -- completion --------------------------------------------------------------------------------------------------------


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
        existing, _ = await operating.readable_in(administration, rules=False)
        return [each.path for each in existing]


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
