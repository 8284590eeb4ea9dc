"""The base of all calls of an administration client: connection, deadlines, descriptions and counts."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from sbredis._tasks import loop_time
from sbredis.aio.management._parts_of_lists import ListPart
from sbredis.client import Connected, deadline_of
from sbredis.engine import entity_name, name_key, subscription_name
from sbredis.entities import AsyncItemPaged, Counter, Definition, ListPage, Tally
from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusCommunicationError,
    ServiceBusError,
)
from sbredis.model import Described
from sbredis.registry import (
    LONGEST_PAGE,
    EntityList,
    EntityRecord,
    IncompleteListError,
    Kind,
    Listing,
    Namespace,
    Unreadable,
    UnreadableLog,
    read_to_end,
)

__all__ = ["PAGE", "Calls", "Reading", "page_of_all"]

T = TypeVar("T")
P = TypeVar("P", bound=Described)

PAGE = 100
"""The number of items on a page of a list."""

_PAUSE = 0.05
_REST = "rest"
"""The token of the page after all that could be read."""
_RECENT = 2 * LONGEST_PAGE
"""The number of records that a list keeps, because a page of the caller may end before the last one that was read."""

Reading = Callable[[str, int, float], Awaitable[ListPage[EntityRecord]]]
"""A function that reads the records after a name. It gets the name, the largest number of records, and a time-out."""


class Calls(Connected):
    """The base class of the groups of calls of an administration client."""

    _timeout: float
    _counter: Counter | None = None
    _unreadable: UnreadableLog
    """The entities that lists have left out because their records cannot be read."""

    @property
    def _namespace(self) -> Namespace:
        return self._connection.namespace

    def _deadline(self, timeout: float | None) -> float:
        return deadline_of(self._timeout if timeout is None else timeout)

    async def _ask(self, path: str, until: float, ask: Callable[[float], Awaitable[T]]) -> T:
        """Call ``ask`` with the seconds that are left until ``until``. An error that it raises names the entity."""
        await self._connection.open(until)
        try:
            return await ask(until - loop_time())
        except ServiceBusError as error:
            error.entity = error.entity or path
            raise

    async def _found(self, definition: Definition[P], path: str, until: float) -> EntityRecord:
        """Return the record of an entity of this kind."""
        return await self._ask(path, until, lambda left: definition.find(self._namespace, path, left))

    async def _exists(self, definition: Definition[P], path: str, until: float) -> bool:
        """Return whether there is an entity of this kind at this path."""
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
        """Count the contents of an entity of this kind."""
        return await self._count(await self._found(definition, path, until), until)

    @property
    def _counts(self) -> Counter:
        if self._counter is None:
            self._counter = Counter(self._connection.transport, self._namespace, self._connection.clock)
        return self._counter

    async def _count(self, record: EntityRecord, until: float) -> Tally:
        return await self._counts.count(record, until)

    async def _delete(self, kind: Kind, path: str, timeout: float | None) -> None:
        """Delete an entity of this kind, but not while messages in it wait to be moved to other entities."""
        until = self._deadline(timeout)

        async def before(record: EntityRecord) -> None:
            left = until - loop_time()
            patient = loop_time() + min(self._connection.timings.moving_first, left / 2)
            while waiting := await self._transfers(record, until):
                if loop_time() > patient:
                    raise ServiceBusError(
                        f"'{path}' was not deleted, because {waiting} of its messages wait to be moved to other "
                        "entities (transfer_message_count). Delete it again when they have been moved; a client with "
                        "maintenance=True moves them.",
                        outcome=Outcome.REFUSED,
                        is_transient=True,
                    )
                await asyncio.sleep(_PAUSE)

        await self._ask(
            path, until, lambda left: self._namespace.delete_entity(path, kind=kind, before=before, timeout=left)
        )

    async def _transfers(self, record: EntityRecord, until: float) -> int:
        """Return the number of messages that transactions have sent elsewhere, and that wait in this entity.

        The messages that wait in the subscriptions of a topic count too, because they are deleted with it.
        """
        tally = await self._count(record, until)
        if tally.unreachable:
            error = ServiceBusCommunicationError(
                f"'{record.path}' was not deleted, because partitions of it could not be reached: "
                f"{', '.join(map(str, tally.unreachable))}.",
                outcome=Outcome.REFUSED,
            )
            error.unreachable_partitions = tally.unreachable
            raise error
        waiting = tally.all("transfer", "frozen")
        if record.kind == "topic":
            subscriptions, after = self._namespace.list_subscriptions, ""
            while page := await subscriptions(record.path, after, timeout=until - loop_time()):
                for each in page:
                    waiting += await self._transfers(each, until)
                after = page[-1].name
        return waiting

    def _entities(self) -> Reading:
        """Return a function that reads queues and topics.

        It reads on where the last page ended, or where a page of the caller ended within it, so a caller that goes
        through all pages reads each bucket of the registry once. If a part of the registry cannot be read, the function
        raises :class:`IncompleteListError` after the last page.
        """
        listed: EntityList | None = None
        recent: list[EntityRecord] = []
        keys: list[str] = []

        async def read(after: str, most: int, timeout: float) -> ListPage[EntityRecord]:
            nonlocal listed, recent, keys
            until, key = loop_time() + timeout, name_key(after)
            place = bisect_right(keys, key)
            if listed is None or (after != listed.last and keys[place - 1 : place] != [key]):
                listed, recent, keys, place = self._namespace.entities(after), [], [], 0
            found = recent[place:]
            if len(found) < most:
                if listed.ended and not found and (error := listed.error) is not None:
                    raise error
                page = await listed.next(most - len(found), until)
                found += page.records
                recent = [*recent, *page.records][-_RECENT:]
                keys = [*keys, *(name_key(record.name) for record in page.records)][-_RECENT:]
                self._unreadable.note(page.unreadable, (record.path for record in page.records))
            if listed.ended and listed.error is None:
                return ListPage(found[:most], None if len(found) <= most else found[most - 1].name)
            return ListPage(found[:most], listed.last if len(found) <= most else found[most - 1].name)

        return read

    def _readable(self, page: Listing[EntityRecord]) -> ListPage[EntityRecord]:
        """Return the records of a page that can be read. Log the other ones, each once."""
        self._unreadable.note(page.unreadable, (record.path for record in page.records))
        return ListPage(page.records, page.onward)

    async def _page(
        self,
        read: Callable[[str, int, float], Awaitable[ListPage[T]]],
        name: Callable[[T], str],
        part: ListPart,
        until: float,
        *,
        wanted: Callable[[T], bool] = lambda _: True,
    ) -> ListPage[T]:
        """Return the next page of a part of a list: of the items that ``wanted`` accepts. Only the last page is short.

        ``read`` reads the items after a name; it gets the name, the largest number of items, and a time-out. The
        function looks for one more item than the page holds. So if a page has a token for the next page, there is a
        next page. Items that are left out are read, a thousand in a call, because only their records say their kind.
        """
        await self._connection.open(until)
        size, most, skip = part.size(PAGE), part.wanted(PAGE), part.skip
        found: list[T] = []
        onwards: str | None = part.after
        first = True
        while onwards is not None and len(found) + part.skip - skip < most:
            lacking = most - len(found) - part.skip + skip
            share = min(lacking if first else max(lacking, PAGE + 1), LONGEST_PAGE)
            try:
                items, onwards = await read(onwards, share, until - loop_time())
            except IncompleteListError:
                if not found:
                    raise
                # the next page raises the error, after the caller has got these items
                return ListPage(found, part.token(name(found[-1]), len(found)))
            accepted = [item for item in items if wanted(item)]
            found += accepted[skip:]
            skip, first = max(0, skip - len(accepted)), False
        return ListPage(found[:size], part.token(name(found[size - 1]), size) if len(found) > size else None)

    def _list(
        self, definition: Definition[P], read: Reading, part: ListPart, timeout: float | None
    ) -> AsyncItemPaged[P]:
        """List a part of the records of this kind."""

        async def page(token: str) -> ListPage[P]:
            until, kind = self._deadline(timeout), definition.word
            records, onwards = await self._page(
                read, _name, part.at(token, _check_of(kind)), until, wanted=lambda record: record.kind == kind
            )
            found: list[P] = []
            for record in records:
                try:
                    found.append(self._described(definition, record))
                except DataLayoutError as error:
                    self._unreadable.note([Unreadable(name_key(record.path), record.stamp.encode(), error)])
            return ListPage(found, onwards)

        return AsyncItemPaged(page)

    def _list_counts(
        self,
        definition: Definition[P],
        read: Reading,
        count: Callable[[EntityRecord, float], Awaitable[T]],
        part: ListPart,
        timeout: float | None,
    ) -> AsyncItemPaged[T]:
        """List the counts of a part of the entities of this kind that are completely created."""

        async def page(token: str) -> ListPage[T]:
            until, kind = self._deadline(timeout), definition.word
            records, onwards = await self._page(
                read,
                _name,
                part.at(token, _check_of(kind)),
                until,
                wanted=lambda record: record.kind == kind and record.state == "active",
            )
            found: dict[str, T] = {}

            async def one(record: EntityRecord) -> None:
                try:
                    found[record.path] = await count(record, until)
                except MessagingEntityNotFoundError:
                    return
                except DataLayoutError as error:
                    self._unreadable.note([Unreadable(name_key(record.path), record.stamp.encode(), error)])

            async with asyncio.TaskGroup() as group:
                for record in records:
                    group.create_task(one(record))
            return ListPage([found[record.path] for record in records if record.path in found], onwards)

        return AsyncItemPaged(page)


async def page_of_all(items: AsyncIterator[T], part: ListPart, token: str) -> ListPage[T]:
    """Return a part of a list that has one page. If the list lacks entities, a second page raises the error."""
    found, error = await read_to_end(items)
    if error is not None:
        if token or not found:
            raise error
        return ListPage(part.of(found), _REST)
    return ListPage([] if token else part.of(found), None)


def _check_of(kind: Kind) -> Callable[[str], object]:
    return subscription_name if kind == "subscription" else entity_name


def _name(record: EntityRecord) -> str:
    return record.name
