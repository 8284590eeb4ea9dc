"""The census: the list of all entities of a namespace. The client that maintains the namespace reads it repeatedly."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sbredis.exceptions import MessagingEntityNotFoundError

if TYPE_CHECKING:
    from sbredis.registry import EntityRecord, Namespace

__all__ = ["Census"]

_PAGE = 1000
_CALLING = 30.0


class Census:
    """The entities that the last reading found. The subscriptions of a topic are read again only if it has changed."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._known: dict[str, tuple[int, list[EntityRecord]]] = {}
        """A mapping from a topic's incarnation to its subscriptions, and to its version when they were read."""
        self.topics: list[EntityRecord] = []
        self.others: list[EntityRecord] = []
        """The queues and subscriptions."""
        self.pages = 0
        """The number of calls that a reading needs if nothing has changed."""

    async def read(self) -> None:
        """Read the list of entities."""
        topics: list[EntityRecord] = []
        others: list[EntityRecord] = []
        after, pages = "", 0
        while True:
            records = await self._namespace.list_entities(after, _PAGE, timeout=_CALLING)
            pages += 1
            topics += [record for record in records if record.kind == "topic" and record.state == "active"]
            others += [record for record in records if record.kind != "topic" and record.state == "active"]
            if len(records) < _PAGE:
                break
            after = records[-1].path
        known: dict[str, tuple[int, list[EntityRecord]]] = {}
        for topic in topics:
            before = self._known.get(topic.incarnation)
            if before is None or before[0] != topic.version:
                before = topic.version, await self._subscriptions(topic)
            known[topic.incarnation] = before
            others += before[1]
        self._known, self.topics, self.others, self.pages = known, topics, others, pages

    async def _subscriptions(self, topic: EntityRecord) -> list[EntityRecord]:
        found: list[EntityRecord] = []
        with suppress(MessagingEntityNotFoundError):  # the topic was deleted meanwhile
            while True:
                after = found[-1].name if found else ""
                page = await self._namespace.list_subscriptions(topic.path, after, _PAGE, timeout=_CALLING)
                if not page:
                    break
                found += page
        return [each for each in found if each.state != "deleting"]
