"""Judging by the rules of a topic: after every change the result is the same as with newly compiled rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.client._routing import Judge
from sbredis.engine import PartitionSettings
from sbredis.registry import JUDGING_PROPERTY, EntityRecord, RoutedSubscription, Routes
from sbredis.rules import MessageView, Rule, SqlAction, SqlFilter, TrueFilter

TOPIC = EntityRecord(
    name="t",
    kind="topic",
    state="active",
    partitions=(0,),
    settings=PartitionSettings(topic=True),
    id="1",
    incarnation="topic",
    version=1,
    stamp="stamp",
    created_at=0,
    updated_at=0,
)
RULES = [
    Rule("all", TrueFilter(), None),
    Rule("red", SqlFilter("color = 'red'"), None),
    Rule("dear", SqlFilter("price > 10"), SqlAction("SET dear = TRUE")),
    Rule("broken", SqlFilter("1 / price > 0"), None),
    Rule("unusable", SqlFilter("color RESEMBLES 'red'"), None),
]
MESSAGES = [
    MessageView({}, {"color": "red", "price": 20}),
    MessageView({}, {"color": "blue", "price": 0}),
    MessageView({"label": "x"}, {}),
]
states = st.dictionaries(
    st.integers(0, 60), st.tuples(st.lists(st.sampled_from(RULES), max_size=3, unique=True), st.booleans()), max_size=50
)


def routes_of(state: dict[int, tuple[list[Rule], bool]]) -> Routes:
    """Return the routes of numbered subscriptions. Different marks stand for different rules."""
    subscriptions: list[RoutedSubscription] = []
    for number, (rules, kept) in sorted(state.items()):
        properties: dict[str, Any] = {} if kept else {JUDGING_PROPERTY: False}
        record = replace(
            TOPIC,
            name=f"s{number}",
            kind="subscription",
            parent="t",
            store="1",
            settings=PartitionSettings(shared=True),
            incarnation=f"i{number}",
            properties=properties,
        )
        subscriptions.append(RoutedSubscription(record, tuple(rules), " ".join(rule.name for rule in rules)))
    return Routes(TOPIC, tuple(subscriptions))


def judged(judge: Judge) -> list[list[tuple[Any, ...]]]:
    """Judge the messages. Return their copies with the names of the subscriptions instead of their places."""
    found: list[list[tuple[Any, ...]]] = []
    for facts in MESSAGES:
        copies = judge.judge(facts)
        places = [copy.subscription for copy in copies]
        assert places == sorted(places)
        found.append([(judge.records[copy.subscription].name, *copy[1:]) for copy in copies])
    return [sorted(copies, key=repr) for copies in found]


@given(st.lists(states, min_size=1, max_size=6))
def test_a_changed_judge_decides_like_a_newly_compiled_one(history: list[Any]) -> None:
    judge = Judge(routes_of(history[0]))
    for state in history[1:]:
        routes = routes_of(state)
        before, then = judge, judged(judge)
        judge = judge.after(routes)
        assert judged(judge) == judged(Judge(routes))
        assert judged(before) == then  # the old judge still decides as it did before the change


@given(states, st.integers(0, 60), st.integers(0, 3))
def test_a_subscription_keeps_its_place_when_others_change(
    state: dict[int, tuple[list[Rule], bool]], number: int, rule: int
) -> None:
    first = Judge(routes_of(state))
    changed = {**state, number: ([RULES[rule]], True)}
    second = first.after(routes_of(changed))
    for place, record in enumerate(first.records):
        assert second.records[place].name == record.name


@pytest.mark.slow
def test_an_unusable_rule_is_logged_only_once_although_other_rules_change(caplog: pytest.LogCaptureFixture) -> None:
    """Another release may have stored the rule. The rule fails on each message, and the other rules still make their
    copies.
    """
    *_, unusable = RULES
    state: dict[int, tuple[list[Rule], bool]] = {1: ([unusable, RULES[0]], True), 2: ([RULES[1]], True)}
    judge = Judge(routes_of(state))
    for number in range(100):
        state[2] = ([RULES[number % 2]], True)
        state[3 + number] = ([unusable], False)  # so many changes that all rules are compiled again several times
        judge = judge.after(routes_of(state))
    for copies in judged(judge):
        ours = {copy[1]: copy[4] for copy in copies if copy[0] == "s1"}
        assert ours.keys() == {None, "unusable"}
        assert ours[None] is None
        assert str(ours["unusable"]).startswith(
            "The filter of rule 'unusable' failed: it cannot be used: line 1, column 7: "
        )
    logged = [record.getMessage() for record in caplog.records if record.name == "sbredis.rules"]
    assert len(logged) == 101
    assert len([text for text in logged if f"of {judge.routes.subscriptions[0].record.path} " in text]) == 1
