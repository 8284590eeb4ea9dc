"""The properties of entities and namespaces, as they are set and shown. Those of a queue are one table: its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import ClassVar, TypedDict

from sbredis.model._durations import UNLIMITED
from sbredis.model._entity_enums import EntityAvailabilityStatus, EntityStatus, MessagingSku, NamespaceType
from sbredis.model._fields import Choice, Described, Duration, Flag, ListOf, Neighbour, Text, Whole
from sbredis.model._rights import AuthorizationRule, read_rule, rule_as_kept

__all__ = ["NamespaceProperties", "QueueOptions", "QueueProperties", "QueueRuntimeProperties"]

_LONGEST_LOCK = timedelta(minutes=5)
_SETTABLE = (
    EntityStatus.ACTIVE,
    EntityStatus.DISABLED,
    EntityStatus.SEND_DISABLED,
    EntityStatus.RECEIVE_DISABLED,
)


class QueueProperties(Described):
    """What a queue is and does.

    Durations are :class:`~datetime.timedelta`; they may be given in ISO 8601 as well (``"PT30S"``), and are kept in ms.
    ``timedelta.max`` is no limit. A property that was not given reads as it is by default, and ``None`` assigned to it
    stands for the default. Limits are checked when it is sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Queue"

    lock_duration = Duration(
        timedelta(minutes=1),
        least=timedelta(seconds=5),
        most=_LONGEST_LOCK,
        longest="The supplied lock time exceeds the allowed maximum of '5' minutes",
        setting="lock_duration",
    )
    """How long a received message is locked, from 5 seconds to 5 minutes; a lock can be renewed any number of times."""

    max_delivery_count = Whole(10, least=1, most=99_999, setting="max_delivery_count")
    """After how many failed deliveries a message is dead-lettered."""

    default_message_time_to_live = Duration(UNLIMITED, least=timedelta(seconds=1), setting="time_to_live")
    """How long a message lives that says nothing, and the longest that one may live; 1 second at least."""

    dead_lettering_on_message_expiration = Flag(False, setting="dead_letter_expired")
    """Whether an expired message goes to the dead-letter queue; otherwise it is deleted."""

    requires_duplicate_detection = Flag(False, fixed=True)
    """Whether a message with the id of another one in the window is dropped. Cannot be changed."""

    duplicate_detection_history_time_window = Duration(
        timedelta(minutes=10), least=timedelta(seconds=20), most=timedelta(days=7), setting="duplicate_window"
    )
    """For how long ids of messages are remembered, from 20 seconds to 7 days; without effect where duplicates are not
    detected.
    """

    max_size_in_megabytes = Whole(1024, least=1, most=900_000_000, unit=1024 * 1024, setting="quota")
    """How much the messages may take, those on the dead-letter queue included; of a partitioned queue, in each
    partition.
    """

    max_message_size_in_kilobytes = Whole(1024, least=1, most=102_400, unit=1024, setting="largest_message")
    """How large a message or a batch may be, up to 100 MB."""

    status = Choice(EntityStatus.ACTIVE, settable=_SETTABLE, setting="status")
    """Whether it takes messages in and gives them out."""

    availability_status = Choice(EntityAvailabilityStatus.AVAILABLE, told=True)
    """Whether all its partitions have a server, as far as the client knows. What is assigned to it is not sent."""

    enable_partitioning = Flag(False, fixed=True)
    """Whether it lives in all partitions of the namespace, instead of in one. Cannot be changed."""

    colocate_with = Neighbour(fixed=True)
    """The unpartitioned entity in whose partition it lives, so that a transaction can span both. Cannot be changed. An
    addition of sbredis.
    """

    user_metadata = Text(longest=1024)
    """A note of up to 1024 characters."""

    enable_batched_operations = Flag(True)
    """Kept and shown, without effect: operations are always batched."""

    enable_express = Flag(False)
    """Kept and shown, without effect."""

    authorization_rules = ListOf(read_rule, rule_as_kept)
    """Kept and shown, without effect: see :class:`AuthorizationRule`."""

    requires_session = Flag(False, fixed=True, planned="sessions are")
    """Whether messages belong to sessions. Not available yet: ``True`` is refused."""

    auto_delete_on_idle = Duration(
        UNLIMITED, least=timedelta(minutes=5), planned="the removal of queues that nobody uses is"
    )
    """After how long without use it is deleted. Not available yet: all but ``timedelta.max`` is refused."""

    forward_to = Neighbour(planned="forwarding is")
    """Where its messages are forwarded to. Not available yet: a name is refused."""

    forward_dead_lettered_messages_to = Neighbour(planned="forwarding is")
    """Where its dead letters are forwarded to. Not available yet: a name is refused."""

    def __init__(
        self,
        name: str,
        *,
        authorization_rules: Sequence[AuthorizationRule] | None = None,
        auto_delete_on_idle: timedelta | str | None = None,
        dead_lettering_on_message_expiration: bool | None = None,
        default_message_time_to_live: timedelta | str | None = None,
        duplicate_detection_history_time_window: timedelta | str | None = None,
        availability_status: EntityAvailabilityStatus | str | None = None,
        enable_batched_operations: bool | None = None,
        enable_express: bool | None = None,
        enable_partitioning: bool | None = None,
        lock_duration: timedelta | str | None = None,
        max_delivery_count: int | None = None,
        max_size_in_megabytes: int | None = None,
        requires_duplicate_detection: bool | None = None,
        requires_session: bool | None = None,
        status: EntityStatus | str | None = None,
        forward_to: str | None = None,
        user_metadata: str | None = None,
        forward_dead_lettered_messages_to: str | None = None,
        max_message_size_in_kilobytes: int | None = None,
        colocate_with: str | None = None,
    ) -> None:
        """A property that is left out, or ``None``, counts as not given; an update leaves it as it is."""
        given = {
            "authorization_rules": authorization_rules,
            "auto_delete_on_idle": auto_delete_on_idle,
            "dead_lettering_on_message_expiration": dead_lettering_on_message_expiration,
            "default_message_time_to_live": default_message_time_to_live,
            "duplicate_detection_history_time_window": duplicate_detection_history_time_window,
            "availability_status": availability_status,
            "enable_batched_operations": enable_batched_operations,
            "enable_express": enable_express,
            "enable_partitioning": enable_partitioning,
            "lock_duration": lock_duration,
            "max_delivery_count": max_delivery_count,
            "max_size_in_megabytes": max_size_in_megabytes,
            "requires_duplicate_detection": requires_duplicate_detection,
            "requires_session": requires_session,
            "status": status,
            "forward_to": forward_to,
            "user_metadata": user_metadata,
            "forward_dead_lettered_messages_to": forward_dead_lettered_messages_to,
            "max_message_size_in_kilobytes": max_message_size_in_kilobytes,
            "colocate_with": colocate_with,
        }
        super().__init__(name, given)


