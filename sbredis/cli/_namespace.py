"""``sbredis namespace``: the namespace itself, and its limits."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sbredis._arguments import ParamType
from sbredis.cli._commands import command, group
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import WholeRange

if TYPE_CHECKING:
    from sbredis.model import NamespaceProperties

__all__ = ["namespaces"]

_NO_LIMIT = "none"
_SHOWN = (
    *("name", "created_at_utc", "slot_count", "entity_count", "max_entities"),
    *("size_in_megabytes", "max_size_in_megabytes", "availability_status", "unreachable_slots"),
)

namespaces = group(
    "namespace",
    "Show the namespace, and limit its entities.",
    examples=["sbredis namespace show", "sbredis namespace limit --max-entities 1000"],
)


class _Limit(NamedTuple):
    """A limit that an option has; ``None`` is no limit, and not an option that was left out."""

    value: int | None


class _LimitType(ParamType):
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Limit:
        """Read a number, or the word for no limit."""
        if isinstance(value, _Limit):
            return value
        if value == _NO_LIMIT:
            return _Limit(None)
        try:
            return _Limit(WholeRange(min=0, max=999_999_999_999).convert(value, param, ctx))
        except click.BadParameter as error:
            self.fail(f"{error.message.rstrip('.')}, and not '{_NO_LIMIT}'", param, ctx)


@command("show", into=namespaces, examples=["sbredis namespace show", "sbredis namespace show --output json"])
async def show(invocation: Invocation) -> None:
    """Show the namespace: its slots, the number and the size of its entities, and their limits."""
    async with invocation.administration() as administration:
        _print(invocation, await administration.get_namespace_properties())


@command("limit", into=namespaces, examples=[
    "sbredis namespace limit --max-entities 1000 --max-size-in-megabytes 100000",
    "sbredis namespace limit --max-entities none",
])  # fmt: skip
@click.option("--max-entities", type=_LimitType(), help="The largest number of queues, topics and subscriptions.")
@click.option(
    "--max-size-in-megabytes",
    type=_LimitType(),
    help="The largest sum of the sizes of queues and topics, each counted once for each of its partitions.",
)
async def limit(invocation: Invocation, *, max_entities: _Limit | None, max_size_in_megabytes: _Limit | None) -> None:
    """Limit the number of the entities of the namespace, and the size that they may have together.

    A limit is a number, or 'none'. An option that is left out changes nothing. Entities that exist are kept, even if
    they are more than the limit. A limit protects against mistakes: a user who may create entities can change it.
    """
    if max_entities is None and max_size_in_megabytes is None:
        raise click.UsageError("name a limit: --max-entities, --max-size-in-megabytes, or both")
    async with invocation.administration() as administration:
        before = await administration.get_namespace_properties()
        after = await administration.set_namespace_limits(
            max_entities=before.max_entities if max_entities is None else max_entities.value,
            max_size_in_megabytes=(
                before.max_size_in_megabytes if max_size_in_megabytes is None else max_size_in_megabytes.value
            ),
        )
        _print(invocation, after)


def _print(invocation: Invocation, namespace: NamespaceProperties) -> None:
    facts = asdict(namespace)
    invocation.out.record({name: facts[name] for name in _SHOWN})
