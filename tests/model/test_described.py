"""Tests of the properties of an entity as a value: iterating over them, copying them, and their repr."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest

from sbredis.management import (
    AuthorizationRule,
    QueueProperties,
    RuleProperties,
    SqlRuleFilter,
    SubscriptionProperties,
    TopicProperties,
)

MADE = [QueueProperties("e"), TopicProperties("e"), SubscriptionProperties("e"), RuleProperties("e")]


@pytest.mark.parametrize("made", MADE)
def test_iterating_over_properties_yields_their_names(
    made: QueueProperties | TopicProperties | SubscriptionProperties | RuleProperties,
) -> None:
    assert list(made) == made.keys() == ["name", *made.fields()]
    assert {name: made[name] for name in made} == dict(made) == {**made}
    assert list(zip(made, made.values(), strict=True)) == made.items()
    assert len(list(made)) == len(made)
    assert all(name in made for name in made)


def test_a_copy_shares_no_mutable_value() -> None:
    for queue in (QueueProperties("q"), QueueProperties("q", authorization_rules=[AuthorizationRule(key_name="old")])):
        before = len(queue.authorization_rules)
        twin = copy.copy(queue)
        assert twin == queue
        twin.authorization_rules.append(AuthorizationRule(key_name="new"))
        assert (len(queue.authorization_rules), len(twin.authorization_rules)) == (before, before + 1)
        queue.authorization_rules.clear()
        assert len(twin.authorization_rules) == before + 1
    rule = RuleProperties("r", filter=SqlRuleFilter("a = 1"))
    other = copy.copy(rule)
    assert isinstance(other.filter, SqlRuleFilter)
    other.filter.sql_expression = "a = 2"
    assert rule.filter == SqlRuleFilter("a = 1")


def test_a_duration_without_limit_has_a_short_repr() -> None:
    queue = QueueProperties("q", lock_duration="PT30S", default_message_time_to_live=timedelta.max)
    assert "lock_duration=datetime.timedelta(seconds=30), " in repr(queue)
    assert "default_message_time_to_live=datetime.timedelta.max, " in repr(queue)
    assert "999999999" not in repr(queue)
