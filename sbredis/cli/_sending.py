"""The work of ``sbredis send``: where the messages come from, and how they are sent."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sbredis._counting import counted
from sbredis.cli._invocation import Invocation
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._stdin import everything, is_terminal, lines
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage, outgoing
from sbredis.operating import message_of, read_line

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusSender

__all__ = ["MessageSource", "bodies", "lines_of", "send_messages"]

_Make = Callable[[bytes], ServiceBusMessage]
"""Makes the message of a line."""
_Messages = Callable[[Stop], AsyncIterator[ServiceBusMessage]]
"""Gives the messages to send, until the command is interrupted."""
_PLACE = re.compile(r"^The message (\d+) of the stream(?: \(message id .*?\))?(?= was not sent)", re.DOTALL)
"""How the error of a stream names its message."""


@dataclass(frozen=True)
class MessageSource:
    """Where messages come from."""

    messages: _Messages
    name: Callable[[int], str]
    """Returns how a user calls the message at a place, counted from 0."""
    total: int | None = None
    """The number of messages, if it is known."""


def bodies(body: str | None, path: str | None, count: int, defaults: dict[str, Any]) -> MessageSource:
    """Return messages with the same body: a text, or the content of a file or of stdin."""
    content = _content(body, path)
    outgoing(ServiceBusMessage(content, **defaults), detects_duplicates=True)  # checks it before anything is sent
    made = _each(lambda: (ServiceBusMessage(content, **defaults) for _ in range(count)))
    return MessageSource(
        made, lambda place: "The message" if count == 1 else f"Message {place + 1:,} of {count:,}", count
    )


def lines_of(path: str | None, defaults: dict[str, Any], *, from_json: bool) -> MessageSource:
    """Return a message for each line of a file, which is checked as a whole, or of stdin."""
    make = _maker(defaults, from_json=from_json)
    if path is None:
        return MessageSource(_stdin_of(make), lambda place: f"Line {place + 1:,} of stdin")
    total = sum(1 for _ in _from_file(path, make))
    return MessageSource(_each(partial(_from_file, path, make)), lambda place: f"Line {place + 1:,} of {path}", total)


async def send_messages(invocation: Invocation, entity: str, source: MessageSource, rate: float | None) -> None:
    """Send the messages of a source, at most ``rate`` in a second."""
    progress = ProgressCounter("sent", total=source.total, beside_output=is_terminal())
    with progress:
        async with invocation.client() as client, invocation.looking_for(entity), client.get_sender(entity) as sender:
            try:
                await to_a_good_end(lambda stop: _send(sender, source.messages(stop), rate, progress, stop))
            except ServiceBusError as error:
                error.message = _PLACE.sub(lambda found: source.name(int(found[1])), error.message)
                if progress.count and isinstance(error, ValueError):
                    raise click.ClickException(error.message) from None  # for its exit code: a part is done
                raise
            except ValueError as error:  # a wrong line
                if not progress.count:
                    raise
                raise click.ClickException(str(error)) from None
    invocation.out.done(f"sent {counted(progress.count, 'message')} to {entity}", sent=progress.count, entity=entity)


async def _send(
    sender: ServiceBusSender,
    source: AsyncIterator[ServiceBusMessage],
    rate: float | None,
    progress: ProgressCounter,
    stop: Stop,
) -> None:
    """Send all messages of a source, until it ends or the command is interrupted."""
    loop = asyncio.get_running_loop()

    async def paced() -> AsyncIterator[ServiceBusMessage]:
        due = loop.time()
        async for message in source:
            if rate is not None:
                await stop.sleep(due - loop.time())
                due = max(due, loop.time() - 1) + 1 / rate  # after a pause, make good for a second at most
            if stop:
                return
            yield message

    async for _ in sender.send_stream(paced()):
        progress.add()


def _content(body: str | None, path: str | None) -> bytes:
    if body is not None:
        return body.encode("utf-8", "surrogateescape")  # an argument may be bytes that are no text
    return everything() if path is None else Path(path).read_bytes()


def _maker(defaults: dict[str, Any], *, from_json: bool) -> _Make:
    """Return the function that makes the message of a line. The fields of a JSON line come before the options."""
    if not from_json:
        return lambda line: ServiceBusMessage(line.removesuffix(b"\n").removesuffix(b"\r"), **defaults)
    options = dict(defaults)
    properties = options.pop("application_properties")

    def make(line: bytes) -> ServiceBusMessage:
        message = message_of(json.loads(line))
        for name, value in options.items():
            if getattr(message, name) is None:
                setattr(message, name, value)
        if properties:
            message.application_properties = {**properties, **(message.application_properties or {})}
        return message

    return make


def _from_file(path: str, make: _Make) -> Iterator[ServiceBusMessage]:
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            yield read_line(line, number, path, make)


def _stdin_of(make: _Make) -> _Messages:
    async def source(stop: Stop) -> AsyncIterator[ServiceBusMessage]:
        number = 0
        async for line in lines(stop):
            number += 1
            yield read_line(line, number, "stdin", make)

    return source


def _each(made: Callable[[], Iterable[ServiceBusMessage]]) -> _Messages:
    async def source(stop: Stop) -> AsyncIterator[ServiceBusMessage]:
        for message in made():
            if stop:
                return
            yield message

    return source
