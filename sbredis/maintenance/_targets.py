"""Find the entities that stored messages wait to be moved to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbredis.client._background_work import CALLING
from sbredis.engine import recipient_of
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome
from sbredis.model import Purpose
from sbredis.moving._destinations import Destinations, Finder, NotKnownYetError

if TYPE_CHECKING:
    from sbredis.client._entity import Entity
    from sbredis.engine import Delivery
    from sbredis.maintenance._duty import Shared
    from sbredis.model import MoveKind

__all__ = ["destinations_of"]


def destinations_of(shared: Shared, source: Entity, number: int) -> Destinations:
    """Return what finds the destinations of the messages that wait in a partition of ``source``."""
    return Destinations(source, number, _Targets(shared, source), Purpose())


class _Targets(Finder):
    """The entities that ``source`` forwards to, and those that transactions have sent its messages to."""

    def __init__(self, shared: Shared, source: Entity) -> None:
        self._shared = shared
        self._source = source

    async def target(self, delivery: Delivery, why: MoveKind) -> tuple[Entity | None, str]:
        """Return the destination of a message, which is ``None`` if it does not exist, and its path."""
        until = asyncio.get_running_loop().time() + CALLING
        path: object = None
        try:
            if why == "transfer":
                recipient = recipient_of(delivery)
                if recipient is None:
                    return None, "its destination"
                path = recipient.path
                entity = await self.by_id(recipient.entity, path)
            else:
                name = "forward_to" if why == "forward" else "forward_dead_lettered_messages_to"
                path = self._source.record.properties.get(name)
                if not isinstance(path, str):
                    raise NotKnownYetError(
                        f"'{self._source.name}' does not forward messages any more.", outcome=Outcome.NEVER_SENT
                    )
                entity = await self._shared.find(path, until)
            if entity.record.kind == "topic" and entity.routing is None:
                await entity.load_routing(until)
        except MessagingEntityNotFoundError:
            return None, str(path)
        return entity, entity.name

    async def by_id(self, entity_id: str, path: str | None) -> Entity:
        """Return the entity with this id. The census knows the names of all ids, so ``path`` is not needed."""
        del path
        census, until = self._shared.census, asyncio.get_running_loop().time() + CALLING
        record = census.by_id.get(entity_id)
        if record is None:
            if not census.is_gone(entity_id):
                raise NotKnownYetError(
                    f"The entity with the id {entity_id!r} is not in the census yet.", outcome=Outcome.NEVER_SENT
                )
            raise MessagingEntityNotFoundError(f"The entity with the id {entity_id!r} does not exist any more.")
        entity = await self._shared.find(record.path, until)
        if entity.record.id != entity_id:
            await entity.refresh(until)
            if entity.record.id != entity_id:
                raise MessagingEntityNotFoundError(f"'{record.path}' was deleted and created again.")
        return entity
