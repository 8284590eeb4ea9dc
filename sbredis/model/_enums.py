"""The enumerations, under Azure's names and values."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum, StrEnum
from typing import Any, NoReturn, cast

from sbredis._quoting import quoted

__all__ = [
    "NEXT_AVAILABLE_SESSION",
    "AccessRights",
    "ApiVersion",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "Listed",
    "MessagingSku",
    "NamespaceType",
    "ServiceBusMessageState",
    "ServiceBusReceiveMode",
    "ServiceBusSessionFilter",
    "ServiceBusSubQueue",
    "TransportType",
]


class Listed:
    """An enumeration whose error for an unknown value lists the values that exist."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        *most, last = [repr(one.value) for one in cast("Iterable[Any]", cls)]
        raise ValueError(
            f"{quoted(value)} is not a value of {cls.__name__}; the values are {', '.join(most)} and {last}"
        )


# -- receivers and messages --------------------------------------------------------------------------------------------


class ServiceBusReceiveMode(Listed, StrEnum):
    """The effect of a receive on the message."""

    PEEK_LOCK = "peeklock"
    """The message is locked, and stays until it is settled."""
    RECEIVE_AND_DELETE = "receiveanddelete"
    """The message is deleted when it is delivered. It is lost if the receiver fails."""


class ServiceBusSubQueue(Listed, StrEnum):
    """A queue that belongs to an entity, beside its main queue."""

    DEAD_LETTER = "deadletter"
    """Messages that could not be delivered or processed."""
    TRANSFER_DEAD_LETTER = "transferdeadletter"
    """Messages that could not be forwarded."""


class ServiceBusMessageState(Listed, IntEnum):
    """The state of a message."""

    ACTIVE = 0
    DEFERRED = 1
    """Set aside; it can be received only by its sequence number."""
    SCHEDULED = 2
    """To be enqueued later."""


class ServiceBusSessionFilter(Enum):
    """The choice of a session for a receiver that does not name one."""

    NEXT_AVAILABLE = 0
    """Any session that has messages and is not locked."""


NEXT_AVAILABLE_SESSION = ServiceBusSessionFilter.NEXT_AVAILABLE
"""Pass this instead of a session id to get any session that has messages and is not locked."""


class TransportType(Listed, Enum):
    """The transport of Azure's client. Accepted, without an effect: the connection string chooses the transport."""

    Amqp = 1
    AmqpOverWebsocket = 2


# -- entities and namespaces -------------------------------------------------------------------------------------------


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
