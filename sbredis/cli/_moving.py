"""The work of ``sbredis move``: each step completes messages and sends their copies in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import click

from sbredis._counting import counted
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._server_clocks import ServerClocks, read_clocks
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    ServiceBusError,
    SessionCannotBeLockedError,
)
from sbredis.model import (
    PartitionRuntimeProperties,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    SubscriptionProperties,
    as_message,
    outgoing,
)
from sbredis.operating import PAGE, browse, source_of

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo, ServiceBusClient, ServiceBusReceiver, ServiceBusSender
    from sbredis.moving import Condition

__all__ = ["move_messages"]

_AT_ONCE, _MOST_BYTES = 45, 3_000_000
"""The limits of one step. A transaction has up to 100 operations, and each message needs two. It has up to 4 MB."""
_KEY = 600
"""The largest number of bytes that a partition key adds to a message."""
_ARRIVING = 30.0
"""How long to wait until messages have arrived in other partitions, in seconds."""
_ARRIVING_INTERRUPTED = 5.0
"""The same after an interruption."""
_SOONEST, _LATEST = 0.02, 0.5


async def move_messages(
    invocation: Invocation,
    source: str,
    destination: str,
    matches: Condition | None,
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
            maintaining = nullcontext() if dry_run else client.maintain()  # it changes the namespace
            async with client.get_sender(destination) as sender, maintaining:
                begun.append(moving)
                await to_a_good_end(lambda stop: moving.run(sender, stop))

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


class _Portion(NamedTuple):
    """Messages that are moved in one transaction."""

    numbers: list[int]
    partition_key: str | None
    """The key that they get, if they have none and the destination needs one."""


@dataclass
class _MoveRun:
    """One run of the command."""

    invocation: Invocation
    client: ServiceBusClient
    origin: EntityInfo
    target: EntityInfo
    matches: Condition | None
    limit: int | None
    partitions: Sequence[PartitionRuntimeProperties] = field(kw_only=True, repr=False)
    """The partitions of the origin at the start."""
    dry_run: bool = field(kw_only=True)
    present: dict[int, int] = field(init=False)
    """The number of messages at the start, by the first 16 bits of their numbers, which name the partition. Messages
    that come later have higher numbers.
    """
    clocks: ServerClocks | None = None
    """The clocks of the servers, when a message with an end of its life has come."""
    stay: int = 0
    """The number of messages that match and were not moved."""
    waiting: int | None = None
    """The number of messages that have not arrived in their new partition. It is unknown until they are counted."""
    refused: int = 0
    """The number of messages that the destination has refused when they arrived."""
    progress: ProgressCounter = field(kw_only=True)

    def __post_init__(self) -> None:
        self.present = _present(self.partitions)

    async def run(self, sender: ServiceBusSender, stop: Stop) -> None:
        """Move the messages, and wait until they have arrived, after an interruption only briefly."""
        await self._move_pages(sender, stop)
        if not self.dry_run:
            await self._arrive(stop)
            self.progress.count -= self.refused

    async def _move_pages(self, sender: ServiceBusSender, stop: Stop) -> None:
        """Move the messages page by page, and within a page step by step."""
        async for page in self._pages():
            for (_, session), some in groupby(page, key=self._place):
                if stop:
                    return
                await self._move_all(sender, session, list(some), stop)

    async def _arrive(self, stop: Stop) -> None:
        """Wait until the messages have arrived in other partitions, or until it has taken too long."""
        now = asyncio.get_running_loop().time
        end, pause = now() + _ARRIVING, _SOONEST
        interrupted = False
        while True:
            partitions = await _partitions(self.invocation, self.origin)
            self.waiting = _transfers(partitions)
            self.refused = max(_refused(partitions) - _refused(self.partitions), 0)
            if stop and not interrupted:
                interrupted, end = True, min(end, now() + _ARRIVING_INTERRUPTED)
            if not self.waiting or now() >= end:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LATEST)

    async def _pages(self) -> AsyncIterator[list[ServiceBusReceivedMessage]]:
        """Yield the messages to move, sorted by their places."""
        found: list[ServiceBusReceivedMessage] = []
        chosen = 0
        async for message in self._browsed():
            if self.matches is not None and not self.matches(message):
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
        for partition, present in sorted(self.present.items()):
            left = present
            async for message in browse(self.client.get_receiver(self.origin.path), start=partition << 48):
                if message.sequence_number >> 48 != partition:
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
        self, sender: ServiceBusSender, session: str | None, messages: Sequence[ServiceBusReceivedMessage], stop: Stop
    ) -> None:
        """Move messages of one partition and one session."""
        if self.dry_run:
            self.progress.add(len(messages))
            return
        receiver = self.client.get_receiver(self.origin.path, session_id=session)
        try:
            for step in _steps(messages, self.target):
                if stop:
                    return
                await self._move_step(sender, receiver, step)
        except SessionCannotBeLockedError:  # a receiver holds the session
            self.stay += len(messages)
        finally:
            await receiver.close()

    async def _move_step(self, sender: ServiceBusSender, receiver: ServiceBusReceiver, step: _Portion) -> None:
        try:
            received = await receiver.receive_messages_by_number(step.numbers)
        except MessageNotFoundError:  # a receiver holds one of them, or it is gone
            await self._move_parts(sender, receiver, step, size=1)
            return
        try:
            copies = [await self._copy(message, step.partition_key) for message in received]
            async with self.client.transaction() as transaction:
                for message, copy in zip(received, copies, strict=True):
                    transaction.send_messages(sender, copy)
                    transaction.complete_message(message)
        except BaseException as error:
            await asyncio.gather(*(_give_back(receiver, message) for message in received))
            if not isinstance(error, MessageSizeExceededError):
                raise
            await self._move_parts(sender, receiver, step, size=(len(received) + 1) // 2)
            return
        self.progress.add(len(received))

    async def _move_parts(
        self, sender: ServiceBusSender, receiver: ServiceBusReceiver, step: _Portion, *, size: int
    ) -> None:
        """Move the messages of a step that was refused in smaller steps. A message that is refused alone stays."""
        if len(step.numbers) == 1:
            self.stay += 1
            return
        for at in range(0, len(step.numbers), size):
            await self._move_step(sender, receiver, _Portion(step.numbers[at : at + size], step.partition_key))

    async def _copy(self, message: ServiceBusReceivedMessage, partition_key: str | None) -> ServiceBusMessage:
        """Return the message to send: it ends when the received one would have ended, by the clock of its server."""
        copy = as_message(message)
        if message.expires_at_utc is not None:
            if self.clocks is None:
                self.clocks = await read_clocks(self.invocation.server.url)
            now = self.clocks.now(self._server_of(message))
            copy.time_to_live = max(message.expires_at_utc - now, timedelta(milliseconds=1))
        if partition_key is not None:
            copy.partition_key = partition_key
        return copy

    def _server_of(self, message: ServiceBusReceivedMessage) -> str | None:
        """Return the server that had the partition of a message at the start."""
        if len(self.partitions) == 1:
            return self.partitions[0].server
        return next((each.server for each in self.partitions if each.number == message.sequence_number >> 48), None)


def _steps(messages: Sequence[ServiceBusReceivedMessage], target: EntityInfo) -> list[_Portion]:
    """Divide the messages of one partition and session into steps.

    In a partitioned destination, all messages of a transaction must have the same key.
    """
    properties = target.properties
    assert not isinstance(properties, SubscriptionProperties)  # nobody can send to a subscription
    partitioned = properties.enable_partitioning
    by_key: dict[str | None, list[ServiceBusReceivedMessage]] = {}
    for message in messages:
        key = (message.session_id or message.partition_key) if partitioned else None
        if partitioned and key is None and properties.requires_duplicate_detection:
            key = str(message.message_id)
        by_key.setdefault(key, []).append(message)
    steps: list[_Portion] = []
    for key, some in by_key.items():
        size = 0
        for at, message in enumerate(some):
            own = len(outgoing(as_message(message), detects_duplicates=True).payload) + _KEY
            if not at or len(steps[-1].numbers) == _AT_ONCE or size + own > _MOST_BYTES:
                steps.append(_Portion([], str(message.message_id) if partitioned and key is None else None))
                size = 0
            steps[-1].numbers.append(message.sequence_number)
            size += own
    return steps


async def _give_back(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    with suppress(ServiceBusError):
        await receiver.release_message(message)


async def _partitions(invocation: Invocation, origin: EntityInfo) -> list[PartitionRuntimeProperties]:
    async with invocation.administration() as administration:
        return [each async for each in administration.list_partitions(origin.path)]


def _present(partitions: Sequence[PartitionRuntimeProperties]) -> dict[int, int]:
    """Return the number of messages of each partition that has any. In an entity with one partition, the first bits of
    the numbers are zero. A partition that is not available counts, so that the call to it says what is wrong.
    """
    counts = {
        each.number if len(partitions) > 1 else 0: each.active_message_count
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
