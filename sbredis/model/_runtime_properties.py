"""The counts and sizes of queues, topics and subscriptions, and the properties of a namespace."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime

from sbredis.model._enums import EntityAvailabilityStatus, MessagingSku, NamespaceType

__all__ = [
    "MessageCountDetails",
    "NamespaceProperties",
    "PartitionRuntimeProperties",
    "QueueRuntimeProperties",
    "SubscriptionRuntimeProperties",
    "TopicRuntimeProperties",
    "UnreadableEntity",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRuntimeProperties:
    """The counts and the size of a queue. Each partition was counted at a slightly different time."""

    name: str
    """The name as it was given at creation."""
    created_at_utc: datetime
    """The time of creation, by the server's clock."""
    updated_at_utc: datetime
    """The time of the last change of its properties."""
    accessed_at_utc: datetime
    """The time of the last use, by the server's clock. It is written at most once a minute."""
    active_message_count: int = 0
    """The number of messages that are neither scheduled, nor dead letters, nor on their way to another entity. They can
    be received, or are locked, deferred, or wait for a delay to end. An event whose time has come counts as done, even
    if the server has not processed it yet. So a message whose scheduled time has come is active, and an expired message
    does not count.
    """
    dead_letter_message_count: int = 0
    """The number of messages on the dead-letter queue, in any state."""
    scheduled_message_count: int = 0
    """The number of messages that will be enqueued later."""
    transfer_message_count: int = 0
    """The number of messages that wait to be moved to another entity, or are being moved. If the queue has
    ``forward_to``, these are the messages that a receiver could otherwise receive. Messages that a transaction sent to
    another entity count too.
    """
    transfer_dead_letter_message_count: int = 0
    """The number of messages on the transfer dead-letter queue: a transaction sent them to another entity, and they
    could not be moved there.
    """
    total_message_count: int = 0
    """The number of all messages: the sum of the other counts of messages."""
    size_in_bytes: int = 0
    """The size of all messages, including those on the dead-letter queue."""
    availability_status: EntityAvailabilityStatus = EntityAvailabilityStatus.AVAILABLE
    """``Limited`` if a partition could not be counted. An addition of sbredis."""
    unreachable_partitions: tuple[int, ...] = ()
    """The partitions that could not be counted. The counts do not include their messages. An addition of sbredis."""
    is_approximate: bool = False
    """Whether the counts may be wrong, because more events were due than one count can consider, and the client lacked
    the right or the time to process the remaining events. An addition of sbredis.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRuntimeProperties:
    """The counts and the size of a topic, with its subscriptions and filters."""

    name: str
    """The name as it was given at creation."""
    created_at_utc: datetime
    """The time of creation, by the server's clock."""
    updated_at_utc: datetime
    """The time of the last change of its properties."""
    accessed_at_utc: datetime
    """The time of the last use, by the server's clock. It is written at most once a minute."""
    subscription_count: int = 0
    """The number of subscriptions."""
    sql_filter_count: int = 0
    """The number of rules with an SQL filter, in all its subscriptions. A filter that is always true or false counts
    here too.
    """
    correlation_filter_count: int = 0
    """The number of rules with a correlation filter, in all its subscriptions."""
    scheduled_message_count: int = 0
    """The number of messages that will be handed to the subscriptions later."""
    transfer_message_count: int = 0
    """The number of messages that a transaction sent to another entity through this topic, and that wait to be moved
    there or are being moved. An addition of sbredis.
    """
    transfer_dead_letter_message_count: int = 0
    """The number of messages on the transfer dead-letter queue: a transaction sent them to another entity, and they
    could not be moved there. An addition of sbredis.
    """
    size_in_bytes: int = 0
    """The size of all messages of the topic and of all its subscriptions."""
    availability_status: EntityAvailabilityStatus = EntityAvailabilityStatus.AVAILABLE
    """``Limited`` if a partition could not be counted. An addition of sbredis."""
    unreachable_partitions: tuple[int, ...] = ()
    """The partitions that could not be counted. The counts do not include their messages. An addition of sbredis."""
    is_approximate: bool = False
    """Whether the counts may be wrong, because more events were due than one count can consider, and the client lacked
    the right or the time to process the remaining events. An addition of sbredis.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRuntimeProperties:
    """The counts of a subscription. Each partition was counted at a slightly different time."""

    name: str
    """The name as it was given at creation, without the name of the topic."""
    created_at_utc: datetime
    """The time of creation, by the server's clock."""
    updated_at_utc: datetime
    """The time of the last change of its properties."""
    accessed_at_utc: datetime
    """The time of the last use, by the server's clock. It is written at most once a minute."""
    active_message_count: int = 0
    """The number of messages that are neither dead letters nor on their way to another entity. They can be received, or
    are locked, deferred, or wait for a delay to end. An event whose time has come counts as done, even if the server
    has not processed it yet. So an expired message does not count.
    """
    dead_letter_message_count: int = 0
    """The number of messages on the dead-letter queue, in any state."""
    transfer_message_count: int = 0
    """The number of messages that wait to be moved to another entity, or are being moved. If the subscription has
    ``forward_to``, these are the messages that a receiver could otherwise receive. Messages that a transaction sent to
    another entity count too.
    """
    transfer_dead_letter_message_count: int = 0
    """The number of messages on the transfer dead-letter queue: a transaction sent them to another entity, and they
    could not be moved there.
    """
    total_message_count: int = 0
    """The number of all messages: the sum of the other counts of messages."""
    availability_status: EntityAvailabilityStatus = EntityAvailabilityStatus.AVAILABLE
    """``Limited`` if a partition could not be counted. An addition of sbredis."""
    unreachable_partitions: tuple[int, ...] = ()
    """The partitions that could not be counted. The counts do not include their messages. An addition of sbredis."""
    is_approximate: bool = False
    """Whether the counts may be wrong, because more events were due than one count can consider, and the client lacked
    the right or the time to process the remaining events. An addition of sbredis.
    """


