"""``sbredis move``: messages from one entity to another, none of them lost and none of them twice."""

from __future__ import annotations

import click

from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import WholeRange, entity_argument
from sbredis.operating import names_dead_letters

__all__ = ["move"]


@command("move", examples=[
    "sbredis move orders orders-old --dry-run",
    "sbredis move orders express --filter \"express = TRUE\"",
    "sbredis move 'orders/$DeadLetterQueue' orders-to-check",
])  # fmt: skip
@entity_argument("source")
@entity_argument("destination")
@click.option("--filter", "text", metavar="SQL", help="Only messages that match this filter.")
@click.option("--count", type=WholeRange(1), metavar="N", help="Move N messages at most.")
@click.option("--dry-run", is_flag=True, help="Only count the messages.")
async def move(
    invocation: Invocation, *, source: str, destination: str, text: str | None, count: int | None, dry_run: bool
) -> int | None:
    """Move messages to another queue or topic.

    None of them is lost, and none is there twice. They keep their contents, their ids and the end of their life. They
    get new numbers, and their deliveries are counted from the beginning. Deferred messages become active. Scheduled
    messages, messages that receivers hold, and messages that come after the start stay. In a partitioned destination,
    messages without a key get a partition key.
    """
    from sbredis.moving import condition_of

    matches = None if text is None else condition_of(text)
    if names_dead_letters(destination):
        raise click.UsageError("Messages cannot be moved to a dead-letter queue.")
    if names_dead_letters(source):
        if count is not None:
            raise click.UsageError("--count is not for dead letters. See 'sbredis dlq redrive', which takes numbers.")
        from sbredis.cli._dlq import move_dead_letters

        return await move_dead_letters(invocation, source, destination, text, dry_run=dry_run)
    from sbredis.cli._moving import move_messages

    return await move_messages(invocation, source, destination, matches, count, dry_run=dry_run)
