"""Commit a transaction: turn its recorded calls into steps, and make one call for all of them.

The *parts* of a transaction are its recorded calls. All parts of one kind on one partition become one *step*, which is
one operation of the script. The client corrects its knowledge of an entity and tries again if that was the reason for a
refusal.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sbredis.client import (
    MOST_WORK,
    SETTLEMENTS,
    GrantRider,
    PartitionClient,
    TransactionJob,
    lock_lost,
    note_renewal,
    some_wait,
)
from sbredis.engine import (
    MAXIMUM_PARTICIPANTS,
    CallId,
    Lock,
    MessageId,
    Operation,
    Outgoing,
    Partition,
    PartRefusedError,
    SettingsStaleError,
    Transacted,
    TransactedRenewal,
    TransactedResult,
    TransactedSend,
    advance,
    decode,
    identifier,
    once,
    transfer,
)
from sbredis.exceptions import (
    KeyAlreadyUsedError,
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
    Outcome,
    ServiceBusError,
    WatermarkChangedError,
)
from sbredis.model import Hold, ServiceBusMessage, from_content
from sbredis.sending import require_one_key, require_sessions, transaction_key, views_for_rules

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.receiving import HeldSession
    from sbredis.registry import EntityRecord
    from sbredis.sending import Outbox

__all__ = [
    "AdvancePart",
    "SendPart",
    "SettlePart",
    "StatePart",
    "TransactedKind",
    "TransactionPart",
    "commit",
]

_log = logging.getLogger("sbredis.client")

TransactedKind = Literal["complete", "abandon", "defer", "dead_letter", "renew"]
_Keys = Mapping[bytes, tuple[MessageId, int]]
"""A mapping from each key of a transaction, in its stored form, to the key as it was given and its window in ms."""


@dataclass(slots=True, eq=False)
class SendPart:
    """Messages that one call of the transaction sends or schedules."""

    outbox: Outbox
    made: list[Outgoing]
    """The encoded messages, in the form for an entity that detects duplicates."""
    originals: list[ServiceBusMessage]
    """The messages of the application."""
    needs_numbers: bool
    """Whether the application needs the sequence numbers of the messages."""
    numbers: list[int] = field(default_factory=list[int])
    """The sequence numbers, after the commit."""
    _copies: list[ServiceBusMessage] | None = None

    @property
    def messages(self) -> list[ServiceBusMessage]:
        """Copies of the messages, as they were at the call. Rules and keys apply to them."""
        if self._copies is None:
            self._copies = [from_content(decode(one.payload)) for one in self.made]
        return self._copies


class SettlePart(NamedTuple):
    """A message that the transaction settles, or whose lock it renews."""

    kind: TransactedKind
    hold: Hold
    key: str | bytes | None
    """The key that has chosen the partition of the message; ``None`` if the message has no key."""
    changes: bytes = b""
    delay: int = 0


class StatePart(NamedTuple):
    """The state that the transaction sets for a session; None removes the state."""

    held: HeldSession
    state: bytes | None


@dataclass(slots=True, eq=False)
class AdvancePart:
    """A watermark that the transaction advances."""

    outbox: Outbox
    name: str
    expected: str | None
    value: str | None
    sequence_number: int | None = None
    """The sequence number that is stored with the watermark, after the commit."""


TransactionPart = SendPart | SettlePart | StatePart | AdvancePart


# -- steps -------------------------------------------------------------------------------------------------------------


class _CommitStep(ABC):
    """One operation of the transaction, on one partition of one entity."""

    def __init__(self, link: PartitionClient) -> None:
        self.link = link
        self.entity = link.entity
        self.number = link.number
        self.record: EntityRecord = link.entity.record
        """The record of the entity that the last request was made with."""
        self.room = MOST_WORK
        """The µs for which the copies of the operation may hold the server. With more, the messages are spread."""
        self.work = 0.0
        """The µs for which its copies hold the server, as estimated."""
        self.since: float | None = None
        """The time when the first request of this attempt to commit was made."""

    @abstractmethod
    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        """Return the operation for the engine."""

    async def confirm(self, deadline: float) -> bool:
        """Read again what the client knows and the script does not see. Return whether it has changed."""
        del deadline
        return False

    async def follow_up(self, deadline: float) -> None:
        """Do what is to be done after the call."""
        del deadline

    def happened(self, result: TransactedResult) -> list[ServiceBusMessage]:
        """Note that the operation has happened. Return the messages that were dropped as duplicates."""
        del result
        return []

    def explain(self, error: ServiceBusError, detail: str) -> ServiceBusError:
        """Return the error that the application gets for a refusal of this operation."""
        del detail
        error.entity = self.entity.name
        return error


class _KeysStep(_CommitStep):
    """The keys that the transaction remembers."""

    def __init__(self, link: PartitionClient, keys: _Keys) -> None:
        super().__init__(link)
        self._keys = dict(keys)  # the transaction forgets its keys when its caller is cancelled; the call may go on

    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        del call_id
        return once(partition, {key: window for key, (_, window) in self._keys.items()})

    def explain(self, error: ServiceBusError, detail: str) -> ServiceBusError:
        if isinstance(error, KeyAlreadyUsedError):
            given, _ = list(self._keys.values())[int(detail)]
            error.key = given
            error.message = (
                f"The transaction was refused and has changed nothing. An earlier transaction has used the key "
                f"{given!r}, and its window has not ended, so this work was done before. If the work has an input, "
                "complete the input in a transaction without once()."
            )
        return super().explain(error, detail)


class _SettleStep(_CommitStep):
    """_SettleStep of one kind in one partition."""

    def __init__(self, link: PartitionClient, kind: TransactedKind) -> None:
        super().__init__(link)
        self.kind = kind
        self.parts: list[SettlePart] = []

    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        locks: list[Lock] = [part.hold.lock(part.changes, part.delay) for part in self.parts]
        _, settle = SETTLEMENTS[self.kind]
        return Operation(partition, settle(partition, call_id, locks))

    def explain(self, error: ServiceBusError, detail: str) -> ServiceBusError:
        """Return the error with the sequence number or the session of the message whose lock was lost."""
        if not isinstance(error, MessageLockLostError):
            return super().explain(error, detail)
        name = detail.split(maxsplit=1)[0]
        hold = next(part.hold for part in self.parts if part.hold.name == name)
        made = lock_lost(self.link, name, hold.session, number=hold.sequence_number)
        made.message = f"The transaction was refused and has changed nothing. {made.message}"
        return made


class _RenewStep(_SettleStep):
    """Renewals of locks in one partition."""

    def __init__(self, link: PartitionClient) -> None:
        super().__init__(link, "renew")

    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        if self.since is None:  # a repetition of the call does not lock for longer than its first attempt
            self.since = self.link.connection.clock.now()
        return Operation(partition, partition.renew(call_id, [part.hold.lock() for part in self.parts]))

    def happened(self, result: TransactedResult) -> list[ServiceBusMessage]:
        """Update the end of each lock."""
        assert isinstance(result, TransactedRenewal)
        assert self.since is not None
        apart = set(result.apart)
        fresh = self.link.lease("", result.lock, self.since)
        for part in self.parts:
            if part.hold.lease is not None:
                note_renewal(part.hold, fresh, apart=part.hold.name in apart)
        return []


class _SessionStateStep(_CommitStep):
    """The new state of a session."""

    def __init__(self, link: PartitionClient, part: StatePart) -> None:
        super().__init__(link)
        self._part = part

    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        return Operation(partition, partition.set_state(call_id, self._part.held.lock, self._part.state))


class _WatermarkStep(_CommitStep):
    """A new value of a watermark."""

    def __init__(self, link: PartitionClient, part: AdvancePart) -> None:
        super().__init__(link)
        self._part = part

    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        del call_id
        part = self._part
        return advance(partition, identifier(part.name, "name"), part.expected, part.value)

    def happened(self, result: TransactedResult) -> list[ServiceBusMessage]:
        assert isinstance(result, int)
        self._part.sequence_number = self._global(result)
        return []

    def explain(self, error: ServiceBusError, detail: str) -> ServiceBusError:
        if isinstance(error, WatermarkChangedError):
            number, _, value = detail.partition(" ")
            error.name = self._part.name
            if value:
                error.value, error.sequence_number = value, self._global(int(number))
            error.message = (
                f"The transaction was refused and has changed nothing. It expects the watermark {error.name!r} to be "
                f"{_named(self._part.expected)}, but it is {_named(error.value)}: another transaction has advanced it."
            )
        return super().explain(error, detail)

    def _global(self, number: int) -> int | None:
        """Return the sequence number that the entity gives to this number of the partition; ``None`` for 0."""
        return self.entity.base(self.number) + number if number else None


def _named(value: str | None) -> str:
    return "absent" if value is None else repr(value)


class _SendStep(_CommitStep):
    """Messages for a queue or topic in the slot of the transaction."""

    def __init__(self, entity: Entity, link: PartitionClient, parts: Sequence[SendPart]) -> None:
        super().__init__(link)
        self._parts = parts
        self._target = entity
        self._widths: Sequence[int] = []
        self._waits = False
        """Whether messages wait on the topic to be spread."""

    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        entity, made = self._target, _made_for(self._target, self._parts)
        if entity.routing is None:
            if entity.record.kind == "topic":
                raise SettingsStaleError("The entity is a topic now, and this client has not read its rules yet.")
            self._widths = [1] * len(made)
            return Operation(partition, partition.send(call_id, made))
        views = [
            view
            for part in self._parts
            for view in views_for_rules(entity.connection, entity, part.messages, part.made)
        ]
        published = entity.routing.published(partition, self.number, call_id, made, views, room=self.room)
        self._widths, self.work = published.widths, published.work
        return Operation(partition, published.request)

    async def follow_up(self, deadline: float) -> None:
        """Spread the messages if no other client does."""
        if self._waits:
            connection = self.entity.connection
            await connection.observer.spread(connection, self._target, self.number, deadline)

    def happened(self, result: TransactedResult) -> list[ServiceBusMessage]:
        """Fill in the sequence numbers. Return the messages that were dropped as duplicates."""
        assert isinstance(result, TransactedSend)
        numbers = list(accumulate(self._widths[:-1], initial=self.entity.base(self.number) + result.first))
        at = 0
        for part in self._parts:
            part.numbers[:] = numbers[at : at + len(part.made)]
            at += len(part.made)
        _tell_test_bus(self._target, self._parts)
        made = [one for part in self._parts for one in part.made]
        utc = self.entity.connection.clock.utc()
        self._waits = bool(result.scheduled) and some_wait(made, self._widths, result.first, result.scheduled, utc)
        if result.dropped:
            self.entity.connection.observer.dropped_duplicates(self.entity.name, len(result.dropped))
        originals = [message for part in self._parts for message in part.originals]
        return [originals[place] for place in result.dropped]


class _TransferStep(_CommitStep):
    """Messages for a queue or topic in another slot. They wait in the home of the transaction until they are moved."""

    def __init__(self, via: PartitionClient, entity: Entity, number: int, parts: Sequence[SendPart]) -> None:
        super().__init__(via)
        self._destination = entity
        self._seen = entity.record
        self._there = number
        self._parts = parts

    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        del call_id
        destination = self._destination.partition(self._there)
        made = [one for part in self._parts for one in part.made]
        return transfer(partition, made, destination, self._there, self._destination.record.path)

    async def confirm(self, deadline: float) -> bool:
        """Look for the destination, because the script sees only the slot of the home."""
        try:
            await self._destination.confirm(deadline)
        except ServiceBusError as error:
            if error.outcome is Outcome.UNKNOWN:  # the look-up may have happened, but the commit comes after it
                error.outcome = Outcome.NEVER_SENT
            raise
        return self._destination.record is not self._seen

    def happened(self, result: TransactedResult) -> list[ServiceBusMessage]:
        del result
        _tell_test_bus(self._destination, self._parts)
        connection = self.entity.connection
        connection.observer.moves_from(connection, self.entity.record, waits=True)
        return []

    def explain(self, error: ServiceBusError, detail: str) -> ServiceBusError:
        del detail
        error.entity = (self._destination if isinstance(error, MessageSizeExceededError) else self.entity).name
        return error


def _made_for(entity: Entity, parts: Sequence[SendPart]) -> list[Outgoing]:
    """Return the encoded messages in the form for an entity."""
    if entity.detects_duplicates:
        return [one for part in parts for one in part.made]
    return [
        Outgoing(payload, time_to_live, level, b"", due, origin)
        for part in parts
        for payload, time_to_live, level, _, due, origin in part.made
    ]


def _tell_test_bus(entity: Entity, parts: Sequence[SendPart]) -> None:
    hooks = entity.connection.test_hooks
    if hooks is not None:
        hooks.sent(entity.connection.target.namespace, entity.name, _made_for(entity, parts))


# -- from parts to steps -----------------------------------------------------------------------------------------------


async def _steps_of(parts: Sequence[TransactionPart], keys: _Keys, deadline: float) -> list[_CommitStep]:
    """Return the operations of a transaction: parts of one kind on one partition become one operation.

    The first entity that the transaction settles in is its home; without a settlement, the first to which it sends;
    and without both, the entity of its first watermark.
    The home's partition decides the slot of the transaction, and remembers its keys. Messages for another slot wait in
    this partition until they are moved. The same calls always have the same home.
    """
    settling = _settle_steps(parts)
    sends: dict[Entity, list[SendPart]] = {}
    advancing = await _watermark_steps(parts, deadline)
    for part in parts:
        if isinstance(part, SendPart):
            entity = await part.outbox.ready(deadline)
            if entity.record.settings.sessions:
                await require_sessions(entity, part.messages, deadline)
            if any(len(one.payload) > entity.largest_message for one in part.made):
                await entity.refresh(deadline)  # the limit may have been raised since this client read it
            sends.setdefault(entity, []).append(part)
    here: list[_CommitStep] = []
    elsewhere: list[_CommitStep] = []
    home = settling[0].link if settling else None
    for entity, own in sends.items():
        link = entity.partition_client(entity.numbers[0])
        if entity.partitioned:
            key = transaction_key(entity, [message for part in own for message in part.messages])
            link = entity.pinned(key)
            _require_same_partition(entity, link, key, parts)
        home = home or link
        if link.number == home.number:
            here.append(_SendStep(entity, link, own))
        else:
            _refuse_numbers(entity, home, own)
            elsewhere.append(_TransferStep(home, entity, link.number, own))
    home = home or (advancing[0].link if advancing else None)
    if home is None:
        raise ValueError(
            "The transaction remembers a key, but neither sends nor settles a message. The key belongs to the entity "
            "of its first settlement, or else of its first send: record one of them."
        )
    _require_here(home, advancing)
    remembering: list[_CommitStep] = [_KeysStep(home, keys)] if keys else []
    steps = [*remembering, *settling, *here, *elsewhere, *advancing]  # watermarks store the numbers of the messages
    participants = len({step.link for step in steps})
    if participants > MAXIMUM_PARTICIPANTS:
        raise ValueError(
            f"A transaction takes up to {MAXIMUM_PARTICIPANTS} queues, topics and subscriptions, and this one has "
            f"{participants}."
        )
    return steps


def _settle_steps(parts: Sequence[TransactionPart]) -> list[_CommitStep]:
    """Return the settlements and session states of a transaction. Refuse those of different slots."""
    steps: dict[tuple[Any, ...], _CommitStep] = {}
    for part in parts:
        if isinstance(part, SettlePart):
            link: PartitionClient = part.hold.reception.link
            step = steps.get((link, part.kind))
            if step is None:
                made = _RenewStep(link) if part.kind == "renew" else _SettleStep(link, part.kind)
                step = steps[link, part.kind] = made
            assert isinstance(step, _SettleStep)
            step.parts.append(part)
        elif isinstance(part, StatePart):
            link = part.held.partition_client
            steps[link, part.held.name, "state"] = _SessionStateStep(link, part)
    listed = list(steps.values())
    for step in listed:
        if step.number != listed[0].number:
            raise _not_together(listed[0], step)
    return listed


def _not_together(first: _CommitStep, other: _CommitStep) -> ServiceBusError:
    if first.entity is other.entity:
        text = (
            f"The transaction settles messages of two partitions of '{first.entity.name}'. It can settle messages of "
            "one partition: messages with the same key are in the same one. Use a transaction for each key."
        )
    else:
        text = (
            f"The transaction settles messages of '{first.entity.name}' and of '{other.entity.name}', which are in "
            "different slots of the namespace. It can settle messages of one slot, and send to all: use a transaction "
            "for each entity, or create one entity with colocate_with the other."
        )
    error = ServiceBusError(text, outcome=Outcome.NEVER_SENT)
    error.entity = other.entity.name
    return error


async def _watermark_steps(parts: Sequence[TransactionPart], deadline: float) -> list[_CommitStep]:
    steps: list[_CommitStep] = []
    for part in parts:
        if isinstance(part, AdvancePart):
            entity = await part.outbox.ready(deadline)
            steps.append(_WatermarkStep(entity.of_session(part.name), part))
    return steps


def _require_here(home: PartitionClient, advancing: Iterable[_CommitStep]) -> None:
    """Refuse watermarks in other slots than the home of the transaction."""
    for step in advancing:
        if step.number != home.number:
            error = ServiceBusError(
                f"The transaction advances a watermark of '{step.entity.name}', which is in another slot of the "
                f"namespace than its messages of '{home.entity.name}'. {_apart(home.entity, step.entity)}",
                outcome=Outcome.NEVER_SENT,
            )
            error.entity = step.entity.name
            raise error


def _apart(home: Entity, other: Entity) -> str:
    """Return what to do about a watermark of an entity in another slot than the messages of ``home``."""
    if home.numbers != other.numbers:
        return "Create one entity with colocate_with the other."
    return (
        "The name of a watermark decides its partition: send messages with this name as their partition_key or "
        "session_id, and settle messages with this key."
    )


def _require_same_partition(
    entity: Entity, link: PartitionClient, key: str | bytes, parts: Iterable[TransactionPart]
) -> None:
    """Refuse a send to a partitioned entity if the transaction settles messages of the entity with another key.

    A settled message without a key stands for its partition.
    """
    keys: list[str | bytes] = []
    for part in parts:
        if isinstance(part, SettlePart) and part.hold.reception.link.entity is entity:
            if part.key is not None:
                keys.append(part.key)
            elif part.hold.reception.link is not link:
                raise ValueError(
                    f"The transaction settles a message without a key of the partitioned {entity.record.kind} "
                    f"{entity.name!r}, and sends messages with the key {key!r} to another partition of it. Send them "
                    "outside of this transaction."
                )
        elif isinstance(part, StatePart) and part.held.entity is entity:
            keys.append(part.held.name)
    require_one_key(entity, [*keys, key])


def _refuse_numbers(entity: Entity, home: PartitionClient, parts: Sequence[SendPart]) -> None:
    """Refuse to schedule messages in another slot, because they get their sequence numbers only there."""
    if any(part.needs_numbers for part in parts):
        error = ServiceBusError(
            f"'{entity.name}' and '{home.entity.name}' are in different slots of the namespace, so messages that this "
            f"transaction schedules on '{entity.name}' have no sequence numbers at its end. Set their "
            "scheduled_enqueue_time_utc and use send_messages of the transaction, which returns no numbers, or create "
            "one entity with colocate_with the other.",
            outcome=Outcome.NEVER_SENT,
        )
        error.entity = entity.name
        raise error


# -- the call ----------------------------------------------------------------------------------------------------------


class _CommitJob(TransactionJob):
    """One call of a commit. It has its effect on the messages even if the caller was cancelled meanwhile."""

    def __init__(self, steps: Sequence[_CommitStep], messages: int, size: int, deadline: float) -> None:
        super().__init__(deadline, messages, size, frozenset([step.link for step in steps]))
        self.duplicates: list[ServiceBusMessage] = []
        self._done = False
        self._steps = steps
        self._parts = [part for step in steps if isinstance(step, _SettleStep) for part in step.parts]
        for part in self._parts:
            part.hold.settled = True  # also while a lock is renewed, because its token may change
        for step in steps:
            step.since = None

    def ended(self) -> None:
        """Mark the messages as not settled if the call did not settle them."""
        for part in self._parts:
            if not self._done or part.kind == "renew":
                part.hold.settled = False
            elif part.hold.watchers:
                part.hold.let_go()

    def count_riders(self, link: PartitionClient, riders: dict[GrantRider, int]) -> None:
        """Add to the numbers of messages that the transaction settles for each receiver at this partition."""
        for step in self._steps:
            if isinstance(step, _SettleStep) and step.kind != "renew" and step.link is link:
                for part in step.parts:
                    if (rider := part.hold.reception.rider) is not None:
                        riders[rider] = riders.get(rider, 0) + 1

    def happened(self, result: Transacted) -> None:
        """Note what has happened to the messages."""
        self._done = True
        for step, sent in zip(self._steps, result.results, strict=True):
            self.duplicates += step.happened(sent)
        if result.forgotten:
            _log.warning(
                "%s: the partition has forgotten %d keys of transactions before the ends of their windows, because it "
                "remembers up to 100,000 keys of up to 8 MB together; use shorter windows or shorter keys",
                self._steps[0].link,
                result.forgotten,
            )

    def operations(self, now: int | None) -> tuple[list[Operation], float]:
        """Return the operations, and the work of their copies. An error names its operation."""
        operations: list[Operation] = []
        work = 0.0
        call_id = CallId("", 0, now)
        for index, step in enumerate(self._steps):
            step.record = step.entity.record
            try:
                step.room = MOST_WORK - work
                operations.append(step.operation(step.link.partition, call_id))
                work += step.work
            except ServiceBusError as error:
                raise PartRefusedError(error, operation=index) from None
        return operations, work


async def commit(
    parts: Sequence[TransactionPart], keys: _Keys, messages: int, size: int, deadline: float
) -> list[ServiceBusMessage]:
    """Carry out all parts of a transaction, or none. Return the messages that were dropped as duplicates.

    ``messages`` and ``size`` are the number and the bytes of all messages, session states,
    keys and watermarks.
    """
    steps = await _steps_of(parts, keys, deadline)
    while any([await step.confirm(deadline) for step in steps]):
        steps = await _steps_of(parts, keys, deadline)
    for part in parts:
        if isinstance(part, SettlePart) and part.hold.settled and part.hold.reception.link.settles(part.hold):
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
        return await _carry_out(steps, messages, size, deadline)


async def _carry_out(
    steps: Sequence[_CommitStep], messages: int, size: int, deadline: float
) -> list[ServiceBusMessage]:
    """Make the call. If the client's knowledge of an entity is out of date, correct it and make the call again."""
    lane = steps[0].link.transacting
    while True:
        try:
            job = _CommitJob(steps, messages, size, deadline)
            try:
                await lane.submit(job)
            except BaseException:
                lane.drop_forsaken()  # if the call was not made, the messages can be settled at once
                raise
            for step in steps:
                await step.follow_up(deadline)
            return job.duplicates
        except PartRefusedError as refusal:
            step, error = steps[refusal.operation], refusal.reason
            error.entity = step.entity.name
            if not await step.link.overcome(error, step.record, deadline):
                raise step.explain(error, refusal.detail) from None
