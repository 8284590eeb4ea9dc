"""Tests that the compiled and indexed rules agree with the plain walk over the tree, for every rule and message."""

from __future__ import annotations

from dataclasses import is_dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from sbredis.rules import MessageView, Rule, RuleBook, SqlFilter, check_filter
from sbredis.rules._like import PatternError, matcher
from sbredis.rules._parser import RuleParser
from tests.rules.drawing import (
    PARAMETERS,
    action_as_text,
    as_text,
    messages,
    predicates,
    related_topics,
    sql_filters,
    statements,
    topics,
)
from tests.rules.reference import Failure, judged, like, pattern_of

pytestmark = pytest.mark.slow

THOROUGH = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def outcomes(
    subscriptions: list[tuple[list[Rule], bool]], system: Any, user: Any
) -> list[tuple[int, str | None, bool]]:
    copies = RuleBook(subscriptions).judge(MessageView(system, user))
    return [(copy.subscription, copy.rule, copy.error is not None) for copy in copies]


@THOROUGH
@given(sql_filters, messages)
@example(SqlFilter("flag = 1"), ({}, {"flag": True}))
@example(SqlFilter("flag = TRUE AND Price = 1.0"), ({}, {"flag": 1, "price": 1}))
@example(SqlFilter("color = 'red' AND 1 / 0 = 1"), ({}, {}))
@example(SqlFilter("1 / 0 = 1 AND color = 'red'"), ({}, {}))
@example(SqlFilter("NOT (color = 'red' AND 1 / 0 = 1)"), ({}, {}))
@example(SqlFilter("sys.Nonsense = 1 AND color = 'red'"), ({}, {}))
@example(SqlFilter("NOT price = price % 1"), ({}, {"Price": Decimal("1E+400")}))
@example(SqlFilter("price % 7 = 4"), ({}, {"price": Decimal("1E+40")}))
@example(SqlFilter("price % 0.3 = -0.1"), ({}, {"price": Decimal("-1E+40")}))
@example(SqlFilter("price % 7 = price"), ({}, {"price": Decimal("1E-400")}))
@example(SqlFilter("color = 'red' AND color = 'Red'"), ({}, {"color": "Red"}))
def test_generated_filters_agree_with_the_reference(
    given_filter: SqlFilter, message: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    subscriptions = [([Rule("one", given_filter)], True)]
    assert outcomes(subscriptions, *message) == judged(subscriptions, *message)


@THOROUGH
@given(topics(), st.lists(messages, min_size=1, max_size=3))
def test_generated_topics_agree_with_the_reference(
    subscriptions: list[tuple[list[Rule], bool]], sent: list[tuple[Any, Any]]
) -> None:
    for system, user in sent:
        assert outcomes(subscriptions, system, user) == judged(subscriptions, system, user)


@pytest.mark.long("each example has many rules")
@settings(THOROUGH, max_examples=200)
@given(related_topics(), st.lists(messages, min_size=1, max_size=3))
def test_generated_rules_with_shared_conditions_agree_with_the_reference(
    subscriptions: list[tuple[list[Rule], bool]], sent: list[tuple[Any, Any]]
) -> None:
    """Each rule has the same result as if it were alone. If a rule fails, the error text names that rule, and the
    position in that rule's text.
    """
    book = RuleBook(subscriptions)
    for system, user in sent:
        facts = MessageView(system, user)
        assert outcomes(subscriptions, system, user) == judged(subscriptions, system, user)
        errors = [copy.error for copy in book.judge(facts) if copy.error is not None]
        alone = [
            copy.error
            for rules, dead_letters in subscriptions
            for rule in rules
            for copy in RuleBook([([rule], dead_letters)]).judge(facts)
            if copy.error is not None
        ]
        assert errors == alone


def anywhere(node: Any) -> Any:
    """Return a tree without the positions of its nodes."""
    if isinstance(node, tuple | list):
        return [anywhere(part) for part in node]
    if is_dataclass(node):
        slots = [(name, getattr(node, name)) for name in node.__dataclass_fields__ if name != "at"]
        return type(node).__name__, [(name, anywhere(part)) for name, part in slots]
    return node


@THOROUGH
@given(predicates.map(as_text).filter(lambda text: len(text) <= 1024))
def test_a_filter_that_is_read_and_written_again_is_the_same(text: str) -> None:
    tree = RuleParser(text).filter()
    assert anywhere(RuleParser(as_text(tree)).filter()) == anywhere(tree)
    check_filter(SqlFilter(text, PARAMETERS))


@settings(max_examples=150, deadline=None)
@given(statements)
def test_an_action_that_is_read_and_written_again_is_the_same(action: list[Any]) -> None:
    tree = RuleParser(action_as_text(action)).action()
    assert [type(one) for one in tree] == [type(one) for one in action]
    assert [one.target.name for one in tree] == [one.target.name for one in action]
    assert anywhere([*RuleParser(action_as_text(tree)).action()]) == anywhere(tree)


@settings(max_examples=600, deadline=None)
@given(st.text("ab%_\\\n", max_size=12), st.text("ab%_\\", max_size=8), st.sampled_from([None, "\\", "a", "%"]))
def test_generated_like_patterns_agree_with_the_reference(text: str, pattern: str, escape: str | None) -> None:
    try:
        wanted = like(text, pattern_of(pattern, escape))
    except Failure:
        try:
            matcher(pattern, escape)
        except PatternError:
            return
        raise AssertionError(pattern) from None
    assert matcher(pattern, escape)(text) is wanted


@settings(max_examples=300, deadline=None)
@given(st.text("aA1.'\"[]@()=<>!+-*/%,; \n_ANDORNOTIS", max_size=40))
def test_any_text_is_parsed_or_refused_at_a_position_in_it(text: str) -> None:
    try:
        check_filter(SqlFilter(text))
    except ValueError as error:
        line, column = getattr(error, "line", 0), getattr(error, "column", 0)
        lines = text.split("\n")
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1
    else:
        assume(text)
