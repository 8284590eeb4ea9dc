"""Tests of topics and subscriptions for an administrator, beside what is the same for queues (test_entities.py).

A refused call changes nothing.
"""

# Made by tools/make_sync from tests/management/test_subscriptions.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import pytest

from sbredis.management import (
    CorrelationRuleFilter,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
    SubscriptionProperties,
)

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


Admin = ServiceBusAdministrationClient


@pytest.fixture
def admin(admin: Admin) -> Admin:
    """The client, with a topic."""
    admin.create_topic("News")
    return admin


def rules(admin: Admin, subscription: str) -> list[str]:
    return [rule.name for rule in admin.list_rules("news", subscription)]


# -- creating and finding ----------------------------------------------------------------------------------------------


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
