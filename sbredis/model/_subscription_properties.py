"""The properties of subscriptions, as they are set and shown. :mod:`sbredis.model._entity_properties` declares them."""

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
    """What a subscription may be created with, each as in :class:`SubscriptionProperties`."""


class _SubscriptionGiven(SubscriptionOptions, total=False):
    """What the properties of a subscription may be made of."""

    availability_status: EntityAvailabilityStatus | str | None


@public
class SubscriptionProperties(ReceivedFrom, AnyEntity, OnlySubscription):
    """What a subscription is and does.

    Durations are :class:`~datetime.timedelta`; they may be given in ISO 8601 as well (``"PT30S"``), and are kept in ms.
    ``timedelta.max`` is no limit. A property that was not given reads as it is by default, and ``None`` assigned to it
    stands for the default. Limits are checked when it is sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Subscription"

    @names_keywords(_SubscriptionGiven)
    def __init__(self, name: str, **properties: Unpack[_SubscriptionGiven]) -> None:
        """A property that is left out, or ``None``, counts as not given; an update leaves it as it is."""
        super().__init__(name, properties)

    def update(self, *given: Any, **named: Unpack[SubscriptionOptions]) -> None:
        """Assign several properties, as to a dictionary."""
        self._assign(given, named)


class NewSubscriptionOptions(SubscriptionOptions, total=False):
    """What a subscription may be created with where it is missing: its properties and its first rules."""

    rules: Sequence[RuleProperties] | None


class QueueOrSubscriptionOptions(QueueOptions, OnlySubscriptionOptions, total=False):
    """What a queue or a subscription may be created with. What is not for the one that is created is refused then."""

    rules: Sequence[RuleProperties] | None
