"""What users hold in their hands: messages as they are made, sent and received. Nothing here waits for anything."""

from __future__ import annotations

from sbredis.model._amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)
from sbredis.model._batch import ServiceBusMessageBatch
from sbredis.model._checks import moment
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
from sbredis.model._kept import KeptQueue, queue_created, queue_differences, queue_revised, queue_values
from sbredis.model._message import (
    MessageType,
    MessageTypes,
    PrimitiveTypes,
    PropertyMapping,
    ServiceBusMessage,
    as_message,
    as_messages,
    outgoing,
    routing_key,
)
from sbredis.model._properties import NamespaceProperties, QueueOptions, QueueProperties, QueueRuntimeProperties
from sbredis.model._received import Lease, ServiceBusReceivedMessage, delivered
from sbredis.model._rights import AuthorizationRule

__all__ = [
    "NEXT_AVAILABLE_SESSION",
    "AccessRights",
    "AmqpAnnotatedMessage",
    "AmqpMessageBodyType",
    "AmqpMessageHeader",
    "AmqpMessageProperties",
    "ApiVersion",
    "AuthorizationRule",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "KeptQueue",
    "Lease",
    "MessageType",
    "MessageTypes",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "PrimitiveTypes",
    "PropertyMapping",
    "QueueOptions",
    "QueueProperties",
    "QueueRuntimeProperties",
    "ServiceBusMessage",
    "ServiceBusMessageBatch",
    "ServiceBusMessageState",
    "ServiceBusReceiveMode",
    "ServiceBusReceivedMessage",
    "ServiceBusSessionFilter",
    "ServiceBusSubQueue",
    "TransportType",
    "as_message",
    "as_messages",
    "delivered",
    "moment",
    "outgoing",
    "queue_created",
    "queue_differences",
    "queue_revised",
    "queue_values",
    "routing_key",
]
