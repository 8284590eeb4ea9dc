"""Tests of the copies of a message that all rules of a topic make together."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from sbredis.rules import (
    CorrelationFilter,
    FalseFilter,
    JudgedCopy,
    MessageView,
    Rule,
    RuleBook,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from sbredis.rules._compile import Compiler

MARK = SqlAction("SET marked = TRUE")


def sql(name: str, text: str, action: SqlAction | None = None) -> Rule:
    return Rule(name, SqlFilter(text), action)


def shown(rules: list[Rule], user: dict[str, Any], *, dead_letters: bool = True) -> list[str]:
    """Return the copies for one subscription as text:

    ``plain`` for the plain copy, or the name of a rule with an action, or the name and ``!`` for a failed rule.
    """
    copies = RuleBook([(rules, dead_letters)]).judge(MessageView({}, user))
    return [(copy.rule or "plain") + ("!" if copy.error else "") for copy in copies]


def test_a_subscription_without_rules_gets_no_message() -> None:
    assert RuleBook([]).judge(MessageView({}, {})) == []
    assert RuleBook([([], True), ([Rule("all")], True)]).judge(MessageView({}, {})) == [JudgedCopy(1, None)]


def test_a_rule_without_a_filter_matches_every_message() -> None:
    assert Rule("$Default") == Rule("$Default", TrueFilter(), None)
    assert shown([Rule("none", FalseFilter())], {}) == []


def test_matching_rules_without_an_action_make_one_plain_copy_together() -> None:
    assert shown([sql("a", "n = 1"), sql("b", "n > 0"), Rule("c"), sql("d", "n = 2")], {"n": 1}) == ["plain"]


def test_each_matching_rule_with_an_action_makes_a_copy_of_its_own() -> None:
    """As in Azure's documentation, two rules with an action and three without make three messages."""
    rules = [sql("a", "n = 1", MARK), sql("b", "n = 1"), Rule("c"), sql("d", "n > 0", MARK), sql("e", "n = 1")]
    assert shown(rules, {"n": 1}) == ["a", "plain", "d"]


def test_a_plain_copy_has_no_changes() -> None:
    (copy,) = RuleBook([([Rule("all")], True)]).judge(MessageView({"label": "x"}, {"a": 1}))
    assert copy == JudgedCopy(subscription=0, rule=None, system={}, user=None, error=None)


def test_a_failing_filter_makes_a_dead_letter_and_other_rules_still_match() -> None:
    rules = [sql("a", "1 / n = 1"), sql("b", "n = 0"), sql("c", "sys.Nonsense = 1", MARK), sql("d", "n = 0", MARK)]
    assert shown(rules, {"n": 0}) == ["a!", "plain", "c!", "d"]
    assert shown(rules, {"n": 0}, dead_letters=False) == ["plain", "d"]


def test_a_rule_that_fails_after_the_plain_copy_is_reported() -> None:
    assert shown([Rule("a"), sql("b", "1 / n = 1")], {"n": 0}) == ["plain", "b!"]


def test_a_failing_action_is_reported() -> None:
    rules = [sql("a", "n = 0", SqlAction("SET x = 1 / n")), sql("b", "n = 0")]
    assert shown(rules, {"n": 0}) == ["a!", "plain"]
    assert shown(rules, {"n": 0}, dead_letters=False) == ["plain"]


def test_the_error_names_the_rule_and_the_reason() -> None:
    (copy,) = RuleBook([([sql("a", "1 / n = 1")], True)]).judge(MessageView({}, {"n": 0}))
    assert copy == JudgedCopy(0, "a", {}, None, "The filter of rule 'a' failed: division by zero (line 1, column 3).")


