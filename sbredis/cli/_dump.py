"""``sbredis dump`` and ``sbredis load``: messages as lines of JSON, and messages made from such lines, each once."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from sbredis.cli._browsing import browse, source_of
from sbredis.cli._call import Call
from sbredis.cli._commands import command
from sbredis.cli._entity_paths import dead_letters_of, entity_of, names_dead_letters
from sbredis.cli._message_lines import fields_of, read_line
from sbredis.cli._output import counted
from sbredis.cli._parameters import dead_letters, entity_argument, existing_file
from sbredis.cli._progress import Progress
from sbredis.cli._stdin import everything, is_terminal
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.model import ServiceBusMessage, ServiceBusMessageState

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo, ServiceBusReceiver
    from sbredis.aio.bulk import BulkWriter, Condition, WriteSummary

__all__ = ["dump", "load"]

_AT_ONCE = 1000


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
    call: Call, *, entity: str, dead_letters: bool, state: str | None, text: str | None, path: str | None
) -> None:
    """Write the messages of an entity as lines of JSON, and change nothing.

    'sbredis load' reads these lines. Messages that come or go meanwhile may be in it or not.
    """
    from sbredis.aio.bulk import condition_of

    matches = None if text is None else condition_of(text)
    chosen = None if state is None else ServiceBusMessageState[state.upper()]
    source = dead_letters_of(entity) if dead_letters else entity
    async with call.client() as client, call.looking_for(entity_of(source)):
        await source_of(client, source)
        receiver = client.get_receiver(source)
        with Progress("written", beside_output=path is None and sys.stdout.isatty()) as progress:
            if path is None:
                await to_a_good_end(lambda stop: _dump(receiver, chosen, matches, sys.stdout, progress, stop))
                sys.stdout.flush()
                return
            with _replaced(path) as file:
                await to_a_good_end(lambda stop: _dump(receiver, chosen, matches, file, progress, stop))
    call.out.done(f"wrote {counted(progress.count, 'message')} to {path}", written=progress.count, file=path)


async def _dump(  # noqa: PLR0917 -- the messages to choose, and where they go
    receiver: ServiceBusReceiver,
    state: ServiceBusMessageState | None,
    matches: Condition | None,
    file: IO[str],
    progress: Progress,
    stop: Stop,
) -> None:
    async for message in browse(receiver):
        if (state is None or message.state is state) and (matches is None or matches(message)):
            fields = {name: value for name, value in fields_of(message).items() if value is not None}
            file.write(json.dumps(fields, ensure_ascii=False) + "\n")
            progress.add()
        if stop:
            return


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
async def load(call: Call, *, entity: str, path: str | None, name: str | None, dry_run: bool) -> None:
    """Send the messages of lines of JSON, each of them once.

    If the command is run again, it goes on, and stores no line twice. All lines are checked before the first is sent.
    They become new messages: they keep their contents and ids, and get new numbers. A dead letter becomes an ordinary
    message, and a scheduled message is scheduled for its time.
    """
    if path is None and is_terminal():
        raise click.UsageError("Give --file, or let another command write the lines to stdin.")
    if names_dead_letters(entity):
        raise click.UsageError("Messages cannot be sent to a dead-letter queue.")
    async with AsyncExitStack() as stack:
        file = _opened(stack, path)
        client = await stack.enter_async_context(call.client())
        await stack.enter_async_context(call.looking_for(entity))
        info = await client.describe_entity(entity)
        writer_name = f"load-{name or _digest(file)}"
        total = sum(1 for _ in _messages(file, path, writer_name, info))
        if dry_run:
            call.out.done(f"{counted(total, 'message')} would be sent to {entity}", lines=total, sent=0, entity=entity)
            return
        from sbredis.aio.bulk import BulkWriter

        progress = stack.enter_context(Progress("stored", total=total))
        writer = await stack.enter_async_context(
            BulkWriter(client, info.path, writer=writer_name, batch=0, task=0, kind="batch")
        )
        done: list[WriteSummary] = []
        messages = _messages(file, path, writer_name, info)
        await to_a_good_end(lambda stop: _load(writer, messages, progress, done, stop))
        (summary,) = done
    known = f"; {summary.known:,} were stored by an earlier run" if summary.known else ""
    dropped = f"; {summary.duplicates:,} were duplicates" if summary.duplicates else ""
    facts = {"sent": summary.stored, "known": summary.known, "duplicates": summary.duplicates, "entity": entity}
    call.out.done(f"sent {counted(summary.stored, 'message')} to {entity}{known}{dropped}", **facts)


async def _load(
    writer: BulkWriter, messages: Iterator[ServiceBusMessage], progress: Progress, done: list[WriteSummary], stop: Stop
) -> None:
    while not stop and (some := list(islice(messages, _AT_ONCE))):
        await writer.write_messages(some)
        progress.add(writer.done - progress.count)
    if not stop:
        done.append(await writer.finish())
    progress.add(writer.done - progress.count)


@contextmanager
def _replaced(path: str) -> Generator[IO[str]]:
    """Open a file that appears under its name when it is complete."""
    part = Path(f"{path}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _opened(stack: AsyncExitStack, path: str | None) -> IO[bytes]:
    """Open the file, or a copy of stdin, which is read twice."""
    if path is not None:
        return stack.enter_context(Path(path).open("rb"))
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 -- the stack closes it
    copy.write(everything())
    return copy


def _digest(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()[:32]


def _messages(file: IO[bytes], path: str | None, name: str, info: EntityInfo) -> Iterator[ServiceBusMessage]:
    """Read all lines from the beginning. A message without an id gets one that is the same in every run."""
    file.seek(0)
    for number, line in enumerate(file, 1):
        message = read_line(line, number, path or "stdin")
        if message.message_id is None:
            message.message_id = f"{name}-{number}"
        if info.requires_session and message.session_id is None:
            raise ValueError(f"{path or 'stdin'}, line {number}: it has no session_id, and {info.path} has sessions")
        yield message
