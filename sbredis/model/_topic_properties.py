"""The properties of topics. :mod:`sbredis.model._entity_properties` declares them."""

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
    """The properties with which a topic may be created; :class:`TopicProperties` explains each."""


class _TopicGiven(TopicOptions, total=False):
    """The arguments for the properties of a topic."""

    availability_status: EntityAvailabilityStatus | str | None


@public
class TopicProperties(SentTo, AnyEntity, OnlyTopic):
    """The properties of a topic.

    Durations are :class:`~datetime.timedelta`. You may give them in ISO 8601 as well (``"PT30S"``). They are kept in
    ms, and ``timedelta.max`` means no limit. A property that was not given reads as its default, and assigning ``None``
    sets the default. Limits are checked when the properties are sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Topic"

    @names_keywords(_TopicGiven)
    def __init__(self, name: str, **properties: Unpack[_TopicGiven]) -> None:
        """A property that is left out or ``None`` counts as not given. An update does not change such a property."""
        super().__init__(name, properties)

    def update(self, *given: Any, **named: Unpack[TopicOptions]) -> None:
        """Assign several properties, like ``dict.update``."""
        self._assign(given, named)
