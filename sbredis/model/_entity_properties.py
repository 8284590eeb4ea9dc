"""The properties of queues, topics and subscriptions: one table declares each of them.

The table has five classes: for the properties that all entities have, for entities to which senders send, for entities
from which receivers receive, for topics, and for subscriptions. A line in a class declares a property: its type, its
default, its limits, whether it can change, and in which setting the partitions keep it. The string below the line is
its documentation. If the partitions do not need a value, the registry keeps it under the property's name. If they need
to know only that the property is set, they keep a flag.

After the table come the classes that an application uses. Each of them joins classes of the table. Everything else
follows from the table: the arguments of ``create_queue``, ``ensure_queue``, ``create_if_missing`` and
updates, the stored form, and the text of ``help()``. Only type checkers cannot read it. For them, an options class
beside each class names the same properties as keywords. A test compares the two classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypedDict, Unpack

from sbredis._public import public
from sbredis.engine import MOST_PARTITIONS
from sbredis.model._durations import UNLIMITED
from sbredis.model._enums import EntityAvailabilityStatus, EntityStatus
from sbredis.model._fields import (
    Choice,
    Described,
    Duration,
    Flag,
    ForwardingTarget,
    ListOf,
    Neighbour,
    Text,
    Whole,
    WholeOrNone,
)
from sbredis.model._keywords import names_keywords
from sbredis.model._rights import AuthorizationRule, read_rule, rule_as_kept
from sbredis.model._rule_properties import RuleProperties

__all__ = [
    "AnyEntity",
    "AnyEntityOptions",
    "NewSubscriptionOptions",
    "OnlySubscription",
    "OnlySubscriptionOptions",
    "OnlyTopic",
    "OnlyTopicOptions",
    "QueueOptions",
    "QueueOrSubscriptionOptions",
    "QueueProperties",
    "ReceivedFrom",
    "ReceivedFromOptions",
    "SentTo",
    "SentToOptions",
    "SubscriptionOptions",
    "SubscriptionProperties",
    "TopicOptions",
    "TopicProperties",
]

_ALWAYS = (EntityStatus.ACTIVE, EntityStatus.DISABLED)

# -- queues, topics and subscriptions ----------------------------------------------------------------------------------


class AnyEntity(Described):
    """The properties of every entity."""

    __slots__ = ()

    default_message_time_to_live = Duration(UNLIMITED, least=timedelta(seconds=1), setting="time_to_live")
    """The longest time to live of a message, and the default for messages without one: no limit by default, 1 second at
    least. In a subscription, the shorter of two limits applies: its own limit and the limit of its topic.
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
    """Whether the entity accepts and delivers messages: ``Active`` by default, or ``Disabled``. A queue or a topic may
    be ``SendDisabled``, and a queue or a subscription ``ReceiveDisabled``. The subscriptions of a disabled topic still
    deliver the messages that they have. A disabled subscription still gets messages from its topic.
    """

    availability_status = Choice(EntityAvailabilityStatus.AVAILABLE, read_only=True)
    """Whether all partitions of the entity have a server, as far as the client knows: ``Available`` by default, or
    ``Limited``. An assigned value is not sent.
    """

    user_metadata = Text(longest=1024)
    """A note of up to 1,024 characters: none by default."""

    enable_batched_operations = Flag(True)
    """Kept and shown, without effect: operations are always batched. ``True`` by default."""

    auto_delete_on_idle = Duration(UNLIMITED, least=timedelta(minutes=5))
    """The time without use after which the entity is deleted, with all its messages: no limit by default, 5 minutes at
    least. An entity with ``forward_to`` counts as used. A client with ``maintenance=True`` deletes unused entities.
    """

    protected = Flag(False)
    """Whether the command ``sbredis`` refuses to delete the entity: ``False`` by default. Programs can delete it. An
    addition of sbredis.
    """


