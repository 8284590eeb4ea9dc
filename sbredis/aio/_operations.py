"""The operations of a transaction: what its recorded calls do on the partitions of entities."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sbredis.aio._transaction_parts import (
    AdvancePart,
    Keys,
    Part,
    SendPart,
    SettleKind,
    SettlePart,
    StatePart,
)
from sbredis.client._lane_kinds import lock_lost
from sbredis.client._partition_client import SETTLEMENTS, PartitionClient
from sbredis.engine import (
    MAXIMUM_PARTICIPANTS,
    CallId,
    Lock,
    Operation,
    Outgoing,
    Partition,
    SettingsStaleError,
    TransactedRenewal,
    TransactedResult,
    TransactedSend,
    advance,
    identifier,
    new_token,
    once,
    transfer,
)
from sbredis.exceptions import (
    KeyAlreadyUsedError,
    MessageLockLostError,
    MessageSizeExceededError,
    Outcome,
    ServiceBusError,
    WatermarkChangedError,
)
from sbredis.model import ServiceBusMessage
from sbredis.sending._outbox import views_for_rules
from sbredis.sending._sendable import require_one_key, require_sessions, transaction_key

if TYPE_CHECKING:
    from sbredis.client._entity import Entity
    from sbredis.registry import EntityRecord

__all__ = [
    "Settlements",
    "Work",
    "works_of",
]

_log = logging.getLogger("sbredis.client")


class Work(ABC):
    """One operation of the transaction, on one partition of one entity."""

    def __init__(self, link: PartitionClient) -> None:
        self.link = link
        self.entity = link.entity
        self.number = link.number
        self.record: EntityRecord = link.entity.record
        """The record of the entity that the last request was made with."""
        self.copies = 0
        """The number of copies that the operation makes in subscriptions."""
        self.since: float | None = None
        """The time when the first request of this attempt to commit was made."""

    @abstractmethod
    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        """Return the operation for the engine."""

    async def confirm(self, deadline: float) -> bool:
        """Read again what the client knows and the script does not see. Return whether it has changed."""
        del deadline
        return False

    def happened(self, result: TransactedResult) -> list[ServiceBusMessage]:
        """Note that the operation has happened. Return the messages that were dropped as duplicates."""
        del result
        return []

    def explain(self, error: ServiceBusError, detail: str) -> ServiceBusError:
        """Return the error that the application gets for a refusal of this operation."""
        del detail
        error.entity = self.entity.name
        return error


class _Remembering(Work):
    """The keys that the transaction remembers."""

    def __init__(self, link: PartitionClient, keys: Keys) -> None:
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


class Settlements(Work):
    """Settlements of one kind in one partition."""

    def __init__(self, link: PartitionClient, kind: SettleKind) -> None:
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
        made = lock_lost(self.link, name, hold.session)
        made.message = f"The transaction was refused and has changed nothing. {made.message}"
        return made


class _Renewals(Settlements):
    """Renewals of locks in one partition."""

    def __init__(self, link: PartitionClient) -> None:
        super().__init__(link, "renew")
        self._token = new_token()
        """The token for messages that do not keep their lease."""

    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        if self.since is None:  # a repetition of the call does not lock for longer than its first attempt
            self.since = self.link.connection.clock.now()
        return Operation(partition, partition.renew(call_id, self._token, [part.hold.lock() for part in self.parts]))

    def happened(self, result: TransactedResult) -> list[ServiceBusMessage]:
        """Update the end of each lock. Messages that the partition moved share a new lease from now on."""
        assert isinstance(result, TransactedRenewal)
        assert self.since is not None
        moved = set(result.moved)
        fresh = self.link.lease(self._token, result.lock, self.since)
        for part in self.parts:
            before = part.hold.lease
            if part.hold.name in moved:
                part.hold.lease = fresh
            elif before is not None:
                before.until, before.until_utc = fresh.until, fresh.until_utc
        return []


class _State(Work):
    """The new state of a session."""

    def __init__(self, link: PartitionClient, part: StatePart) -> None:
        super().__init__(link)
        self._part = part

    def operation(self, partition: Partition, call_id: CallId) -> Operation:
        return Operation(partition, partition.set_state(call_id, self._part.held.lock, self._part.state))


class _Advance(Work):
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


class _Sends(Work):
    """Messages for a queue or topic in the slot of the transaction."""

    def __init__(self, entity: Entity, link: PartitionClient, parts: Sequence[SendPart]) -> None:
        super().__init__(link)
        self._parts = parts
        self._target = entity
        self._widths: list[int] = []

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
        routed = entity.routing.routed(made, views)
        self.copies = sum(len(route or ()) for route in routed.routes)
        request, self._widths = entity.routing.published(partition, self.number, call_id, made, views, routed=routed)
        return Operation(partition, request)

    def happened(self, result: TransactedResult) -> list[ServiceBusMessage]:
        """Fill in the sequence numbers. Return the messages that were dropped as duplicates."""
        assert isinstance(result, TransactedSend)
        numbers = list(accumulate(self._widths[:-1], initial=self.entity.base(self.number) + result.first))
        at = 0
        for part in self._parts:
            part.numbers[:] = numbers[at : at + len(part.made)]
            at += len(part.made)
        _tell_test_bus(self._target, self._parts)
        if result.dropped:
            self.entity.connection.observer.dropped_duplicates(self.entity.name, len(result.dropped))
        originals = [message for part in self._parts for message in part.originals]
        return [originals[place] for place in result.dropped]


class _Transfers(Work):
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
        made, path = _made_for(self._destination, self._parts), self._destination.record.path
        return transfer(partition, made, destination, self._there, path)

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
    detects = entity.detects_duplicates
    return [one if detects else one._replace(message_id=b"") for part in parts for one in part.made]


def _tell_test_bus(entity: Entity, parts: Sequence[SendPart]) -> None:
    hooks = entity.connection.test_hooks
    if hooks is not None:
        hooks.sent(entity.connection.target.namespace, entity.name, _made_for(entity, parts))


# -- from calls to operations ------------------------------------------------------------------------------------------


async def works_of(parts: Sequence[Part], keys: Keys, deadline: float) -> list[Work]:
    """Return the operations of a transaction: parts of one kind on one partition become one operation.

    The first entity that the transaction settles in is its home; without a settlement, the first to which it sends;
    and without both, the entity of its first watermark.
    The home's partition decides the slot of the transaction, and remembers its keys. Messages for another slot wait in
    this partition until they are moved. The same calls always have the same home.
    """
    settling = _settling(parts)
    sends: dict[Entity, list[SendPart]] = {}
    advancing = await _advancing(parts, deadline)
    for part in parts:
        if isinstance(part, SendPart):
            entity = await part.outbox.ready(deadline)
            if entity.record.settings.sessions:
                await require_sessions(entity, part.messages, deadline)
            if any(len(one.payload) > entity.largest_message for one in part.made):
                await entity.refresh(deadline)  # the limit may have been raised since this client read it
            sends.setdefault(entity, []).append(part)
    here: list[Work] = []
    elsewhere: list[Work] = []
    home = settling[0].link if settling else None
    for entity, own in sends.items():
        link = entity.partition_client(entity.numbers[0])
        if entity.partitioned:
            key = transaction_key(entity, [message for part in own for message in part.messages])
            link = entity.pinned(key)
            _require_same_partition(entity, link, key, parts)
        home = home or link
        if link.number == home.number:
            here.append(_Sends(entity, link, own))
        else:
            _refuse_numbers(entity, home, own)
            elsewhere.append(_Transfers(home, entity, link.number, own))
    home = home or (advancing[0].link if advancing else None)
    if home is None:
        raise ValueError(
            "The transaction remembers a key, but neither sends nor settles a message. The key belongs to the entity "
            "of its first settlement, or else of its first send: record one of them."
        )
    _require_here(home, advancing)
    remembering: list[Work] = [_Remembering(home, keys)] if keys else []
    works = [*remembering, *settling, *here, *elsewhere, *advancing]  # watermarks store the numbers of the messages
    participants = len({work.link for work in works})
    if participants > MAXIMUM_PARTICIPANTS:
        raise ValueError(
            f"A transaction takes up to {MAXIMUM_PARTICIPANTS} queues, topics and subscriptions, and this one has "
            f"{participants}."
        )
    return works


def _settling(parts: Sequence[Part]) -> list[Work]:
    """Return the settlements and session states of a transaction. Refuse those of different slots."""
    works: dict[tuple[Any, ...], Work] = {}
    for part in parts:
        if isinstance(part, SettlePart):
            entity: Entity = part.hold.reception.owner  # type: ignore[assignment]
            link = entity.partition_client_of(part.hold)
            made = _Renewals(link) if part.kind == "renew" else Settlements(link, part.kind)
            work = works.setdefault((link, part.kind), made)
            assert isinstance(work, Settlements)
            work.parts.append(part)
        elif isinstance(part, StatePart):
            link = part.held.partition_client
            works[link, part.held.name, "state"] = _State(link, part)
    listed = list(works.values())
    for work in listed:
        if work.number != listed[0].number:
            raise _not_together(listed[0], work)
    return listed


def _not_together(first: Work, other: Work) -> ServiceBusError:
    if first.entity is other.entity:
        text = (
            f"The transaction settles messages of two partitions of '{first.entity.name}'. It can settle messages of "
            "one partition: messages with the same key are in the same one. Use a transaction for each key."
        )
    else:
        text = (
            f"The transaction settles messages of '{first.entity.name}' and of '{other.entity.name}', which are in "
            "different partitions of the namespace. It can settle messages of one partition, and send to all: use a "
            "transaction for each entity, or create one entity with colocate_with the other."
        )
    error = ServiceBusError(text, outcome=Outcome.NEVER_SENT)
    error.entity = other.entity.name
    return error


async def _advancing(parts: Sequence[Part], deadline: float) -> list[Work]:
    works: list[Work] = []
    for part in parts:
        if isinstance(part, AdvancePart):
            entity = await part.outbox.ready(deadline)
            works.append(_Advance(entity.of_session(part.name), part))
    return works


def _require_here(home: PartitionClient, advancing: Iterable[Work]) -> None:
    """Refuse watermarks in other slots than the home of the transaction."""
    for work in advancing:
        if work.number != home.number:
            error = ServiceBusError(
                f"The transaction advances a watermark of '{work.entity.name}', which is in another partition of the "
                f"namespace than its messages of '{home.entity.name}'. The name of a watermark decides its partition: "
                "send messages with this name as their partition_key or session_id, and settle messages with this key.",
                outcome=Outcome.NEVER_SENT,
            )
            error.entity = work.entity.name
            raise error


def _require_same_partition(entity: Entity, link: PartitionClient, key: str | bytes, parts: Iterable[Part]) -> None:
    """Refuse a send to a partitioned entity if the transaction settles messages of the entity with another key.

    A settled message without a key stands for its partition.
    """
    keys: list[str | bytes] = []
    for part in parts:
        if isinstance(part, SettlePart) and part.hold.reception.owner is entity:
            if part.key is not None:
                keys.append(part.key)
            elif entity.partition_client_of(part.hold) is not link:
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
            f"'{entity.name}' and '{home.entity.name}' are in different partitions of the namespace, so messages that "
            f"this transaction schedules on '{entity.name}' have no sequence numbers at its end. Set their "
            "scheduled_enqueue_time_utc and use send_messages of the transaction, which returns no numbers.",
            outcome=Outcome.NEVER_SENT,
        )
        error.entity = entity.name
        raise error
