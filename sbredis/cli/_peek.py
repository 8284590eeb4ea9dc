"""``sbredis peek`` and ``sbredis message``: messages as they are, and single ones by their numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from sbredis._visible import json_line
from sbredis.cli._commands import command, group
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._outage import OutageRemarks
from sbredis.cli._parameters import WholeRange, confirmed, dead_letters, entity_argument
from sbredis.cli._purge import require_unprotected
from sbredis.cli._showing import FEW, remark_more, show_messages
from sbredis.exceptions import ServiceBusError
from sbredis.operating import (
    Matches,
    browse,
    choice_of,
    dead_letters_of,
    entity_of,
    fields_of,
    first_of,
    found_by_number,
    names_dead_letters,
    shown_body,
    source_of,
)

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo
    from sbredis.model import ServiceBusReceivedMessage

__all__ = ["message", "peek"]

_BODIES = {"body", "body_base64"}
_PAUSE = 0.5
"""The seconds between two looks for new messages."""


@command("peek", examples=[
    "sbredis peek orders",
    "sbredis peek orders --state scheduled --count 100",
    "sbredis peek orders --dead-letters --filter \"sys.DeadLetterReason = 'Timeout'\"",
    "sbredis peek orders --follow --output json | jq .subject",
])  # fmt: skip
@entity_argument()
@dead_letters
@click.option("--state", type=click.Choice(["active", "deferred", "scheduled"]), help="Only messages in this state.")
@click.option("--filter", "text", metavar="SQL", help="Only messages that match this filter.")
@click.option("--session", metavar="ID", help="Only messages of this session.")
@click.option("--from", "start", type=WholeRange(0), default=0, metavar="NUMBER", help="Begin at this number.")
@click.option("--count", type=WholeRange(1), metavar="N", help="Show N messages at most. [20]")
@click.option("--follow", is_flag=True, help="Go on and show new messages as they come.")
async def peek(
    invocation: Invocation,
    *,
    entity: str,
    dead_letters: bool,
    state: str | None,
    text: str | None,
    session: str | None,
    start: int,
    count: int | None,
    follow: bool,
) -> int:
    """Show messages without receiving them.

    Nothing is locked, and no delivery is counted. A locked or delayed message is 'active', too.
    """
    matches = choice_of(state=state, text=text)
    path = dead_letters_of(entity) if dead_letters else entity

    async with invocation.client() as client, invocation.looking_for(entity_of(path)):
        await source_of(client, path)
        receiver = client.get_receiver(path)
        if follow:
            await _follow(invocation, partial(browse, receiver, session=session), start, count, matches)
            return ExitCode.DONE
        found, more = await first_of(browse(receiver, start=start, session=session), count or FEW, matches)
    show_messages(invocation, found)
    if more and count is None:
        remark_more(invocation, chosen=state is not None or text is not None)
    return ExitCode.DONE if found else ExitCode.DIFFERENT


async def _follow(
    invocation: Invocation,
    look: Callable[..., AsyncIterator[ServiceBusReceivedMessage]],
    start: int,
    count: int | None,
    matches: Matches,
) -> None:
    """Show the messages from a number on, and those that come later, until ``count`` are shown."""
    shown, outage = 0, OutageRemarks(invocation)
    while True:
        try:
            async for message in look(start=start):
                start = 0  # the receiver goes on where it is
                outage.answered()
                if matches(message):
                    _show_line(invocation, message)
                    shown += 1
                    if shown == count:
                        return
        except ServiceBusError as error:
            outage.failed(error)
        else:
            start = 0
            outage.answered()
        await asyncio.sleep(_PAUSE)


message = group(
    "message",
    "Show, delete or dead-letter single messages by their numbers.",
    examples=["sbredis message show orders 17"],
)
_numbers = click.argument("numbers", type=WholeRange(1), nargs=-1, required=True, metavar="NUMBER...")


@command("show", into=message, examples=["sbredis message show orders 17", "sbredis message show orders 17 -o json"])
@entity_argument()
@_numbers
@dead_letters
async def show(invocation: Invocation, entity: str, numbers: Sequence[int], dead_letters: bool) -> None:
    """Show all fields of messages, in any state."""
    path = dead_letters_of(entity) if dead_letters else entity
    async with invocation.client() as client, invocation.looking_for(entity_of(path)):
        await source_of(client, path)
        found = await found_by_number(client.get_receiver(path), numbers)
    for each in found:
        fields = fields_of(each)
        if invocation.out.as_json:
            invocation.out.json(fields)
            continue
        fields = {name: _text(value) for name, value in fields.items() if value is not None and name not in _BODIES}
        invocation.out.record({**fields, "body": shown_body(each)}, whole=True)


@command(
    "delete", into=message, examples=["sbredis message delete orders 17 18", "sbredis message delete orders 17 --yes"]
)
@entity_argument()
@_numbers
@dead_letters
@confirmed
async def delete(
    invocation: Invocation, *, entity: str, numbers: Sequence[int], dead_letters: bool, dry_run: bool, yes: bool
) -> None:
    """Delete messages by their numbers.

    If one of them is not there, or is held by a receiver, none is deleted. A scheduled message is cancelled.
    """
    path = dead_letters_of(entity) if dead_letters else entity
    async with invocation.client() as client, invocation.looking_for(entity_of(path)):
        info = await source_of(client, path)
        found = await found_by_number(client.get_receiver(path), numbers)
        if dry_run:
            show_messages(invocation, found)
            return
        require_unprotected(info, path)
        invocation.confirm(f"Delete {_listed(numbers)} from {path}?", typed=entity_of(path), yes=yes)
        session, scheduled = _one_kind(found, info)
        if scheduled:
            async with client.get_sender(entity_of(path)) as sender:
                await sender.cancel_scheduled_messages(list(numbers))
        else:
            async with client.get_receiver(path, session_id=session) as receiver:
                await receiver.delete_messages_by_number(list(numbers))
    invocation.out.done(f"deleted {_listed(numbers)} from {path}", deleted=list(numbers), entity=path)


@command("dead-letter", into=message, examples=["sbredis message dead-letter orders 17 --reason BadAddress"])
@entity_argument()
@_numbers
@click.option("--reason", metavar="TEXT", help="Why they are dead letters, in a word.")
@click.option("--description", metavar="TEXT", help="Why they are dead letters, in a sentence.")
@click.option("--dry-run", is_flag=True, help="Only show the messages.")
async def dead_letter(
    invocation: Invocation,
    *,
    entity: str,
    numbers: Sequence[int],
    reason: str | None,
    description: str | None,
    dry_run: bool,
) -> None:
    """Move messages to the dead-letter queue by their numbers.

    If one of them is not there, is scheduled, or is held by a receiver, none is moved. If the connection is lost
    meanwhile, it may be that only some are moved; 'sbredis message show' shows which ones are still there.
    """
    if names_dead_letters(entity):
        raise click.UsageError("The messages are dead letters already.")
    async with invocation.client() as client, invocation.looking_for(entity):
        info = await source_of(client, entity)
        found = await found_by_number(client.get_receiver(entity), numbers)
        session, scheduled = _one_kind(found, info)
        if scheduled:
            raise click.UsageError("The messages are scheduled. Only enqueued messages can be dead-lettered.")
        if dry_run:
            show_messages(invocation, found)
            return
        async with client.get_receiver(entity, session_id=session) as receiver:
            await receiver.dead_letter_messages_by_number(list(numbers), reason, description)
    invocation.out.done(f"dead-lettered {_listed(numbers)} of {entity}", dead_lettered=list(numbers), entity=entity)


def _show_line(invocation: Invocation, message: ServiceBusReceivedMessage) -> None:
    if invocation.out.as_json:
        invocation.out.json(fields_of(message))
    else:
        invocation.out.line(f"{message.sequence_number}  {message.state.name.lower():<9}  {shown_body(message)}")


def _one_kind(messages: Sequence[ServiceBusReceivedMessage], info: EntityInfo) -> tuple[str | None, bool]:
    """Return the session of messages, and whether they are scheduled. Refuse messages that differ in these.

    The messages of a call are changed all or not at all, and the broker can do this for messages of one kind.
    """
    from sbredis.model import ServiceBusMessageState

    kinds = {
        (each.session_id if info.requires_session else None, each.state is ServiceBusMessageState.SCHEDULED)
        for each in messages
    }
    if len({scheduled for _, scheduled in kinds}) > 1:
        raise click.UsageError("Some of these messages are scheduled, and others are not. Name them separately.")
    if len(kinds) > 1:
        raise click.UsageError("These messages are of several sessions. Name those of each session separately.")
    return kinds.pop()


def _text(value: object) -> object:
    return json_line(value) if isinstance(value, dict | list) else value


def _listed(numbers: Sequence[int]) -> str:
    return f"{'message' if len(numbers) == 1 else 'messages'} {', '.join(map(str, numbers))}"
