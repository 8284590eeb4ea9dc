"""``sbredis purge``: delete messages in many calls, and say how far it came."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from sbredis._counting import counted
from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import DURATION, confirmed, dead_letters, entity_argument
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.operating import browse, dead_letters_of, entity_of, source_of

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo, ServiceBusReceiver

__all__ = ["purge", "purge_path", "require_unprotected"]

_AT_ONCE = 2000


@command("purge", examples=[
    "sbredis purge orders --dry-run",
    "sbredis purge orders --older-than 7d",
    "sbredis purge orders --dead-letters --yes",
])  # fmt: skip
@entity_argument()
@dead_letters
@click.option("--older-than", type=DURATION, metavar="DURATION", help="Only messages enqueued before, such as 7d.")
@click.option("--session", metavar="ID", help="Only the messages of this session.")
@confirmed
async def purge(
    invocation: Invocation,
    *,
    entity: str,
    dead_letters: bool,
    older_than: timedelta | None,
    session: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete the messages of a queue or a subscription.

    Messages that receivers hold, scheduled ones, and messages that are enqueued after the start stay. Deferred ones are
    deleted.
    """
    path = dead_letters_of(entity) if dead_letters else entity
    await purge_path(invocation, path, older_than, session, dry_run=dry_run, yes=yes)


async def purge_path(
    invocation: Invocation, path: str, older_than: timedelta | None, session: str | None, *, dry_run: bool, yes: bool
) -> None:
    """Delete the messages at a path, after the user has agreed."""
    with ProgressCounter("counted" if dry_run else "deleted") as progress:
        async with invocation.client() as client, invocation.looking_for(entity_of(path)):
            info = await source_of(client, path)
            before = await _end(invocation, older_than)
            receiver = client.get_receiver(path)
            if dry_run:
                progress.add(await _count(receiver, before, session))
            else:
                require_unprotected(info, path)
                which = _which(None if older_than is None else before, session)
                with progress.asking():
                    invocation.confirm(f"Delete {which} of {path}?", typed=entity_of(path), yes=yes)
                await to_a_good_end(lambda stop: _purge(receiver, before, session, progress, stop))
    found = counted(progress.count, "message")
    if dry_run:
        text = f"{found} of {path} would be deleted, except those that receivers hold"
        invocation.out.done(text, matched=progress.count, deleted=0, entity=path)
    else:
        invocation.out.done(f"deleted {found} of {path}", deleted=progress.count, entity=path)


def require_unprotected(info: EntityInfo, path: str) -> None:
    """Refuse to delete messages of a protected entity."""
    if info.properties.get("protected"):
        raise click.ClickException(
            f"{entity_of(path)} is protected. To delete its messages, first update it with --no-protected."
        )


async def read_clocks(url: str) -> list[float]:
    """Return for each server the seconds from the monotonic clock of this machine to the clock of the server."""
    from sbredis.aio import check_connection

    report = await check_connection(url)
    here = time.time() - time.monotonic()
    return [here + server.clock_ahead for server in report.servers]


async def _end(invocation: Invocation, older_than: timedelta | None) -> datetime:
    """Return the time, by the clocks of the servers, before which the messages to delete were enqueued.

    A clock is read between the start and the return, so the time in the middle is not before those of the messages that
    are there, and not after those of the messages that will be sent. If the clocks of the servers differ, the one that
    is furthest ahead counts.
    """
    began = time.monotonic()
    offsets = await read_clocks(invocation.server.url)
    middle = (began + time.monotonic()) / 2
    now = datetime.fromtimestamp(middle + max(offsets), UTC) + timedelta(milliseconds=1)
    try:
        return now if older_than is None else now - older_than
    except OverflowError:
        raise click.UsageError("--older-than is too long: it begins before the year 1.") from None


async def _purge(
    receiver: ServiceBusReceiver, before: datetime, session: str | None, progress: ProgressCounter, stop: Stop
) -> None:
    while not stop:
        deleted = await receiver.delete_messages(_AT_ONCE, before_enqueued_time_utc=before, session_id=session)
        progress.add(deleted)
        if not deleted:
            return


async def _count(receiver: ServiceBusReceiver, before: datetime, session: str | None) -> int:
    from sbredis.model import ServiceBusMessageState

    count = 0
    async for message in browse(receiver, session=session):
        if message.state is not ServiceBusMessageState.SCHEDULED:
            count += message.enqueued_time_utc < before
    return count


def _which(before: datetime | None, session: str | None) -> str:
    words = ["all messages" if before is None else f"the messages that were enqueued before {before:%Y-%m-%d %H:%M:%S}"]
    return " ".join([*words, *([f"in session {session}"] if session is not None else [])])