@dataclass(slots=True, kw_only=True)
class MessageCountDetails:
    """Counts by the state of messages. A name of Azure's, for programs that use it; sbredis never returns one."""

    active_message_count: int | None = None
    dead_letter_message_count: int | None = None
    scheduled_message_count: int | None = None
    transfer_dead_letter_message_count: int | None = None
    transfer_message_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRuntimeProperties:
    """The content of one partition of an entity, and its server. An addition of sbredis.

    All counts are 0 if the partition is not available.
    """

    number: int
    """The number of the partition in the namespace."""
    server: str | None
    """The address of the server that has the partition, in a cluster its master; ``None`` if no server has it now."""
    available: bool = True
    """Whether the partition answered."""
    active_message_count: int = 0
    """The number of messages that can be received now."""
    locked_message_count: int = 0
    """The number of messages that receivers have locked, and of messages with the holder of a session."""
    delayed_message_count: int = 0
    """The number of messages that can be received again after a delay."""
    deferred_message_count: int = 0
    """The number of messages that were deferred."""
    scheduled_message_count: int = 0
    """The number of messages that will be enqueued later."""
    transfer_message_count: int = 0
    """The number of messages that a transaction has sent to another entity, and that wait to be moved."""
    dead_letter_message_count: int = 0
    """The number of messages on the dead-letter queue, in any state."""
    transfer_dead_letter_message_count: int = 0
    """The number of messages on the transfer dead-letter queue."""
    size_in_bytes: int = 0
    """The size of all messages. A topic's size includes the messages of its subscriptions."""
    oldest_enqueued_at_utc: datetime | None = None
    """The time when the oldest message that can be received was enqueued; ``None`` if there is none."""
    waiting_receiver_count: int = 0
    """The number of receivers that wait for messages or for a session."""
    waiting_session_count: int = 0
    """The number of sessions that have messages and no receiver."""
    locked_session_count: int = 0
    """The number of sessions that a receiver has locked."""
    numbers_given_out: int = 0
    """The number of sequence numbers that the partition has given to messages: one when a message is sent, and another
    one when it is enqueued from a schedule. A subscription has the numbers of its topic.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableEntity:
    """A queue, topic, subscription or rule whose record in the registry this release cannot read."""

    path: str
    """The path in lower case. A rule has the path ``topic/subscriptions/name/rules/rule``."""
    reason: str
    """Why the record cannot be read, in a few words."""
    layout: str | None
    """The layout of the record, if another release has written it; ``None`` if the record is damaged."""


@dataclass(frozen=True, slots=True)
class NamespaceProperties:
    """The properties of a namespace."""

    name: str
    _: KW_ONLY
    alias: str | None = None
    """Azure's property; always ``None`` in sbredis."""
    created_at_utc: datetime | None = None
    """The time of creation, by the server's clock."""
    messaging_sku: MessagingSku | None = None
    """Azure's property; always ``None`` in sbredis."""
    messaging_units: int | None = None
    """Azure's property; always ``None`` in sbredis."""
    modified_at_utc: datetime | None = None
    """The same as :attr:`created_at_utc`: changes of the limits are not noted."""
    namespace_type: NamespaceType = NamespaceType.MESSAGING
    slot_count: int | None = None
    """The number of slots over which the entities are spread, fixed at creation. An addition of sbredis."""
    entity_count: int | None = None
    """The number of queues, topics and subscriptions. An addition of sbredis."""
    max_entities: int | None = None
    """The largest number of queues, topics and subscriptions, if it is limited. An addition of sbredis."""
    size_in_megabytes: int | None = None
    """The sum of the sizes that the queues and topics may have, in all their partitions. An addition of sbredis."""
    max_size_in_megabytes: int | None = None
    """The limit of :attr:`size_in_megabytes`, if there is one. An addition of sbredis."""
    availability_status: EntityAvailabilityStatus = EntityAvailabilityStatus.AVAILABLE
    """``Limited`` if a part of the registry cannot be reached, so that the counts lack its entities. An addition of
    sbredis.
    """
    unreachable_slots: tuple[int, ...] = ()
    """The numbers of the slots in which the registry cannot be reached. An addition of sbredis."""
