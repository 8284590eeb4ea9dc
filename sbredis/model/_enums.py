"""Enumerations for receivers and messages, under Azure's names and values."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum

from sbredis.model._listed import Listed

__all__ = [
    "NEXT_AVAILABLE_SESSION",
    "ServiceBusMessageState",
    "ServiceBusReceiveMode",
    "ServiceBusSessionFilter",
    "ServiceBusSubQueue",
    "TransportType",
]


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
