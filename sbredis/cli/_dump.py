"""``sbredis dump`` and ``sbredis load``: messages as lines of JSON, and messages made from such lines, each once."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from sbredis._counting import counted
from sbredis._visible import json_line
from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import dead_letters, entity_argument, existing_file
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.cli._streams import Sink, everything, is_terminal
from sbredis.operating import (
    Matches,
    browse,
    choice_of,
    dead_letters_of,
    entity_of,
    fields_of,
    names_dead_letters,
    read_line,
    source_of,
)

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo, ServiceBusReceiver
    from sbredis.bulk import BulkWriter, WriteSummary
    from sbredis.model import ServiceBusMessage

__all__ = ["dump", "load"]

_AT_ONCE = 1000
_Write = Callable[[bytes, Stop], Awaitable[bool]]
"""Writes a line. Returns False if the command is interrupted before all of it is written."""


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
    source = dead_letters_of(entity) if dead_letters else entity
    is_chosen = choice_of(state=state, text=text)
    with ProgressCounter("written", beside_output=path is None and sys.stdout.isatty()) as progress:
        async with invocation.client() as client, invocation.looking_for(entity_of(source)):
            await source_of(client, source)
            receiver = client.get_receiver(source)
            if path is None:
                write = Sink().write
                await to_a_good_end(lambda stop: _dump_all(receiver, is_chosen, write, progress, stop))
                return
            with _replaced(path) as file:

                async def write_to_file(line: bytes, _: Stop) -> bool:
                    file.write(line)
                    return True

                await to_a_good_end(lambda stop: _dump_all(receiver, is_chosen, write_to_file, progress, stop))
    invocation.out.done(f"wrote {counted(progress.count, 'message')} to {path}", written=progress.count, file=path)


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
    async with AsyncExitStack() as stack:
        file = _opened(stack, path)
        client = await stack.enter_async_context(invocation.client())
        await stack.enter_async_context(invocation.looking_for(entity))
        info = await client.describe_entity(entity)
        writer_name = f"load-{name or _digest(file)}"
        total = sum(1 for _ in _messages(file, path, writer_name, info))
        if dry_run:
            invocation.out.done(
                f"{counted(total, 'message')} would be sent to {entity}", lines=total, sent=0, entity=entity
            )
            return
        from sbredis.bulk import BulkWriter

        progress = stack.enter_context(ProgressCounter("stored", total=total))
        writer = await stack.enter_async_context(
            BulkWriter(client, info.path, writer=writer_name, batch=0, task=0, kind="batch")
        )
        done: list[WriteSummary] = []
        messages = _messages(file, path, writer_name, info)
        await to_a_good_end(lambda stop: _load_all(writer, messages, progress, done, stop))
        (summary,) = done
    known = f"; {summary.known:,} were stored by an earlier run" if summary.known else ""
    dropped = f"; {summary.duplicates:,} were duplicates" if summary.duplicates else ""
    facts = {"sent": summary.stored, "known": summary.known, "duplicates": summary.duplicates, "entity": entity}
    invocation.out.done(f"sent {counted(summary.stored, 'message')} to {entity}{known}{dropped}", **facts)


async def _dump_all(
    receiver: ServiceBusReceiver, is_chosen: Matches, write: _Write, progress: ProgressCounter, stop: Stop
) -> None:
    async for message in browse(receiver):
        if is_chosen(message):
            fields = {name: value for name, value in fields_of(message).items() if value is not None}
            if not await write(json_line(fields).encode() + b"\n", stop):
                return
            progress.add()
        if stop:
            return


async def _load_all(
    writer: BulkWriter,
    messages: Iterator[ServiceBusMessage],
    progress: ProgressCounter,
    done: list[WriteSummary],
    stop: Stop,
) -> None:
    while not stop and (some := list(islice(messages, _AT_ONCE))):
        await writer.write_messages(some)
        progress.add(writer.done - progress.count)
    if not stop:
        done.append(await writer.finish())
    progress.add(writer.done - progress.count)


@contextmanager
def _replaced(path: str) -> Generator[IO[bytes]]:
    """Open a file that appears under its name when it is complete."""
    part = Path(f"{path}.part")
    try:
        file = part.open("wb")
    except OSError as error:
        error.filename = path  # the user knows nothing of the other name
        raise
    try:
        with file:
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
