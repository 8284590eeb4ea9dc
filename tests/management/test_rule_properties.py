"""Tests of rules, filters and actions as values: their defaults, their text, and the values that are refused."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from sbredis.exceptions import Outcome, RuleSyntaxError
from sbredis.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    MessageCountDetails,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from sbredis.model import RuleFilter, rule_created, rule_revised, rule_shown
from sbredis.rules import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter, TrueFilter

NOTHING_KEPT: Any = object()
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
VALUES: dict[str, Any] = {
    "@text": "a",
    "@whole": 7,
    "@part": 0.5,
    "@flag": True,
    "@time": NOON,
    "@span": timedelta(minutes=3),
    "@id": UUID(int=1),
}
FILTERS: list[tuple[RuleFilter, Any]] = [
    (TrueRuleFilter(), TrueFilter()),
    (FalseRuleFilter(), FalseFilter()),
    (SqlRuleFilter("colour = 'red'"), SqlFilter("colour = 'red'", {})),
    (SqlRuleFilter("price > @whole", VALUES), SqlFilter("price > @whole", VALUES)),
    (CorrelationRuleFilter(label="red"), CorrelationFilter(subject="red")),
    (
        CorrelationRuleFilter(
            correlation_id="a",
            message_id="b",
            to="c",
            reply_to="d",
            label="e",
            session_id="f",
            reply_to_session_id="g",
            content_type="h",
            properties={"colour": "red", "price": 7},
        ),
        CorrelationFilter("a", "b", "c", "d", "e", "f", "g", "h", {"colour": "red", "price": 7}),
    ),
]
every_filter = pytest.mark.parametrize(("given", "meant"), FILTERS, ids=lambda each: type(each).__name__)


@every_filter
def test_a_filter_is_stored_and_read_back(given: RuleFilter, meant: Any) -> None:
    rule = rule_created(RuleProperties("r", filter=given))
    assert rule == Rule("r", meant, None)
    shown = rule_shown(rule, NOON)
    assert shown == RuleProperties("r", filter=given, action=None, created_at_utc=NOON)
    assert type(shown.filter) is type(given)


@every_filter
def test_filters_are_compared_by_value(given: RuleFilter, meant: Any) -> None:
    del meant
    others: list[Any] = [each for each, _ in FILTERS if each is not given]
    for twin in (copy.copy(given), copy.deepcopy(given), pickle.loads(pickle.dumps(given))):  # noqa: S301 -- our own
        assert twin == given
        assert repr(twin) == repr(given)
    assert all(given != other for other in others)
    assert given != "1=1"
    with pytest.raises(TypeError, match="unhashable"):
        hash(given)


def test_filters_and_actions_have_a_useful_repr() -> None:
    assert repr(TrueRuleFilter()) == "TrueRuleFilter()"
    assert repr(SqlRuleFilter("a = @b", {"@b": 1})) == "SqlRuleFilter(sql_expression='a = @b', parameters={'@b': 1})"
    assert repr(CorrelationRuleFilter(label="red")) == "CorrelationRuleFilter(label='red')"
    assert repr(SqlRuleAction("SET a = 1")) == "SqlRuleAction(sql_expression='SET a = 1')"


def test_parameters_default_to_none_and_are_read_back_as_an_empty_mapping() -> None:
    """As in Azure, a program can iterate over properties that were read without checking for None."""
    assert (SqlRuleFilter("a = 1").parameters, CorrelationRuleFilter(label="x").properties) == (None, None)
    shown = rule_shown(Rule("r", SqlFilter("a = 1"), SqlAction("SET a = 1")))
    assert isinstance(shown.filter, SqlRuleFilter)
    assert shown.action is not None
    assert (shown.filter.parameters, shown.action.parameters) == ({}, {})
    assert (shown.filter, shown.action) == (SqlRuleFilter("a = 1"), SqlRuleAction("SET a = 1"))
    assert (TrueRuleFilter().sql_expression, FalseRuleFilter().sql_expression) == ("1=1", "1>1")


def test_a_default_rule_matches_all_and_has_no_action() -> None:
    rule = RuleProperties("r")
    assert dict(rule) == {"name": "r", "filter": TrueRuleFilter(), "action": None, "created_at_utc": None}
    assert rule.given == {}
    assert rule_created(rule) == Rule("r")


def test_changing_the_filter_of_a_default_rule_does_not_change_other_default_rules() -> None:
    found = RuleProperties("r").filter
    assert isinstance(found, SqlRuleFilter)
    found.sql_expression = "colour = 'red'"
    assert RuleProperties("r").filter == TrueRuleFilter()
    assert RuleProperties.filter.default == TrueRuleFilter()


def test_an_update_keeps_properties_that_were_not_given_and_resets_those_set_to_none() -> None:
    before = Rule("r", SqlFilter("colour = 'red'"), SqlAction("SET a = 1"))
    assert rule_revised(RuleProperties("r").given, before) == before
    other = rule_revised(RuleProperties("r", filter=FalseRuleFilter()).given, before)
    assert other == Rule("r", FalseFilter(), SqlAction("SET a = 1"))
    assert rule_revised(RuleProperties("r", action=None).given, before) == Rule("r", SqlFilter("colour = 'red'"), None)
    assert rule_revised(RuleProperties("r", filter=None, action=None).given, before) == Rule("r")
    assert rule_revised(rule_shown(before).given, before) == before


def test_a_change_made_in_the_filter_object_of_a_rule_is_stored() -> None:
    rule = RuleProperties("r", filter=SqlRuleFilter("a = 1"))
    assert isinstance(rule.filter, SqlRuleFilter)
    rule.filter.sql_expression = "a = 2"
    assert rule_created(rule).filter == SqlFilter("a = 2")


@pytest.mark.parametrize(
    ("filter_", "action", "error", "text"),
    [
        (SqlRuleFilter("colour = "), None, RuleSyntaxError, "line 1, column 10"),
        (SqlRuleFilter("a = @b"), None, RuleSyntaxError, "parameter @b has no value"),
        (SqlRuleFilter("a = 1 " + " " * 1024), None, ValueError, "may have 1,024 characters"),
        (SqlRuleFilter(), None, TypeError, "must be str, not NoneType"),
        (SqlRuleFilter("a = @b", {"@b": NOTHING_KEPT}), None, TypeError, "parameter @b must be str, int"),
        (SqlRuleFilter("a = @b", {"@b": datetime(2026, 1, 1)}), None, ValueError, "no time zone"),  # noqa: DTZ001
        (SqlRuleFilter("a = @b", ["b"]), None, TypeError, "must be a mapping, not list"),  # type: ignore[arg-type]
        (CorrelationRuleFilter(), None, ValueError, "needs at least one property"),
        (CorrelationRuleFilter(label=5), None, TypeError, "^label or subject of .* must be str or None, not int"),  # type: ignore[arg-type]
        (CorrelationRuleFilter(properties={"a": None}), None, TypeError, "cannot be None"),  # type: ignore[dict-item]
        (TrueRuleFilter(), SqlRuleAction("colour = 'red'"), RuleSyntaxError, "line 1, column 1"),
        (TrueRuleFilter(), SqlRuleAction("SET a = 1;" * 33), ValueError, "may have 32 statements"),
    ],
)
def test_an_invalid_rule_is_refused_when_used(
    filter_: RuleFilter, action: SqlRuleAction | None, error: type[Exception], text: str
) -> None:
    rule = RuleProperties("r", filter=filter_, action=action)
    with pytest.raises(error, match=text):
        rule_created(rule)


def test_a_syntax_error_gives_its_position_and_the_expected_tokens() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        rule_created(RuleProperties("r", filter=SqlRuleFilter("a = 1\n  AND")))
    assert (caught.value.line, caught.value.column, caught.value.outcome) == (2, 6, Outcome.NEVER_SENT)
    assert caught.value.expected


def test_the_expression_of_a_true_or_false_filter_cannot_be_changed() -> None:
    for given in (TrueRuleFilter(), FalseRuleFilter()):
        given.sql_expression = "a = 1"
        with pytest.raises(ValueError, match="RuleFilter has a fixed expression: for 'a = 1' use an SqlRuleFilter"):
            rule_created(RuleProperties("r", filter=given))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("filter", "a = 1", "filter must be an SqlRuleFilter, .*, not str"),
        ("filter", SqlRuleAction("SET a = 1"), "filter must be an SqlRuleFilter, .*, not SqlRuleAction"),
        ("action", "SET a = 1", "action must be an SqlRuleAction, not str"),
        ("action", SqlRuleFilter("a = 1"), "action must be an SqlRuleAction, not SqlRuleFilter"),
        ("created_at_utc", "now", "created_at_utc must be a datetime, not str"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_when_given(name: str, value: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        RuleProperties("r", **{name: value})
    rule = RuleProperties("r")
    with pytest.raises(TypeError, match=text):
        setattr(rule, name, value)
    assert rule.given == {}


def test_a_rule_can_be_copied_compared_and_pickled() -> None:
    rule = RuleProperties("r", filter=SqlRuleFilter("a = @b", {"@b": 1}), action=SqlRuleAction("SET a = 1"))
    for twin in (copy.copy(rule), copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):  # noqa: S301 -- our own
        assert twin == rule
        twin.action = None
        assert twin != rule
    assert {**dict(rule)} == {"name": "r", "filter": rule.filter, "action": rule.action, "created_at_utc": None}


def test_the_count_details_behave_like_azures() -> None:
    assert MessageCountDetails(active_message_count=3) == MessageCountDetails(active_message_count=3)
    assert MessageCountDetails().dead_letter_message_count is None
