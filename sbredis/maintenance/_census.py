"""The census: the list of all entities of a namespace. A client that has a role reads it repeatedly."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING

from sbredis._tasks import wait_until
from sbredis.client import CALLING
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.registry import UnreadableLog, split_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbredis.client import BackgroundFailures, Timings
    from sbredis.registry import EntityRecord, Namespace, Unreadable

__all__ = ["Census"]

_PAGE = 1000
_PAUSE = 1.0
_MOST_MISSED = 10_000


class Census:
    """The entities that the last reading found. The subscriptions of a topic are read again only if it has changed.

    All duties of a client share a census. It is read while at least one of them uses it.
    """

    def __init__(self, namespace: Namespace, failures: BackgroundFailures, timings: Timings) -> None:
        self._namespace = namespace
        self._timings = timings
        self._failures = failures
        self._known: dict[str, tuple[int, list[EntityRecord]]] = {}
        """A mapping from a topic's incarnation to its subscriptions, and to its version when they were read."""
        self.topics: list[EntityRecord] = []
        self.others: list[EntityRecord] = []
        """The active queues and subscriptions."""
        self.by_id: dict[str, EntityRecord] = {}
        """All entities in every state, also topics, by their ids."""
        self._missed: dict[str, float] = {}
        """The ids that were asked for and were not in the census, each with the time of the first question."""
        self._complete_since = -math.inf
        """The time when the last complete reading began."""
        self._complete = True
        """Whether all records could be read."""
        self._unreadable = UnreadableLog()
        self.read_count = 0
        """The number of complete readings."""
        self.pages = 0
        """The number of calls that a reading needs if nothing has changed."""
        self._users: list[Callable[[], None]] = []
        self._news = asyncio.Event()
        self._read_at = 0.0
        self._began_at = 0.0

    # -- when to read --------------------------------------------------------------------------------------------------

    def use(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Read the census from now on, and call ``changed`` after each reading. Return a function that ends this."""
        self._users.append(changed)
        self.read_now()
        return lambda: self._users.remove(changed)

    def read_now(self) -> None:
        """Read the census now, because an entity may have been created or deleted."""
        self._read_at = 0.0
        self._news.set()

    def read_soon(self) -> None:
        """Read the census soon, because there may be an entity that is not known yet."""
        self._read_at = min(self._read_at, self._began_at + self._timings.listing_soon * max(1, self.pages))
        self._news.set()

    async def run(self) -> None:
        """Read the census repeatedly, until the task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            now = loop.time()
            if self._users and now >= self._read_at:
                self._began_at = now
                self._read_at = now + self._timings.listing * max(1, self.pages)
                try:
                    await self.read()
                except ServiceBusError as error:
                    self._failures.report("the list of entities", error)
                    self._read_at = min(self._read_at, loop.time() + _PAUSE)
                except Exception:
                    self._read_at = 0.0
                    raise
                else:
                    for changed in list(self._users):
                        self._failures.guard("a use of the list of entities", changed)
                continue
            await wait_until(self._news, self._read_at if self._users else math.inf)

    def changed(self, record: EntityRecord) -> None:
        """Replace the record of an entity by a newer one."""
        if record.id in self.by_id:
            self.by_id[record.id] = record

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read the list of entities."""
        began = asyncio.get_running_loop().time()
        records: list[EntityRecord] = []
        unreadable: list[Unreadable] = []
        pages, entities = 0, self._namespace.entities()
        while not entities.ended:
            page = await entities.next(_PAGE, asyncio.get_running_loop().time() + CALLING)
            pages += 1
            records += page.records
            unreadable += page.unreadable
        if (error := entities.error) is not None:
            raise error
        topics = [record for record in records if record.kind == "topic"]
        others = [record for record in records if record.kind != "topic" and record.state == "active"]
        known: dict[str, tuple[int, list[EntityRecord]]] = {}
        for topic in topics:
            before = self._known.get(topic.incarnation)
            if before is None or before[0] != topic.version:
                found, broken = await self._subscriptions(topic.path)
                before = -1 if broken else topic.version, found
                unreadable += broken
            known[topic.incarnation] = before
            records += before[1]
            if topic.state == "active":
                others += [each for each in before[1] if each.state != "deleting"]
        for each in list(unreadable):
            if split_path(each.path)[1] is None:  # it may be a topic, and its subscriptions need maintenance too
                found, broken = await self._subscriptions(each.path)
                records += found
                others += [record for record in found if record.state != "deleting"]
                unreadable += broken
        self.topics = [topic for topic in topics if topic.state == "active"]
        self._known, self.others, self.pages = known, others, pages
        self.by_id = {record.id: record for record in records}
        self._complete = not unreadable
        self._complete_since = began
        self.read_count += 1
        self._unreadable.note_all(unreadable)

    def is_gone(self, entity_id: str) -> bool:
        """Return whether an entity does not exist any more. If the census is too old to say, it is read soon."""
        if entity_id in self.by_id:
            self._missed.pop(entity_id, None)
            return False
        if len(self._missed) >= _MOST_MISSED:
            self._missed.clear()
        if not self._complete:
            return False  # it may be one of those that cannot be read
        if self._complete_since > self._missed.setdefault(entity_id, asyncio.get_running_loop().time()):
            return True
        self.read_soon()
        return False

    async def _subscriptions(self, topic: str) -> tuple[list[EntityRecord], list[Unreadable]]:
        """Return the subscriptions of a topic, and those whose records cannot be read."""
        found: list[EntityRecord] = []
        unreadable: list[Unreadable] = []
        with suppress(MessagingEntityNotFoundError):  # the topic was deleted meanwhile
            after: str | None = ""
            while after is not None:
                page = await self._namespace.page_of_subscriptions(topic, after, _PAGE, timeout=CALLING)
                found += page.records
                unreadable += page.unreadable
                after = page.onward
        return found, unreadable
