"""Tests of the properties of a queue as a value: the defaults, the accepted values, and the stored form."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_type_hints

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import NEVER, PartitionSettings
from sbredis.engine._settings import Status
from sbredis.management import (
    AccessRights,
    AuthorizationRule,
    EntityAvailabilityStatus,
    EntityStatus,
    NamespaceProperties,
    QueueOptions,
    QueueProperties,
)
from sbredis.model import StoredEntity, entity_created, entity_revised, entity_values

PLAIN = StoredEntity(settings=PartitionSettings(), properties={})
RULE = AuthorizationRule(
    type="SharedAccessAuthorizationRule",
    claim_type="SharedAccessKey",
    claim_value="None",
    rights=[AccessRights.SEND, AccessRights.LISTEN],
    created_at_utc=datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    key_name="key",
    primary_key="first",
    secondary_key="second",
)

# For each property: a value other than the default, the settings of the partitions that store it, and the other stored
# properties.
KEPT: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "lock_duration": (timedelta(seconds=5), {"lock_duration": 5_000}, {}),
    "max_delivery_count": (3, {"max_delivery_count": 3}, {}),
    "default_message_time_to_live": (timedelta(days=1), {"time_to_live": 86_400_000}, {}),
    "dead_lettering_on_message_expiration": (True, {"dead_letter_expired": True}, {}),
    "audit": (True, {"audited": True}, {}),
    "requires_duplicate_detection": (True, {"duplicate_window": 600_000}, {}),
    "duplicate_detection_history_time_window": (
        timedelta(seconds=20),
        {},
        {"duplicate_detection_history_time_window": 20_000},
    ),
    "duplicate_detection_history_max_ids": (5, {"most_ids": 5}, {}),
    "max_size_in_megabytes": (2048, {"quota": 2 * 1024 * 1024 * 1024}, {}),
    "max_message_size_in_kilobytes": (102_400, {"largest_message": 100 * 1024 * 1024}, {}),
    "status": (EntityStatus.SEND_DISABLED, {"status": "SendDisabled"}, {}),
    "protected": (True, {}, {"protected": True}),
    "user_metadata": ("é" * 1024, {}, {"user_metadata": "é" * 1024}),
    "enable_batched_operations": (False, {}, {"enable_batched_operations": False}),
    "enable_express": (True, {}, {"enable_express": True}),
    "authorization_rules": (
        [RULE],
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
    "requires_session": (True, {"sessions": True}, {}),
    "auto_delete_on_idle": (timedelta(minutes=5), {}, {"auto_delete_on_idle": 300_000}),
    "forward_to": ("Other", {"forwards": True}, {"forward_to": "Other"}),
    "forward_dead_lettered_messages_to": (
        "Other",
        {"forwards_dead": True},
        {"forward_dead_lettered_messages_to": "Other"},
    ),
}
FIXED = {"requires_duplicate_detection", "requires_session"}
ELSEWHERE = {"enable_partitioning", "colocate_with", "availability_status"}
every_kept_property = pytest.mark.parametrize("name", KEPT)


def created(given: Mapping[str, object], settings: PartitionSettings) -> StoredEntity:
    return entity_created(QueueProperties, given, settings)


def revised(given: Mapping[str, object], before: StoredEntity) -> StoredEntity:
    return entity_revised(QueueProperties, given, before)


def values(kept: StoredEntity) -> dict[str, Any]:
    return entity_values(QueueProperties, kept)


def test_every_property_is_stored() -> None:
    assert set(QueueProperties.fields()) == {*KEPT, *ELSEWHERE}


def test_constructor_options_and_create_queue_accept_the_same_properties() -> None:
    by_class = set(QueueProperties.fields())
    assert set(inspect.signature(QueueProperties).parameters) == {"name", *by_class}
    assert set(get_type_hints(QueueOptions)) == by_class - {"availability_status"}
    created = set(inspect.signature(ServiceBusAdministrationClient.create_queue).parameters)
    assert created == {"self", "queue_name", "timeout", *(by_class - {"availability_status"})}


def test_properties_that_were_not_given_have_their_defaults() -> None:
    queue = QueueProperties("q")
    assert dict(queue) == {
        "name": "q",
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
    assert queue.given == {}
    assert created(queue.given, PartitionSettings()) == PLAIN
    assert values(PLAIN) == {name: value for name, value in dict(queue).items() if name != "name"}


@every_kept_property
def test_a_property_is_stored_in_the_expected_form_and_read_back(name: str) -> None:
    value, settings, properties = KEPT[name]
    kept = created(QueueProperties("q", **{name: value}).given, PartitionSettings())
    assert kept.settings == PartitionSettings(**settings)
    assert json.loads(json.dumps(kept.properties)) == properties
    assert values(kept)[name] == value
    assert {other: each for other, each in values(kept).items() if other != name} == {
        other: each for other, each in values(PLAIN).items() if other != name
    }


@every_kept_property
def test_a_property_set_to_none_gets_its_default_again(name: str) -> None:
    value, _, _ = KEPT[name]
    kept = created(QueueProperties("q", **{name: value}).given, PartitionSettings())
    queue = QueueProperties("q")
    setattr(queue, name, None)
    if name in FIXED:
        with pytest.raises(ValueError, match="cannot be changed"):
            revised(queue.given, kept)
    else:
        assert revised(queue.given, kept) == PLAIN


def test_the_duplicate_window_is_a_setting_of_the_partitions() -> None:
    both = {"requires_duplicate_detection": True, "duplicate_detection_history_time_window": timedelta(days=7)}
    kept = created(both, PartitionSettings())
    assert (kept.settings.duplicate_window, kept.properties) == (7 * 86_400_000, {})
    shorter = revised({"duplicate_detection_history_time_window": timedelta(seconds=20)}, kept)
    assert (shorter.settings.duplicate_window, shorter.properties) == (20_000, {})


DESTINATIONS = [
    ("other", "other"),
    ("billing/Orders", "billing/Orders"),
    ("sb://shop.servicebus.windows.net/Orders", "Orders"),
    ("https://shop.servicebus.windows.net/billing/orders/", "billing/orders"),
    ("SB://shop.servicebus.chinacloudapi.cn:5671/orders", "orders"),
    ("", None),
]
both_destinations = pytest.mark.parametrize("name", ["forward_to", "forward_dead_lettered_messages_to"])


@both_destinations
@pytest.mark.parametrize(("given", "destination"), DESTINATIONS)
def test_a_destination_may_be_given_as_a_url_and_is_read_as_a_name(
    name: str, given: str, destination: str | None
) -> None:
    queue = QueueProperties("q", **{name: given})  # type: ignore[arg-type]  # both names are properties
    assert queue[name] == destination
    kept = created(queue.given, PartitionSettings())
    assert values(kept)[name] == destination
    assert kept.properties == ({} if destination is None else {name: destination})


@both_destinations
def test_a_destination_that_differs_only_in_case_is_no_change(name: str) -> None:
    kept = created({name: "Other"}, PartitionSettings())
    assert revised({name: "oTHER"}, kept) == kept
    assert revised({name: "another"}, kept).properties == {name: "another"}


@both_destinations
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("sb://shop.servicebus.windows.net", "names no entity: add the queue or topic as its path"),
        ("https://shop.servicebus.windows.net/", "names no entity: add the queue or topic as its path"),
        ("ftp://shop/orders", "entity name 'ftp://shop/orders'"),
        ("a b", "entity name 'a b'"),
        ("news/Subscriptions/all", "is a subscription, and messages cannot be forwarded to a subscription"),
        ("sb://shop/news/subscriptions/all", "'news/subscriptions/all' is a subscription"),
        ("orders/$DeadLetterQueue", "is a dead-letter queue, and messages cannot be forwarded to a dead-letter queue"),
        ("orders/$Transfer/$deadletterqueue", "is a dead-letter queue"),
        ("x" * 261, "has 261 characters; at most 260 are allowed"),
    ],
)
def test_a_text_that_names_no_queue_or_topic_is_not_a_destination(name: str, given: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}.*{re.escape(text)}"):
        created(QueueProperties("q", **{name: given}).given, PartitionSettings())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"^{name}.*{re.escape(text)}"):
        revised(QueueProperties("q", **{name: given}).given, PLAIN)  # type: ignore[arg-type]


def test_the_messages_of_an_entity_with_sessions_can_be_forwarded() -> None:
    kept = created({"requires_session": True, "forward_to": "other"}, PartitionSettings())
    assert kept.settings == PartitionSettings(sessions=True, forwards=True)
    sessions = created({"requires_session": True}, PartitionSettings())
    assert revised({"forward_to": "other"}, sessions).settings == kept.settings
    kept = revised({"forward_dead_lettered_messages_to": "other"}, sessions)
    assert kept.settings == PartitionSettings(sessions=True, forwards_dead=True)


def test_an_update_leaves_all_other_properties_unchanged() -> None:
    """An update also keeps properties that this release does not know, and values that this release would refuse."""
    before = StoredEntity(
        settings=PartitionSettings(quota=77, lock_duration=3_600_000, clock="test", forwards=True),
        properties={"colour": {"red": [1]}, "forward_to": "other"},
    )
    queue = QueueProperties.shown("q", values(before))
    assert (queue.max_size_in_megabytes, queue.lock_duration) == (1, timedelta(hours=1))
    queue.max_delivery_count = 7
    after = revised(queue.given, before)
    assert after.settings == replace(before.settings, max_delivery_count=7)
    assert after.properties == before.properties


def test_properties_can_be_copied_compared_and_pickled() -> None:
    queue = QueueProperties("q", lock_duration="PT30S", authorization_rules=[RULE])
    for twin in (copy.copy(queue), copy.deepcopy(queue), pickle.loads(pickle.dumps(queue))):  # noqa: S301 -- our own
        assert twin == queue
        assert twin.given == queue.given
        twin.lock_duration = timedelta(seconds=31)
        assert twin != queue
    assert queue.lock_duration == timedelta(seconds=30)
    assert queue != QueueProperties("other", **queue.given)  # type: ignore[arg-type]  # as it was given
    assert queue != "q"


def test_the_name_can_be_assigned_and_unknown_attributes_are_refused() -> None:
    queue: Any = QueueProperties("q")
    queue.name = "other"
    assert (queue.name, queue["name"], queue.read_as) == ("other", "other", None)
    queue["name"] = "q"
    with pytest.raises(TypeError, match="name must be str, not int"):
        queue.name = 5
    with pytest.raises(TypeError, match="name must be str, not NoneType"):
        queue.name = None
    with pytest.raises(AttributeError):
        queue.lock_durration = timedelta(seconds=30)
    with pytest.raises(KeyError):
        queue["lock_durration"] = timedelta(seconds=30)
    with pytest.raises(KeyError):
        queue["lock_durration"]
    with pytest.raises(TypeError, match="name must be str, not int"):
        QueueProperties(5)  # type: ignore[arg-type]
    assert dict(queue) == dict(QueueProperties("q"))


def test_appending_to_the_authorization_rules_sets_the_property_but_reading_it_does_not() -> None:
    queue = QueueProperties("q")
    assert queue.authorization_rules == []
    assert queue.given == {}
    queue.authorization_rules.append(RULE)
    assert queue.given == {"authorization_rules": [RULE]}
    assert values(created(queue.given, PartitionSettings()))["authorization_rules"] == [RULE]
    queue.authorization_rules.append("rule")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="authorization_rules must be AuthorizationRules, not str"):
        created(queue.given, PartitionSettings())


def test_an_authorization_rule_may_be_a_mapping_and_its_repr_hides_the_keys() -> None:
    queue = QueueProperties("q", authorization_rules=[{"rights": ["Send"], "primary_key": "secret"}])  # type: ignore[list-item]
    assert queue.authorization_rules == [AuthorizationRule(rights=[AccessRights.SEND], primary_key="secret")]
    assert "secret" not in repr(queue)


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("lock_duration", 30, TypeError, "lock_duration must be a datetime.timedelta or a str"),
        ("lock_duration", "30", ValueError, "lock_duration: '30' is not a duration"),
        ("max_delivery_count", "3", TypeError, "max_delivery_count must be a whole number, not str"),
        ("max_delivery_count", True, TypeError, "max_delivery_count must be a whole number, not bool"),
        ("max_delivery_count", 3.0, TypeError, "max_delivery_count must be a whole number, not float"),
        ("dead_lettering_on_message_expiration", 1, TypeError, "must be True or False, not int"),
        ("enable_express", "yes", TypeError, "enable_express must be True or False, not str"),
        ("user_metadata", b"x", TypeError, "user_metadata must be str, not bytes"),
        ("colocate_with", 5, TypeError, "colocate_with must be str, not int"),
        ("status", "asleep", ValueError, "one of Active, Disabled, SendDisabled, ReceiveDisabled, not 'asleep'"),
        ("status", 1, ValueError, "status must be one of"),
        ("authorization_rules", "rules", TypeError, "authorization_rules must be a list, not str"),
        ("authorization_rules", RULE, TypeError, "authorization_rules must be a list, not AuthorizationRule"),
        ("authorization_rules", [5], TypeError, "authorization_rules must be AuthorizationRules, not int"),
        ("authorization_rules", [{"rihgts": []}], TypeError, "an AuthorizationRule has no rihgts"),
        ("authorization_rules", [{"rights": ["Fly"]}], ValueError, "must be some of Manage, Send, Listen, not"),
        ("authorization_rules", [{"rights": 5}], ValueError, "must be some of Manage, Send, Listen, not 5"),
        ("authorization_rules", [{"key_name": 5}], TypeError, "key_name of an AuthorizationRule must be str"),
        ("authorization_rules", [{"created_at_utc": 5}], TypeError, "must be a datetime, not int"),
    ],
)
def test_an_invalid_value_is_refused_when_given(name: str, value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        QueueProperties("q", **{name: value})
    queue = QueueProperties("q")
    with pytest.raises(error, match=text):
        setattr(queue, name, value)
    assert queue.given == {}


def test_the_statuses_that_can_be_set_are_those_of_a_partition() -> None:
    assert {status.value for status in QueueProperties.status.settable} == set(get_args(Status))


def test_durations_without_limit_are_returned_as_timedelta_max() -> None:
    for given in (timedelta.max, "P10675199DT2H48M5.4775807S", timedelta(milliseconds=NEVER)):
        queue = QueueProperties("q", default_message_time_to_live=given, auto_delete_on_idle=given)
        assert (queue.default_message_time_to_live, queue.auto_delete_on_idle) == (timedelta.max, timedelta.max)
        assert created(queue.given, PartitionSettings()) == PLAIN


def test_enumerations_have_azures_values_and_are_equal_to_their_texts() -> None:
    assert QueueProperties("q", status="Disabled").status is EntityStatus.DISABLED
    assert {EntityStatus.DISABLED: 1}["Disabled"] == 1  # type: ignore[index]  # equal, although of another type
    assert [status.value for status in EntityAvailabilityStatus] == [
        "Available",
        "Limited",
        "Renaming",
        "Restoring",
        "Unknown",
    ]


ADDED = {"partition_count", "entity_count", "max_entities", "size_in_megabytes", "max_size_in_megabytes"}


def test_a_namespace_has_the_properties_that_azure_defines() -> None:
    assert {each.name for each in fields(NamespaceProperties)} - ADDED == {
        "name",
        "alias",
        "created_at_utc",
        "messaging_sku",
        "messaging_units",
        "modified_at_utc",
        "namespace_type",
    }
