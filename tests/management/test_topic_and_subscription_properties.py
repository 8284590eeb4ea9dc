"""Tests of the properties of topics and subscriptions as values: defaults, storage, and invalid values."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, get_type_hints

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient as Admin
from sbredis.engine import PartitionSettings
from sbredis.management import (
    AuthorizationRule,
    EntityStatus,
    SubscriptionOptions,
    SubscriptionProperties,
    TopicOptions,
    TopicProperties,
)
from sbredis.model import Described, StoredEntity, entity_created, entity_revised, entity_values

Kind = type[TopicProperties] | type[SubscriptionProperties]


class Kept(NamedTuple):
    """For each property: a value other than the default, and the stored form of this value."""

    value: Any
    settings: Mapping[str, Any] = MappingProxyType({})
    properties: Mapping[str, Any] = MappingProxyType({})


FOREVER = timedelta.max
TOPIC_DEFAULTS = {
    "default_message_time_to_live": FOREVER,
    "max_size_in_megabytes": 1024,
    "max_message_size_in_kilobytes": 1024,
    "requires_duplicate_detection": False,
    "duplicate_detection_history_time_window": timedelta(minutes=10),
    "duplicate_detection_history_max_ids": 0,
    "status": "Active",
    "availability_status": "Available",
    "enable_partitioning": False,
    "colocate_with": None,
    "user_metadata": None,
    "support_ordering": True,
    "enable_batched_operations": True,
    "enable_express": False,
    "filtering_messages_before_publishing": False,
    "size_in_bytes": 0,
    "authorization_rules": [],
    "auto_delete_on_idle": FOREVER,
    "protected": False,
}
SUBSCRIPTION_DEFAULTS = {
    "lock_duration": timedelta(minutes=1),
    "requires_session": False,
    "default_message_time_to_live": FOREVER,
    "dead_lettering_on_message_expiration": False,
    "dead_lettering_on_filter_evaluation_exceptions": True,
    "max_delivery_count": 10,
    "enable_batched_operations": True,
    "status": "Active",
    "availability_status": "Available",
    "user_metadata": None,
    "auto_delete_on_idle": FOREVER,
    "protected": False,
    "forward_to": None,
    "forward_dead_lettered_messages_to": None,
    "audit": False,
}
TOPIC_KEPT = {
    "default_message_time_to_live": Kept(timedelta(days=1), {"time_to_live": 86_400_000}),
    "max_size_in_megabytes": Kept(2048, {"quota": 2 * 1024 * 1024 * 1024}),
    "max_message_size_in_kilobytes": Kept(102_400, {"largest_message": 100 * 1024 * 1024}),
    "requires_duplicate_detection": Kept(True, {"duplicate_window": 600_000}),
    "duplicate_detection_history_time_window": Kept(
        timedelta(seconds=20), {}, {"duplicate_detection_history_time_window": 20_000}
    ),
    "duplicate_detection_history_max_ids": Kept(5, {"most_ids": 5}),
    "status": Kept(EntityStatus.SEND_DISABLED, {"status": "SendDisabled"}),
    "user_metadata": Kept("ours", {}, {"user_metadata": "ours"}),
    "support_ordering": Kept(False, {}, {"support_ordering": False}),
    "enable_batched_operations": Kept(False, {}, {"enable_batched_operations": False}),
    "enable_express": Kept(True, {}, {"enable_express": True}),
    "filtering_messages_before_publishing": Kept(True, {}, {"filtering_messages_before_publishing": True}),
    "size_in_bytes": Kept(5, {}, {"size_in_bytes": 5}),
    "authorization_rules": Kept([AuthorizationRule(key_name="k")], {}, {"authorization_rules": [{"key_name": "k"}]}),
    "auto_delete_on_idle": Kept(timedelta(hours=1), {}, {"auto_delete_on_idle": 3_600_000}),
    "protected": Kept(True, {}, {"protected": True}),
}
SUBSCRIPTION_KEPT = {
    "lock_duration": Kept(timedelta(seconds=5), {"lock_duration": 5_000}),
    "requires_session": Kept(True, {"sessions": True}),
    "default_message_time_to_live": Kept(timedelta(days=1), {"time_to_live": 86_400_000}),
    "dead_lettering_on_message_expiration": Kept(True, {"dead_letter_expired": True}),
    "audit": Kept(True, {"audited": True}),
    "dead_lettering_on_filter_evaluation_exceptions": Kept(
        False, {}, {"dead_lettering_on_filter_evaluation_exceptions": False}
    ),
    "max_delivery_count": Kept(3, {"max_delivery_count": 3}),
    "enable_batched_operations": Kept(False, {}, {"enable_batched_operations": False}),
    "status": Kept(EntityStatus.RECEIVE_DISABLED, {"status": "ReceiveDisabled"}),
    "user_metadata": Kept("ours", {}, {"user_metadata": "ours"}),
    "auto_delete_on_idle": Kept(timedelta(hours=1), {}, {"auto_delete_on_idle": 3_600_000}),
    "protected": Kept(True, {}, {"protected": True}),
    "forward_to": Kept("Other", {"forwards": True}, {"forward_to": "Other"}),
    "forward_dead_lettered_messages_to": Kept(
        "Other", {"forwards_dead": True}, {"forward_dead_lettered_messages_to": "Other"}
    ),
}
FIXED = {"requires_duplicate_detection", "requires_session"}
ALL: list[tuple[Kind, str, Kept]] = [
    *((TopicProperties, name, kept) for name, kept in TOPIC_KEPT.items()),
    *((SubscriptionProperties, name, kept) for name, kept in SUBSCRIPTION_KEPT.items()),
]
BASE: dict[type[Described], PartitionSettings] = {
    TopicProperties: PartitionSettings(topic=True),
    SubscriptionProperties: PartitionSettings(shared=True),
}

both_kinds = pytest.mark.parametrize("kind", [TopicProperties, SubscriptionProperties])
every_kept_property = pytest.mark.parametrize(
    ("kind", "name", "kept"), ALL, ids=[f"{kind.kind}.{name}" for kind, name, _ in ALL]
)


def plain(kind: Kind) -> StoredEntity:
    return StoredEntity(settings=BASE[kind], properties={})


@pytest.mark.parametrize(
    ("kind", "defaults"), [(TopicProperties, TOPIC_DEFAULTS), (SubscriptionProperties, SUBSCRIPTION_DEFAULTS)]
)
def test_properties_that_were_not_given_have_their_defaults(kind: Kind, defaults: dict[str, Any]) -> None:
    found = kind("x")
    assert dict(found) == {"name": "x", **defaults}
    assert found.given == {}
    assert entity_created(kind, found.given, BASE[kind]) == plain(kind)
    assert entity_values(kind, plain(kind)) == defaults


@every_kept_property
def test_a_property_is_stored_in_the_expected_form_and_read_back(kind: Kind, name: str, kept: Kept) -> None:
    found = entity_created(kind, kind("x", **{name: kept.value}).given, BASE[kind])
    assert found.settings == PartitionSettings(
        **{"topic": BASE[kind].topic, "shared": BASE[kind].shared, **kept.settings}
    )
    assert json.loads(json.dumps(found.properties)) == kept.properties
    assert entity_values(kind, found) == {**entity_values(kind, plain(kind)), name: kept.value}


@every_kept_property
def test_a_property_set_to_none_gets_its_default_again(kind: Kind, name: str, kept: Kept) -> None:
    before = entity_created(kind, kind("x", **{name: kept.value}).given, BASE[kind])
    properties = kind("x")
    setattr(properties, name, None)
    if name in FIXED:
        with pytest.raises(ValueError, match=f"property of an existing {kind.kind} cannot be changed"):
            entity_revised(kind, properties.given, before)
    else:
        assert entity_revised(kind, properties.given, before) == plain(kind)


def test_every_property_is_stored() -> None:
    apart = {"enable_partitioning", "colocate_with", "availability_status"}
    assert set(TopicProperties.fields()) == {*TOPIC_KEPT, *apart}
    assert set(SubscriptionProperties.fields()) == {*SUBSCRIPTION_KEPT, "availability_status"}


@pytest.mark.parametrize(
    ("kind", "options", "create", "besides"),
    [
        (TopicProperties, TopicOptions, Admin.create_topic, {"topic_name"}),
        (
            SubscriptionProperties,
            SubscriptionOptions,
            Admin.create_subscription,
            {"topic_name", "subscription_name", "rules"},
        ),
    ],
)
def test_constructor_options_and_creation_method_accept_the_same_properties(
    kind: Kind, options: Any, create: Any, besides: set[str]
) -> None:
    by_class = set(kind.fields())
    assert set(inspect.signature(kind).parameters) == {"name", *by_class}
    assert set(get_type_hints(options)) == by_class - {"availability_status"}
    assert set(inspect.signature(create).parameters) == {
        *("self", "timeout"),
        *besides,
        *(by_class - {"availability_status"}),
    }


@both_kinds
def test_properties_can_be_copied_compared_and_pickled(kind: Kind) -> None:
    found = kind("x", user_metadata="ours", default_message_time_to_live="PT30S")
    for twin in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):  # noqa: S301 -- our own
        assert twin == found
        twin.user_metadata = "theirs"
        assert twin != found
    assert found != kind("y", **found.given)  # type: ignore[arg-type]  # as it was given
    assert TopicProperties("x") != SubscriptionProperties("x")


@both_kinds
def test_properties_can_be_used_like_a_mapping(kind: Kind) -> None:
    found = kind("x")
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
