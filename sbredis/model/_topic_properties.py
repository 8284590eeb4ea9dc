"""The properties of topics, as they are set and shown: one table, the class."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypedDict, Unpack

from sbredis._public import public
from sbredis.model import _shared_fields as shared
from sbredis.model._entity_enums import EntityAvailabilityStatus, EntityStatus
from sbredis.model._fields import Described, Flag, Neighbour, Whole
from sbredis.model._rights import AuthorizationRule

__all__ = ["TopicOptions", "TopicProperties"]


@public
class TopicProperties(Described):
    """What a topic is and does.

    Durations are :class:`~datetime.timedelta`; they may be given in ISO 8601 as well (``"PT30S"``), and are kept in ms.
    ``timedelta.max`` is no limit. A property that was not given reads as it is by default, and ``None`` assigned to it
    stands for the default. Limits are checked when it is sent.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Topic"

    default_message_time_to_live = shared.time_to_live()
    """How long a message lives that says nothing, and the longest that one may live, in any subscription: no limit
    unless said, 1 second at least.
    """

    max_size_in_megabytes = shared.quota()
    """How much the messages of the topic and of all its subscriptions may take, those on dead-letter queues included:
    1,024 unless said, from 1 to 900,000,000. Of a partitioned topic, that is for each partition.
    """

    max_message_size_in_kilobytes = shared.largest_message()
    """How large a message may be: 1,024 unless said, from 1 to 102,400, which is 100 MB. A batch has up to 4 MB in any
    case.
    """

    requires_duplicate_detection = Flag(False, fixed=True)
    """Whether a message with the id of another one in the window is dropped: ``False`` unless said. Cannot be changed.
    """

    duplicate_detection_history_time_window = shared.duplicate_window()
    """For how long ids of messages are remembered: 10 minutes unless said, from 20 seconds to 7 days. Without effect
    where duplicates are not detected.
    """

    status = shared.status(EntityStatus.SEND_DISABLED)
    """Whether it takes messages in: ``Active`` unless said, or ``Disabled`` or ``SendDisabled``. What its subscriptions
    have, they go on giving out: each has a status of its own.
    """

    availability_status = shared.availability()
    """Whether all its partitions have a server, as far as the client knows: ``Available``, or ``Limited``. What is
    assigned to it is not sent.
    """

    enable_partitioning = Flag(False, fixed=True)
    """Whether it lives in all partitions of the namespace, instead of in one, and its subscriptions with it: ``False``
    unless said. Cannot be changed.
    """

    colocate_with = Neighbour(fixed=True)
    """The unpartitioned entity in whose partition it lives, so that a transaction can span both: none unless said.
    Cannot be changed. An addition of sbredis.
    """

    user_metadata = shared.metadata()
    """A note of up to 1,024 characters: none unless said."""

    support_ordering = Flag(True)
    """Kept and shown, without effect: messages reach every subscription in the order of their numbers. ``True`` unless
    said.
    """

    enable_batched_operations = Flag(True)
    """Kept and shown, without effect: operations are always batched. ``True`` unless said."""

    enable_express = Flag(False)
    """Kept and shown, without effect. ``False`` unless said."""

    filtering_messages_before_publishing = Flag(False)
    """Kept and shown, without effect. ``False`` unless said."""

    size_in_bytes = Whole(0, least=0, most=999_999_999_999_999)
    """Kept and shown, without effect: what the messages take is told by :class:`TopicRuntimeProperties`. 0 unless said,
    from 0 to 999,999,999,999,999.
    """

    authorization_rules = shared.authorization_rules()
    """Kept and shown, without effect: see :class:`AuthorizationRule`. None unless said."""

    auto_delete_on_idle = shared.auto_delete("topics")
    """After how long without use it is deleted. Not available yet: no limit unless said, and all but
    ``timedelta.max`` is refused.
    """

    def __init__(
        self,
        name: str,
        *,
        default_message_time_to_live: timedelta | str | None = None,
        max_size_in_megabytes: int | None = None,
        requires_duplicate_detection: bool | None = None,
        duplicate_detection_history_time_window: timedelta | str | None = None,
        enable_batched_operations: bool | None = None,
        size_in_bytes: int | None = None,
        filtering_messages_before_publishing: bool | None = None,
        authorization_rules: Sequence[AuthorizationRule] | None = None,
        status: EntityStatus | str | None = None,
        support_ordering: bool | None = None,
        auto_delete_on_idle: timedelta | str | None = None,
        enable_partitioning: bool | None = None,
        availability_status: EntityAvailabilityStatus | str | None = None,
        enable_express: bool | None = None,
        user_metadata: str | None = None,
        max_message_size_in_kilobytes: int | None = None,
        colocate_with: str | None = None,
    ) -> None:
        """A property that is left out, or ``None``, counts as not given; an update leaves it as it is."""
        given = {
            "default_message_time_to_live": default_message_time_to_live,
            "max_size_in_megabytes": max_size_in_megabytes,
            "requires_duplicate_detection": requires_duplicate_detection,
            "duplicate_detection_history_time_window": duplicate_detection_history_time_window,
            "enable_batched_operations": enable_batched_operations,
            "size_in_bytes": size_in_bytes,
            "filtering_messages_before_publishing": filtering_messages_before_publishing,
            "authorization_rules": authorization_rules,
            "status": status,
            "support_ordering": support_ordering,
            "auto_delete_on_idle": auto_delete_on_idle,
            "enable_partitioning": enable_partitioning,
            "availability_status": availability_status,
            "enable_express": enable_express,
            "user_metadata": user_metadata,
            "max_message_size_in_kilobytes": max_message_size_in_kilobytes,
            "colocate_with": colocate_with,
        }
        super().__init__(name, given)

    def update(self, *given: Any, **named: Unpack[TopicOptions]) -> None:
        """Assign several properties, as to a dictionary."""
        self._assign(given, named)


class TopicOptions(TypedDict, total=False):
    """What a topic may be created with: the properties that can be set, each as in :class:`TopicProperties`."""

    default_message_time_to_live: timedelta | str | None
    max_size_in_megabytes: int | None
    requires_duplicate_detection: bool | None
    duplicate_detection_history_time_window: timedelta | str | None
    enable_batched_operations: bool | None
    size_in_bytes: int | None
    filtering_messages_before_publishing: bool | None
    authorization_rules: Sequence[AuthorizationRule] | None
    status: EntityStatus | str | None
    support_ordering: bool | None
    auto_delete_on_idle: timedelta | str | None
    enable_partitioning: bool | None
    enable_express: bool | None
    user_metadata: str | None
    max_message_size_in_kilobytes: int | None
    colocate_with: str | None