class AnyEntityOptions(TypedDict, total=False):
    """The properties with which any entity may be created; :class:`AnyEntity` explains each."""

    default_message_time_to_live: timedelta | str | None
    status: EntityStatus | str | None
    user_metadata: str | None
    enable_batched_operations: bool | None
    auto_delete_on_idle: timedelta | str | None
    protected: bool | None


# -- queues and subscriptions ------------------------------------------------------------------------------------------


class ReceivedFrom(Described):
    """The properties that queues and subscriptions have."""

    __slots__ = ()

    lock_duration = Duration(
        timedelta(minutes=1),
        least=timedelta(seconds=5),
        most=timedelta(minutes=5),
        # Azure has the same limit and the same error text
        longest="The supplied lock time exceeds the allowed maximum of '5' minutes",
        setting="lock_duration",
    )
    """How long a received message is locked: 1 minute by default, from 5 seconds to 5 minutes. A lock can be renewed
    any number of times.
    """

    max_delivery_count = Whole(10, least=1, most=99_999, setting="max_delivery_count")
    """The number of failed deliveries after which a message is dead-lettered: 10 by default, from 1 to 99,999."""

    dead_lettering_on_message_expiration = Flag(False, setting="dead_letter_expired")
    """Whether an expired message goes to the dead-letter queue: ``False`` by default. With ``False`` it is deleted."""

    requires_session = Flag(False, fixed=True, setting="sessions")
    """Whether messages belong to sessions, and are received session by session: ``False`` by default. Cannot be
    changed.
    """

    forward_to = ForwardingTarget(flag="forwards")
    """The queue or topic to which messages are forwarded: none by default. It must exist when it is set, and a chain of
    forwarding has at most 4 hops and no circle. Messages keep their session ids. No receiver receives from the entity
    itself, only from its sub-queues. A client with ``maintenance=True`` forwards the messages.
    """

    forward_dead_lettered_messages_to = ForwardingTarget(flag="forwards_dead")
    """The queue or topic to which dead letters are forwarded: none by default. The conditions are those of
    ``forward_to``, but the entity may have sessions.
    """

    audit = Flag(False, setting="audited")
    """Whether each partition keeps a stream of its last settlements, about a million: ``False`` by default. It is for
    reports about latency and redeliveries, and makes receiving and settling slower. An addition of sbredis.
    """


class ReceivedFromOptions(TypedDict, total=False):
    """The properties with which queues and subscriptions may be created; :class:`ReceivedFrom` explains each."""

    lock_duration: timedelta | str | None
    max_delivery_count: int | None
    dead_lettering_on_message_expiration: bool | None
    requires_session: bool | None
    forward_to: str | None
    forward_dead_lettered_messages_to: str | None
    audit: bool | None


# -- queues and topics -------------------------------------------------------------------------------------------------


