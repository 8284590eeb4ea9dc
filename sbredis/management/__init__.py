"""The administration of entities, under Azure's name: their properties, and what is said of them.

:class:`sbredis.aio.management.ServiceBusAdministrationClient` creates, changes, counts and deletes them.
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

__all__ = [
    "AccessRights",
    "ApiVersion",
    "AuthorizationRule",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "QueueOptions",
    "QueueProperties",
    "QueueRuntimeProperties",
]
