"""Tests that shared parts of filters are evaluated once for each message, and that this does not change any result."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from sbredis.rules import Constant, MessageView, Rule, RuleBook, SqlFilter
from sbredis.rules import _compile as compiling

LIKE = "sys.Label LIKE 'x%y'"


def book(*texts: str, **parameters: Constant) -> RuleBook:
    """Return a book with one subscription for each text."""
    return RuleBook([([Rule(f"r{number}", SqlFilter(text, parameters))], True) for number, text in enumerate(texts)])


def answers(made: RuleBook, user: Mapping[str, Any], system: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the subscriptions that get a copy; if a rule fails, return the reason instead of the subscription."""
    copies = made.judge(MessageView(system or {}, user))
    return [copy.subscription if copy.error is None else copy.error for copy in copies]


class Counted(dict[str, Any]):
    """Properties that count how often each is read."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


@pytest.mark.parametrize(
    "form",
    [
        "{0}",
        "{0} AND n <> {1}",
        "n <> {1} AND {0}",
        "NOT (n = {1} OR {0}) OR n = 5",
        "EXISTS(n) AND (n = {1} OR NOT {0} OR p('n') > {1}) AND {0}",
        "sys.Label LIKE 'x%z' OR n = {1} OR {0}",
    ],
)
def test_a_condition_that_all_filters_have_is_evaluated_once(form: str) -> None:
    system = Counted(label="xay")
    made = book(*[form.format(LIKE, number) for number in range(-50, 0)])
    made.judge(MessageView(system, {"n": 5}))
    assert system.asked == (2 if "z" in form else 1)


def test_a_repeated_expression_is_evaluated_once_wherever_it_occurs() -> None:
    system = Counted(sequencenumber=7)
    made = book(*[" " * n + f"sys.SequenceNumber * 2 + p('sys.' + 'x') > {n}" for n in range(10)])
    assert all(": there is no system property x" in error for error in answers(made, {}, system))
    system = Counted(sequencenumber=7)
    made = book(*[" " * n + f"-(sys.SequenceNumber * 2) < -{n}" for n in range(20)])
    assert answers(made, {}, system) == list(range(14))
    assert system.asked == 1


def test_expressions_are_shared_across_letter_cases_and_parameters() -> None:
    system = Counted(label="xay")
    made = book("a = 1 OR sys.Label LIKE 'x%y'", "b = 1 OR SYS.SUBJECT like @p", p="x%y")
    assert answers(made, {}, system) == [0, 1]
    assert system.asked == 1


def test_a_shared_expression_is_evaluated_only_when_needed() -> None:
    system = Counted(label="xay")
    made = book(*[f"n > {number} AND {LIKE}" for number in range(5)])
    assert answers(made, {"n": 0}, system) == []
    assert system.asked == 0
    assert answers(book("n <> 0 AND 1 / n = 1", "n <> 0 AND 1 / n = 1", "n <> 0 OR 1 / n = 1"), {"n": 0}) == [
        "The filter of rule 'r2' failed: division by zero (line 1, column 13)."
    ]


def test_a_shared_expression_is_evaluated_for_each_message() -> None:
    made = book("n > 1 OR color LIKE 'r%'", "n > 2 OR color LIKE 'r%'")
    facts = MessageView({}, {"color": "red"})
    assert [len(made.judge(facts)), len(made.judge(facts))] == [2, 2]
    assert answers(made, {"color": "blue", "n": 2}) == [0]
    assert answers(made, {"color": "red"}) == [0, 1]


@pytest.mark.parametrize(
    ("part", "why", "at"),
    [
        ("1 / n = 1", "division by zero", 2),
        ("a LIKE b ESCAPE c", "ESCAPE needs text of one character", 2),
        ("sys.Nonsense = 1", "there is no system property Nonsense", 0),
        ("p(n) = 1", "the name of a property must be text", 0),
        ("-(1 - (3 % n)) + 1 > 0", "division by zero", 9),
        ("NOT (a = 1 OR (p(-(n / n)) IS NULL AND EXISTS(sys.To)))", "division by zero", 21),
    ],
)
def test_a_failing_shared_expression_is_reported_for_each_filter(part: str, why: str, at: int) -> None:
    user = {"n": 0, "a": "x", "b": "x", "c": "long"}
    made = book(part, f"\n  {part}", f"n = 1 OR {part}", f"n = 0 AND ({part})", f"n = 0 OR {part}")
    places = [(1, at + 1), (2, at + 3), (1, at + 10), (1, at + 12)]
    assert answers(made, user) == [
        *(
            f"The filter of rule 'r{number}' failed: {why} (line {line}, column {column})."
            for number, (line, column) in enumerate(places)
        ),
        4,
    ]


def test_a_failure_quotes_the_property_name_as_its_filter_writes_it() -> None:
    assert answers(book("sys.NonSense = 1", "sys.NONSENSE = 1"), {}) == [
        "The filter of rule 'r0' failed: there is no system property NonSense (line 1, column 1).",
        "The filter of rule 'r1' failed: there is no system property NONSENSE (line 1, column 1).",
    ]


def test_each_use_of_newid_gives_a_different_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Iterator[UUID] = map(UUID, map("{:032x}".format, range(1, 9)))
    monkeypatch.setattr(compiling, "uuid4", lambda: next(made))
    texts = ["newid() = @second", "newid() = @second", "newid() = @second OR newid() = newid()"]
    assert answers(book(*texts, second=UUID(int=2)), {}) == [1]
    assert next(made) == UUID(int=6)


BERLIN = ZoneInfo("Europe/Berlin")
EVENING = datetime(2024, 3, 30, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other", "user"),
    [
        ("n / 2 = 3", "n / 2.0 = 3", {"n": 7}),
        ("n = 1 OR a = 2", "n = TRUE OR a = 2", {"n": 1}),
        ("n <> '1'", "n <> 1", {"n": "2"}),
        ("NOT n = 1", "NOT n = '1'", {"n": 2}),
        ("n <> 1", "sys.n <> 1 OR n = 1", {"n": 2}),
        ("n LIKE 'a!%' ESCAPE '!'", "n LIKE 'a!%'", {"n": "a%"}),
        ("n + 2 - 1 = 6", "n - 2 + 1 = 6", {"n": 5}),
        ("n - 2 - 1 = 2", "n - (2 - 1) = 2", {"n": 5}),
        ("NOT (n > 2 AND n > 1)", "NOT (n > 2 OR n > 1)", {"n": 2}),
        ("n > 1", "n < 1", {"n": 2}),
        ("n > a", "n < a", {"n": 2, "a": 1}),
        ("n > a", "a > n", {"n": 2, "a": 1}),
        ("-n < 0", "+n < 0", {"n": 2}),
        ("EXISTS(n)", "n IS NULL AND a = 1", {"n": 1}),
        ("n IN (1, 2)", "n IN (1)", {"n": 2}),
        # These times are equal, but one day later, in Berlin time, they are not.
        ("n = @utc + @day", "n = @berlin + @day", {"n": EVENING + timedelta(days=1)}),
    ],
)
def test_expressions_that_only_look_alike_are_not_shared(one: str, other: str, user: dict[str, Any]) -> None:
    times: dict[str, Constant] = {"utc": EVENING, "berlin": EVENING.astimezone(BERLIN), "day": timedelta(days=1)}
    alone = answers(book(one, **times), user), answers(book(other, **times), user)
    assert alone[0] == [0]
    assert alone[1] != [0]
    wrong = [error.replace("r0", "r{}") for error in alone[1]]
    for_two = [0, 2, *(error.format(1) for error in wrong), *(error.format(3) for error in wrong)]
    assert sorted(map(str, answers(book(one, other, one, other, **times), user))) == sorted(map(str, for_two))


def test_a_whole_filter_is_not_shared_with_a_part_of_another() -> None:
    """The result unknown means false for a whole filter, but not for a part of a larger expression."""
    text = "n > 1 AND a > 1"
    assert answers(book(text, text, f"NOT ({text})", f"NOT ({text})"), {"n": 2}) == []


def test_filters_found_by_the_index_share_expressions_too() -> None:
    system = Counted(label="xay")
    made = book(*[f"k = {number // 10} AND {LIKE}" for number in range(100)])
    assert answers(made, {"k": 3}, system) == list(range(30, 40))
    assert system.asked == 1
    assert answers(book(f"k = 1 AND {LIKE}", f"m = 1 AND {LIKE}", f"k = 2 AND {LIKE}"), {"k": 2, "m": 1}, system) == [
        1,
        2,
    ]
    assert system.asked == 2


def test_threads_that_evaluate_at_the_same_time_get_their_own_results() -> None:
    made = book(*[f"n > {number} AND (m * 2 = 6 OR 6 / m = 1) AND NOT color LIKE '%e%'" for number in range(30)])
    sent = [{"n": n, "m": n % 7, "color": "red" if n % 5 == 0 else "black"} for n in range(30)]
    wanted = [answers(made, user) for user in sent]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda user: answers(made, user), sent * 20)) == wanted * 20


def test_deeply_shared_expressions_do_not_exhaust_the_stack() -> None:
    texts = ["NOT (n = 2 OR " * depth + "n + 1 = 3" + ")" * depth for depth in range(16)]
    texts += ["1 = " + "-(n / " * depth + "m" + ")" * depth for depth in range(16)]
    alone = [bool(answers(book(text), {"n": 1, "m": 0})) for text in texts]
    depth = 0
    frame: Any = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 400)
    try:
        for made in (book(*texts), book(*texts[::-1])):
            assert len(answers(made, {"n": 1, "m": 0})) == sum(alone)
    finally:
        sys.setrecursionlimit(limit)
