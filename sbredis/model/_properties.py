"""The properties of queues and namespaces, as an application sets and reads them.

The table :mod:`sbredis.model._entity_properties` declares the properties of queues.
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
    """The properties with which a queue may be created; :class:`QueueProperties` explains each."""


class _QueueGiven(QueueOptions, total=False):
    """The arguments for the properties of a queue."""

    availability_status: EntityAvailabilityStatus | str | None


@public
class QueueProperties(ReceivedFrom, SentTo, AnyEntity):
    """The properties of a queue.

    Durations are :class:`~datetime.timedelta`. You may give them in ISO 8601 as well (``"PT30S"``). They are kept in
    ms, and ``timedelta.max`` means no limit. A property that was not given reads as its default, and assigning ``None``
    sets the default. Limits are checked when the properties are sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Queue"

    @names_keywords(_QueueGiven)
    def __init__(self, name: str, **properties: Unpack[_QueueGiven]) -> None:
        """A property that is left out or ``None`` counts as not given. An update does not change such a property."""
        super().__init__(name, properties)

    def update(self, *given: Any, **named: Unpack[QueueOptions]) -> None:
        """Assign several properties, like ``dict.update``."""
        self._assign(given, named)


@dataclass(frozen=True, slots=True)
class NamespaceProperties:
    """The properties of a namespace."""

    name: str
    _: KW_ONLY
    alias: str | None = None
    """Azure's property; always ``None`` in sbredis."""
    created_at_utc: datetime | None = None
    """The time of creation, by the server's clock."""
    messaging_sku: MessagingSku | None = None
    """Azure's property; always ``None`` in sbredis."""
    messaging_units: int | None = None
    """Azure's property; always ``None`` in sbredis."""
    modified_at_utc: datetime | None = None
    """The same as :attr:`created_at_utc`: changes of the limits are not noted."""
    namespace_type: NamespaceType = NamespaceType.MESSAGING
    partition_count: int | None = None
    """The number of partitions, fixed at creation. An addition of sbredis."""
    entity_count: int | None = None
    """The number of queues, topics and subscriptions. An addition of sbredis."""
    max_entities: int | None = None
    """The largest number of queues, topics and subscriptions, if it is limited. An addition of sbredis."""
    size_in_megabytes: int | None = None
    """The sum of the sizes that the queues and topics may have, in all their partitions. An addition of sbredis."""
    max_size_in_megabytes: int | None = None
    """The limit of :attr:`size_in_megabytes`, if there is one. An addition of sbredis."""
