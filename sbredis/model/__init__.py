"""The objects that users work with: messages, properties and rules. This package never waits for a server."""

from __future__ import annotations

from sbredis.model._amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)
from sbredis.model._batch import BatchContents, ServiceBusMessageBatch, contents_of
from sbredis.model._checks import MAXIMUM_PROPERTY_BYTES, due_time, moment
from sbredis.model._durations import parse_duration
from sbredis.model._entity_enums import (
    AccessRights,
    ApiVersion,
    EntityAvailabilityStatus,
    EntityStatus,
    MessagingSku,
    NamespaceType,
)
from sbredis.model._enums import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
    TransportType,
)
from sbredis.model._fields import Choice, Described, Duration, Field, Flag, ListOf, Whole
from sbredis.model._hold import Hold, MessageLease, Source
from sbredis.model._id_kinds import MessageId, comparable_id, duplicate_key, work_key
from sbredis.model._keywords import names_keywords
from sbredis.model._message import (
    MessageType,
    MessageTypes,
    PrimitiveTypes,
    PropertyMapping,
    ServiceBusMessage,
    as_message,
    as_messages,
    content_of,
    copied,
    from_content,
)
from sbredis.model._moved import (
    MoveKind,
    Purpose,
    TooManyHopsError,
    key_at_destination,
    moved,
    read_purpose,
)
from sbredis.model._outgoing import keep_id, message_key, outgoing, routing_key, use_id
from sbredis.model._properties import NamespaceProperties, QueueOptions, QueueProperties
from sbredis.model._property_docs import property_docs
from sbredis.model._received import BROKERS_REASONS, ServiceBusReceivedMessage, delivered, hold_of
from sbredis.model._redrive import RedriveBudget, RedriveResult, readable_content, redrive_of
from sbredis.model._reservation import ReservationPosition, ReservationStatus
from sbredis.model._rights import AuthorizationRule, rule_as_kept
from sbredis.model._rule_properties import (
    DEFAULT_RULE,
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleFilter,
    RuleOptions,
    RuleProperties,
    RuleValue,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
    rule_created,
    rule_revised,
    rule_shown,
)
from sbredis.model._runtime_properties import (
    MessageCountDetails,
    PartitionRuntimeProperties,
    QueueRuntimeProperties,
    SubscriptionRuntimeProperties,
    TopicRuntimeProperties,
    UnreadableEntity,
)
from sbredis.model._stored import StoredEntity, entity_created, entity_differences, entity_revised, entity_values
from sbredis.model._subscription_properties import (
    NewSubscriptionOptions,
    QueueOrSubscriptionOptions,
    SubscriptionOptions,
    SubscriptionProperties,
)
from sbredis.model._topic_properties import TopicOptions, TopicProperties
from sbredis.model._warnings import NoOptions, warn_of_unknown

__all__ = [
    "BROKERS_REASONS",
    "DEFAULT_RULE",
    "MAXIMUM_PROPERTY_BYTES",
    "NEXT_AVAILABLE_SESSION",
    "AccessRights",
    "AmqpAnnotatedMessage",
    "AmqpMessageBodyType",
    "AmqpMessageHeader",
    "AmqpMessageProperties",
    "ApiVersion",
    "AuthorizationRule",
    "BatchContents",
    "Choice",
    "CorrelationRuleFilter",
    "Described",
    "Duration",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "FalseRuleFilter",
    "Field",
    "Flag",
    "Hold",
    "ListOf",
    "MessageCountDetails",
    "MessageId",
    "MessageLease",
    "MessageType",
    "MessageTypes",
    "MessagingSku",
    "MoveKind",
    "NamespaceProperties",
    "NamespaceType",
    "NewSubscriptionOptions",
    "NoOptions",
    "PartitionRuntimeProperties",
    "PrimitiveTypes",
    "PropertyMapping",
    "Purpose",
    "QueueOptions",
    "QueueOrSubscriptionOptions",
    "QueueProperties",
    "QueueRuntimeProperties",
    "RedriveBudget",
    "RedriveResult",
    "ReservationPosition",
    "ReservationStatus",
    "RuleFilter",
    "RuleOptions",
    "RuleProperties",
    "RuleValue",
    "ServiceBusMessage",
    "ServiceBusMessageBatch",
    "ServiceBusMessageState",
    "ServiceBusReceiveMode",
    "ServiceBusReceivedMessage",
    "ServiceBusSessionFilter",
    "ServiceBusSubQueue",
    "Source",
    "SqlRuleAction",
    "SqlRuleFilter",
    "StoredEntity",
    "SubscriptionOptions",
    "SubscriptionProperties",
    "SubscriptionRuntimeProperties",
    "TooManyHopsError",
    "TopicOptions",
    "TopicProperties",
    "TopicRuntimeProperties",
    "TransportType",
    "TrueRuleFilter",
    "UnreadableEntity",
    "Whole",
    "as_message",
    "as_messages",
    "comparable_id",
    "content_of",
    "contents_of",
    "copied",
    "delivered",
    "due_time",
    "duplicate_key",
    "entity_created",
    "entity_differences",
    "entity_revised",
    "entity_values",
    "from_content",
    "hold_of",
    "keep_id",
    "key_at_destination",
    "message_key",
    "moment",
    "moved",
    "names_keywords",
    "outgoing",
    "parse_duration",
    "property_docs",
    "read_purpose",
    "readable_content",
    "redrive_of",
    "routing_key",
    "rule_as_kept",
    "rule_created",
    "rule_revised",
    "rule_shown",
    "use_id",
    "warn_of_unknown",
    "work_key",
]
