"""The properties of queues and namespaces, as they are set and shown. Those of a queue are declared in one table.

The table is :mod:`sbredis.model._entity_properties`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, ClassVar, Unpack

from sbredis._public import public
from sbredis.model._entity_enums import EntityAvailabilityStatus, MessagingSku, NamespaceType
from sbredis.model._entity_properties import (
    AnyEntity,
    AnyEntityOptions,
    ReceivedFrom,
    ReceivedFromOptions,
    SentTo,
    SentToOptions,
)
from sbredis.model._keywords import names_keywords

__all__ = ["NamespaceProperties", "QueueOptions", "QueueProperties"]


class QueueOptions(ReceivedFromOptions, SentToOptions, AnyEntityOptions, total=False):
    """What a queue may be created with: the properties that can be set, each as in :class:`QueueProperties`."""


class _QueueGiven(QueueOptions, total=False):
    """What the properties of a queue may be made of."""

    availability_status: EntityAvailabilityStatus | str | None


@public
class QueueProperties(ReceivedFrom, SentTo, AnyEntity):
    """What a queue is and does.

    Durations are :class:`~datetime.timedelta`; they may be given in ISO 8601 as well (``"PT30S"``), and are kept in ms.
    ``timedelta.max`` is no limit. A property that was not given reads as it is by default, and ``None`` assigned to it
    stands for the default. Limits are checked when it is sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Queue"

    @names_keywords(_QueueGiven)
    def __init__(self, name: str, **properties: Unpack[_QueueGiven]) -> None:
        """A property that is left out, or ``None``, counts as not given; an update leaves it as it is."""
        super().__init__(name, properties)

    def update(self, *given: Any, **named: Unpack[QueueOptions]) -> None:
        """Assign several properties, as to a dictionary."""
        self._assign(given, named)


@dataclass(frozen=True, slots=True)
class NamespaceProperties:
    """What a namespace is."""

    name: str
    _: KW_ONLY
    alias: str | None = None
    """Azure's; there is none here."""
    created_at_utc: datetime | None = None
    """When it was made, by the server's clock."""
    messaging_sku: MessagingSku | None = None
    """Azure's; there is none here."""
    messaging_units: int | None = None
    """Azure's; there are none here."""
    modified_at_utc: datetime | None = None
    """As :attr:`created_at_utc`: what is said here cannot change."""
    namespace_type: NamespaceType = NamespaceType.MESSAGING
    partition_count: int | None = None
    """How many partitions it has, decided when it was made. An addition of sbredis."""
