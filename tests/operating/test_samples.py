"""The rates that two samples of an entity tell."""

from __future__ import annotations

import pytest

from sbredis.model import RuleProperties, SqlRuleAction, SqlRuleFilter, TrueRuleFilter
from sbredis.operating import Sight, gets_all
from tests.operating.samples import sample


def test_rates_come_from_two_samples_of_the_same_entity() -> None:
    first = Sight(sample("q", 1, active=10, arrived=100))
    assert (first.incoming, first.outgoing, first.rates_are_least) == (None, None, False)
    second = first.then(sample("q", 3, active=4, arrived=120))
    assert (second.incoming, second.outgoing) == (10.0, 13.0)
    assert second.then(sample("q", 4, active=9, arrived=5)).incoming is None, "the entity was made again"
    assert second.then(sample("q", 4, arrived=200, unavailable=1)).incoming is None


RATES = {
    "more messages": ({"active": 10}, {"active": 16}, (3, 0)),
    "fewer messages": ({"active": 16}, {"active": 10}, (0, 3)),
    "dead letters": ({"active": 16}, {"active": 10, "dead": 8}, (1, 4)),
    "a redrive": ({"dead": 8}, {"active": 8}, (0, 0)),
}


@pytest.mark.parametrize(("before", "after", "rates"), RATES.values(), ids=RATES)
def test_without_a_count_of_arrivals_the_rates_are_the_least_that_explains_the_change(
    before: dict[str, int], after: dict[str, int], rates: tuple[int, int]
) -> None:
    sight = Sight(sample("q", 1, **before)).then(sample("q", 3, **after))
    assert (sight.incoming, sight.outgoing, sight.rates_are_least) == (*rates, True)


EVERY, SOME, CHANGE = TrueRuleFilter(), SqlRuleFilter("x = 1"), SqlRuleAction("SET x = 2")
RULES = {
    "the default": ([RuleProperties("$Default")], True),
    "true with an action": ([RuleProperties("a", filter=EVERY, action=CHANGE)], True),
    "true and a filter": ([RuleProperties("a", filter=EVERY), RuleProperties("b", filter=SOME)], True),
    "a filter": ([RuleProperties("a", filter=SOME)], False),
    "no rule": ([], False),
    "a second copy": ([RuleProperties("a"), RuleProperties("b", filter=SOME, action=CHANGE)], False),
}


@pytest.mark.parametrize(("rules", "expected"), RULES.values(), ids=RULES)
def test_some_rules_give_a_subscription_each_message_once(rules: list[RuleProperties], expected: bool) -> None:
    assert gets_all(rules) is expected