@pytest.mark.parametrize(
    ("given", "system", "user", "passes"),
    [
        (CorrelationFilter(subject="x"), {"label": "x"}, {}, True),
        (CorrelationFilter(subject="x"), {"subject": "x"}, {}, True),
        (CorrelationFilter(subject="x"), {"label": "X"}, {}, False),
        (CorrelationFilter(subject="x"), {}, {"label": "x"}, False),
        (CorrelationFilter(subject=""), {"label": ""}, {}, True),
        (CorrelationFilter(subject=""), {"label": None}, {}, False),
        (
            CorrelationFilter("1", "2", "3", "4", "5", "6", "7", "8"),
            {
                "correlationid": "1",
                "messageid": "2",
                "to": "3",
                "replyto": "4",
                "label": "5",
                "sessionid": "6",
                "replytosessionid": "7",
                "contenttype": "8",
            },
            {},
            True,
        ),
        (CorrelationFilter(to="t", message_id="m"), {"to": "t", "messageid": "n"}, {}, False),
        (CorrelationFilter(properties={"Color": "red"}), {}, {"cOLOR": "red"}, True),
        (CorrelationFilter(properties={"color": "red"}), {}, {"color": "Red"}, False),
        (CorrelationFilter(properties={"n": 1}), {}, {"n": 1.0}, True),
        (CorrelationFilter(properties={"n": 1}), {}, {"n": True}, False),
        (CorrelationFilter(properties={"n": True}), {}, {"n": 1}, False),
        (CorrelationFilter(properties={"n": True}), {}, {"n": True}, True),
        (CorrelationFilter(properties={"n": 1}), {}, {"n": "1"}, False),
        (CorrelationFilter(properties={"n": 1}), {}, {"n": [1]}, False),
        (CorrelationFilter(properties={"n": 1, "m": "x"}), {}, {"n": 1}, False),
        (CorrelationFilter(subject="x", properties={"n": 1}), {"label": "x"}, {"n": 1, "other": 2}, True),
    ],
)
def test_a_correlation_filter_compares_the_given_properties(
    given: CorrelationFilter, system: dict[str, Any], user: dict[str, Any], passes: bool
) -> None:
    assert bool(RuleBook([([Rule("r", given)], True)]).judge(MessageView(system, user))) is passes


def test_copies_are_in_the_order_of_the_subscriptions() -> None:
    rules = [sql("indexed", "n = 1", MARK), sql("asked", "n > 0", MARK), Rule("always", action=MARK)]
    rules.append(Rule("looked up", CorrelationFilter(properties={"n": 1}), MARK))
    turned = rules[::-1]
    copies = RuleBook([(rules, True), ([], True), (turned, False)]).judge(MessageView({}, {"n": 1}))
    assert [(copy.subscription, copy.rule) for copy in copies] == [
        *((0, rule.name) for rule in rules),
        *((2, rule.name) for rule in turned),
    ]


UNUSABLE = [
    (sql("r", "n ="), "The filter of rule 'r' failed: it cannot be used: line 1, column 4: found the end, expected "),
    (sql("r", "n = 1 AND " + "1 = 1 AND " * 120 + "1 = 1"), "it cannot be used: a filter may have 1,024 characters"),
    (sql("r", "n = '\ud800'"), "the text of a filter has half a surrogate pair as character 5"),
    (Rule("r", CorrelationFilter()), "it cannot be used: a correlation filter needs at least one property"),
    (Rule("r", "n = 1"), "it cannot be used: a filter must be a SqlFilter"),  # type: ignore[arg-type]
    (sql("r", "sys.Label = 'x' AND n = @p"), "parameter @p has no value."),
]


