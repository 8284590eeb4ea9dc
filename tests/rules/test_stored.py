"""Tests of rules as JSON: they keep every detail, and unknown content is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    rule_from_json,
    rule_to_json,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CONSTANTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20),
    st.binary(max_size=20),
    st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0)),
    st.timedeltas(),
    st.uuids(),
)
PARAMETERS = st.dictionaries(st.sampled_from(["a", "@b", "C"]), CONSTANTS)
FILTERS = st.one_of(
    st.just(TrueFilter()),
    st.just(FalseFilter()),
    st.builds(SqlFilter, st.just("a = 1"), PARAMETERS),
    st.builds(
        CorrelationFilter,
        *[st.none() | TEXT] * 8,
        properties=st.dictionaries(
            st.sampled_from(["x", "Y z"]), CONSTANTS.filter(lambda value: value is not None), min_size=1
        ),
    ),
)
RULES = st.builds(Rule, TEXT, FILTERS, st.none() | st.builds(SqlAction, st.just("SET a = 1"), PARAMETERS))


def typed(value: Any) -> Any:
    """Return a value with its type and its sign, which equality alone ignores."""
    if isinstance(value, SqlFilter | SqlAction):
        return {name: (type(one), repr(one)) for name, one in value.parameters.items()}
    if isinstance(value, CorrelationFilter):
        return {name: (type(one), repr(one)) for name, one in value.properties.items()}
    return None


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(RULES)
def test_a_rule_is_read_back_unchanged(rule: Rule) -> None:
    back = rule_from_json(json.loads(json.dumps(rule_to_json(rule))))
    assert back == rule
    assert (typed(back.filter), typed(back.action)) == (typed(rule.filter), typed(rule.action))


def test_the_stored_form_does_not_change() -> None:
    summer = timezone(timedelta(hours=2))
    rule = Rule(
        "r",
        SqlFilter(
            "a = 1",
            {
                "n": 7,
                "x": 1.5,
                "t": "x",
                "b": True,
                "none": None,
                "raw": b"\x00",
                "u": UUID(int=7),
                "d": datetime(2024, 5, 1, 14, tzinfo=summer),
                "s": timedelta(seconds=1),
            },
        ),
        SqlAction("SET a = 1"),
    )
    assert rule_to_json(rule) == {
        "name": "r",
        "filter": {
            "kind": "sql",
            "text": "a = 1",
            "parameters": {
                "n": {"int": "7"},
                "x": {"float": "1.5"},
                "t": "x",
                "b": True,
                "none": None,
                "raw": {"bytes": "AA=="},
                "u": {"uuid": "00000000-0000-0000-0000-000000000007"},
                "d": {"time": "2024-05-01T12:00:00+00:00"},
                "s": {"span": "1000000"},
            },
        },
        "action": {"text": "SET a = 1"},
    }
    assert rule_to_json(Rule("r", CorrelationFilter(subject="x", properties={"n": 1}))) == {
        "name": "r",
        "filter": {"kind": "correlation", "subject": "x", "properties": {"n": {"int": "1"}}},
    }
    assert rule_to_json(Rule("r")) == {"name": "r", "filter": {"kind": "true"}}


def test_an_unreadable_stored_rule_is_still_listed() -> None:
    kept = {"name": "r", "filter": {"kind": "sql", "text": "a RESEMBLES b"}}
    assert rule_from_json(kept) == Rule("r", SqlFilter("a RESEMBLES b"))


@pytest.mark.parametrize(
    "rule",
    [
        Rule("r", SqlFilter("a =")),
        Rule("r", CorrelationFilter()),
        Rule("r", TrueFilter(), SqlAction("")),
        Rule("r", SqlFilter("a = 1", {"x": float("nan")})),
        Rule("r", SqlFilter("a = 1", {"x": [1]})),
        Rule(1),  # type: ignore[arg-type]
        Rule("r", None),  # type: ignore[arg-type]
    ],
)
def test_an_unusable_rule_cannot_be_written(rule: Rule) -> None:
    with pytest.raises((ValueError, TypeError)):
        rule_to_json(rule)


def parameter(value: Any) -> dict[str, Any]:
    return {"name": "r", "filter": {"kind": "sql", "text": "a = 1", "parameters": {"x": value}}}


@pytest.mark.parametrize(
    "mapping",
    [
        *({}, [], None, "rule", {"name": "r"}, {"filter": {"kind": "true"}}),
        {"name": 1, "filter": {"kind": "true"}},
        {"name": "r", "filter": {"kind": "true"}, "priority": 1},
        {"name": "r", "filter": None},
        {"name": "r", "filter": {}},
        {"name": "r", "filter": {"kind": "regex"}},
        {"name": "r", "filter": {"kind": ["sql"]}},
        {"name": "r", "filter": {"kind": "true", "text": "a = 1"}},
        {"name": "r", "filter": {"kind": "sql"}},
        {"name": "r", "filter": {"kind": "sql", "text": 1}},
        {"name": "r", "filter": {"kind": "sql", "text": "a = 1", "parameters": []}},
        {"name": "r", "filter": {"kind": "correlation", "label": "x"}},
        {"name": "r", "filter": {"kind": "correlation", "subject": 1}},
        {"name": "r", "filter": {"kind": "true"}, "action": None},
        {"name": "r", "filter": {"kind": "true"}, "action": {"text": None}},
        *map(parameter, [7, 1.5, [], {}, {"int": 7}, {"int": "x"}, {"int": "1", "float": "1"}, {"complex": "1"}]),
        *map(parameter, [{"float": "nan"}, {"float": "x"}, {"bytes": "?"}, {"uuid": "x"}, {"span": "9" * 30}]),
        *map(parameter, [{"decimal": "x"}, {"decimal": "NaN"}, {"decimal": "9" * 35}, {"decimal": "1E+7000"}]),
        *map(parameter, [{"time": "noon"}, {"time": "2024-05-01T12:00:00"}, {"int": "9" * 5000}]),
    ],
)
def test_an_unknown_stored_form_is_refused(mapping: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        rule_from_json(mapping)
