"""Enumerations about entities and namespaces, under Azure's names and values."""

from __future__ import annotations

from enum import StrEnum

from sbredis.model._listed import Listed

__all__ = ["AccessRights", "ApiVersion", "EntityAvailabilityStatus", "EntityStatus", "MessagingSku", "NamespaceType"]


class AccessRights(Listed, StrEnum):
    """The rights of an authorisation rule. Redis's own users decide who may do what; see :class:`AuthorizationRule`."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


class EntityStatus(Listed, StrEnum):
    """Whether an entity accepts and delivers messages. You can set the first four; the others are read-only."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    """Accepts and delivers no messages."""
    SEND_DISABLED = "SendDisabled"
    """Accepts no messages."""
    RECEIVE_DISABLED = "ReceiveDisabled"
    """Delivers no messages."""
    CREATING = "Creating"
    """Its creation has started. The next call that names the entity continues the creation."""
    DELETING = "Deleting"
    """Its deletion has started. The next call that names the entity continues the deletion."""
    RENAMING = "Renaming"
    """Azure's value; sbredis never returns it."""
    RESTORING = "Restoring"
    """Azure's value; sbredis never returns it."""
    UNKNOWN = "Unknown"
    """Azure's value; sbredis never returns it."""


class EntityAvailabilityStatus(Listed, StrEnum):
    """Whether all partitions of an entity can be reached."""

    AVAILABLE = "Available"
    LIMITED = "Limited"
    """One or more partitions cannot be reached."""
    RENAMING = "Renaming"
    """Azure's value; sbredis never returns it."""
    RESTORING = "Restoring"
    """Azure's value; sbredis never returns it."""
    UNKNOWN = "Unknown"
    """Azure's value; sbredis never returns it."""


class MessagingSku(Listed, StrEnum):
    """Azure's price tiers of a namespace. Kept for programs that name them; sbredis never returns one."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


class NamespaceType(Listed, StrEnum):
    """The purpose of a namespace; in sbredis always messaging."""

    MESSAGING = "Messaging"
    NOTIFICATION_HUB = "NotificationHub"
    MIXED = "Mixed"
    EVENT_HUB = "EventHub"
    RELAY = "Relay"


class ApiVersion(Listed, StrEnum):
    """A version of Azure's interface. Accepted for programs that name one; sbredis has one interface."""

    V2024_05 = "2024-05"
    V2021_05 = "2021-05"
    V2017_04 = "2017-04"