@pytest.mark.parametrize(("rule", "why"), UNUSABLE, ids=lambda given: given[:20] if isinstance(given, str) else "")
def test_an_unusable_filter_fails_on_every_message_and_other_rules_still_match(
    rule: Rule, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another release may have stored the filter. An unusable filter must not stop the topic."""
    with caplog.at_level(logging.ERROR, "sbredis.rules"):
        book = RuleBook([([rule], True), ([sql("a", "n = 1"), rule, Rule("b", action=MARK)], False)], ["t/s", "t/z"])
    assert [record.name for record in caplog.records] == ["sbredis.rules"] * 2
    assert "filter of rule 'r' of t/s cannot be used" in caplog.text
    for number in (1, 2):
        failed, *others = book.judge(MessageView({}, {"n": number}))
        assert (failed.subscription, failed.rule) == (0, "r")
        assert failed.error is not None
        assert why in failed.error
        assert "tracking" not in failed.error
        assert [copy.rule for copy in others] == [None, "b"][number - 1 :]
    assert len(caplog.records) == 2


def test_an_unusable_action_fails_on_matching_messages() -> None:
    rules = [sql("a", "n = 1", SqlAction("SET x")), sql("b", "n = 1"), Rule("c", FalseFilter(), SqlAction(""))]
    assert shown(rules, {"n": 1}) == ["a!", "plain"]
    assert shown(rules, {"n": 1}, dead_letters=False) == ["plain"]
    assert shown(rules, {"n": 2}) == []
    (failed, _) = RuleBook([(rules, True)]).judge(MessageView({}, {"n": 1}))
    assert str(failed.error).startswith("The action of rule 'a' failed: it cannot be used: line 1, column 6: found the")


def test_a_compiler_defect_in_one_rule_leaves_the_others_working(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_(self: Any, like: Any) -> Any:  # noqa: ARG001 -- in place of a method
        raise KeyError("odd")

    monkeypatch.setattr(Compiler, "_like", break_)
    rules = [sql("a", "n = 1 AND n LIKE 'x'"), sql("b", "n = 1"), sql("c", "NOT n LIKE 'x'", MARK)]
    assert shown(rules, {"n": 1}) == ["a!", "plain", "c!"]
    assert shown(rules, {"n": 2}) == ["a!", "c!"]


class Odd(str):
    """Text that raises an error when code reads it."""

    __slots__ = ()

    def lower(self) -> str:
        raise KeyError("odd")


def test_a_defect_in_one_rule_leaves_the_others_working_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    user: dict[str, Any] = {"n": 1, "odd": Odd("x")}
    rules = [sql("a", "p(odd) = 1"), Rule("b"), sql("c", "n = 1", SqlAction("SET x = p(odd)")), sql("d", "n = 1", MARK)]
    assert shown(rules, user) == ["a!", "plain", "c!", "d"]
    caplog.clear()
    rules.append(sql("e", "p(odd) = 1"))  # this rule shares the filter of the first rule
    book = RuleBook([(rules, True), (rules, False)], ["t/s", "t/z"])
    for _ in range(3):
        copies = book.judge(MessageView({}, user))
        assert [(copy.subscription, copy.rule, copy.error is not None) for copy in copies] == [
            *((0, "a", True), (0, None, False), (0, "c", True), (0, "d", False), (0, "e", True)),
            *((1, None, False), (1, "d", False)),
        ]
        assert copies[0].error == "The filter of rule 'a' failed: a defect in sbredis: KeyError: 'odd'."
        assert copies[2].error == "The action of rule 'c' failed: a defect in sbredis: KeyError: 'odd'."
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"the {what} failed because of a defect")
        for what in (
            *("filter of rule 'a' of t/s", "action of rule 'c' of t/s", "filter of rule 'e' of t/s"),
            *("filter of rule 'a' of t/z", "action of rule 'c' of t/z"),
        )
    ]


@pytest.mark.parametrize("letter", ["x", "\U0001f600", "\ud800"], ids=ascii)
def test_an_error_text_is_never_longer_than_a_property_may_be(letter: str) -> None:
    """A copy with a longer error text could not be sent."""
    rules = [
        *(sql("f", "p('sys.' + w) = 1"), sql("g", "p(p(q)) = 1"), sql("h" * 2000, "1 / 0 = 1")),
        Rule("i", CorrelationFilter(properties={letter * 5000: [1]})),
    ]
    copies = RuleBook([(rules, True)]).judge(MessageView({}, {"w": letter * 32_000, "q": "sys." + letter * 32_000}))
    assert len(copies) == len(rules)
    for copy in copies:
        assert copy.error is not None
        assert len(copy.error) <= 1024
        assert copy.error.endswith(".")
        assert len(copy.error.encode()) <= 4096
    assert str(copies[0].error).startswith("The filter of rule 'f' failed: there is no system property ")
    assert str(copies[0].error).endswith(" (line 1, column 1).")
    assert str(copies[2].error).endswith("…' failed: division by zero (line 1, column 3).")


def seconds(book: RuleBook, facts: MessageView) -> float:
    """Return the time to judge one message: the best of many runs."""

    def once() -> float:
        start = time.thread_time()
        for _ in range(20):
            book.judge(facts)
        return (time.thread_time() - start) / 20

    return min(once() for _ in range(30))


@pytest.mark.slow
@pytest.mark.parametrize("properties", [1, 2])
def test_the_time_to_judge_a_message_does_not_grow_with_the_number_of_rules(properties: int) -> None:
    """A lookup among thirty thousand rules takes far less time than evaluating a hundredth of them.

    With two properties, every second rule has a property that no other rule has.
    """

    def book(count: int) -> RuleBook:
        rules = [
            Rule(
                f"r{number}",
                CorrelationFilter(subject="x", properties={f"n{number}" if number % properties else "n": number}),
            )
            for number in range(count)
        ]
        return RuleBook([(rules, True)])

    facts = MessageView({"label": "x", "messageid": "m"}, {"n": 10, "color": "red"})
    small, large = book(30), book(30_000)
    assert large.judge(facts) == small.judge(facts) == [JudgedCopy(0, None)]
    assert seconds(large, facts) < 20 * seconds(small, facts) + 20e-6
