"""Commit a transaction: put its sends and settlements into operations of partitions, and make one call for all."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from sbredis.aio.calls._lane_kinds import CallJob, lock_lost
from sbredis.aio.calls._partition_client import SETTLEMENTS, PartitionClient
from sbredis.aio.sending._sendable import require_sessions, transaction_key
from sbredis.engine import (
    MAXIMUM_PARTICIPANTS,
    CallId,
    Lock,
    Operation,
    Outgoing,
    Partition,
    Request,
    SettingsBehindError,
    SettingsStaleError,
    Transacted,
    set_state,
    transact,
)
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
)
from sbredis.model import Hold, ServiceBusMessage

if TYPE_CHECKING:
    from sbredis.aio.calls._entity import Entity
    from sbredis.aio.receiving._held_session import HeldSession
    from sbredis.aio.sending._outbox import Outbox
    from sbredis.registry import EntityRecord

__all__ = ["Part", "SendPart", "SettleKind", "SettlePart", "StatePart", "commit"]

SettleKind = Literal["complete", "abandon", "defer", "dead_letter"]
MOST_COPIES = 1000
"""The largest number of copies that a transaction may make in the subscriptions of a topic."""


@dataclass(slots=True, eq=False)
class SendPart:
    """Messages that one call of the transaction sends or schedules."""

    outbox: Outbox
    messages: list[ServiceBusMessage]
    """Copies of the messages, as they were at the call."""
    made: list[Outgoing]
    """The encoded messages, in the form for an entity that detects duplicates."""
    originals: list[ServiceBusMessage]
    """The messages of the application."""
    numbers: list[int] = field(default_factory=list[int])
    """The sequence numbers, after the commit."""


@dataclass(slots=True, eq=False)
class SettlePart:
    """A message that the transaction settles."""

    kind: SettleKind
    hold: Hold
    changes: bytes = b""
    delay: int = 0


@dataclass(slots=True, eq=False)
class StatePart:
    """The state that the transaction sets for a session; None removes the state."""

    held: HeldSession
    state: bytes | None


Part = SendPart | SettlePart | StatePart


class _Work(ABC):
    """One operation of the transaction, on one partition of one entity."""

    def __init__(self, link: PartitionClient) -> None:
        self.link = link
        self.entity = link.entity
        self.number = link.number
        self.record: EntityRecord = link.entity.record
        """The record of the entity that the last request was made with."""
        self.copies = 0
        """The number of copies that the operation makes in subscriptions."""

    @abstractmethod
    def request(self, partition: Partition, call_id: CallId) -> Request[Any]:
        """Return the request that makes this operation alone."""


class _Sends(_Work):
    def __init__(self, entity: Entity, link: PartitionClient, parts: Sequence[SendPart]) -> None:
        super().__init__(link)
        self.parts = parts
        self._target = entity
        self._widths: list[int] = []

    @property
    def made(self) -> list[Outgoing]:
        """All messages of the operation, encoded."""
        detects = self.entity.detects_duplicates
        return [one if detects else one._replace(message_id=b"") for part in self.parts for one in part.made]

    def request(self, partition: Partition, call_id: CallId) -> Request[Any]:
        entity, made = self.entity, self.made
        if entity.routing is None:
            if entity.record.kind == "topic":
                raise SettingsStaleError("The entity is a topic now, and this client has not read its rules yet.")
            self._widths = [1] * len(made)
            return partition.send(call_id, made)
        views = [
            view for part in self.parts for view in part.outbox.views_for_rules(self._target, part.messages, part.made)
        ]
        routed = entity.routing.routed(made, views)
        self.copies = sum(len(route or ()) for route in routed.routes)
        request, self._widths = entity.routing.published(partition, self.number, call_id, made, views, routed=routed)
        return request

    def sent(self, first: int, dropped: Sequence[int]) -> list[ServiceBusMessage]:
        """Fill in the sequence numbers. Return the messages that were dropped as duplicates."""
        numbers = list(accumulate(self._widths[:-1], initial=self.entity.base(self.number) + first))
        at = 0
        for part in self.parts:
            part.numbers[:] = numbers[at : at + len(part.made)]
            at += len(part.made)
        originals = [message for part in self.parts for message in part.originals]
        hooks = self.entity.runtime.test_hooks
        if hooks is not None:
            hooks.sent(self.entity.runtime.target.namespace, self.entity.name, self.made)
        if dropped:
            self.entity.runtime.count_dropped(self.entity.name, len(dropped))
        return [originals[place] for place in dropped]


class _Settlements(_Work):
    def __init__(self, link: PartitionClient, kind: SettleKind) -> None:
        super().__init__(link)
        self.kind = kind
        self.parts: list[SettlePart] = []

    def request(self, partition: Partition, call_id: CallId) -> Request[Any]:
        locks: list[Lock] = [part.hold.lock(part.changes, part.delay) for part in self.parts]
        _, settle = SETTLEMENTS[self.kind]
        return settle(partition, call_id, locks)


class _State(_Work):
    def __init__(self, link: PartitionClient, part: StatePart) -> None:
        super().__init__(link)
        self.part = part

    def request(self, partition: Partition, call_id: CallId) -> Request[Any]:
        return set_state(partition, call_id, self.part.held.lock, self.part.state)


class _CommitJob(CallJob[Transacted]):
    """One call of a commit. It has its effect on the messages even if the caller was cancelled meanwhile."""

    __slots__ = ("_done", "_holds", "_works", "duplicates")

    def __init__(self, works: Sequence[_Work], deadline: float) -> None:
        super().__init__(self._request, deadline, self._happened)
        self.told = self._answered
        self.duplicates: list[ServiceBusMessage] = []
        self._done = False
        self._works = works
        self._holds = [part.hold for work in works if isinstance(work, _Settlements) for part in work.parts]
        for hold in self._holds:
            hold.settled = True

    def ended(self) -> None:
        """Mark the messages as not settled if the call did not settle them."""
        for hold in self._holds:
            if not self._done:
                hold.settled = False
            elif hold.watchers:
                hold.let_go()

    def _answered(self) -> None:
        self._happened(self.future.result())

    def _happened(self, result: Transacted) -> None:
        self._done = True
        for work, sent in zip(self._works, result.results, strict=True):
            if isinstance(work, _Sends) and sent is not None:
                self.duplicates += work.sent(sent.first, sent.dropped)

    def _request(self, _: Partition, call_id: CallId) -> Request[Transacted]:
        operations: list[Operation] = []
        copies = 0
        for place, work in enumerate(self._works, 1):
            work.record = work.entity.record
            partition = work.link.partition
            try:
                operations.append(Operation(partition, work.request(partition, CallId("", 0, call_id.now))))
                copies += work.copies
                if copies > MOST_COPIES:
                    raise MessageSizeExceededError(
                        f"The messages of the transaction would have {copies} copies in the subscriptions of their "
                        f"topics; a transaction makes up to {MOST_COPIES}. Send fewer messages in it.",
                        outcome=Outcome.NEVER_SENT,
                    )
            except ServiceBusError as error:
                error._part = ("#", place, "")  # pyright: ignore[reportPrivateUsage]
                raise
        return transact(call_id, operations)


async def commit(parts: Sequence[Part], deadline: float) -> list[ServiceBusMessage]:
    """Carry out all parts of a transaction, or none. Return the messages that were dropped as duplicates."""
    works = await _works(parts, deadline)
    _require_one_slot(works)
    for part in parts:
        if isinstance(part, SettlePart) and part.hold.settled:
            raise MessageAlreadySettled(
                f"Message {part.hold.sequence_number} was settled, or is being settled, outside of the transaction. "
                "The transaction has changed nothing."
            )
    async with AsyncExitStack() as recalls:
        for part in parts:
            if isinstance(part, SettlePart) and part.kind == "abandon":
                lease = part.hold.lease
                if lease is not None and lease.recalled is not None:
                    await recalls.enter_async_context(lease.recalled(deadline))
        await _renewed(works, deadline)
        return await _carry_out(works, deadline)


async def _works(parts: Sequence[Part], deadline: float) -> list[_Work]:
    """Return the operations of a transaction: parts of one kind on one partition become one operation."""
    works: dict[tuple[Any, ...], _Work] = {}
    for part in parts:
        if isinstance(part, SettlePart):
            entity: Entity = part.hold.source.owner  # type: ignore[assignment]
            link = entity.partition_client_of(part.hold)
            work = works.setdefault((link, part.kind), _Settlements(link, part.kind))
            assert isinstance(work, _Settlements)
            work.parts.append(part)
        elif isinstance(part, StatePart):
            link = part.held.partition_client
            works[link, part.held.name, "state"] = _State(link, part)
    sends: dict[Entity, list[SendPart]] = {}
    for part in parts:
        if isinstance(part, SendPart):
            entity = await part.outbox.ready(deadline)
            if entity.record.settings.sessions:
                require_sessions(entity, part.messages)
            sends.setdefault(entity, []).append(part)
    for entity, own in sends.items():
        link = entity.partition_client(entity.numbers[0])
        if entity.partitioned:
            link = entity.pinned(transaction_key(entity, [message for part in own for message in part.messages]))
        works[link, "send"] = _Sends(entity, link, own)
    return list(works.values())


def _require_one_slot(works: Sequence[_Work]) -> None:
    first = works[0]
    for work in works:
        if work.number != first.number:
            error = ServiceBusError(
                f"'{work.entity.name}' and '{first.entity.name}' are in different partitions of the namespace, and a "
                "transaction works in one. Use the same key on partitioned entities, or create one entity with "
                "colocate_with the other.",
                outcome=Outcome.NEVER_SENT,
            )
            error.entity = work.entity.name
            raise error
    links = {work.link for work in works}
    if len(links) > MAXIMUM_PARTICIPANTS:
        raise ValueError(
            f"A transaction takes up to {MAXIMUM_PARTICIPANTS} queues, topics and subscriptions, and this one has "
            f"{len(links)}."
        )


async def _renewed(works: Sequence[_Work], deadline: float) -> None:
    """Wait for renewals under way, because a renewal may give a message another token."""
    loop = asyncio.get_running_loop()
    for work in works:
        if isinstance(work, _Settlements):
            for part in work.parts:
                renewal = work.link.renewing.last_renewal(part.hold)
                if renewal is not None:
                    await asyncio.wait((renewal,), timeout=deadline - loop.time())


async def _carry_out(works: Sequence[_Work], deadline: float) -> list[ServiceBusMessage]:
    """Make the call. If the client's knowledge of an entity is out of date, correct it and make the call again."""
    while True:
        try:
            job = _CommitJob(works, deadline)
            await works[0].link.transacting.submit(job)
            return job.duplicates
        except ServiceBusError as error:
            work = _refused_part(error, works)
            if work is None:
                raise
            error.entity = work.entity.name
            if isinstance(error, SettingsBehindError):
                await work.link.tell(deadline)
            elif isinstance(error, SettingsStaleError):
                await work.entity.reload(work.record, deadline)
            elif isinstance(error, MessagingEntityNotFoundError):
                await work.entity.recover(work.record, deadline)
            else:
                raise (_lost(error, work) or error) from None


def _lost(error: ServiceBusError, work: _Work) -> ServiceBusError | None:
    """Return the error for a lost lock, with the sequence number or the session of the message."""
    if not isinstance(error, MessageLockLostError) or not isinstance(work, _Settlements):
        return None
    name = error._part[2].split()[0] if error._part else ""  # pyright: ignore[reportPrivateUsage]
    hold = next(part.hold for part in work.parts if part.hold.name == name)
    made = lock_lost(work.link, name, hold.session)
    made.message = f"The transaction was refused and has changed nothing. {made.message}"
    return made


def _refused_part(error: ServiceBusError, works: Sequence[_Work]) -> _Work | None:
    """Return the operation that a refusal is about, or None if it is about the whole call."""
    part = error._part  # pyright: ignore[reportPrivateUsage]
    if part is None:
        return None
    kind, place, _ = part
    if kind == "#":
        return works[place - 1]
    link = list(dict.fromkeys(work.link for work in works))[place - 1]
    return next(work for work in works if work.link is link)
