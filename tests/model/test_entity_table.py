"""Tests that each property of an entity is declared once, and that its type annotation agrees with the declaration."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any, get_type_hints

import pytest

from sbredis.aio import management as aio_management
from sbredis.engine import PartitionSettings
from sbredis.management import (
    AuthorizationRule,
    QueueOptions,
    QueueProperties,
    ServiceBusAdministrationClient,
    SubscriptionOptions,
    SubscriptionProperties,
    TopicOptions,
    TopicProperties,
)
from sbredis.model import Choice, Described, Duration, Field, Flag, ListOf, Whole, WholeOrNone
from sbredis.model._entity_properties import AnyEntity, OnlySubscription, OnlyTopic, ReceivedFrom, SentTo
from sbredis.model._fields import Text

TABLE = (AnyEntity, ReceivedFrom, SentTo, OnlyTopic, OnlySubscription)
KINDS: dict[type[Described], tuple[Any, str]] = {
    QueueProperties: (QueueOptions, "create_queue"),
    TopicProperties: (TopicOptions, "create_topic"),
    SubscriptionProperties: (SubscriptionOptions, "create_subscription"),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def taken(field: Field[Any, Any]) -> Any:
    """Return the type of the values that a property accepts according to its declaration."""
    match field:
        case Flag():
            return bool
        case Whole() | WholeOrNone():
            return int
        case Duration():
            return timedelta | str
        case Text():
            return str
        case Choice():
            return type(field.default) | str
        case ListOf():
            return Sequence[AuthorizationRule]
        case _:
            raise AssertionError(f"{type(field).__name__} is a type of property that this test does not know")


def test_each_property_is_declared_once() -> None:
    names = [name for group in TABLE for name in group.fields()]
    assert sorted(names) == sorted(set(names))
    for kind in KINDS:
        assert {field.declared_in for field in kind.fields().values()} <= set(TABLE)
        assert not [name for name in kind.__annotations__ if name in kind.fields()]
    assert set(names) == {name for kind in KINDS for name in kind.fields()}


@each_kind
def test_the_options_name_each_property_that_can_be_set_with_its_declared_type(kind: type[Described]) -> None:
    options, _ = KINDS[kind]
    declared = {name: taken(field) | None for name, field in kind.fields().items() if not field.read_only}
    assert get_type_hints(options) == declared


@each_kind
@pytest.mark.parametrize(
    "client", [ServiceBusAdministrationClient, aio_management.ServiceBusAdministrationClient], ids=["sync", "aio"]
)
def test_the_creation_method_has_a_keyword_for_each_property(kind: type[Described], client: type[Any]) -> None:
    options, name = KINDS[kind]
    shown = inspect.signature(getattr(client, name)).parameters
    for keyword in get_type_hints(options):
        assert (shown[keyword].kind, shown[keyword].default) == (inspect.Parameter.KEYWORD_ONLY, None)
    assert not [each for each in shown.values() if each.kind is each.VAR_KEYWORD]
    assert shown["timeout"].annotation == "float | None"
    assert shown["user_metadata"].annotation == "str | None"


@each_kind
def test_a_property_stored_in_partitions_has_a_setting_with_an_equivalent_default(kind: type[Described]) -> None:
    defaults = {each.name: each.default for each in fields(PartitionSettings)}
    for name, field in kind.fields().items():
        if field.setting is not None:
            assert field.setting in defaults
            stored = defaults[field.setting]
            assert stored is None or field.kept(stored) == field.default, name


@each_kind
def test_a_property_with_a_flag_has_a_setting_that_is_false_by_default(kind: type[Described]) -> None:
    defaults = {each.name: each.default for each in fields(PartitionSettings)}
    flags = [field.flag for field in kind.fields().values() if field.flag is not None]
    assert [defaults[flag] for flag in flags] == [False] * len(flags)
    assert len(set(flags)) == len(flags)
    assert not [field.name for field in kind.fields().values() if field.flag is not None and field.setting is not None]


def test_a_property_refers_to_its_kind_of_entity_and_to_the_class_that_declares_it() -> None:
    of_queue, of_topic = QueueProperties.fields()["status"], TopicProperties.fields()["status"]
    assert (of_queue.owner, of_topic.owner) == (QueueProperties, TopicProperties)
    assert of_queue.declared_in is of_topic.declared_in is AnyEntity
    assert isinstance(of_queue, Choice)
    assert isinstance(of_topic, Choice)
    assert {str(each.value) for each in set(of_queue.settable) - set(of_topic.settable)} == {"ReceiveDisabled"}


@each_kind
def test_an_unknown_property_raises_the_same_error_as_an_unknown_keyword(kind: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"^{kind.__name__}\.__init__\(\) got an unexpected keyword argument 'colour'$"
    ):
        kind("x", colour="red")
    with pytest.raises(TypeError, match=r"'user_meta_data' \(did you mean 'user_metadata'\?\)$"):
        kind("x", user_meta_data="red")
