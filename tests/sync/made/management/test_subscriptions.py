"""Tests of subscriptions for an administrator: creating, finding, changing, listing and deleting them.

A refused call changes nothing.
"""

# Made by tools/make_sync from tests/management/test_subscriptions.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import pytest

from sbredis.management import (
    CorrelationRuleFilter,
    EntityStatus,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
    SubscriptionProperties,
    TrueRuleFilter,
)

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient


@pytest.fixture
def admin(admin: Admin) -> Admin:
    """The client, with a topic."""
    admin.create_topic("News")
    return admin


def rules(admin: Admin, subscription: str) -> list[str]:
    return [rule.name for rule in admin.list_rules("news", subscription)]


# -- creating and finding ----------------------------------------------------------------------------------------------


def test_a_new_subscription_has_azures_defaults_and_a_rule_that_matches_every_message(admin: Admin) -> None:
    created = admin.create_subscription("news", "All")
    assert created == SubscriptionProperties("All")
    assert admin.get_subscription("NEWS", "all") == created
    assert [each for each in admin.list_subscriptions("news")] == [created]
    (rule,) = [rule for rule in admin.list_rules("news", "all")]
    assert (rule.name, rule.filter, rule.action) == ("$Default", TrueRuleFilter(), None)


def test_a_subscription_may_be_created_with_other_rules(admin: Admin) -> None:
    """Then no ``$Default`` rule exists that could take messages before a program deletes it."""
    given = [
        RuleProperties("red", filter=CorrelationRuleFilter(label="red")),
        RuleProperties("blue", filter=SqlRuleFilter("colour = 'blue'")),
    ]
    admin.create_subscription("news", "some", rules=given)
    assert rules(admin, "some") == ["blue", "red"]
    assert (admin.get_rule("news", "some", "red")).filter == given[0].filter
    admin.create_subscription("news", "none", rules=[])
    assert rules(admin, "none") == []
    admin.ensure_subscription("news", "ensured", rules=given)
    admin.ensure_subscription("news", "ensured")
    assert rules(admin, "ensured") == ["blue", "red"]


def test_topics_may_have_subscriptions_with_the_same_name(admin: Admin) -> None:
    admin.create_topic("other")
    admin.create_subscription("news", "s", max_delivery_count=3)
    admin.create_subscription("other", "s", max_delivery_count=4)
    admin.update_subscription("other", {"name": "s"}, user_metadata="ours")
    assert admin.get_subscription("news", "s") == SubscriptionProperties("s", max_delivery_count=3)
    admin.delete_subscription("news", "s")
    assert (admin.get_subscription("other", "s")).max_delivery_count == 4


# -- listing and deleting ----------------------------------------------------------------------------------------------


@in_memory
def test_a_disabled_subscription_is_shown_with_the_status_disabled(admin: Admin) -> None:
    found = admin.create_subscription("news", "s", status=EntityStatus.RECEIVE_DISABLED)
    assert found.status is EntityStatus.RECEIVE_DISABLED
    admin.update_subscription("news", found, status="Active")
    assert (admin.get_subscription("news", "s")).status is EntityStatus.ACTIVE
