"""``sbredis send``: messages from an argument, a file or the standard input."""

from __future__ import annotations

from typing import Any

import click

from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import DURATION, MOMENT, PROPERTY, NumberRange, WholeRange, entity_argument, existing_file
from sbredis.cli._stdin import is_terminal

__all__ = ["send"]


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
    from sbredis.cli._sending import bodies, lines_of, send_messages

    defaults = _fields(given)
    if by_lines or json_lines:
        await send_messages(invocation, entity, lines_of(path, defaults, from_json=json_lines), rate)
    else:
        await send_messages(invocation, entity, bodies(body, path, count, defaults), rate)


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
    names = {"ttl": "time_to_live", "schedule": "scheduled_enqueue_time_utc", "properties": "application_properties"}
    fields = {names.get(name, name): value for name, value in given.items() if value is not None}
    fields["application_properties"] = dict(fields["application_properties"]) or None
    return fields
