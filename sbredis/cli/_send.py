"""``sbredis send``: messages from an argument, a file or the standard input."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from sbredis._counting import counted
from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import DURATION, MOMENT, PROPERTY, NumberRange, WholeRange, entity_argument, existing_file
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.cli._streams import everything, is_terminal, lines
from sbredis.exceptions import ServiceBusError
from sbredis.operating import message_of, read_line

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusSender
    from sbredis.model import ServiceBusMessage

__all__ = ["send"]

_Make: TypeAlias = "Callable[[bytes], ServiceBusMessage]"
"""Makes the message of a line."""
_Messages: TypeAlias = "Callable[[Stop], AsyncIterator[ServiceBusMessage]]"
"""Gives the messages to send, until the command is interrupted."""
_PLACE = re.compile(r"^The message (\d+) of the stream(?: \(message id .*?\))?(?= was not sent)", re.DOTALL)
"""How the error of a stream names its message."""


@command("send", examples=[
    "sbredis send orders 'two teapots' -p customer=ann -p pieces:=2",
    "sbredis send orders --file order.json --content-type application/json",
    "sbredis send orders --json-lines --file orders.jsonl --rate 100",
    "tail -f app.log | sbredis send logs --lines",
])  # fmt: skip
@entity_argument()
@click.argument("body", required=False)
@click.option("--file", "path", type=existing_file, metavar="PATH", help="Take the body, or the lines, from this file.")
@click.option("--lines", "by_lines", is_flag=True, help="Send each line as a message of its own.")
@click.option("--json-lines", is_flag=True, help="Send each line, a JSON object with the fields of a message.")
@click.option("-p", "--property", "properties", type=PROPERTY, multiple=True, metavar="NAME=TEXT",
              help="An application property; NAME:=JSON for a number, a truth value or null. Repeatable.")  # fmt: skip
@click.option("--subject", help="The subject, by which rules often choose.")
@click.option("--session", "session_id", metavar="ID", help="The session of the messages.")
@click.option("--message-id", metavar="ID", help="The message id. By default each message gets one.")
@click.option("--correlation-id", metavar="ID", help="The id of the request that the messages belong to.")
@click.option("--partition-key", metavar="KEY", help="Messages with the same key are in the same partition.")
@click.option("--content-type", metavar="TYPE", help="The content type of the body, such as application/json.")
@click.option("--to", help="The property 'to', for applications that route by it.")
@click.option("--reply-to", metavar="ENTITY", help="Where the receiver sends its answer.")
@click.option("--ttl", type=DURATION, metavar="DURATION", help="How long the messages live, such as 90s or 1h30m.")
@click.option("--schedule", type=MOMENT, metavar="TIME", help="When they are enqueued: 10m, or 2030-01-31T12:00Z.")
@click.option("--count", type=WholeRange(1), default=1, metavar="N", help="Send the body N times. [1]")
@click.option("--rate", type=NumberRange(0, min_open=True), metavar="N", help="Send N messages a second at most.")
async def send(
    invocation: Invocation,
    *,
    entity: str,
    body: str | None,
    path: str | None,
    by_lines: bool,
    json_lines: bool,
    count: int,
    rate: float | None,
    **given: Any,
) -> None:
    """Send messages to a queue or a topic.

    The body is BODY, a file, or stdin. A file is checked as a whole before anything is sent. Lines of stdin are sent as
    they come, and the first wrong one ends the command.
    """
    _require_one_source(body, path, by_lines=by_lines, json_lines=json_lines, count=count)
    if (by_lines or json_lines) and given["message_id"] is not None:
        raise click.UsageError("--message-id is for one message; lines need --json-lines with their own ids.")
    defaults = _fields(given)
    if by_lines or json_lines:
        await _send_messages(invocation, entity, _lines_of(path, defaults, from_json=json_lines), rate)
    else:
        await _send_messages(invocation, entity, _bodies(body, path, count, defaults), rate)


def _require_one_source(body: str | None, path: str | None, *, by_lines: bool, json_lines: bool, count: int) -> None:
    """Refuse options that name no source of messages, or two."""
    if by_lines and json_lines:
        raise click.UsageError("Give --lines or --json-lines, not both.")
    if body is not None and (path is not None or by_lines or json_lines):
        raise click.UsageError("Give BODY, or a file, or lines, and not two of them.")
    if count > 1 and (by_lines or json_lines):
        raise click.UsageError("--count is for a body, not for lines.")
    if body is None and path is None and is_terminal():
        raise click.UsageError("Give BODY or --file, or let another command write the body to stdin.")


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the messages that the options set."""
    from sbredis.model import require_single

    names = {"ttl": "time_to_live", "schedule": "scheduled_enqueue_time_utc", "properties": "application_properties"}
    fields = {names.get(name, name): value for name, value in given.items() if value is not None}
    properties = dict(fields["application_properties"])
    try:
        require_single(properties)
    except TypeError as error:
        raise click.BadParameter(str(error), param_hint="--property") from None
    fields["application_properties"] = properties or None
    return fields


@dataclass(frozen=True)
class MessageSource:
    """Where messages come from."""

    messages: _Messages
    name: Callable[[int], str]
    """Returns how a user calls the message at a place, counted from 0."""
    total: int | None = None
    """The number of messages, if it is known."""


def _bodies(body: str | None, path: str | None, count: int, defaults: dict[str, Any]) -> MessageSource:
    """Return messages with the same body: a text, or the content of a file or of stdin."""
    from sbredis.model import ServiceBusMessage, outgoing

    content = _content(body, path)
    outgoing(ServiceBusMessage(content, **defaults), detects_duplicates=True)  # checks it before anything is sent
    made = _each(lambda: (ServiceBusMessage(content, **defaults) for _ in range(count)))
    return MessageSource(
        made, lambda place: "The message" if count == 1 else f"Message {place + 1:,} of {count:,}", count
    )


def _lines_of(path: str | None, defaults: dict[str, Any], *, from_json: bool) -> MessageSource:
    """Return a message for each line of a file, which is checked as a whole, or of stdin."""
    make = _maker(defaults, from_json=from_json)
    if path is None:
        return MessageSource(_stdin_of(make), lambda place: f"Line {place + 1:,} of stdin")
    total = sum(1 for _ in _from_file(path, make))
    return MessageSource(_each(partial(_from_file, path, make)), lambda place: f"Line {place + 1:,} of {path}", total)


async def _send_messages(invocation: Invocation, entity: str, source: MessageSource, rate: float | None) -> None:
    """Send the messages of a source, at most ``rate`` in a second."""
    progress = ProgressCounter("sent", total=source.total, beside_output=is_terminal())
    with progress:
        async with invocation.client() as client, invocation.looking_for(entity), client.get_sender(entity) as sender:
            try:
                await to_a_good_end(lambda stop: _send_all(sender, source.messages(stop), rate, progress, stop))
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


async def _send_all(
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
    from sbredis.model import ServiceBusMessage

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
