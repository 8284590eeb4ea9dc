"""What ``doctor`` and ``exporter`` need to know of every entity of a namespace, and how it is read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient
    from sbredis.model import PartitionRuntimeProperties, QueueProperties, SubscriptionProperties, TopicProperties

    _Properties = QueueProperties | TopicProperties | SubscriptionProperties

__all__ = ["EntityFacts", "read_entities"]

_MEGABYTE = 1024 * 1024
_FORWARDING = ("forward_to", "forward_dead_lettered_messages_to")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFacts:
    """What is known of a queue, topic or subscription."""

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


async def read_entities(administration: ServiceBusAdministrationClient) -> list[EntityFacts]:
    """Return the facts of all queues, topics and subscriptions. An entity that is deleted meanwhile is left out.

    Each partition of an entity costs two short reads. One entity is read after the other.
    """
    found: list[EntityFacts] = []

    async def add(kind: str, path: str, properties: _Properties) -> None:
        with suppress(MessagingEntityNotFoundError, DataLayoutError):  # deleted, or its record is damaged, meanwhile
            partitions = [partition async for partition in administration.list_partitions(path)]
            found.append(_facts(kind, path, properties, tuple(partitions)))

    async for queue in administration.list_queues():
        await add("queue", queue.name, queue)
    async for topic in administration.list_topics():
        await add("topic", topic.name, topic)
        with suppress(MessagingEntityNotFoundError):
            async for subscription in administration.list_subscriptions(topic.name):
                await add("subscription", f"{topic.name}/subscriptions/{subscription.name}", subscription)
    return found


def _facts(
    kind: str, path: str, properties: _Properties, partitions: tuple[PartitionRuntimeProperties, ...]
) -> EntityFacts:
    """Return the facts of an entity. A topic has no locks, and a subscription has no size of its own."""
    megabytes: int | None = getattr(properties, "max_size_in_megabytes", None)
    return EntityFacts(
        path=path,
        kind=kind,
        status=str(getattr(properties.status, "value", properties.status)),
        lock_duration=getattr(properties, "lock_duration", None),
        time_to_live=_limit(properties.default_message_time_to_live),
        max_size_in_bytes=megabytes * _MEGABYTE if megabytes else None,
        forwards=any(getattr(properties, name, None) for name in _FORWARDING),
        removed_when_idle=_limit(properties.auto_delete_on_idle) is not None,
        partitions=partitions,
    )


def _limit(value: timedelta | str | None) -> timedelta | None:
    """Return a duration, or ``None`` if it is no limit."""
    return value if isinstance(value, timedelta) and value < timedelta.max else None
