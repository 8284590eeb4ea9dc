"""Find the destination of messages that wait to be moved: an entity, and the partition for the key of the message."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sbredis.client import CALLING, facts_of
from sbredis.engine import (
    LOST_RECORD,
    Batch,
    Content,
    Delivery,
    Destination,
    Recipient,
    number_of,
    partition_for_key,
    recipient_of,
)
from sbredis.exceptions import (
    DataLayoutError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusError,
)
from sbredis.model import BROKERS_REASONS, MoveKind, Purpose, TooManyHopsError, key_of_content, moved, read_purpose
from sbredis.moving._moves import Bound, Fault, Move

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.registry import EntityRecord

__all__ = ["Destinations", "Finder", "Heap", "MoveSource", "NotKnownYetError", "fault_of", "partition_of"]

_REASONS = {
    "QUOTA": ("QuotaExceeded", "'{}' is full."),
    "DISABLED": ("MessagingEntityDisabled", "The status of '{}' does not permit sending."),
    "TOOLARGE": ("MessageSizeExceeded", "The message is larger than '{}' allows."),
    "SESSIONS": ("Session ID is null.", "'{}' requires sessions, and the message has no session id."),
    "GONE": ("MessagingEntityNotFound", "'{}' does not exist."),
    "HOPS": ("MaxTransferHopCountExceeded", "The message was on its way to '{}' after the 4 hops that are allowed."),
    "LOST": BROKERS_REASONS["R"],
    "UNREADABLE": ("UnreadableMessage", "This release cannot read the message, so it was not moved to '{}'."),
}
"""The reason and the description of a message that is given up, by the cause."""


class NotKnownYetError(ServiceBusError):
    """It is not known yet whether the destination exists, because the census is older than the message."""

    is_transient = True


def fault_of(code: str, path: str) -> Fault:
    """Return the reason and the description of a message that cannot be moved to ``path``."""
    reason, text = _REASONS.get(code, (code, "The message cannot be stored in '{}'."))
    return Fault(reason, text.format(path))


def partition_of(entity: Entity, content: Content, number: int) -> int:
    """Return the partition of an entity for a message from the partition ``number`` of another entity.

    A message without a key goes to the first partition at its own slot or after it, around the slots of the namespace.
    So the partitions of one entity spread such messages over those of the other.
    """
    if not entity.partitioned:
        return entity.numbers[0]
    key = key_of_content(content, detects_duplicates=entity.detects_duplicates)
    if key is not None:
        return entity.numbers[partition_for_key(key, len(entity.numbers))]
    return entity.numbers[bisect_left(entity.numbers, number) % len(entity.numbers)]


@dataclass(eq=False, slots=True)
class Heap:
    """Messages for one destination, in their order."""

    destination: Destination
    entity: Entity | None
    """The destination; ``None`` if it does not exist."""
    moves: list[Move]


@dataclass(frozen=True, slots=True)
class MoveSource:
    """The partition that messages come from."""

    record: EntityRecord
    """The record of its entity."""
    number: int

    @property
    def nowhere(self) -> Destination:
        """The name under which messages without a destination are frozen, to be given up."""
        return Destination(self.record.id, self.number)

    def _number(self, delivery: Delivery) -> int:
        """Return the sequence number of a message, and of a dead letter the one that it had before it died."""
        own = delivery.died_as if delivery.died_as is not None else number_of(delivery.name)
        return (self.number << 48 if self.record.partitioned else 0) + own

    def move(
        self, delivery: Delivery, purpose: Purpose, entity: Entity | None, path: str, now: int
    ) -> tuple[Move, Destination]:
        """Return a message as ``entity`` gets it, and the partition of the entity; or why it cannot be moved."""
        if entity is None:
            return Move(Bound(delivery), fault_of("GONE", path)), self.nowhere
        if delivery.record == LOST_RECORD:
            return Move(Bound(delivery), fault_of("LOST", path)), self.nowhere
        why = purpose.kind(delivery)
        died_in = self.record.path if why in {"dead", "redrive"} else None
        try:
            made, content = moved(
                delivery,
                purpose,
                number=0 if why == "transfer" else self._number(delivery),
                now=now,
                died_in=died_in,
                detects_duplicates=entity.detects_duplicates,
                partitioned=entity.partitioned,
            )
        except TooManyHopsError:
            return Move(Bound(delivery), fault_of("HOPS", path)), self.nowhere
        except DataLayoutError:
            return Move(Bound(delivery), fault_of("UNREADABLE", path)), self.nowhere
        except MessageSizeExceededError:
            return Move(Bound(delivery), fault_of("TOOLARGE", path)), self.nowhere
        record = entity.record
        if record.settings.sessions and content.session_id is None:
            return Move(Bound(delivery), fault_of("SESSIONS", path)), self.nowhere
        facts = facts_of(content) if record.kind == "topic" and made.due is None else None
        if why == "transfer" and (recipient := recipient_of(delivery)) is not None:
            place = Destination(recipient.entity, recipient.number)
        else:
            place = Destination(record.id, partition_of(entity, content, self.number))
        return Move(Bound(delivery, made, facts)), place


class Finder(ABC):
    """Finds the entities that the messages of one source go to."""

    @abstractmethod
    async def target(self, delivery: Delivery, why: MoveKind) -> tuple[Entity | None, str]:
        """Return the destination of a message, which is ``None`` if it does not exist, and its path."""

    @abstractmethod
    async def by_id(self, entity_id: str, path: str | None) -> Entity:
        """Return the entity with this id. Raise :class:`MessagingEntityNotFoundError` if it does not exist any more.

        ``path`` is its name, if the messages tell it.
        """


class Destinations:
    """Finds destinations for the messages of one source partition."""

    def __init__(self, source: Entity, number: int, finder: Finder, purpose: Purpose) -> None:
        self._source = MoveSource(source.record, number)
        self._finder = finder
        self.purpose = purpose
        """The purpose of the messages that are sorted here."""
        self.nowhere = self._source.nowhere

    async def sorted(self, messages: Iterable[Delivery], now: int) -> tuple[list[Heap], ServiceBusError | None]:
        """Sort messages by their destinations. ``now`` is the time of the source partition.

        Messages whose destination is not known yet are left out. Then return an error, too.

        Before a message is given up because of the client's knowledge of its destination, this knowledge is renewed.
        """
        renewed = set[Recipient | MoveKind | None]()
        while (result := await self._sorted(messages, now, renewed)) is None:
            pass
        return result

    async def _sorted(
        self, messages: Iterable[Delivery], now: int, renewed: set[Recipient | MoveKind | None]
    ) -> tuple[list[Heap], ServiceBusError | None] | None:
        """Sort messages. Return ``None`` if the knowledge of a destination was renewed meanwhile."""
        heaps: dict[Destination, Heap] = {}
        targets: dict[Recipient | MoveKind | None, tuple[Entity | None, str] | None] = {}
        missing: ServiceBusError | None = None
        for each in messages:
            why = self.purpose.kind(each)
            try:
                key = recipient_of(each) if why == "transfer" else why
            except DataLayoutError:
                moves = heaps.setdefault(self.nowhere, Heap(self.nowhere, None, [])).moves
                moves.append(Move(Bound(each), fault_of("UNREADABLE", "its destination")))
                continue
            if key not in targets:
                try:
                    targets[key] = await self._finder.target(each, why)
                except ServiceBusError as error:
                    targets[key], missing = None, error
            target = targets[key]
            if target is None:
                continue
            entity, path = target
            move, place = self._source.move(each, self.purpose, entity, path, now)
            made = move.message.outgoing
            if entity is not None and made is not None and len(made.payload) > entity.largest_message:
                move, place = Move(Bound(each), fault_of("TOOLARGE", path)), self.nowhere
            if move.fault is not None and entity is not None and key not in renewed:
                renewed.add(key)
                with suppress(MessagingEntityNotFoundError):  # found out again by the next attempt
                    await entity.refresh(asyncio.get_running_loop().time() + CALLING)
                return None
            heap = heaps.get(place)
            if heap is None:
                heap = heaps[place] = Heap(place, entity if place != self.nowhere else None, [])
            heap.moves.append(move)
        return list(heaps.values()), missing

    async def of_batch(self, batch: Batch, messages: Sequence[Delivery], now: int) -> Heap:
        """Return the messages of a batch."""
        destination, purpose = batch.destination, read_purpose(batch.purpose)
        if destination == self.nowhere:
            heaps, _ = await self.sorted(messages, now)
            (faulty,) = [heap for heap in heaps if heap.entity is None] or [Heap(self.nowhere, None, [])]
            faults = {move.message.name: move for move in faulty.moves}
            return Heap(destination, None, [faults.get(each.name, Move(Bound(each))) for each in messages])
        try:
            entity = await self._finder.by_id(destination.entity, purpose.to)
        except MessagingEntityNotFoundError:
            fault = fault_of("GONE", purpose.to or destination.entity) if purpose.chosen else None
            return Heap(destination, None, [Move(Bound(each), fault) for each in messages])
        # The destination may have taken the batch before a record was lost, so ask it, although no call can carry it.
        moves = [
            Move(Bound(each))
            if each.record == LOST_RECORD
            else self._source.move(each, purpose, entity, entity.name, now)[0]
            for each in messages
        ]
        return Heap(destination, entity, moves)