class QueueOptions(TypedDict, total=False):
    """What a queue may be created with: the properties that can be set, each as in :class:`QueueProperties`."""

    authorization_rules: Sequence[AuthorizationRule] | None
    auto_delete_on_idle: timedelta | str | None
    dead_lettering_on_message_expiration: bool | None
    default_message_time_to_live: timedelta | str | None
    duplicate_detection_history_time_window: timedelta | str | None
    enable_batched_operations: bool | None
    enable_express: bool | None
    enable_partitioning: bool | None
    lock_duration: timedelta | str | None
    max_delivery_count: int | None
    max_size_in_megabytes: int | None
    requires_duplicate_detection: bool | None
    requires_session: bool | None
    status: EntityStatus | str | None
    forward_to: str | None
    user_metadata: str | None
    forward_dead_lettered_messages_to: str | None
    max_message_size_in_kilobytes: int | None
    colocate_with: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRuntimeProperties:
    """What is in a queue. Each partition was counted at a moment of its own."""

    name: str
    """As it was given when it was created."""
    created_at_utc: datetime
    """When it was created, by the server's clock."""
    updated_at_utc: datetime
    """When its properties were changed last."""
    accessed_at_utc: datetime
    """Azure tells here when the queue was last used, which is not kept: it is :attr:`updated_at_utc`."""
    active_message_count: int = 0
    """Messages that are neither scheduled nor dead letters: those that can be received, and those that are locked,
    deferred, or wait for a delay to end. What has expired is counted until it is noticed.
    """
    dead_letter_message_count: int = 0
    """Messages on the dead-letter queue, whatever their state there."""
    scheduled_message_count: int = 0
    """Messages that are to be enqueued later."""
    transfer_message_count: int = 0
    """Messages on their way to another queue; none, as long as there is no forwarding."""
    transfer_dead_letter_message_count: int = 0
    """Messages that could not be forwarded; none, as long as there is no forwarding."""
    total_message_count: int = 0
    """All of these together."""
    size_in_bytes: int = 0
    """What the messages take, those on the dead-letter queue included."""
    availability_status: EntityAvailabilityStatus = EntityAvailabilityStatus.AVAILABLE
    """``Limited`` if a partition could not be counted. An addition of sbredis."""
    unreachable_partitions: tuple[int, ...] = ()
    """The partitions that could not be counted; the counts are those of the others. An addition of sbredis."""


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
