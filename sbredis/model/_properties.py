"""The properties of queues and namespaces, as they are set and shown. Those of a queue are one table: its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypedDict, Unpack

from sbredis._public import public
from sbredis.model import _shared_fields as shared
from sbredis.model._entity_enums import EntityAvailabilityStatus, EntityStatus, MessagingSku, NamespaceType
from sbredis.model._fields import Described, Flag, Neighbour
from sbredis.model._rights import AuthorizationRule

__all__ = ["NamespaceProperties", "QueueOptions", "QueueProperties"]


@public
class QueueProperties(Described):
    """What a queue is and does.

    Durations are :class:`~datetime.timedelta`; they may be given in ISO 8601 as well (``"PT30S"``), and are kept in ms.
    ``timedelta.max`` is no limit. A property that was not given reads as it is by default, and ``None`` assigned to it
    stands for the default. Limits are checked when it is sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Queue"

    lock_duration = shared.lock_duration()
    """How long a received message is locked: 1 minute unless said, from 5 seconds to 5 minutes. A lock can be renewed
    any number of times.
    """

    max_delivery_count = shared.max_delivery_count()
    """After how many failed deliveries a message is dead-lettered: 10 unless said, from 1 to 99,999."""

    default_message_time_to_live = shared.time_to_live()
    """How long a message lives that says nothing, and the longest that one may live: no limit unless said, 1 second at
    least.
    """

    dead_lettering_on_message_expiration = Flag(False, setting="dead_letter_expired")
    """Whether an expired message goes to the dead-letter queue: ``False`` unless said, and then it is deleted."""

    requires_duplicate_detection = Flag(False, fixed=True)
    """Whether a message with the id of another one in the window is dropped: ``False`` unless said. Cannot be changed.
    """

    duplicate_detection_history_time_window = shared.duplicate_window()
    """For how long ids of messages are remembered: 10 minutes unless said, from 20 seconds to 7 days. Without effect
    where duplicates are not detected.
    """

    max_size_in_megabytes = shared.quota()
    """How much the messages may take, those on the dead-letter queue included: 1,024 unless said, from 1 to
    900,000,000. Of a partitioned queue, that is for each partition.
    """

    max_message_size_in_kilobytes = shared.largest_message()
    """How large a message may be: 1,024 unless said, from 1 to 102,400, which is 100 MB. A batch has up to 4 MB in any
    case.
    """

    status = shared.status(EntityStatus.SEND_DISABLED, EntityStatus.RECEIVE_DISABLED)
    """Whether it takes messages in and gives them out: ``Active`` unless said, or ``Disabled``, ``SendDisabled`` or
    ``ReceiveDisabled``.
    """

    availability_status = shared.availability()
    """Whether all its partitions have a server, as far as the client knows: ``Available``, or ``Limited``. What is
    assigned to it is not sent.
    """

    enable_partitioning = Flag(False, fixed=True)
    """Whether it lives in all partitions of the namespace, instead of in one: ``False`` unless said. Cannot be changed.
    """

    colocate_with = Neighbour(fixed=True)
    """The unpartitioned entity in whose partition it lives, so that a transaction can span both: none unless said.
    Cannot be changed. An addition of sbredis.
    """

    user_metadata = shared.metadata()
    """A note of up to 1,024 characters: none unless said."""

    enable_batched_operations = Flag(True)
    """Kept and shown, without effect: operations are always batched. ``True`` unless said."""

    enable_express = Flag(False)
    """Kept and shown, without effect. ``False`` unless said."""

    authorization_rules = shared.authorization_rules()
    """Kept and shown, without effect: see :class:`AuthorizationRule`. None unless said."""

    requires_session = shared.sessions()
    """Whether messages belong to sessions, and are received session by session: ``False`` unless said. Cannot be
    changed.
    """

    auto_delete_on_idle = shared.auto_delete("queues")
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

    def update(self, *given: Any, **named: Unpack[QueueOptions]) -> None:
        """Assign several properties, as to a dictionary."""
        self._assign(given, named)


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
