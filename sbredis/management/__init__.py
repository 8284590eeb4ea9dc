"""The administration of entities, under Azure's name: their properties, and a client for code without an event loop.

:class:`sbredis.aio.management.ServiceBusAdministrationClient` is the client for asyncio.
"""

from __future__ import annotations

from sbredis.model import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityAvailabilityStatus,
    EntityStatus,
    FalseRuleFilter,
    MessageCountDetails,
    MessagingSku,
    NamespaceProperties,
    NamespaceType,
    NewSubscriptionOptions,
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
    RuleOptions,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    SubscriptionOptions,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TopicOptions,
    TopicProperties,
    TopicRuntimeProperties,
    TrueRuleFilter,
)
from sbredis.sync.management import ItemPaged, Pages, ServiceBusAdministrationClient

__all__ = [
    "AccessRights",
    "ApiVersion",
    "AuthorizationRule",
    "CorrelationRuleFilter",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "FalseRuleFilter",
    "ItemPaged",
    "MessageCountDetails",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "NewSubscriptionOptions",
    "Pages",
    "QueueOptions",
    "QueueProperties",
    "QueueRuntimeProperties",
    "RuleOptions",
    "RuleProperties",
    "ServiceBusAdministrationClient",
    "SqlRuleAction",
    "SqlRuleFilter",
    "SubscriptionOptions",
    "SubscriptionProperties",
    "SubscriptionRuntimeProperties",
    "TopicOptions",
    "TopicProperties",
    "TopicRuntimeProperties",
    "TrueRuleFilter",
]
