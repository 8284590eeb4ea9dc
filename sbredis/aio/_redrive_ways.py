"""The two ways of a redrive: back to the entity of the dead letters, and to another queue or topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from sbredis.aio._redrive_letters import ANY, MOVABLE, DeadLetters, key_of, own_number
from sbredis.aio.maintenance._carrying import Carrier, ask
from sbredis.aio.maintenance._destinations import Bound, Destinations, NotKnownYetError, partition_of
from sbredis.engine import Delivery, Destination, Recipient, Redrive, outgoing, payload_offset, recipient_of
from sbredis.exceptions import MessageSizeExceededError, MessagingEntityNotFoundError, Outcome
from sbredis.model import (
    MoveKind,
    PrimitiveTypes,
    Purpose,
    ServiceBusReceivedMessage,
    hold_of,
    read_purpose,
    redrive_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sbredis.aio.calls._entity import Entity

__all__ = ["Back", "Elsewhere", "Range", "Way"]

_CALLING = 30.0
_TRIES = 3
_FOREVER = (1 << 53) - 1


class Range(NamedTuple):
    """The numbers of messages in a partition to which they were redriven."""

    number: int
    first: int
    last: int


class Way(Protocol):
    """A way of a redrive."""

    watched: DeadLetters
    """The dead-letter queue in which messages are that have died again."""

    async def open(self) -> None:
        """Prepare to move messages."""
        ...

    async def carry(self, number: int, messages: Sequence[ServiceBusReceivedMessage]) -> Mapping[str, bytes]:
        """Move dead letters of one partition. Return the names of those that were moved, and their keys."""
        ...

    def moved_to(self) -> list[Range]:
        """Return where the messages are that were moved since the last call, among others."""
        ...


class Back:
    """Moves dead letters back to the main side, and lets transfer dead letters wait for a mover again."""

    def __init__(
        self,
        letters: DeadLetters,
        modify: Mapping[str, PrimitiveTypes] | None,
        find: Callable[[str], Awaitable[Entity]],
    ) -> None:
        self.watched = letters
        self._modify = modify
        self._find = find
        self._found: dict[Recipient, Entity | None] = {}
        self._ranges: list[Range] = []

    async def open(self) -> None:
        """Do nothing: each call is complete in itself."""

    async def carry(self, number: int, messages: Sequence[ServiceBusReceivedMessage]) -> Mapping[str, bytes]:
        """Move dead letters of one partition. Return the names of those that were moved, and their keys."""
        asked: dict[str, Redrive] = {}
        keys: dict[str, bytes] = {}
        for message in messages:
            delivery, recipient = hold_of(message).delivery, None
            if self.watched.side == "t" and (recipient := await self._recipient(number, delivery)) is None:
                continue
            try:
                asked[delivery.name] = redrive_of(message, self._modify, recipient)
            except MessageSizeExceededError:
                continue
            keys[delivery.name] = key_of(delivery.record[payload_offset(delivery.record) :])
        done: dict[str, bytes] = {}
        while asked:
            names = list(asked)
            result = await self.watched.redrive(number, list(asked.values()))
            moved = result.moved(names)
            if moved:
                self._ranges.append(Range(number, result.first, result.first + len(moved) - 1))
            done |= {name: keys[name] for name in moved}
            gone = {*moved, *result.missing, *result.unfit}
            asked = {name: one for name, one in asked.items() if name not in gone}
        return done

    def moved_to(self) -> list[Range]:
        """Return where the messages are that were moved since the last call."""
        ranges, self._ranges = self._ranges, []
        return ranges

    async def _recipient(self, number: int, delivery: Delivery) -> Recipient | None:
        """Return the present destination of a transfer dead letter; ``None`` if it does not exist."""
        before = recipient_of(delivery)
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


class _Chosen(Destinations):
    """The destination that the caller of a redrive has chosen, for all dead letters of one partition."""

    def __init__(self, source: Entity, number: int, entity: Entity, purpose: Purpose) -> None:
        self._source = source
        self._number = number
        self._entity = entity
        self.purpose = purpose
        self.nowhere = Destination(source.record.id, number)

    async def _target(self, delivery: Delivery, why: MoveKind) -> tuple[Entity | None, str]:
        del delivery, why
        return self._entity, self._entity.name

    async def _by_id(self, entity_id: str) -> Entity:
        if entity_id != self._entity.record.id:
            raise NotKnownYetError(
                "Messages of this dead-letter queue are on their way to another entity. Begin again later.",
                outcome=Outcome.NEVER_SENT,
            )
        return self._entity


class Elsewhere:
    """Moves dead letters to another queue or topic."""

    def __init__(self, letters: DeadLetters, entity: Entity, modify: Mapping[str, PrimitiveTypes] | None) -> None:
        self.watched = DeadLetters(entity, "d", None)
        self._letters = letters
        self._source = letters.entity
        self._entity = entity
        # It is read as every other mover reads it, so all make the same messages.
        self._purpose = read_purpose(Purpose(True, modify).stored())
        self._doors: dict[Destination, str] = {}
        self._births: dict[int, str] = {}

    async def open(self) -> None:
        """Read the rules of a topic. Complete the batches for this destination that other clients have left behind."""
        until = asyncio.get_running_loop().time() + _CALLING
        if self._entity.record.kind == "topic" and self._entity.routing is None:
            await self._entity.load_routing(until)
        runtime = self._source.runtime
        for number in self._source.numbers:
            while True:
                waiting = await ask(
                    runtime, self._source, number, partial(outgoing, wanted=1, now=runtime.clock.told())
                )
                if not waiting.more:
                    break
            self._births[number] = waiting.birth
            for batch in waiting.batches:
                if batch.destination.entity == self._entity.record.id:
                    await self._carrier(number).carry(batch.destination, None)

    def _carrier(self, number: int) -> Carrier:
        chosen = _Chosen(self._source, number, self._entity, self._purpose)
        return Carrier(self._source.runtime, self._source, number, self._births[number], chosen)

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
                    bound = cast("Bound", move.message)
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

    def moved_to(self) -> list[Range]:
        """Return where the messages are: anywhere in the partitions of the destination."""
        return [Range(number, 0, _FOREVER) for number in self._entity.numbers]
