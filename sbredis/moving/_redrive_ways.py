"""The two ways of a redrive: back to the entity of the dead letters, and to another queue or topic."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from sbredis.engine import NEVER, Delivery, Destination, Partition, Recipient, Redrive, payload_offset, recipient_of
from sbredis.exceptions import (
    DataLayoutError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
)
from sbredis.model import (
    MoveKind,
    PrimitiveTypes,
    Purpose,
    ServiceBusReceivedMessage,
    hold_of,
    read_purpose,
    redrive_of,
)
from sbredis.moving._carrying import Carrier, ask
from sbredis.moving._destinations import Destinations, Finder, NotKnownYetError, partition_of
from sbredis.moving._redrive_letters import ANY, MOVABLE, DeadLetters, key_of, own_number
from sbredis.registry import split_path

if TYPE_CHECKING:
    from sbredis.client import Entity

__all__ = ["Back", "Elsewhere", "MovedRange", "Way"]

_log = logging.getLogger("sbredis.client")
_CALLING = 30.0
_TRIES = 3
_FOREVER = (1 << 53) - 1


Find: TypeAlias = "Callable[[str], Awaitable[Entity]]"
"""A function that returns the entity with a name as the registry has it now."""


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
        await _complete_batches(entity, self._find, None)
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
        place = partition_of(entity, delivery, number)
        return Recipient(entity.record.id, entity.record.incarnation, place, entity.record.path)


class _Chosen(Finder):
    """The destination that the caller of a redrive has chosen, and those that the batches of earlier redrives name."""

    def __init__(self, find: Find, entity: Entity | None) -> None:
        self._find = find
        self._entity = entity

    async def target(self, delivery: Delivery, why: MoveKind) -> tuple[Entity | None, str]:
        del delivery, why
        return self._entity, "" if self._entity is None else self._entity.name

    async def by_id(self, entity_id: str, path: str | None) -> Entity:
        entity = self._entity
        if entity is None or entity.record.id != entity_id:
            if path is None:
                raise NotKnownYetError(
                    "Messages of this dead-letter queue are on their way to another entity. Begin again later.",
                    outcome=Outcome.NEVER_SENT,
                )
            entity = await self._find(path)
            if entity.record.id != entity_id:
                raise MessagingEntityNotFoundError(f"'{path}' was deleted and created again.")
        if entity.record.kind == "topic" and entity.routing is None:
            await entity.load_routing(asyncio.get_running_loop().time() + _CALLING)
        return entity


async def _complete_batches(source: Entity, find: Find, entity: Entity | None) -> dict[int, str]:
    """Complete the batches that other redrives have left behind, and all batches for the destination ``entity``.

    Return the birth of each partition.
    """
    connection, births = source.connection, dict[int, str]()
    for number in source.numbers:
        while True:
            waiting = await ask(
                connection, source, number, partial(Partition.outgoing, wanted=1, now=connection.clock.told())
            )
            if not waiting.more:
                break
        births[number] = waiting.birth
        for batch in waiting.batches:
            mine = entity is not None and batch.destination.entity == entity.record.id
            if mine or batch.purpose:
                carrier = Carrier(
                    connection,
                    source,
                    number,
                    waiting.birth,
                    Destinations(source, number, _Chosen(find, entity), Purpose()),
                )
                try:
                    await carrier.carry(batch.destination, None)
                except ServiceBusError as error:
                    if mine:
                        raise
                    _log.info("%s: a batch of an earlier redrive is still on its way: %s", source.name, error)
    return births


class Elsewhere(Way):
    """Moves dead letters to another queue or topic."""

    def __init__(
        self, letters: DeadLetters, modify: Mapping[str, PrimitiveTypes] | None, find: Find, entity: Entity
    ) -> None:
        self.watched = DeadLetters(entity, "d", None)
        self._letters = letters
        self._source = letters.entity
        self._find = find
        self._entity = entity
        # It is read as every other mover reads it, so all make the same messages.
        self._purpose = read_purpose(Purpose(True, modify, entity.record.path).stored())
        self._doors: dict[Destination, str] = {}
        self._births: dict[int, str] = {}

    async def open(self) -> None:
        """Read the rules of a topic. Complete the batches that other clients have left behind."""
        if self._entity.record.kind == "topic" and self._entity.routing is None:
            await self._entity.load_routing(asyncio.get_running_loop().time() + _CALLING)
        self._births = await _complete_batches(self._source, self._find, self._entity)

    def _carrier(self, number: int) -> Carrier:
        named = Destinations(self._source, number, _Chosen(self._find, self._entity), self._purpose)
        return Carrier(self._source.connection, self._source, number, self._births[number], named)

    async def carry(self, number: int, messages: Sequence[ServiceBusReceivedMessage]) -> Mapping[str, bytes]:
        """Move dead letters of one partition. Return the names of those that were moved, and their keys.

        Messages that the destination does not take stay dead letters.
        """
        keys: dict[str, bytes] = {}
        waiting = {hold_of(message).name: message for message in messages}
        for _ in range(_TRIES):  # a batch of another mover may be in the way; it is completed first
            carrier = self._carrier(number)
            heaps, _ = await carrier.destinations.sorted([hold_of(one).delivery for one in waiting.values()], 0)
            tried = [heap for heap in heaps if heap.entity is not None]
            for heap in tried:
                for move in heap.moves:
                    bound = move.message
                    if bound.outgoing is not None:
                        keys[bound.name] = key_of(bound.outgoing.payload)
                door = self._doors.get(heap.destination, "")
                self._doors[heap.destination] = await carrier.carry(heap.destination, heap.entity, heap.moves, door)
            names = {move.message.name for heap in tried for move in heap.moves} - carrier.given_up
            owns = sorted(own_number(waiting[name]) for name in names)
            waiting = {hold_of(one).name: one for one in await self._letters.those(number, owns, MOVABLE)}
            if not waiting:
                break
        stay = await self._letters.those(number, sorted(map(own_number, messages)), ANY)
        return {name: key for name, key in keys.items() if name not in {hold_of(one).name for one in stay}}

    def moved_to(self) -> list[MovedRange]:
        """Return where the messages are: anywhere in the partitions of the destination."""
        return [MovedRange(number, 0, _FOREVER) for number in self._entity.numbers]
