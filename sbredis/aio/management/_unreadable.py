"""Listing the entities and rules whose records in the registry cannot be read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from sbredis._tasks import loop_time
from sbredis.aio.management._calls import Calls, page_of_all
from sbredis.aio.management._parts_of_lists import list_part
from sbredis.entities import DEFINITIONS, AsyncItemPaged, ListPage
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError
from sbredis.model import UnreadableEntity
from sbredis.registry import (
    EntityRecord,
    KeptRule,
    Listing,
    Unreadable,
    reservation_of,
    rule_path,
    split_path,
)

__all__ = ["UnreadableAdministration"]

_PAGE = 1000


class UnreadableAdministration(Calls):
    """The calls of an administration client for entities that cannot be read."""

    def list_unreadable_entities(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[UnreadableEntity]:
        """List queues, topics, subscriptions and rules whose records cannot be read, with the reason.

        Another release has written such a record, or it is damaged. All other entities work. A damaged entity or rule
        can be deleted, and created again. All of them are on one page. The first ``skip`` are left out, and at most
        ``top`` are listed. This method is an addition of sbredis.
        """
        part = list_part(skip, top)

        async def page(token: str) -> ListPage[UnreadableEntity]:
            until = self._deadline(timeout)
            await self._connection.open(until)
            return await page_of_all(self._unreadable_entities(until), part, token)

        return AsyncItemPaged(page)

    async def _unreadable_entities(self, until: float) -> AsyncIterator[UnreadableEntity]:
        namespace = self._namespace
        entities = namespace.entities()
        while not entities.ended:
            page = await entities.next(_PAGE, until)
            for broken in page.unreadable:
                yield _shown(broken.path, broken.error)
                if split_path(broken.path)[1] is None:  # it may be a topic
                    async for each in self._of_topic(broken.path, until, with_rules=False):
                        yield each
            for record in page.records:
                if (error := _mistake(record)) is not None:
                    yield _shown(record.path, error)
                if record.kind == "topic":
                    async for each in self._of_topic(record.path, until, with_rules=True):
                        yield each
        if (incomplete := entities.error) is not None:
            raise incomplete

    async def _of_topic(self, topic: str, until: float, *, with_rules: bool) -> AsyncIterator[UnreadableEntity]:
        namespace = self._namespace

        def subscriptions(after: str, left: float) -> Awaitable[Listing[EntityRecord]]:
            return namespace.page_of_subscriptions(topic, after, _PAGE, timeout=left)

        with suppress(MessagingEntityNotFoundError):  # the topic was deleted meanwhile
            async for page in _pages(subscriptions, until):
                for broken in page.unreadable:
                    yield _shown(broken.path, broken.error)
                for record in page.records:
                    if (error := _mistake(record)) is not None:
                        yield _shown(record.path, error)
                    if with_rules and record.state == "active":
                        async for rule in self._rules_of(topic, record.name, until):
                            yield _shown(rule_path(rule.path), rule.error)

    async def _rules_of(self, topic: str, subscription: str, until: float) -> AsyncIterator[Unreadable]:
        with suppress(MessagingEntityNotFoundError):  # the subscription was deleted meanwhile
            after: str | None = ""
            while after is not None:
                page: Listing[KeptRule] = await self._namespace.page_of_rules(
                    topic, subscription, after, _PAGE, timeout=until - loop_time()
                )
                for each in page.unreadable:
                    yield each
                after = page.onward


async def _pages(
    read: Callable[[str, float], Awaitable[Listing[EntityRecord]]], until: float
) -> AsyncIterator[Listing[EntityRecord]]:
    after: str | None = ""
    while after is not None:
        page = await read(after, until - loop_time())
        yield page
        after = page.onward


def _mistake(record: EntityRecord) -> DataLayoutError | None:
    """Return the error if a property of a record cannot be read."""
    try:
        DEFINITIONS[record.kind].described(record, reachable=True)
        reservation_of(record)
    except DataLayoutError as error:
        return error
    return None


def _shown(path: str, error: DataLayoutError) -> UnreadableEntity:
    return UnreadableEntity(path=path, reason=error.reason or error.message, layout=error.layout)
