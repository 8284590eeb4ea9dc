"""What all calls of an administration client share: the connection, the time they have, describing and counting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from sbredis.aio._arguments import deadline_of
from sbredis.aio._connection import Connection
from sbredis.aio._counting import Counter, Tally
from sbredis.aio._definitions import Definition
from sbredis.aio._paging import AsyncItemPaged, Page
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.model import Described
from sbredis.registry import EntityRecord, Namespace

__all__ = ["PAGE", "Calls", "Reading"]

T = TypeVar("T")
P = TypeVar("P", bound=Described)

PAGE = 100
"""How many of a list are read at once."""

Reading = Callable[[str, float], Awaitable[Page[EntityRecord]]]
"""Reads a page of records that begins after a name, within so many seconds."""


class Calls:
    """What the groups of calls build on."""

    _connection: Connection
    _timeout: float
    _counter: Counter | None = None

    @property
    def _namespace(self) -> Namespace:
        return self._connection.namespace

    def _deadline(self, timeout: float | None) -> float:
        return deadline_of(self._timeout if timeout is None else timeout)

    async def _ask(self, path: str, until: float, ask: Callable[[float], Awaitable[T]]) -> T:
        """Ask what takes the seconds it has; an error says which entity it was about."""
        await self._connection.open(until)
        try:
            return await ask(until - anyio.current_time())
        except ServiceBusError as error:
            error.entity = error.entity or path
            raise

    async def _found(self, definition: Definition[P], path: str, until: float) -> EntityRecord:
        """The entity of this kind."""
        return await self._ask(path, until, lambda left: definition.find(self._namespace, path, left))

    async def _exists(self, definition: Definition[P], path: str, until: float) -> bool:
        """Whether there is an entity of this kind."""
        try:
            await self._found(definition, path, until)
        except MessagingEntityNotFoundError:
            return False
        return True

    def _described(self, definition: Definition[P], record: EntityRecord) -> P:
        transport = self._connection.transport
        keys = (self._namespace.partition(record, number).keys[0] for number in record.partitions)
        return definition.described(record, reachable=all(transport.endpoint_of(key) is not None for key in keys))

    async def _counted(self, definition: Definition[P], path: str, until: float) -> Tally:
        """What is in an entity of this kind."""
        return await self._count(await self._found(definition, path, until), until)

    async def _count(self, record: EntityRecord, until: float) -> Tally:
        if self._counter is None:
            self._counter = Counter(self._connection.transport, self._namespace, self._connection.clock)
        return await self._counter.count(record, until)

    async def _entities(self, after: str, timeout: float) -> Page[EntityRecord]:
        """Queues and topics, from after this name on. A short page is the last."""
        found = await self._namespace.list_entities(after, PAGE, timeout=timeout)
        return Page(found, found[-1].name if len(found) == PAGE else None)

    def _list(self, definition: Definition[P], read: Reading, timeout: float | None) -> AsyncItemPaged[P]:
        """Those of these records that are of this kind."""

        async def page(after: str) -> Page[P]:
            until = self._deadline(timeout)
            await self._connection.open(until)
            records, onwards = await read(after, until - anyio.current_time())
            shown = [self._described(definition, record) for record in records if record.kind == definition.word]
            return Page(shown, onwards)

        return AsyncItemPaged(page)

    def _list_counts(
        self,
        definition: Definition[P],
        read: Reading,
        count: Callable[[EntityRecord, float], Awaitable[T]],
        timeout: float | None,
    ) -> AsyncItemPaged[T]:
        """What is in those of these records that are of this kind, and are all there."""

        async def page(after: str) -> Page[T]:
            until = self._deadline(timeout)
            await self._connection.open(until)
            records, onwards = await read(after, until - anyio.current_time())
            found: dict[str, T] = {}

            async def one(record: EntityRecord) -> None:
                try:
                    found[record.path] = await count(record, until)
                except MessagingEntityNotFoundError:
                    return

            async with anyio.create_task_group() as group:
                for record in records:
                    if record.kind == definition.word and record.state == "active":
                        group.start_soon(one, record)
            return Page([found[record.path] for record in records if record.path in found], onwards)

        return AsyncItemPaged(page)
