"""What there is to know of an entity that is named by its path."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from sbredis.aio.entities._definitions import QUEUES, SUBSCRIPTIONS, TOPICS
from sbredis.aio.entities._sub_queues import SUFFIXES, split_sub_queue
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome
from sbredis.model import QueueProperties, ServiceBusSubQueue, SubscriptionProperties, TopicProperties
from sbredis.registry import split_path

if TYPE_CHECKING:
    from sbredis.aio.calls._connection import Connection

__all__ = ["EntityInfo", "describe"]

_DEFINITIONS: dict[str, Any] = {"queue": QUEUES, "topic": TOPICS, "subscription": SUBSCRIPTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityInfo:
    """What a path leads to: :meth:`ServiceBusClient.describe_entity`."""

    path: str
    """With the names as the entity was created with them, and the sub-queue if it is one."""
    kind: Literal["queue", "topic", "subscription"]
    name: str
    """Of the queue, the topic or the subscription."""
    topic_name: str | None
    """Of the topic of a subscription."""
    sub_queue: ServiceBusSubQueue | None
    """Which sub-queue of the entity the path leads to; ``None`` for the entity itself."""
    requires_session: bool
    """Whether one receives there by session: of a sub-queue one never does."""
    lock_duration: timedelta | None
    """``None`` for a topic, which keeps no messages."""
    max_message_size_in_bytes: int
    properties: QueueProperties | TopicProperties | SubscriptionProperties
    """All that is set, as the administration client shows it."""


async def describe(connection: Connection, entity_path: str, deadline: float) -> EntityInfo:
    """Read an entity from the registry by its path."""
    path, sub_queue = split_sub_queue(entity_path, None)
    split_path(path)  # a path that none can have is refused before anything is sent
    record = await connection.record(path, deadline)
    if record.kind == "topic" and sub_queue is not None:
        error = MessagingEntityNotFoundError(
            f"{record.path!r} is a topic, which has no dead-letter queue: its subscriptions have one each.",
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
        properties=_DEFINITIONS[record.kind].described(record, reachable=True),
    )