class SentTo(Described):
    """The properties that queues and topics have."""

    __slots__ = ()

    requires_duplicate_detection = Flag(False, fixed=True)
    """Whether a message is dropped if another message had the same id within the window: ``False`` by default. Cannot
    be changed.
    """

    duplicate_detection_history_time_window = Duration(
        timedelta(minutes=10), least=timedelta(seconds=20), most=timedelta(days=7), setting="duplicate_window"
    )
    """How long the ids of messages are remembered: 10 minutes by default, from 20 seconds to 7 days. Without effect if
    duplicates are not detected.
    """

    duplicate_detection_history_max_ids = Whole(0, least=0, most=999_999_999_999, setting="most_ids")
    """The largest number of ids that are remembered within the window: 0 by default, which is no limit, from 0 to
    999,999,999,999. An id takes 90 to 190 bytes of memory, which do not count in ``max_size_in_megabytes``. A message
    with a further id is refused, as by a full entity. A partitioned entity remembers this number in each partition. An
    addition of sbredis.
    """

    max_size_in_megabytes = Whole(1024, least=1, most=900_000_000, unit=1024 * 1024, setting="quota")
    """The total size of messages that the entity may hold: 1,024 by default, from 1 to 900,000,000. Messages on the
    dead-letter queue count. For a topic, the messages of all its subscriptions count too. A partitioned entity may hold
    this size in each partition.
    """

    max_message_size_in_kilobytes = Whole(1024, least=1, most=102_400, unit=1024, setting="largest_message")
    """The largest size of a message: 1,024 by default, from 1 to 102,400, which is 100 MB. A batch has at most 4 MB in
    any case.
    """

    enable_partitioning = Flag(False, fixed=True)
    """Whether the entity has several partitions, in different slots of the namespace: ``False`` by default. The
    subscriptions of a topic have the same partitions as the topic. Cannot be changed.
    """

    partition_count = WholeOrNone(least=1, most=MOST_PARTITIONS, fixed=True)
    """The number of partitions, if ``enable_partitioning`` is set: from 1 to 256, and at most the number of slots of
    the namespace. None by default: a partitioned entity then has 16, or one in each slot if there are fewer. Cannot be
    changed. An addition of sbredis.
    """

    colocate_with = Neighbour(fixed=True)
    """Another entity whose slots this entity shares, so that a transaction can settle messages of both: none by
    default. Either both are partitioned, with the same number of partitions, or neither is. Cannot be changed. An
    addition of sbredis.
    """

    enable_express = Flag(False)
    """Kept and shown, without effect. ``False`` by default."""

    authorization_rules = ListOf(read_rule, rule_as_kept)
    """Kept and shown, without effect: see :class:`AuthorizationRule`. None by default."""


class SentToOptions(TypedDict, total=False):
    """The properties with which queues and topics may be created; :class:`SentTo` explains each."""

    requires_duplicate_detection: bool | None
    duplicate_detection_history_time_window: timedelta | str | None
    duplicate_detection_history_max_ids: int | None
    max_size_in_megabytes: int | None
    max_message_size_in_kilobytes: int | None
    enable_partitioning: bool | None
    partition_count: int | None
    colocate_with: str | None
    enable_express: bool | None
    authorization_rules: Sequence[AuthorizationRule] | None


# -- topics ------------------------------------------------------------------------------------------------------------


class OnlyTopic(Described):
    """The properties that only topics have."""

    __slots__ = ()

    support_ordering = Flag(True)
    """Kept and shown, without effect: messages reach every subscription in the order of their numbers. ``True`` by
    default.
    """

    filtering_messages_before_publishing = Flag(False)
    """Kept and shown, without effect. ``False`` by default."""

    size_in_bytes = Whole(0, least=0, most=999_999_999_999_999)
    """Kept and shown, without effect: :class:`TopicRuntimeProperties` has the size of the messages. 0 by default, from
    0 to 999,999,999,999,999.
    """


class OnlyTopicOptions(TypedDict, total=False):
    """The properties that only topics have, as arguments for creating them; :class:`OnlyTopic` explains each."""

    support_ordering: bool | None
    filtering_messages_before_publishing: bool | None
    size_in_bytes: int | None


# -- subscriptions -----------------------------------------------------------------------------------------------------


class OnlySubscription(Described):
    """The properties that only subscriptions have."""

    __slots__ = ()

    dead_lettering_on_filter_evaluation_exceptions = Flag(True)
    """Whether a message goes to the dead-letter queue if a rule cannot be evaluated for it: ``True`` by default.
    Otherwise the rule counts as one that does not match.
    """


class OnlySubscriptionOptions(TypedDict, total=False):
    """The properties that only subscriptions have, as arguments for creating them.

    :class:`OnlySubscription` explains each.
    """

    dead_lettering_on_filter_evaluation_exceptions: bool | None


# -- queues and namespaces, as an application sets and reads them ------------------------------------------------------


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


# -- topics, as an application sets and reads them ---------------------------------------------------------------------


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


# -- subscriptions, as an application sets and reads them --------------------------------------------------------------


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
