"""``sbredis dump`` and ``sbredis load``: messages as lines of JSON, and messages made from such lines, each once."""

from __future__ import annotations

import click

from sbredis.cli._commands import command
from sbredis.cli._entity_paths import dead_letters_of, names_dead_letters
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import dead_letters, entity_argument, existing_file
from sbredis.cli._stdin import is_terminal

__all__ = ["dump", "load"]


@command("dump", examples=[
    "sbredis dump orders > orders.jsonl",
    "sbredis dump orders --dead-letters --file letters.jsonl",
    "sbredis dump orders --filter \"customer = 'ann'\" | jq .body",
])  # fmt: skip
@entity_argument()
@dead_letters
@click.option("--state", type=click.Choice(["active", "deferred", "scheduled"]), help="Only messages in this state.")
@click.option("--filter", "text", metavar="SQL", help="Only messages that match this filter.")
@click.option("--file", "path", type=click.Path(dir_okay=False, writable=True), metavar="PATH",
              help="Write to this file, which appears when it is complete.")  # fmt: skip
async def dump(
    invocation: Invocation, *, entity: str, dead_letters: bool, state: str | None, text: str | None, path: str | None
) -> None:
    """Write the messages of an entity as lines of JSON, and change nothing.

    'sbredis load' reads these lines. Messages that come or go meanwhile may be in it or not.
    """
    from sbredis.cli._dumping import dump_messages

    source = dead_letters_of(entity) if dead_letters else entity
    await dump_messages(invocation, source, state, text, path)


@command("load", examples=[
    "sbredis load orders --file orders.jsonl",
    "sbredis dump orders --dead-letters | sbredis load orders-to-check",
    "sbredis load orders --file orders.jsonl --id again",
])  # fmt: skip
@entity_argument()
@click.option("--file", "path", type=existing_file, metavar="PATH", help="Read this file. [stdin]")
@click.option("--id", "name", metavar="NAME",
              help="The name of this load; loads of one name store each line once. [from the content]")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only check the lines.")
async def load(invocation: Invocation, *, entity: str, path: str | None, name: str | None, dry_run: bool) -> None:
    """Send the messages of lines of JSON, each of them once.

    If the command is run again, it goes on, and stores no line twice. All lines are checked before the first is sent.
    They become new messages: they keep their contents and ids, and get new numbers. A dead letter becomes an ordinary
    message, and a scheduled message is scheduled for its time.
    """
    if path is None and is_terminal():
        raise click.UsageError("Give --file, or let another command write the lines to stdin.")
    if names_dead_letters(entity):
        raise click.UsageError("Messages cannot be sent to a dead-letter queue.")
    from sbredis.cli._dumping import load_messages

    await load_messages(invocation, entity, path, name, dry_run=dry_run)
