"""The administration of entities, under Azure's name: their properties, and the client for code without an event loop.

:class:`sbredis.aio.management.ServiceBusAdministrationClient` is the one for asyncio.
"""

from __future__ import annotations

from sbredis.model import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    EntityAvailabilityStatus,
    EntityStatus,
    MessagingSku,
    NamespaceProperties,
    NamespaceType,
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
)
from sbredis.sync.management import ItemPaged, Pages, ServiceBusAdministrationClient

__all__ = [
    "AccessRights",
    "ApiVersion",
    "AuthorizationRule",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "ItemPaged",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "Pages",
    "QueueOptions",
    "QueueProperties",
    "QueueRuntimeProperties",
    "ServiceBusAdministrationClient",
]
