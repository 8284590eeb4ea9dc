"""What is in queues, topics and subscriptions, as it is told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sbredis.model._entity_enums import EntityAvailabilityStatus

__all__ = ["MessageCountDetails", "QueueRuntimeProperties", "SubscriptionRuntimeProperties", "TopicRuntimeProperties"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRuntimeProperties:
    """What is in a queue. Each partition was counted at a moment of its own."""

    name: str
    """As it was given when it was created."""
    created_at_utc: datetime
    """When it was created, by the server's clock."""
    updated_at_utc: datetime
    """When its properties were changed last."""
    accessed_at_utc: datetime
    """Azure tells here when the queue was last used, which is not kept: it is :attr:`updated_at_utc`."""
    active_message_count: int = 0
    """Messages that are neither scheduled nor dead letters: those that can be received, and those that are locked,
    deferred, or wait for a delay to end. What is due by the time of the count has happened, for the counts: a message
    whose scheduled time has come is active, and one that has expired is not.
    """
    dead_letter_message_count: int = 0
    """Messages on the dead-letter queue, whatever their state there."""
    scheduled_message_count: int = 0
    """Messages that are to be enqueued later."""
    transfer_message_count: int = 0
    """Messages on their way to another queue; none, as long as there is no forwarding."""
    transfer_dead_letter_message_count: int = 0
    """Messages that could not be forwarded; none, as long as there is no forwarding."""
    total_message_count: int = 0
    """All of these together."""
    size_in_bytes: int = 0
    """What the messages take, those on the dead-letter queue included."""
    availability_status: EntityAvailabilityStatus = EntityAvailabilityStatus.AVAILABLE
    """``Limited`` if a partition could not be counted. An addition of sbredis."""
    unreachable_partitions: tuple[int, ...] = ()
    """The partitions that could not be counted; the counts are those of the others. An addition of sbredis."""
    is_approximate: bool = False
    """True if more messages had become due than could be counted and the client was not permitted, or had no time, to
    have them dealt with. An addition of sbredis.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRuntimeProperties:
    """What is in a topic, and how many subscriptions and filters it has."""

    name: str
    """As it was given when it was created."""
    created_at_utc: datetime
    """When it was created, by the server's clock."""
    updated_at_utc: datetime
    """When its properties were changed last."""
    accessed_at_utc: datetime
    """Azure tells here when the topic was last used, which is not kept: it is :attr:`updated_at_utc`."""
    subscription_count: int = 0
    """Its subscriptions."""
    sql_filter_count: int = 0
    """The rules of all of them whose filter is an SQL filter; one that is always true or false is one of these."""
    correlation_filter_count: int = 0
    """The rules of all of them whose filter is a correlation filter."""
    scheduled_message_count: int = 0
    """Messages that are to be handed to the subscriptions later."""
    size_in_bytes: int = 0
    """What the messages of the topic and of all its subscriptions take."""
    availability_status: EntityAvailabilityStatus = EntityAvailabilityStatus.AVAILABLE
    """``Limited`` if a partition could not be counted. An addition of sbredis."""
    unreachable_partitions: tuple[int, ...] = ()
    """The partitions that could not be counted; the counts are those of the others. An addition of sbredis."""
    is_approximate: bool = False
    """True if more messages had become due than could be counted and the client was not permitted, or had no time, to
    have them dealt with. An addition of sbredis.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRuntimeProperties:
    """What is in a subscription. Each partition was counted at a moment of its own."""

    name: str
    """As it was given when it was created; without that of its topic."""
    created_at_utc: datetime
    """When it was created, by the server's clock."""
    updated_at_utc: datetime
    """When its properties were changed last."""
    accessed_at_utc: datetime
    """Azure tells here when the subscription was last used, which is not kept: it is :attr:`updated_at_utc`."""
    active_message_count: int = 0
    """Messages that are no dead letters: those that can be received, and those that are locked, deferred, or wait for a
    delay to end. What is due by the time of the count has happened, for the counts.
    """
    dead_letter_message_count: int = 0
    """Messages on the dead-letter queue, whatever their state there."""
    transfer_message_count: int = 0
    """Messages on their way to another queue; none, as long as there is no forwarding."""
    transfer_dead_letter_message_count: int = 0
    """Messages that could not be forwarded; none, as long as there is no forwarding."""
    total_message_count: int = 0
    """All of these together."""
    availability_status: EntityAvailabilityStatus = EntityAvailabilityStatus.AVAILABLE
    """``Limited`` if a partition could not be counted. An addition of sbredis."""
    unreachable_partitions: tuple[int, ...] = ()
    """The partitions that could not be counted; the counts are those of the others. An addition of sbredis."""
    is_approximate: bool = False
    """True if more messages had become due than could be counted and the client was not permitted, or had no time, to
    have them dealt with. An addition of sbredis.
    """


@dataclass(slots=True, kw_only=True)
class MessageCountDetails:
    """Counts by the state of messages. Azure's name for programs that use it; nothing here returns one."""

    active_message_count: int | None = None
    dead_letter_message_count: int | None = None
    scheduled_message_count: int | None = None
    transfer_dead_letter_message_count: int | None = None
    transfer_message_count: int | None = None
