"""Move messages that a client has chosen to another queue or topic: dead letters, or messages of the main side.

The client that has chosen them is the mover, and nothing else would move them. Their batches have a purpose, so that
any other mover can complete a batch if this client dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, TypeAlias

from sbredis.client import CALLING, deadline_of
from sbredis.engine import Delivery, Destination, Outgoing, Partition, entity_name, is_dead, number_of, read_record
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.model import MoveKind, PrimitiveTypes, Purpose, ServiceBusReceivedMessage, hold_of, read_purpose
from sbredis.moving._carrying import Carrier, ask
from sbredis.moving._destinations import Destinations, Finder, NotKnownYetError
from sbredis.moving._sides import ANY, MOVABLE, MessageSide, own_number
from sbredis.sending import require_sessions

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity
    from sbredis.engine import MovesRead

__all__ = ["ChosenMover", "Find", "complete_batches", "finding"]

_log = logging.getLogger("sbredis.client")
_TRIES = 3
"""How often to try without moving a message: batches of other movers may be in the way, and are completed first."""

Find: TypeAlias = "Callable[[str], Awaitable[Entity]]"
"""A function that returns the entity with a name as the registry has it now."""


def finding(connection: Connection, timeout: float | None = None) -> Find:
    """Return the function that finds entities. An earlier look-up may be of an entity that was deleted."""

    async def find(name: str) -> Entity:
        until = deadline_of(timeout)
        found = await connection.entity(entity_name(name), until)
        await found.refresh(until)
        return found

    return find


class _ChosenFinder(Finder):
    """The destination that a client has chosen, and those that the batches of other clients name."""

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
        await _load_rules(entity)
        return entity


async def _load_rules(entity: Entity) -> None:
    if entity.record.kind == "topic" and entity.routing is None:
        await entity.load_routing(asyncio.get_running_loop().time() + CALLING)


async def _read_batches(source: Entity, number: int) -> MovesRead:
    """Read the outstanding batches of a partition, its birth and its time."""
    while True:
        request = partial(Partition.outgoing, wanted=1, now=source.connection.clock.told())
        found = await ask(source.connection, source, number, request)
        if not found.more:
            return found


async def complete_batches(source: Entity, find: Find, entity: Entity | None = None) -> None:
    """Complete the batches that other clients have left behind, and all batches for the destination ``entity``."""
    for number in source.numbers:
        waiting = await _read_batches(source, number)
        destinations = Destinations(source, number, _ChosenFinder(find, entity), Purpose())
        for batch in waiting.batches:
            mine = entity is not None and batch.destination.entity == entity.record.id
            if mine or batch.purpose:
                try:
                    await Carrier(source, number, waiting.birth, destinations).carry(batch.destination, None)
                except ServiceBusError as error:
                    if mine:
                        raise
                    _log.info("%s: a batch of an earlier redrive is still on its way: %s", source.name, error)


class ChosenMover:
    """Moves chosen messages of one side of an entity to another queue or topic."""

    def __init__(
        self, side: MessageSide, entity: Entity, find: Find, modify: Mapping[str, PrimitiveTypes] | None = None
    ) -> None:
        self.entity = entity
        """The destination."""
        self._side = side
        self._source = side.entity
        self._finder = _ChosenFinder(find, entity)
        self._complete = partial(complete_batches, side.entity, find, entity)
        # It is read as every other mover reads it, so all make the same messages.
        self._purpose = read_purpose(Purpose(True, modify, entity.record.path, token_urlsafe(6)).stored())
        self._doors: dict[Destination, str] = {}

    async def open(self) -> None:
        """Read the rules of a topic. Complete the batches that other clients have left behind."""
        await _load_rules(self.entity)
        await self._complete()

    async def move_messages(self, messages: Sequence[ServiceBusReceivedMessage]) -> int:
        """Move messages of one partition. Return how many of them have left."""
        await require_sessions(self.entity, messages, deadline_of(None))
        places = [self._source.place(message.sequence_number) for message in messages]
        return len(await self.move(places[0][0], [own for _, own in places]))

    async def move(self, number: int, owns: Collection[int]) -> Mapping[str, Outgoing]:
        """Move the messages of one partition that have these numbers.

        Return the names of those that have left, and what the destination gets of them. Messages that a receiver holds,
        and those that do not fit into the destination, stay. A message of the main side that the destination refuses
        becomes a transfer dead letter.
        """
        left: dict[str, Outgoing] = {}
        waiting, tries = sorted(owns), _TRIES
        while waiting and tries:
            doors = dict(self._doors)  # a door must be known before the messages are read
            reading = await _read_batches(self._source, number)
            deliveries = [hold_of(each).delivery for each in await self._side.those(number, waiting, MOVABLE)]
            destinations = Destinations(self._source, number, self._finder, self._purpose)
            lasting = [each for each in deliveries if not _has_expired(each, reading.now)]
            heaps, _ = await destinations.sorted(lasting, reading.now)
            moves = {heap.destination: heap for heap in heaps if heap.entity is not None}
            outstanding = [batch.destination for batch in reading.batches if batch.destination in moves]
            carrier = Carrier(self._source, number, reading.birth, destinations, doors)
            if (error := await carrier.carry_all(moves.values(), outstanding)) is not None:
                raise error
            self._doors |= carrier.doors
            bound = [move.message for heap in moves.values() for move in heap.moves]
            left |= {each.name: each.outgoing for each in bound if each.outgoing and each.name in carrier.carried}
            there = await self._side.those(number, sorted(number_of(each.name) for each in bound), ANY)
            for message in there:
                left.pop(hold_of(message).name, None)
            again = [own_number(each) for each in there if hold_of(each).name not in carrier.given_up]
            waiting, tries = again, _TRIES if len(again) < len(waiting) else tries - 1
        return left


def _has_expired(message: Delivery, now: int) -> bool:
    """Return whether a message has expired. Deferred ones stay until a receiver asks for them."""
    expires = read_record(message.record).expires if message.expires is None else message.expires
    return not is_dead(message.name) and expires <= now
