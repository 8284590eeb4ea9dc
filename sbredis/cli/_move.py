"""``sbredis move``: messages from one entity to another, none of them lost and none of them twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import click

from sbredis._counting import counted
from sbredis.cli._commands import command
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import WholeRange, entity_argument
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.exceptions import ServiceBusError, SessionCannotBeLockedError
from sbredis.operating import PAGE, Matches, browse, choice_of, names_dead_letters, source_of

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo, ServiceBusClient
    from sbredis.model import PartitionRuntimeProperties, ServiceBusReceivedMessage
    from sbredis.moving import ChosenMover

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
    matches = choice_of(text=text)
    if names_dead_letters(destination):
        raise click.UsageError("Messages cannot be moved to a dead-letter queue.")
    if names_dead_letters(source):
        if count is not None:
            raise click.UsageError("--count is not for dead letters. See 'sbredis dlq redrive', which takes numbers.")
        from sbredis.cli._dlq import move_dead_letters

        return await move_dead_letters(invocation, source, destination, text, dry_run=dry_run)
    return await _move_messages(invocation, source, destination, matches, count, dry_run=dry_run)


async def _move_messages(
    invocation: Invocation,
    source: str,
    destination: str,
    matches: Matches,
    limit: int | None,
    *,
    dry_run: bool,
) -> int:
    """Move messages, and return the exit code."""
    progress = ProgressCounter("counted" if dry_run else "moved")
    begun: list[_MoveRun] = []

    async def move() -> None:
        async with invocation.client() as client:
            async with invocation.looking_for(source):
                origin = await source_of(client, source)
            async with invocation.looking_for(destination):
                target = await client.describe_entity(destination)
            if target.path == origin.path or target.kind == "subscription":
                raise click.UsageError(f"{target.path} cannot be the destination: name another queue or a topic.")
            moving = _MoveRun(
                invocation, client, origin, target, matches, limit,
                partitions=await _partitions(invocation, origin), dry_run=dry_run, progress=progress,
            )  # fmt: skip
            begun.append(moving)
            await to_a_good_end(moving.run)

    try:
        with progress:
            await move()
    except BaseException:
        for moving in begun:
            _remark(invocation, moving)
        raise
    return _report(invocation, begun[0])


def _report(invocation: Invocation, moving: _MoveRun) -> int:
    origin, target, stay, waiting, refused = (
        moving.origin,
        moving.target,
        moving.stay,
        moving.waiting or 0,
        moving.refused,
    )
    count = moving.progress.count
    words = f"{counted(count, 'message')} would be moved" if moving.dry_run else f"moved {counted(count, 'message')}"
    left = f"; {stay:,} stay, because they are scheduled, held, gone, or too large" if stay else ""
    facts = {"matched" if moving.dry_run else "moved": count, "stay": stay, "waiting": waiting, "refused": refused}
    invocation.out.done(f"{words} from {origin.path} to {target.path}{left}", **facts)
    _remark(invocation, moving)
    return ExitCode.DIFFERENT if waiting or refused else ExitCode.DONE


def _remark(invocation: Invocation, moving: _MoveRun) -> None:
    """Say which messages have not arrived."""
    source = moving.origin.path
    if moving.waiting is None:
        some = "some of them may be" if moving.progress.count and not moving.dry_run else ""
    else:
        some = f"{moving.waiting:,} of them {'is' if moving.waiting == 1 else 'are'}" if moving.waiting else ""
    if some:
        invocation.out.remark(
            f"{some} still on the way to another partition, in {source}: 'sbredis maintain' moves them."
        )
    if moving.refused:
        queue = f"{source}/$Transfer/$DeadLetterQueue"
        invocation.out.remark(
            f"{moving.target.path} did not take {counted(moving.refused, 'message')}: see sbredis peek '{queue}'."
        )


@dataclass
class _MoveRun:
    """One run of the command."""

    invocation: Invocation
    client: ServiceBusClient
    origin: EntityInfo
    target: EntityInfo
    matches: Matches
    limit: int | None
    partitions: Sequence[PartitionRuntimeProperties] = field(kw_only=True, repr=False)
    """The partitions of the origin at the start."""
    dry_run: bool = field(kw_only=True)
    present: dict[int, int] = field(init=False)
    """The number of messages at the start, by the first 16 bits of their numbers, which name the partition. Messages
    that come later have higher numbers.
    """
    stay: int = 0
    """The number of messages that match and were not moved."""
    waiting: int | None = None
    """The number of messages that are on their way to another partition. It is unknown until they are counted."""
    refused: int = 0
    """The number of messages that the destination has refused."""
    progress: ProgressCounter = field(kw_only=True)

    def __post_init__(self) -> None:
        self.present = _present(self.partitions)

    async def run(self, stop: Stop) -> None:
        """Move the messages page by page, and then count those that have not arrived."""
        from sbredis.aio._receiver import mover_to

        mover = None if self.dry_run else await mover_to(self.client.get_receiver(self.origin.path), self.target.path)
        try:
            await self._move_pages(mover, stop)
        except ServiceBusError:
            with suppress(ServiceBusError):
                await self._count()
            raise
        if mover is not None:
            await self._count()

    async def _move_pages(self, mover: ChosenMover | None, stop: Stop) -> None:
        async for page in self._pages():
            for (_, session), some in groupby(page, key=self._place):
                if stop:
                    return
                await self._move_all(mover, session, list(some))

    async def _count(self) -> None:
        """Count the messages that are on their way, and those that the destination has refused."""
        partitions = await _partitions(self.invocation, self.origin)
        self.waiting = max(_transfers(partitions) - _transfers(self.partitions), 0)
        self.refused = max(_refused(partitions) - _refused(self.partitions), 0)
        self.progress.count = max(self.progress.count - self.refused, 0)

    async def _pages(self) -> AsyncIterator[list[ServiceBusReceivedMessage]]:
        """Yield the messages to move, sorted by their places."""
        from sbredis.model import ServiceBusMessageState

        found: list[ServiceBusReceivedMessage] = []
        chosen = 0
        async for message in self._browsed():
            if not self.matches(message):
                continue
            if message.state is ServiceBusMessageState.SCHEDULED:
                self.stay += 1
                continue
            found.append(message)
            chosen += 1
            if chosen == self.limit:
                break
            if len(found) == PAGE:
                yield sorted(found, key=self._place)
                found = []
        yield sorted(found, key=self._place)

    async def _browsed(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        """Yield the messages in the order of their numbers, from each partition as many as it had at the start."""
        alone = len(self.partitions) == 1  # then the first bits of numbers may be those of the partition, or zero
        for partition, present in sorted(self.present.items()):
            left, start = present, 0 if alone else partition << 48
            async for message in browse(self.client.get_receiver(self.origin.path), start=start):
                if not alone and message.sequence_number >> 48 != partition:
                    break
                yield message
                left -= 1
                if not left:
                    break

    def _place(self, message: ServiceBusReceivedMessage) -> tuple[int, str | None]:
        """Return the partition, and the session if it matters. A step works on one of each."""
        session = message.session_id or "" if self.origin.requires_session else None
        return message.sequence_number >> 48, session

    async def _move_all(
        self, mover: ChosenMover | None, session: str | None, messages: Sequence[ServiceBusReceivedMessage]
    ) -> None:
        """Move messages of one partition and one session. Nobody else receives from the session meanwhile."""
        if mover is None:
            self.progress.add(len(messages))
            return
        moved, path = 0, self.origin.path
        with suppress(SessionCannotBeLockedError):  # a receiver holds the session
            async with nullcontext() if session is None else self.client.get_receiver(path, session_id=session):
                moved = await mover.move_messages(messages)
        self.progress.add(moved)
        self.stay += len(messages) - moved


async def _partitions(invocation: Invocation, origin: EntityInfo) -> list[PartitionRuntimeProperties]:
    async with invocation.administration() as administration:
        return [each async for each in administration.list_partitions(origin.path)]


def _present(partitions: Sequence[PartitionRuntimeProperties]) -> dict[int, int]:
    """Return the number of messages of each partition that has any. A partition that is not available counts, so that
    the call to it says what is wrong.
    """
    counts = {
        each.number: each.active_message_count
        + each.locked_message_count
        + each.delayed_message_count
        + each.deferred_message_count
        + each.scheduled_message_count
        + (not each.available)
        for each in partitions
    }
    return {number: count for number, count in counts.items() if count}


def _transfers(partitions: Sequence[PartitionRuntimeProperties]) -> int:
    return sum(each.transfer_message_count for each in partitions)


def _refused(partitions: Sequence[PartitionRuntimeProperties]) -> int:
    return sum(each.transfer_dead_letter_message_count for each in partitions)
