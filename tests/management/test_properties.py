"""Tests of the properties of entities as values: the defaults, the accepted values, and the stored form."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, get_args, get_type_hints

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient as Admin
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
    SubscriptionOptions,
    SubscriptionProperties,
    TopicOptions,
    TopicProperties,
)
from sbredis.model import StoredEntity, entity_created, entity_revised, entity_values
from tests.management.kinds import (
    FIXED,
    KEY,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    EntityKind,
    Kept,
    every_kept_property,
    every_kind,
)

PLAIN = QUEUE.plain


def created(given: Mapping[str, object], settings: PartitionSettings) -> StoredEntity:
    return entity_created(QueueProperties, given, settings)


def revised(given: Mapping[str, object], before: StoredEntity) -> StoredEntity:
    return entity_revised(QueueProperties, given, before)


def values(kept: StoredEntity) -> dict[str, Any]:
    return entity_values(QueueProperties, kept)


@every_kind
def test_properties_that_were_not_given_have_their_defaults(kind: EntityKind) -> None:
    found = kind.properties("x")
    assert dict(found) == {"name": "x", **kind.defaults}
    assert found.given == {}
    assert entity_created(kind.properties, found.given, kind.settings) == kind.plain
    assert entity_values(kind.properties, kind.plain) == kind.defaults


@every_kept_property
def test_a_property_is_stored_in_the_expected_form_and_read_back(kind: EntityKind, name: str, kept: Kept) -> None:
    found = entity_created(kind.properties, kind.properties("x", **{name: kept.value}).given, kind.settings)
    assert found.settings == replace(kind.settings, **kept.settings)
    assert json.loads(json.dumps(found.properties)) == kept.properties
    assert entity_values(kind.properties, found) == {**kind.defaults, name: kept.value}


@every_kept_property
def test_a_property_set_to_none_gets_its_default_again(kind: EntityKind, name: str, kept: Kept) -> None:
    before = entity_created(kind.properties, kind.properties("x", **{name: kept.value}).given, kind.settings)
    properties = kind.properties("x")
    setattr(properties, name, None)
    if name in FIXED:
        with pytest.raises(ValueError, match=f"property of an existing {kind.properties.kind} cannot be changed"):
            entity_revised(kind.properties, properties.given, before)
    else:
        assert entity_revised(kind.properties, properties.given, before) == kind.plain


APART = {"enable_partitioning", "partition_count", "colocate_with", "availability_status"}
"""Properties that are stored in another way than the others."""


@pytest.mark.parametrize(
    ("kind", "options", "create", "besides"),
    [
        (QUEUE, QueueOptions, Admin.create_queue, {"queue_name"}),
        (TOPIC, TopicOptions, Admin.create_topic, {"topic_name"}),
        (SUBSCRIPTION, SubscriptionOptions, Admin.create_subscription, {"topic_name", "subscription_name", "rules"}),
    ],
)
def test_the_constructor_the_options_and_the_method_that_creates_accept_the_same_properties(
    kind: EntityKind, options: Any, create: Any, besides: set[str]
) -> None:
    by_class = set(kind.properties.fields())
    assert by_class == {*kind.kept, *(APART & by_class)}
    assert set(inspect.signature(kind.properties).parameters) == {"name", *by_class}
    by_class.remove("availability_status")
    assert set(get_type_hints(options)) == by_class
    assert set(inspect.signature(create).parameters) == {"self", "timeout", *besides, *by_class}


@every_kind
def test_properties_can_be_copied_compared_and_pickled(kind: EntityKind) -> None:
    found = kind.properties("x", user_metadata="ours", default_message_time_to_live="PT30S")
    if kind is QUEUE:
        found.authorization_rules = [KEY]
    for twin in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):  # noqa: S301 -- our own
        assert twin == found
        assert twin.given == found.given
        twin.user_metadata = "theirs"
        assert twin != found
    assert found.user_metadata == "ours"
    assert found != kind.properties("y", **found.given)
    assert TopicProperties("x") not in (SubscriptionProperties("x"), "x")


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
    queue.authorization_rules.append(KEY)
    assert queue.given == {"authorization_rules": [KEY]}
    assert values(created(queue.given, PartitionSettings()))["authorization_rules"] == [KEY]
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
        ("authorization_rules", KEY, TypeError, "authorization_rules must be a list, not AuthorizationRule"),
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


ADDED = {
    *("slot_count", "entity_count", "max_entities", "size_in_megabytes", "max_size_in_megabytes"),
    *("availability_status", "unreachable_slots"),
}


def test_a_namespace_has_the_properties_that_azure_defines() -> None:
    assert {each.name for each in fields(NamespaceProperties)} - ADDED == {
        *("name", "alias", "created_at_utc", "messaging_sku"),
        *("messaging_units", "modified_at_utc", "namespace_type"),
    }


@every_kind
def test_properties_can_be_used_like_a_mapping(kind: EntityKind) -> None:
    found = kind.properties("x")
    found["user_metadata"] = "ours"
    found.update(status="Disabled", default_message_time_to_live=timedelta(days=1))
    assert dict(found.given) == {
        "user_metadata": "ours",
        "status": EntityStatus.DISABLED,
        "default_message_time_to_live": timedelta(days=1),
    }
    assert found.get("user_metadata") == "ours"
    assert (found.get("colour"), "colour" in found, "status" in found) == (None, False, True)
    assert list(dict(found)) == found.keys()
    assert dict(zip(found.keys(), found.values(), strict=True)) == dict(found.items())
    with pytest.raises(KeyError):
        found["colour"] = "red"


def test_properties_that_have_no_effect_are_checked_too() -> None:
    with pytest.raises(ValueError, match="size_in_bytes must be from 0 to"):
        entity_created(TopicProperties, {"size_in_bytes": -1}, PartitionSettings(topic=True))
    with pytest.raises(TypeError, match="support_ordering must be True or False, not int"):
        TopicProperties("x", support_ordering=1)  # type: ignore[arg-type]
