"""The description of an entity, found by its path."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from sbredis import entities
from sbredis.entities._paths import SUFFIXES, split_sub_queue
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome
from sbredis.model import QueueProperties, ServiceBusSubQueue, SubscriptionProperties, TopicProperties
from sbredis.registry import split_path

if TYPE_CHECKING:
    from sbredis.client import Connection

__all__ = ["EntityInfo", "describe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityInfo:
    """The entity or sub-queue at a path, as :meth:`ServiceBusClient.describe_entity` returns it."""

    path: str
    """The path, in the spelling with which the entity was created. It includes the sub-queue if there is one."""
    kind: Literal["queue", "topic", "subscription"]
    name: str
    """The name of the queue, topic or subscription."""
    topic_name: str | None
    """The name of the topic, if this is a subscription."""
    sub_queue: ServiceBusSubQueue | None
    """The sub-queue that the path names; ``None`` for the entity itself."""
    requires_session: bool
    """Whether receivers need a session to receive from this path. False for a sub-queue."""
    lock_duration: timedelta | None
    """The duration of a lock on a message; ``None`` for a topic, which keeps no messages."""
    max_message_size_in_bytes: int
    properties: QueueProperties | TopicProperties | SubscriptionProperties
    """All properties, as the administration client returns them."""
    id: str
    """The id in the names of the entity's keys and channels. An entity that is deleted and created again has another
    one.
    """


async def describe(connection: Connection, entity_path: str, deadline: float) -> EntityInfo:
    """Read an entity from the registry by its path."""
    path, sub_queue = split_sub_queue(entity_path, None)
    split_path(path)  # refuse an invalid path before anything is sent
    record = await connection.read_entity(path, deadline)
    if record.kind == "topic" and sub_queue is not None:
        error = MessagingEntityNotFoundError(
            f"{record.path!r} is a topic, which has no dead-letter queue. Name one of its subscriptions instead.",
            outcome=Outcome.REFUSED,
        )
        error.entity = record.path
        raise error
    settings = record.settings
    return EntityInfo(
        path=record.path + SUFFIXES[sub_queue],
        kind=record.kind,
        name=record.name,
        topic_name=record.parent,
        sub_queue=sub_queue,
        requires_session=settings.sessions and sub_queue is None,
        lock_duration=None if record.kind == "topic" else timedelta(milliseconds=settings.lock_duration),
        max_message_size_in_bytes=settings.largest_message,
        properties=entities.DEFINITIONS[record.kind].described(record, reachable=True),
        id=record.id,
    )
