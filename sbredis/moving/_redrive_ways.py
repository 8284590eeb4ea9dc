"""The two ways of a redrive: back to the entity of the dead letters, and to another queue or topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sbredis.engine import NEVER, Delivery, Recipient, Redrive, payload_offset, recipient_of
from sbredis.exceptions import DataLayoutError, MessageSizeExceededError, MessagingEntityNotFoundError
from sbredis.model import PrimitiveTypes, ServiceBusReceivedMessage, current_content, hold_of, redrive_of
from sbredis.moving._chosen import ChosenMover, Find, complete_batches
from sbredis.moving._destinations import partition_of
from sbredis.moving._sides import DeadLetters, key_of, own_number
from sbredis.registry import split_path

if TYPE_CHECKING:
    from sbredis.client import Entity

__all__ = ["Back", "Elsewhere", "MovedRange", "Way"]

_FOREVER = (1 << 53) - 1


class MovedRange(NamedTuple):
    """The numbers of messages in a partition to which they were redriven."""

    number: int
    first: int
    last: int


class Way(ABC):
    """A way of a redrive."""

    watched: DeadLetters
    """The dead-letter queue in which messages are that have died again."""

    @abstractmethod
    async def open(self) -> None:
        """Prepare to move messages."""

    @abstractmethod
    async def carry(self, number: int, messages: Sequence[ServiceBusReceivedMessage]) -> Mapping[str, bytes]:
        """Move dead letters of one partition. Return the names of those that were moved, and their keys."""

    @abstractmethod
    def moved_to(self) -> list[MovedRange]:
        """Return where the messages are that were moved since the last call, among others."""


class Back(Way):
    """Moves dead letters back to the main side, and lets transfer dead letters wait for a mover again."""

    def __init__(
        self,
        letters: DeadLetters,
        modify: Mapping[str, PrimitiveTypes] | None,
        find: Find,
    ) -> None:
        self.watched = letters
        self._modify = modify
        self._find = find
        self._found: dict[Recipient, Entity | None] = {}
        self._ranges: list[MovedRange] = []
        self._longest = NEVER

    async def open(self) -> None:
        """Complete the batches of other redrives, and read how long messages of a subscription's topic may live."""
        entity = self.watched.entity
        await complete_batches(entity, self._find)
        if entity.record.kind == "subscription":
            topic = await self._find(split_path(entity.record.path)[0])
            self._longest = topic.record.settings.time_to_live

    async def carry(self, number: int, messages: Sequence[ServiceBusReceivedMessage]) -> Mapping[str, bytes]:
        """Move dead letters of one partition. Return the names of those that were moved, and their keys."""
        asked: dict[str, Redrive] = {}
        keys: dict[str, bytes] = {}
        for message in messages:
            delivery, recipient = hold_of(message).delivery, None
            if self.watched.side == "t" and (recipient := await self._recipient(number, delivery)) is None:
                continue
            try:
                asked[delivery.name] = redrive_of(message, self._modify, recipient, longest=self._longest)
            except MessageSizeExceededError:
                continue
            keys[delivery.name] = key_of(delivery.record[payload_offset(delivery.record) :])
        done: dict[str, bytes] = {}
        while asked:
            names = list(asked)
            result = await self.watched.redrive(number, list(asked.values()))
            moved = result.moved(names)
            if moved:
                self._ranges.append(MovedRange(number, result.first, result.first + len(moved) - 1))
            done |= {name: keys[name] for name in moved}
            gone = {*moved, *result.missing, *result.unfit}
            asked = {name: one for name, one in asked.items() if name not in gone}
        return done

    def moved_to(self) -> list[MovedRange]:
        """Return where the messages are that were moved since the last call."""
        ranges, self._ranges = self._ranges, []
        return ranges

    async def _recipient(self, number: int, delivery: Delivery) -> Recipient | None:
        """Return the present destination of a transfer dead letter; ``None`` if it does not exist."""
        try:
            before = recipient_of(delivery)
        except DataLayoutError:
            return None
        if before is None:
            return None
        if before not in self._found:
            try:
                self._found[before] = await self._find(before.path)
            except MessagingEntityNotFoundError:
                self._found[before] = None
        entity = self._found[before]
        if entity is None:
            return None
        if entity.record.id == before.entity:
            return before
        place = partition_of(entity, current_content(delivery, with_reason=False), number)
        return Recipient(entity.record.id, entity.record.incarnation, place, entity.record.path)


class Elsewhere(Way):
    """Moves dead letters to another queue or topic."""

    def __init__(self, mover: ChosenMover) -> None:
        self.watched = DeadLetters(mover.entity, "d")
        self._mover = mover

    async def open(self) -> None:
        """Read the rules of a topic. Complete the batches that other clients have left behind."""
        await self._mover.open()

    async def carry(self, number: int, messages: Sequence[ServiceBusReceivedMessage]) -> Mapping[str, bytes]:
        """Move dead letters of one partition. Return the names of those that were moved, and their keys.

        Messages that the destination does not take stay dead letters.
        """
        left = await self._mover.move(number, [own_number(message) for message in messages])
        return {name: key_of(made.payload) for name, made in left.items()}

    def moved_to(self) -> list[MovedRange]:
        """Return where the messages are: anywhere in the partitions of the destination."""
        return [MovedRange(number, 0, _FOREVER) for number in self.watched.entity.numbers]
