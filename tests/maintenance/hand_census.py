"""A list of all entities that the test writes, and the objects that duties share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

from sbredis.aio import ServiceBusClient
from sbredis.maintenance import DutyResources
from sbredis.maintenance._census import Census
from sbredis.maintenance._duty import Duty, Tenure
from sbredis.registry import EntityRecord

__all__ = ["HandCensus", "doing", "shared_of"]


class HandCensus:
    """A census that is read when the test says so."""

    def __init__(self) -> None:
        self.whole = True
        self.by_id: dict[str, EntityRecord] = {}
        self.doubted: list[str] = []
        """The ids of entities whose bucket was to be read."""
        self._users: list[Callable[[Collection[str]], None]] = []

    @property
    def topics(self) -> dict[str, EntityRecord]:
        return {entity: record for entity, record in self.by_id.items() if record.kind == "topic"}

    def use(self, changed: Callable[[Collection[str]], None]) -> Callable[[], None]:
        self._users.append(changed)
        return lambda: self._users.remove(changed)

    def read_now(self) -> None:
        """Do nothing: the test decides when the census is read."""

    async def read(self) -> None:
        """Do nothing."""

    async def portions(self) -> AsyncIterator[list[str]]:
        """Yield the ids of all entities one by one."""
        for entity in [*self.by_id]:
            yield [entity]

    def doubt_entity(self, entity: str) -> None:
        self.doubted.append(entity)

    def show(self, *records: EntityRecord) -> None:
        """Let all users know that these are the entities."""
        before, self.by_id = self.by_id, {record.id: record for record in records}
        for changed in self._users:
            changed(before.keys() | self.by_id.keys())


def shared_of(client: ServiceBusClient, census: HandCensus) -> DutyResources:
    """Return what the duties of a connected client share."""
    return replace(DutyResources.of(client._connection), census=cast("Census", census))


@asynccontextmanager
async def doing(
    duty: Duty, fence: Callable[[], int | None] = lambda: None, doubt: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    """Do a duty, as a client with its role."""
    slots = duty.connection.namespace.slots

    def fences() -> dict[int, int] | None:
        number = fence()
        return None if number is None else {0: number}

    task = asyncio.create_task(duty.run(Tenure(slots, 1, fences, doubt)))
    try:
        await asyncio.sleep(0)  # the duty begins to use the census
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
