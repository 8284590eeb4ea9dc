"""The choices of a receiver and what it says of a message, under Azure's names and values."""

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
    """What receiving a message does to it."""

    PEEK_LOCK = "peeklock"
    """It is locked, and stays until it is settled."""
    RECEIVE_AND_DELETE = "receiveanddelete"
    """It is deleted as it is given out: lost if the receiver fails."""


class ServiceBusSubQueue(Listed, StrEnum):
    """A queue that belongs to an entity, beside its main one."""

    DEAD_LETTER = "deadletter"
    """Messages that could not be delivered or processed."""
    TRANSFER_DEAD_LETTER = "transferdeadletter"
    """Messages that could not be forwarded."""


class ServiceBusMessageState(Listed, IntEnum):
    """Where a message stands in its life."""

    ACTIVE = 0
    DEFERRED = 1
    """Set aside, to be received by its sequence number only."""
    SCHEDULED = 2
    """To be enqueued later."""


class ServiceBusSessionFilter(Enum):
    """Which session a receiver wants, when it names none."""

    NEXT_AVAILABLE = 0
    """Any that has messages and is not locked."""


NEXT_AVAILABLE_SESSION = ServiceBusSessionFilter.NEXT_AVAILABLE
"""In the place of a session id: any session that has messages and is not locked."""


class TransportType(Listed, Enum):
    """How Azure's client reaches its service. Accepted, without an effect: the connection string says it."""

    Amqp = 1
    AmqpOverWebsocket = 2
