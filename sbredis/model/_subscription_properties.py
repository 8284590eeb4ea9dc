"""The properties of subscriptions. :mod:`sbredis.model._entity_properties` declares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from sbredis._public import public
from sbredis.model._entity_enums import EntityAvailabilityStatus
from sbredis.model._entity_properties import (
    AnyEntity,
    AnyEntityOptions,
    OnlySubscription,
    OnlySubscriptionOptions,
    ReceivedFrom,
    ReceivedFromOptions,
)
from sbredis.model._keywords import names_keywords
from sbredis.model._properties import QueueOptions
from sbredis.model._rule_properties import RuleProperties

__all__ = ["NewSubscriptionOptions", "QueueOrSubscriptionOptions", "SubscriptionOptions", "SubscriptionProperties"]


class SubscriptionOptions(ReceivedFromOptions, AnyEntityOptions, OnlySubscriptionOptions, total=False):
    """The properties with which a subscription may be created; :class:`SubscriptionProperties` explains each."""


class _SubscriptionGiven(SubscriptionOptions, total=False):
    """The arguments for the properties of a subscription."""

    availability_status: EntityAvailabilityStatus | str | None


@public
class SubscriptionProperties(ReceivedFrom, AnyEntity, OnlySubscription):
    """The properties of a subscription.

    Durations are :class:`~datetime.timedelta`. You may give them in ISO 8601 as well (``"PT30S"``). They are kept in
    ms, and ``timedelta.max`` means no limit. A property that was not given reads as its default, and assigning ``None``
    sets the default. Limits are checked when the properties are sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Subscription"

    @names_keywords(_SubscriptionGiven)
    def __init__(self, name: str, **properties: Unpack[_SubscriptionGiven]) -> None:
        """A property that is left out or ``None`` counts as not given. An update does not change such a property."""
        super().__init__(name, properties)

    def update(self, *given: Any, **named: Unpack[SubscriptionOptions]) -> None:
        """Assign several properties, like ``dict.update``."""
        self._assign(given, named)


class NewSubscriptionOptions(SubscriptionOptions, total=False):
    """The properties and the first rules with which a missing subscription is created."""

    rules: Sequence[RuleProperties] | None


class QueueOrSubscriptionOptions(QueueOptions, OnlySubscriptionOptions, total=False):
    """The properties for creating a missing queue or subscription.

    Properties of the other kind of entity are refused.
    """

    rules: Sequence[RuleProperties] | None
