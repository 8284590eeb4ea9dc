"""The facts of every entity of a namespace for ``doctor`` and ``exporter``, and how they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient
    from sbredis.model import PartitionRuntimeProperties
    from sbredis.operating._kinds import Existing
    from sbredis.registry import IncompleteListError

__all__ = ["EntityFacts", "read_entities"]

_MEGABYTE = 1024 * 1024
_FORWARDING = ("forward_to", "forward_dead_lettered_messages_to")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFacts:
    """The facts of a queue, topic or subscription."""

    path: str
    kind: str
    status: str = "Active"
    lock_duration: timedelta | None = None
    time_to_live: timedelta | None = None
    max_size_in_bytes: int | None = None
    forwards: bool = False
    removed_when_idle: bool = False
    partitions: tuple[PartitionRuntimeProperties, ...] = ()

    def total(self, field: str) -> int:
        """Return the sum of a count over the partitions."""
        return sum(getattr(partition, field) for partition in self.partitions)


async def read_entities(
    administration: ServiceBusAdministrationClient,
    *,
    at_once: int = 1,
    told: Callable[[int, int], object] | None = None,
) -> tuple[list[EntityFacts], IncompleteListError | None]:
    """Return the facts of all queues, topics and subscriptions. An entity that is deleted meanwhile is left out.

    If a part of the registry cannot be read, the facts of its entities are missing, and the error says so. Each
    partition of an entity costs two short reads. Some entities are read ``at_once``, so that silent servers cost less
    time. ``told`` is called with the number of entities that were read, and of all.
    """
    from sbredis.operating._inspecting import readable_in  # it needs all properties, which help does not

    existing, incomplete = await readable_in(administration, rules=False)
    found: dict[str, EntityFacts] = {}
    waiting = enumerate(existing)

    async def read() -> None:
        for count, entity in waiting:
            if told is not None:
                told(count, len(existing))
            with suppress(MessagingEntityNotFoundError, DataLayoutError):  # deleted, or its record damaged, meanwhile
                partitions = [partition async for partition in administration.list_partitions(entity.path)]
                found[entity.path] = _facts(entity, tuple(partitions))

    await asyncio.gather(*(read() for _ in range(at_once)))
    return [found[entity.path] for entity in existing if entity.path in found], incomplete


def _facts(entity: Existing, partitions: tuple[PartitionRuntimeProperties, ...]) -> EntityFacts:
    """Return the facts of an entity. A topic has no locks, and a subscription has no size of its own."""
    properties = entity.properties
    megabytes: int | None = properties.get("max_size_in_megabytes")
    return EntityFacts(
        path=entity.path,
        kind=entity.kind.word,
        status=str(getattr(properties["status"], "value", properties["status"])),
        lock_duration=properties.get("lock_duration"),
        time_to_live=_limit(properties["default_message_time_to_live"]),
        max_size_in_bytes=megabytes * _MEGABYTE if megabytes else None,
        forwards=any(properties.get(name) for name in _FORWARDING),
        removed_when_idle=_limit(properties["auto_delete_on_idle"]) is not None,
        partitions=partitions,
    )


def _limit(value: timedelta | str | None) -> timedelta | None:
    """Return a duration, or ``None`` if it is no limit."""
    return value if isinstance(value, timedelta) and value < timedelta.max else None
