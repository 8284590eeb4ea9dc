"""The kinds of entities, for tests that are the same for each of them: their calls, and their properties."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import PartitionSettings
from sbredis.management import (
    AccessRights,
    AuthorizationRule,
    EntityStatus,
    QueueProperties,
    RuleProperties,
    SubscriptionProperties,
    TopicProperties,
)
from sbredis.model import StoredEntity

__all__ = [
    "FIXED",
    "KEY",
    "KINDS",
    "QUEUE",
    "RULE",
    "SUBSCRIPTION",
    "TOPIC",
    "EntityKind",
    "Kept",
    "every_kept_property",
    "every_kind",
]

T = TypeVar("T")


class Kept(NamedTuple):
    """A value of a property other than the default, and the stored form of this value: settings of the partitions that
    store it, and other stored properties.
    """

    value: Any
    settings: Mapping[str, Any] = MappingProxyType({})
    properties: Mapping[str, Any] = MappingProxyType({})


KEY = AuthorizationRule(
    type="SharedAccessAuthorizationRule",
    claim_type="SharedAccessKey",
    claim_value="None",
    rights=[AccessRights.SEND, AccessRights.LISTEN],
    created_at_utc=datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    key_name="key",
    primary_key="first",
    secondary_key="second",
)

OF_STORES = (
    *("default_message_time_to_live", "max_size_in_megabytes", "max_message_size_in_kilobytes"),
    *("requires_duplicate_detection", "duplicate_detection_history_time_window"),
    *("duplicate_detection_history_max_ids", "status", "enable_batched_operations", "enable_express", "protected"),
)
"""The properties of queues that topics have, too."""
OF_RECEIVERS = (
    *("lock_duration", "requires_session", "default_message_time_to_live", "dead_lettering_on_message_expiration"),
    *("max_delivery_count", "enable_batched_operations", "protected", "audit"),
    *("forward_to", "forward_dead_lettered_messages_to"),
)
"""The properties of queues that subscriptions have, too."""


def _of_queues(table: Mapping[str, T], *names: str) -> dict[str, T]:
    return {name: table[name] for name in names}


QUEUE_DEFAULTS = {
    "lock_duration": timedelta(minutes=1),
    "max_delivery_count": 10,
    "default_message_time_to_live": timedelta.max,
    "dead_lettering_on_message_expiration": False,
    "audit": False,
    "requires_duplicate_detection": False,
    "duplicate_detection_history_time_window": timedelta(minutes=10),
    "duplicate_detection_history_max_ids": 0,
    "max_size_in_megabytes": 1024,
    "max_message_size_in_kilobytes": 1024,
    "status": "Active",
    "availability_status": "Available",
    "enable_partitioning": False,
    "partition_count": None,
    "colocate_with": None,
    "user_metadata": None,
    "enable_batched_operations": True,
    "enable_express": False,
    "authorization_rules": [],
    "requires_session": False,
    "auto_delete_on_idle": timedelta.max,
    "protected": False,
    "forward_to": None,
    "forward_dead_lettered_messages_to": None,
}
TOPIC_DEFAULTS = {
    **_of_queues(QUEUE_DEFAULTS, *OF_STORES, "availability_status", "enable_partitioning", "partition_count"),
    "colocate_with": None,
    "user_metadata": None,
    "authorization_rules": [],
    "auto_delete_on_idle": timedelta.max,
    "support_ordering": True,
    "filtering_messages_before_publishing": False,
    "size_in_bytes": 0,
}
SUBSCRIPTION_DEFAULTS = {
    **_of_queues(
        QUEUE_DEFAULTS, *OF_RECEIVERS, "status", "availability_status", "user_metadata", "auto_delete_on_idle"
    ),
    "dead_lettering_on_filter_evaluation_exceptions": True,
}
QUEUE_KEPT = {
    "lock_duration": Kept(timedelta(seconds=5), {"lock_duration": 5_000}),
    "max_delivery_count": Kept(3, {"max_delivery_count": 3}),
    "default_message_time_to_live": Kept(timedelta(days=1), {"time_to_live": 86_400_000}),
    "dead_lettering_on_message_expiration": Kept(True, {"dead_letter_expired": True}),
    "audit": Kept(True, {"audited": True}),
    "requires_duplicate_detection": Kept(True, {"duplicate_window": 600_000}),
    "duplicate_detection_history_time_window": Kept(
        timedelta(seconds=20), {}, {"duplicate_detection_history_time_window": 20_000}
    ),
    "duplicate_detection_history_max_ids": Kept(5, {"most_ids": 5}),
    "max_size_in_megabytes": Kept(2048, {"quota": 2 * 1024 * 1024 * 1024}),
    "max_message_size_in_kilobytes": Kept(102_400, {"largest_message": 100 * 1024 * 1024}),
    "status": Kept(EntityStatus.SEND_DISABLED, {"status": "SendDisabled"}),
    "protected": Kept(True, {}, {"protected": True}),
    "user_metadata": Kept("é" * 1024, {}, {"user_metadata": "é" * 1024}),
    "enable_batched_operations": Kept(False, {}, {"enable_batched_operations": False}),
    "enable_express": Kept(True, {}, {"enable_express": True}),
    "authorization_rules": Kept(
        [KEY],
        {},
        {
            "authorization_rules": [
                {
                    "type": "SharedAccessAuthorizationRule",
                    "claim_type": "SharedAccessKey",
                    "claim_value": "None",
                    "rights": ["Send", "Listen"],
                    "created_at_utc": "2026-01-02T03:04:05.000006+00:00",
                    "key_name": "key",
                    "primary_key": "first",
                    "secondary_key": "second",
                }
            ]
        },
    ),
    "requires_session": Kept(True, {"sessions": True}),
    "auto_delete_on_idle": Kept(timedelta(minutes=5), {}, {"auto_delete_on_idle": 300_000}),
    "forward_to": Kept("Other", {"forwards": True}, {"forward_to": "Other"}),
    "forward_dead_lettered_messages_to": Kept(
        "Other", {"forwards_dead": True}, {"forward_dead_lettered_messages_to": "Other"}
    ),
}
TOPIC_KEPT = {
    **_of_queues(QUEUE_KEPT, *OF_STORES),
    "user_metadata": Kept("ours", {}, {"user_metadata": "ours"}),
    "support_ordering": Kept(False, {}, {"support_ordering": False}),
    "filtering_messages_before_publishing": Kept(True, {}, {"filtering_messages_before_publishing": True}),
    "size_in_bytes": Kept(5, {}, {"size_in_bytes": 5}),
    "authorization_rules": Kept([AuthorizationRule(key_name="k")], {}, {"authorization_rules": [{"key_name": "k"}]}),
    "auto_delete_on_idle": Kept(timedelta(hours=1), {}, {"auto_delete_on_idle": 3_600_000}),
}
SUBSCRIPTION_KEPT = {
    **_of_queues(QUEUE_KEPT, *OF_RECEIVERS),
    "dead_lettering_on_filter_evaluation_exceptions": Kept(
        False, {}, {"dead_lettering_on_filter_evaluation_exceptions": False}
    ),
    "status": Kept(EntityStatus.RECEIVE_DISABLED, {"status": "ReceiveDisabled"}),
    "user_metadata": Kept("ours", {}, {"user_metadata": "ours"}),
    "auto_delete_on_idle": Kept(timedelta(hours=1), {}, {"auto_delete_on_idle": 3_600_000}),
}
FIXED = {"requires_duplicate_detection", "requires_session"}
"""The properties of these tables that cannot be changed."""


class EntityKind(NamedTuple):
    """A kind of entities, or rules."""

    properties: Any
    """The class of its properties."""
    of: tuple[str, ...] = ()
    """The names of what its entities belong to, which the fixture ``entities`` creates."""
    settings: PartitionSettings = PartitionSettings()
    """The settings of the partitions of an entity of which no property was given."""
    defaults: Mapping[str, Any] = MappingProxyType({})
    kept: Mapping[str, Kept] = MappingProxyType({})

    @property
    def word(self) -> str:
        """The name of the kind."""
        return str(self.properties.kind).lower()

    @property
    def plain(self) -> StoredEntity:
        """What is stored of an entity of which no property was given."""
        return StoredEntity(settings=self.settings, properties={})

    def call(self, admin: ServiceBusAdministrationClient, verb: str, *arguments: Any, **options: Any) -> Any:
        """Call the method for this kind, such as ``create_queue``, ``list_queues`` or ``queue_exists``."""
        names = {
            "exists": f"{self.word}_exists",
            "list": f"list_{self.word}s",
            "count": f"get_{self.word}_runtime_properties",
            "list counts": f"list_{self.word}s_runtime_properties",
        }
        return getattr(admin, names.get(verb, f"{verb}_{self.word}"))(*self.of, *arguments, **options)


QUEUE = EntityKind(QueueProperties, defaults=QUEUE_DEFAULTS, kept=QUEUE_KEPT)
TOPIC = EntityKind(TopicProperties, settings=PartitionSettings(topic=True), defaults=TOPIC_DEFAULTS, kept=TOPIC_KEPT)
SUBSCRIPTION = EntityKind(
    SubscriptionProperties, ("News",), PartitionSettings(shared=True), SUBSCRIPTION_DEFAULTS, SUBSCRIPTION_KEPT
)
RULE = EntityKind(RuleProperties, ("News", "All"))
KINDS = [QUEUE, TOPIC, SUBSCRIPTION]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
every_kept_property = pytest.mark.parametrize(
    ("kind", "name", "kept"),
    [pytest.param(kind, name, kept, id=f"{kind.word}.{name}") for kind in KINDS for name, kept in kind.kept.items()],
)
