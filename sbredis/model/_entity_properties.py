"""The properties of queues, topics and subscriptions: the one table in which each of them is declared.

The table has a class for each group of kinds of entity: one for what all kinds have, one for what senders send to, one
for what receivers receive from, and one each for topics and subscriptions alone. A line in a class declares a property
once: its type, its default, its limits, whether it can change, and in which setting the partitions keep it. The string
below the line is its document. A value that the partitions need not know is kept by its name in the registry.

All else follows from the table: what ``create_queue``, ``ensure_queue``, ``create_if_missing`` and updates take and
refuse, how it is stored, and what ``help()`` shows. Only type checkers cannot read it. For them the options beside each
class name the same properties as keywords, and a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypedDict

from sbredis.model._durations import UNLIMITED
from sbredis.model._entity_enums import EntityAvailabilityStatus, EntityStatus
from sbredis.model._fields import Choice, Described, Duration, Flag, ListOf, Neighbour, Text, Whole
from sbredis.model._rights import AuthorizationRule, read_rule, rule_as_kept

__all__ = [
    "AnyEntity",
    "AnyEntityOptions",
    "OnlySubscription",
    "OnlySubscriptionOptions",
    "OnlyTopic",
    "OnlyTopicOptions",
    "ReceivedFrom",
    "ReceivedFromOptions",
    "SentTo",
    "SentToOptions",
]

_ALWAYS = (EntityStatus.ACTIVE, EntityStatus.DISABLED)

# -- queues, topics and subscriptions ----------------------------------------------------------------------------------


class AnyEntity(Described):
    """What every entity has."""

    __slots__ = ()

    default_message_time_to_live = Duration(UNLIMITED, least=timedelta(seconds=1), setting="time_to_live")
    """How long a message lives that says nothing, and the longest that one may live: no limit unless said, 1 second at
    least. In a subscription the shorter of its own and of its topic's holds.
    """

    status = Choice(
        EntityStatus.ACTIVE,
        settable={
            "Queue": (*_ALWAYS, EntityStatus.SEND_DISABLED, EntityStatus.RECEIVE_DISABLED),
            "Topic": (*_ALWAYS, EntityStatus.SEND_DISABLED),
            "Subscription": (*_ALWAYS, EntityStatus.RECEIVE_DISABLED),
        },
        setting="status",
    )
    """Whether it takes messages in and gives them out: ``Active`` unless said, or ``Disabled``, or ``SendDisabled`` of
    a queue or a topic, or ``ReceiveDisabled`` of a queue or a subscription. The subscriptions of a disabled topic go on
    giving out what they have. A disabled subscription gets its messages all the while.
    """

    availability_status = Choice(EntityAvailabilityStatus.AVAILABLE, read_only=True)
    """Whether all its partitions have a server, as far as the client knows: ``Available``, or ``Limited``. What is
    assigned to it is not sent.
    """

    user_metadata = Text(longest=1024)
    """A note of up to 1,024 characters: none unless said."""

    enable_batched_operations = Flag(True)
    """Kept and shown, without effect: operations are always batched. ``True`` unless said."""

    auto_delete_on_idle = Duration(
        UNLIMITED, least=timedelta(minutes=5), planned="the removal of {kind}s that nobody uses is"
    )
    """After how long without use it is deleted. Not available yet: no limit unless said, and all but
    ``timedelta.max`` is refused.
    """


class AnyEntityOptions(TypedDict, total=False):
    """What every entity may be created with, each as in :class:`AnyEntity`."""

    default_message_time_to_live: timedelta | str | None
    status: EntityStatus | str | None
    user_metadata: str | None
    enable_batched_operations: bool | None
    auto_delete_on_idle: timedelta | str | None


# -- queues and subscriptions ------------------------------------------------------------------------------------------


class ReceivedFrom(Described):
    """What queues and subscriptions have."""

    __slots__ = ()

    lock_duration = Duration(
        timedelta(minutes=1),
        least=timedelta(seconds=5),
        most=timedelta(minutes=5),
        longest="The supplied lock time exceeds the allowed maximum of '5' minutes",  # Azure's limit, and its words
        setting="lock_duration",
    )
    """How long a received message is locked: 1 minute unless said, from 5 seconds to 5 minutes. A lock can be renewed
    any number of times.
    """

    max_delivery_count = Whole(10, least=1, most=99_999, setting="max_delivery_count")
    """After how many failed deliveries a message is dead-lettered: 10 unless said, from 1 to 99,999."""

    dead_lettering_on_message_expiration = Flag(False, setting="dead_letter_expired")
    """Whether an expired message goes to the dead-letter queue: ``False`` unless said, and then it is deleted."""

    requires_session = Flag(False, fixed=True, setting="sessions")
    """Whether messages belong to sessions, and are received session by session: ``False`` unless said. Cannot be
    changed.
    """

    forward_to = Neighbour(planned="forwarding is")
    """Where its messages are forwarded to. Not available yet: none unless said, and a name is refused."""

    forward_dead_lettered_messages_to = Neighbour(planned="forwarding is")
    """Where its dead letters are forwarded to. Not available yet: none unless said, and a name is refused."""


class ReceivedFromOptions(TypedDict, total=False):
    """What queues and subscriptions may be created with, each as in :class:`ReceivedFrom`."""

    lock_duration: timedelta | str | None
    max_delivery_count: int | None
    dead_lettering_on_message_expiration: bool | None
    requires_session: bool | None
    forward_to: str | None
    forward_dead_lettered_messages_to: str | None


# -- queues and topics -------------------------------------------------------------------------------------------------


class SentTo(Described):
    """What queues and topics have."""

    __slots__ = ()

    requires_duplicate_detection = Flag(False, fixed=True)
    """Whether a message with the id of another one in the window is dropped: ``False`` unless said. Cannot be changed.
    """

    duplicate_detection_history_time_window = Duration(
        timedelta(minutes=10), least=timedelta(seconds=20), most=timedelta(days=7), setting="duplicate_window"
    )
    """For how long ids of messages are remembered: 10 minutes unless said, from 20 seconds to 7 days. Without effect
    where duplicates are not detected.
    """

    max_size_in_megabytes = Whole(1024, least=1, most=900_000_000, unit=1024 * 1024, setting="quota")
    """How much the messages may take, those on the dead-letter queue included, and of a topic those of all its
    subscriptions: 1,024 unless said, from 1 to 900,000,000. If it is partitioned, that is for each partition.
    """

    max_message_size_in_kilobytes = Whole(1024, least=1, most=102_400, unit=1024, setting="largest_message")
    """How large a message may be: 1,024 unless said, from 1 to 102,400, which is 100 MB. A batch has up to 4 MB in any
    case.
    """

    enable_partitioning = Flag(False, fixed=True)
    """Whether it lives in all partitions of the namespace, instead of in one, the subscriptions of a topic with it:
    ``False`` unless said. Cannot be changed.
    """

    colocate_with = Neighbour(fixed=True)
    """The unpartitioned entity in whose partition it lives, so that a transaction can span both: none unless said.
    Cannot be changed. An addition of sbredis.
    """

    enable_express = Flag(False)
    """Kept and shown, without effect. ``False`` unless said."""

    authorization_rules = ListOf(read_rule, rule_as_kept)
    """Kept and shown, without effect: see :class:`AuthorizationRule`. None unless said."""


class SentToOptions(TypedDict, total=False):
    """What queues and topics may be created with, each as in :class:`SentTo`."""

    requires_duplicate_detection: bool | None
    duplicate_detection_history_time_window: timedelta | str | None
    max_size_in_megabytes: int | None
    max_message_size_in_kilobytes: int | None
    enable_partitioning: bool | None
    colocate_with: str | None
    enable_express: bool | None
    authorization_rules: Sequence[AuthorizationRule] | None


# -- topics ------------------------------------------------------------------------------------------------------------


class OnlyTopic(Described):
    """What topics alone have."""

    __slots__ = ()

    support_ordering = Flag(True)
    """Kept and shown, without effect: messages reach every subscription in the order of their numbers. ``True`` unless
    said.
    """

    filtering_messages_before_publishing = Flag(False)
    """Kept and shown, without effect. ``False`` unless said."""

    size_in_bytes = Whole(0, least=0, most=999_999_999_999_999)
    """Kept and shown, without effect: what the messages take is told by :class:`TopicRuntimeProperties`. 0 unless said,
    from 0 to 999,999,999,999,999.
    """


class OnlyTopicOptions(TypedDict, total=False):
    """What topics alone may be created with, each as in :class:`OnlyTopic`."""

    support_ordering: bool | None
    filtering_messages_before_publishing: bool | None
    size_in_bytes: int | None


# -- subscriptions -----------------------------------------------------------------------------------------------------


class OnlySubscription(Described):
    """What subscriptions alone have."""

    __slots__ = ()

    dead_lettering_on_filter_evaluation_exceptions = Flag(True)
    """Whether a message for which a rule cannot be evaluated goes to the dead-letter queue: ``True`` unless said.
    Otherwise the rule counts as one that does not match.
    """


class OnlySubscriptionOptions(TypedDict, total=False):
    """What subscriptions alone may be created with, each as in :class:`OnlySubscription`."""

    dead_lettering_on_filter_evaluation_exceptions: bool | None
