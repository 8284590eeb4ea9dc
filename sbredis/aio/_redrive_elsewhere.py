"""Move dead letters to another entity, as the mover does, but with a destination that a caller has chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sbredis.aio.maintenance._carrying import Carrier, ask
from sbredis.aio.maintenance._destinations import Destinations, NotKnownYetError
from sbredis.engine import Delivery, Destination, outgoing
from sbredis.exceptions import Outcome
from sbredis.model import MoveKind, PrimitiveTypes, Purpose, ServiceBusReceivedMessage, hold_of, read_purpose

if TYPE_CHECKING:
    from sbredis.aio.calls._entity import Entity

__all__ = ["Elsewhere"]

_CALLING = 30.0


class _Chosen(Destinations):
    """The destination that the caller of a redrive has chosen, for all dead letters of one partition."""

    def __init__(
        self, source: Entity, number: int, entity: Entity, modify: Mapping[str, PrimitiveTypes] | None
    ) -> None:
        self._source = source
        self._number = number
        self._entity = entity
        # It is read as every other mover reads it, so all make the same messages.
        self.purpose = read_purpose(Purpose(True, modify).stored())
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
    """Moves the dead letters of an entity to another queue or topic."""

    def __init__(self, source: Entity, entity: Entity, modify: Mapping[str, PrimitiveTypes] | None) -> None:
        self._source = source
        self._entity = entity
        self._modify = modify
        self._doors: dict[Destination, str] = {}
        self._births: dict[int, str] = {}

    async def open(self) -> None:
        """Read the rules of a topic. Complete the batches that a redrive to this destination has left behind."""
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
        chosen = _Chosen(self._source, number, self._entity, self._modify)
        return Carrier(self._source.runtime, self._source, number, self._births[number], chosen)

    async def carry(self, number: int, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Move dead letters of one partition. Messages that the destination does not take stay dead letters."""
        carrier = self._carrier(number)
        heaps, _ = await carrier.destinations.sorted([hold_of(message).delivery for message in messages], 0)
        for heap in heaps:
            door = self._doors.get(heap.destination, "")
            self._doors[heap.destination] = await carrier.carry(heap.destination, heap.entity, heap.moves, door)
