"""The work of ``sbredis dump`` and ``sbredis load``."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sbredis._counting import counted
from sbredis._visible import json_line
from sbredis.cli._browsing import browse, source_of
from sbredis.cli._entity_paths import entity_of
from sbredis.cli._invocation import Invocation
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._sink import Sink
from sbredis.cli._stdin import everything
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.model import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceivedMessage
from sbredis.operating import fields_of, read_line

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo, ServiceBusReceiver
    from sbredis.bulk import BulkWriter, WriteSummary

__all__ = ["dump_messages", "load_messages"]

_AT_ONCE = 1000
_Choice = Callable[[ServiceBusReceivedMessage], bool]
_Write = Callable[[bytes, Stop], Awaitable[bool]]
"""Writes a line. Returns False if the command is interrupted before all of it is written."""


async def dump_messages(
    invocation: Invocation, source: str, state: str | None, text: str | None, path: str | None
) -> None:
    """Write the messages at a path that are in a state and match a filter, to stdout or to a file."""
    is_chosen = _choice(state, text)
    with ProgressCounter("written", beside_output=path is None and sys.stdout.isatty()) as progress:
        async with invocation.client() as client, invocation.looking_for(entity_of(source)):
            await source_of(client, source)
            receiver = client.get_receiver(source)
            if path is None:
                write = Sink().write
                await to_a_good_end(lambda stop: _dump(receiver, is_chosen, write, progress, stop))
                return
            with _replaced(path) as file:

                async def write_to_file(line: bytes, _: Stop) -> bool:
                    file.write(line)
                    return True

                await to_a_good_end(lambda stop: _dump(receiver, is_chosen, write_to_file, progress, stop))
    invocation.out.done(f"wrote {counted(progress.count, 'message')} to {path}", written=progress.count, file=path)


def _choice(state: str | None, text: str | None) -> _Choice:
    from sbredis.moving import condition_of

    matches = None if text is None else condition_of(text)
    wanted = None if state is None else ServiceBusMessageState[state.upper()]
    return lambda message: (wanted is None or message.state is wanted) and (matches is None or matches(message))


async def _dump(
    receiver: ServiceBusReceiver, is_chosen: _Choice, write: _Write, progress: ProgressCounter, stop: Stop
) -> None:
    async for message in browse(receiver):
        if is_chosen(message):
            fields = {name: value for name, value in fields_of(message).items() if value is not None}
            if not await write(json_line(fields).encode() + b"\n", stop):
                return
            progress.add()
        if stop:
            return


async def load_messages(
    invocation: Invocation, entity: str, path: str | None, name: str | None, *, dry_run: bool
) -> None:
    """Send the messages of the lines of a file or of stdin."""
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
        await to_a_good_end(lambda stop: _load(writer, messages, progress, done, stop))
        (summary,) = done
    known = f"; {summary.known:,} were stored by an earlier run" if summary.known else ""
    dropped = f"; {summary.duplicates:,} were duplicates" if summary.duplicates else ""
    facts = {"sent": summary.stored, "known": summary.known, "duplicates": summary.duplicates, "entity": entity}
    invocation.out.done(f"sent {counted(summary.stored, 'message')} to {entity}{known}{dropped}", **facts)


async def _load(
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
