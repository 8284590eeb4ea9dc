"""Tests of rules for an administrator: creating, finding, changing, listing and deleting them.

A refused call changes nothing.
"""

# Made by tools/make_sync from tests/management/test_rules.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from sbredis.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient

VALUES: dict[str, Any] = {
    "@text": "é",
    "@whole": 2**63 - 1,
    "@part": 0.1,
    "@flag": True,
    "@bytes": b"\x00\xff",
    "@time": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "@span": timedelta(days=3, microseconds=1),
    "@id": UUID(int=7),
}


@pytest.fixture
def admin(admin: Admin) -> Admin:
    """The client, with a topic that has a subscription without rules."""
    admin.create_topic("News")
    admin.create_subscription("news", "All", rules=[])
    return admin


# -- creating and finding ----------------------------------------------------------------------------------------------


def test_an_action_with_values_of_every_type_is_read_back_as_given(admin: Admin) -> None:
    text = "SET a = @text; SET b = @whole; SET c = @part; SET d = @flag; SET e = @time; SET sys.TimeToLive = @span"
    action = SqlRuleAction(f"{text}; SET g = @id; REMOVE h", VALUES)
    admin.create_rule("news", "all", "red", action=action)
    found = admin.get_rule("news", "all", "red")
    assert (found.filter, found.action) == (TrueRuleFilter(), action)
    assert found.action is not None
    assert found.action.parameters is not None
    assert {name: type(value) for name, value in found.action.parameters.items()} == {
        name: type(value) for name, value in VALUES.items()
    }


def test_a_rule_without_a_filter_matches_every_message(admin: Admin) -> None:
    assert (admin.create_rule("news", "all", "one")).filter == TrueRuleFilter()
    assert (admin.create_rule("news", "all", "two", filter=None)).filter == TrueRuleFilter()  # type: ignore[arg-type]


def test_the_default_rule_can_be_deleted_and_recreated(admin: Admin) -> None:
    admin.create_rule("news", "all", "$Default")
    admin.delete_rule("news", "all", "$DEFAULT")
    assert not admin.rule_exists("news", "all", "$default")
    assert (admin.create_rule("news", "all", "$Default", filter=FalseRuleFilter())).name == "$Default"


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def rule(admin: Admin) -> RuleProperties:
    """A rule that is called ``r``."""
    return admin.create_rule("news", "all", "r", filter=SqlRuleFilter("a = 1"))


# -- changing ----------------------------------------------------------------------------------------------------------


def test_a_changed_rule_keeps_its_creation_time(admin: Admin) -> None:
    rule = admin.create_rule("news", "all", "Red", action=SqlRuleAction("SET a = 1"))
    rule.filter = CorrelationRuleFilter(label="red")
    admin.update_rule("news", "all", rule)
    assert admin.get_rule("news", "all", "red") == rule
    rule.action = None
    admin.update_rule("news", "all", rule)
    assert admin.get_rule("news", "all", "red") == rule


@pytest.mark.slow
def test_an_update_leaves_other_properties_unchanged(admin: Admin) -> None:
    one, other = SqlRuleFilter("a = 1"), SqlRuleFilter("a = @b", {"@b": 2})
    action = SqlRuleAction("SET a = 1")
    admin.create_rule("news", "all", "r", filter=one, action=action)

    def now() -> tuple[Any, Any]:
        rule = admin.get_rule("news", "all", "r")
        return rule.filter, rule.action

    admin.update_rule("news", "all", {"name": "R", "filter": other})
    assert now() == (other, action)
    admin.update_rule("news", "all", RuleProperties("r"), action=None)
    assert now() == (other, None)
    admin.update_rule("news", "all", {"name": "r"}, action=action)
    assert now() == (other, action)
    admin.update_rule("news", "all", RuleProperties("r", filter=one, action=None, created_at_utc=None))
    assert now() == (one, None)
    admin.update_rule("news", "all", admin.get_rule("news", "all", "r"), filter=FalseRuleFilter())
    assert now() == (FalseRuleFilter(), None)
    admin.update_rule("news", "all", {**dict(admin.get_rule("news", "all", "r")), "filter": None})
    assert now() == (TrueRuleFilter(), None)


@pytest.mark.slow
def test_rules_with_the_same_name_in_two_subscriptions_are_independent(admin: Admin) -> None:
    admin.create_subscription("news", "other", rules=[RuleProperties("r")])
    admin.create_rule("news", "all", "r")
    admin.update_rule("news", "all", {"name": "r"}, filter=FalseRuleFilter())
    assert (admin.get_rule("news", "other", "r")).filter == TrueRuleFilter()
    admin.delete_rule("news", "all", "r")
    assert admin.rule_exists("news", "other", "r")


# -- listing -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@in_memory
def test_all_rules_are_listed_even_if_they_do_not_fit_into_one_answer(admin: Admin) -> None:
    large = {"a": "x" * 60_000}
    names = [f"r{number:02}" for number in range(40)]
    for name in names:
        admin.create_rule("news", "all", name, filter=CorrelationRuleFilter(label=name, properties=large))
    assert [rule.name for rule in admin.list_rules("news", "all")] == names
