"""The properties of subscriptions, as they are set and shown: one table, the class."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypedDict, Unpack

from sbredis._public import public
from sbredis.model import _shared_fields as shared
from sbredis.model._entity_enums import EntityAvailabilityStatus, EntityStatus
from sbredis.model._fields import Described, Flag
from sbredis.model._properties import QueueOptions
from sbredis.model._rule_properties import RuleProperties

__all__ = ["NewSubscriptionOptions", "QueueOrSubscriptionOptions", "SubscriptionOptions", "SubscriptionProperties"]


@public
class SubscriptionProperties(Described):
    """What a subscription is and does.

    Durations are :class:`~datetime.timedelta`; they may be given in ISO 8601 as well (``"PT30S"``), and are kept in ms.
    ``timedelta.max`` is no limit. A property that was not given reads as it is by default, and ``None`` assigned to it
    stands for the default. Limits are checked when it is sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Subscription"

    lock_duration = shared.lock_duration()
    """How long a received message is locked: 1 minute unless said, from 5 seconds to 5 minutes. A lock can be renewed
    any number of times.
    """

    requires_session = shared.sessions()
    """Whether messages belong to sessions, and are received session by session: ``False`` unless said. Cannot be
    changed.
    """

    default_message_time_to_live = shared.time_to_live()
    """How long a message lives that says nothing, and the longest that one may live, if the topic does not say less: no
    limit unless said, 1 second at least.
    """

    dead_lettering_on_message_expiration = Flag(False, setting="dead_letter_expired")
    """Whether an expired message goes to the dead-letter queue: ``False`` unless said, and then it is deleted."""

    dead_lettering_on_filter_evaluation_exceptions = Flag(True)
    """Whether a message for which a rule cannot be evaluated goes to the dead-letter queue: ``True`` unless said.
    Otherwise the rule counts as one that does not match.
    """

    max_delivery_count = shared.max_delivery_count()
    """After how many failed deliveries a message is dead-lettered: 10 unless said, from 1 to 99,999."""

    enable_batched_operations = Flag(True)
    """Kept and shown, without effect: operations are always batched. ``True`` unless said."""

    status = shared.status(EntityStatus.RECEIVE_DISABLED)
    """Whether it gives messages out: ``Active`` unless said, or ``Disabled`` or ``ReceiveDisabled``, which are the same
    here. It gets its messages all the while.
    """

    availability_status = shared.availability()
    """Whether all its partitions have a server, as far as the client knows: ``Available``, or ``Limited``. What is
    assigned to it is not sent.
    """

    user_metadata = shared.metadata()
    """A note of up to 1,024 characters: none unless said."""

    auto_delete_on_idle = shared.auto_delete("subscriptions")
    """After how long without use it is deleted. Not available yet: no limit unless said, and all but
    ``timedelta.max`` is refused.
    """

    forward_to = shared.forwarding()
    """Where its messages are forwarded to. Not available yet: none unless said, and a name is refused."""

    forward_dead_lettered_messages_to = shared.forwarding()
    """Where its dead letters are forwarded to. Not available yet: none unless said, and a name is refused."""

    def __init__(
        self,
        name: str,
        *,
        lock_duration: timedelta | str | None = None,
        requires_session: bool | None = None,
        default_message_time_to_live: timedelta | str | None = None,
        dead_lettering_on_message_expiration: bool | None = None,
        dead_lettering_on_filter_evaluation_exceptions: bool | None = None,
        max_delivery_count: int | None = None,
        enable_batched_operations: bool | None = None,
        status: EntityStatus | str | None = None,
        forward_to: str | None = None,
        user_metadata: str | None = None,
        forward_dead_lettered_messages_to: str | None = None,
        auto_delete_on_idle: timedelta | str | None = None,
        availability_status: EntityAvailabilityStatus | str | None = None,
    ) -> None:
        """A property that is left out, or ``None``, counts as not given; an update leaves it as it is."""
        given = {
            "lock_duration": lock_duration,
            "requires_session": requires_session,
            "default_message_time_to_live": default_message_time_to_live,
            "dead_lettering_on_message_expiration": dead_lettering_on_message_expiration,
            "dead_lettering_on_filter_evaluation_exceptions": dead_lettering_on_filter_evaluation_exceptions,
            "max_delivery_count": max_delivery_count,
            "enable_batched_operations": enable_batched_operations,
            "status": status,
            "forward_to": forward_to,
            "user_metadata": user_metadata,
            "forward_dead_lettered_messages_to": forward_dead_lettered_messages_to,
            "auto_delete_on_idle": auto_delete_on_idle,
            "availability_status": availability_status,
        }
        super().__init__(name, given)

    def update(self, *given: Any, **named: Unpack[SubscriptionOptions]) -> None:
        """Assign several properties, as to a dictionary."""
        self._assign(given, named)


class SubscriptionOptions(TypedDict, total=False):
    """What a subscription may be created with, each as in :class:`SubscriptionProperties`."""

    lock_duration: timedelta | str | None
    requires_session: bool | None
    default_message_time_to_live: timedelta | str | None
    dead_lettering_on_message_expiration: bool | None
    dead_lettering_on_filter_evaluation_exceptions: bool | None
    max_delivery_count: int | None
    enable_batched_operations: bool | None
    status: EntityStatus | str | None
    forward_to: str | None
    user_metadata: str | None
    forward_dead_lettered_messages_to: str | None
    auto_delete_on_idle: timedelta | str | None


class NewSubscriptionOptions(SubscriptionOptions, total=False):
    """What a subscription may be created with where it is missing: its properties and its first rules."""

    rules: Sequence[RuleProperties] | None


class QueueOrSubscriptionOptions(QueueOptions, total=False):
    """What a queue or a subscription may be created with. What is not for the one that is created is refused then."""

    dead_lettering_on_filter_evaluation_exceptions: bool | None
    rules: Sequence[RuleProperties] | None
