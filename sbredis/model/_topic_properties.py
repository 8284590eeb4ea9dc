"""The properties of topics, as they are set and shown. :mod:`sbredis.model._entity_properties` declares them."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from sbredis._public import public
from sbredis.model._entity_enums import EntityAvailabilityStatus
from sbredis.model._entity_properties import (
    AnyEntity,
    AnyEntityOptions,
    OnlyTopic,
    OnlyTopicOptions,
    SentTo,
    SentToOptions,
)
from sbredis.model._keywords import names_keywords

__all__ = ["TopicOptions", "TopicProperties"]


class TopicOptions(SentToOptions, AnyEntityOptions, OnlyTopicOptions, total=False):
    """What a topic may be created with: the properties that can be set, each as in :class:`TopicProperties`."""


class _TopicGiven(TopicOptions, total=False):
    """What the properties of a topic may be made of."""

    availability_status: EntityAvailabilityStatus | str | None


@public
class TopicProperties(SentTo, AnyEntity, OnlyTopic):
    """What a topic is and does.

    Durations are :class:`~datetime.timedelta`; they may be given in ISO 8601 as well (``"PT30S"``), and are kept in ms.
    ``timedelta.max`` is no limit. A property that was not given reads as it is by default, and ``None`` assigned to it
    stands for the default. Limits are checked when it is sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Topic"

    @names_keywords(_TopicGiven)
    def __init__(self, name: str, **properties: Unpack[_TopicGiven]) -> None:
        """A property that is left out, or ``None``, counts as not given; an update leaves it as it is."""
        super().__init__(name, properties)

    def update(self, *given: Any, **named: Unpack[TopicOptions]) -> None:
        """Assign several properties, as to a dictionary."""
        self._assign(given, named)
