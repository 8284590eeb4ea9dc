"""What is said of entities and namespaces, under Azure's names and values."""

from __future__ import annotations

from enum import StrEnum

from sbredis.model._listed import Listed

__all__ = ["AccessRights", "ApiVersion", "EntityAvailabilityStatus", "EntityStatus", "MessagingSku", "NamespaceType"]


class AccessRights(Listed, StrEnum):
    """What an authorisation rule permits. Redis's own users decide who may do what; see :class:`AuthorizationRule`."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


class EntityStatus(Listed, StrEnum):
    """Whether an entity takes messages in and gives them out. The first four can be set; the others are told."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    """Takes nothing in and gives nothing out."""
    SEND_DISABLED = "SendDisabled"
    """Takes nothing in."""
    RECEIVE_DISABLED = "ReceiveDisabled"
    """Gives nothing out."""
    CREATING = "Creating"
    """Its creation has begun; the next call about it goes on with that."""
    DELETING = "Deleting"
    """Its deletion has begun; the next call about it goes on with that."""
    RENAMING = "Renaming"
    """Azure's; never told here."""
    RESTORING = "Restoring"
    """Azure's; never told here."""
    UNKNOWN = "Unknown"
    """Azure's; never told here."""


class EntityAvailabilityStatus(Listed, StrEnum):
    """Whether all partitions of an entity can be reached."""

    AVAILABLE = "Available"
    LIMITED = "Limited"
    """One or more cannot."""
    RENAMING = "Renaming"
    """Azure's; never told here."""
    RESTORING = "Restoring"
    """Azure's; never told here."""
    UNKNOWN = "Unknown"
    """Azure's; never told here."""


class MessagingSku(Listed, StrEnum):
    """What of Azure's service a namespace is a customer of. Kept for programs that name it; nothing is told here."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


class NamespaceType(Listed, StrEnum):
    """What a namespace is for; here always messaging."""

    MESSAGING = "Messaging"
    NOTIFICATION_HUB = "NotificationHub"
    MIXED = "Mixed"
    EVENT_HUB = "EventHub"
    RELAY = "Relay"


class ApiVersion(Listed, StrEnum):
    """A version of Azure's interface. Accepted for the sake of programs that name one; there is one interface here."""

    V2024_05 = "2024-05"
    V2021_05 = "2021-05"
    V2017_04 = "2017-04"
