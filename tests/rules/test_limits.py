"""Tests of the limits of a rule, and that malicious input is refused quickly."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from sbredis.exceptions import RuleSyntaxError
from sbredis.rules import CorrelationFilter, FalseFilter, SqlAction, SqlFilter, TrueFilter, check_action, check_filter
from tests.rules.asking import answer, truth

EARLY = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))


def test_text_of_1024_characters_is_accepted_and_one_more_is_refused() -> None:
    text = "a = '" + "x" * 1018 + "'"
    check_filter(SqlFilter(text))
    check_action(SqlAction("SET " + text.replace("xxxx", "", 1)))
    with pytest.raises(ValueError, match=r"a filter may have 1,024 characters, but this one has 1,025"):
        check_filter(SqlFilter(text + " "))
    with pytest.raises(ValueError, match=r"an action may have 1,024 characters"):
        check_action(SqlAction("SET " + text))


def test_32_statements_are_accepted_and_one_more_is_refused() -> None:
    check_action(SqlAction("SET a = 1;" * 32))
    with pytest.raises(ValueError, match="may have 32 statements, but this one has 33"):
        check_action(SqlAction("SET a = 1;" * 33))


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("(" * 33 + "a = 1" + ")" * 33, 33),
        ("NOT " * 33 + "a = 1", 129),
        ("a = " + "- " * 33 + "b", 69),
        ("a = " + "p(" * 33 + "b", 70),
    ],
)
def test_the_error_for_too_deep_nesting_names_the_place(text: str, column: int) -> None:
    with pytest.raises(RuleSyntaxError, match="nested more than 32 deep") as refused:
        check_filter(SqlFilter(text))
    assert refused.value.column == column


def seconds(text: str) -> float:
    """Return the processor time of the check of a filter, whether the check accepts the filter or refuses it."""

    def once() -> float:
        start = time.thread_time()
        with suppress(ValueError):
            check_filter(SqlFilter(text))
        return time.thread_time() - start

    return min(once() for _ in range(5))


def is_quick(text: str) -> bool:
    """Return whether the check of a filter takes about as long as that of an ordinary filter of the maximum length."""
    return seconds(text) < 20 * seconds("a=1 OR " * 140 + "a=1")


@pytest.mark.parametrize("start", ["(", "NOT ", "-", "[", "'", "a", "1", "@", "\n", "a = 1 AND ", "é"])
def test_a_text_of_a_megabyte_is_refused_quickly(start: str) -> None:
    text = start * (2**20 // len(start))
    with pytest.raises(ValueError, match="1,024 characters"):
        check_filter(SqlFilter(text))
    with pytest.raises(ValueError, match="1,024 characters"):
        check_action(SqlAction(text))
    assert is_quick(text)


@pytest.mark.parametrize(
    "text",
    ["(" * 1024, "NOT " * 256, "-" * 1024, "p(" * 512, "a=1AND " * 140, "a" + "+a" * 511, "[" * 1024, "'" * 1023],
)
def test_the_slowest_text_within_the_limit_is_refused_quickly(text: str) -> None:
    with pytest.raises(RuleSyntaxError):
        check_filter(SqlFilter(text))
    assert is_quick(text)


def test_long_chains_do_not_exhaust_the_stack() -> None:
    depth = 0
    frame: Any = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 400)
    try:
        assert answer("a" + "+1" * 500 + " > 0", {"a": 1}) == "yes"
        assert answer(" OR ".join(["a=2"] * 140) + " OR a=1", {"a": 1}) == "yes"
        assert answer("(" * 32 + "a=1" + ")" * 32, {"a": 1}) == "yes"
        assert answer("NOT(" * 16 + "a=1" + ")" * 16, {"a": 1}) == "yes"
    finally:
        sys.setrecursionlimit(limit)


class Watched(str):
    """Text that counts the reads of its characters."""

    __slots__ = ("looks",)

    looks: int

    def __getitem__(self, at: Any) -> str:
        self.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("pattern", ["%a" * 400 + "%b%a_b", "%" + "a_" * 500 + "b%", "%a_%" * 250, "%_a_b_%c_d%"])
@pytest.mark.parametrize("text", ["a" * 32_000, "ab" * 16_000, "xaxb" * 8_000 + "cd"])
def test_no_pattern_reads_a_character_twice(text: str, pattern: str) -> None:
    watched = Watched(text)
    watched.looks = 0
    assert answer("a LIKE @pattern", {"a": watched}, pattern=pattern) in {"yes", "no"}
    assert watched.looks <= len(text)


def test_a_long_pattern_with_single_character_wildcards_reads_no_character_twice() -> None:
    watched = Watched("a" * 1000)
    watched.looks = 0
    assert answer("a LIKE @pattern", {"a": watched}, pattern="%" + "a_" * 20 + "b%") == "no"
    assert 0 < watched.looks <= 1000


def test_the_operator_like_results_in_unknown_if_its_pattern_is_longer_than_a_filter() -> None:
    assert truth("a LIKE @pattern", {"a": "x" * 1024}, pattern="x" * 1024) == "true"
    for escape in ("", " ESCAPE '!'"):
        assert truth(f"a LIKE @pattern{escape}", {"a": "x" * 1025}, pattern="x" * 1025) == "unknown"
        assert truth(f"a LIKE b{escape}", {"a": "x", "b": "%" * 1025}) == "unknown"


@pytest.mark.parametrize(
    ("parameters", "error", "why"),
    [
        ({"a": [1]}, TypeError, "parameter @a must be str, int"),
        ({"a": {}}, TypeError, "not dict"),
        ({1: 1}, TypeError, "names of the parameters must be str"),
        ([1], TypeError, "the parameters must be a mapping"),
        ({"a": 2**64}, ValueError, "does not fit into 64 bits"),
        ({"a": float("nan")}, ValueError, "not a finite number"),
        ({"a": float("-inf")}, ValueError, "not a finite number"),
        ({"a": Decimal("NaN")}, ValueError, "not a finite decimal of 128 bits"),
        ({"a": Decimal("Infinity")}, ValueError, "not a finite decimal of 128 bits"),
        ({"a": Decimal("1E+7000")}, ValueError, "not a finite decimal of 128 bits"),
        ({"a": Decimal("9" * 35)}, ValueError, "not a finite decimal of 128 bits"),
        ({"a": datetime(2024, 5, 1)}, ValueError, "no time zone"),  # noqa: DTZ001 -- the refused value
        ({"a": EARLY}, ValueError, r"parameter @a is 0001-01-01 00:00:00\+14:00, which is outside the years"),
        ({"a": 1, "@A": 2}, ValueError, "given twice"),
        ({"@": 1}, ValueError, "empty name"),
    ],
)
def test_invalid_parameters_are_refused(parameters: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        check_filter(SqlFilter("1 = 1", parameters))
    with pytest.raises(error, match=why):
        check_action(SqlAction("SET a = 1", parameters))


@pytest.mark.parametrize("text", ["REMOVE a; SET b = @Hour", "SET user.a = @hour", "SET a = (@hour)"])
def test_an_action_that_sets_a_property_to_a_duration_is_refused(text: str) -> None:
    """Such an action would fail on every message."""
    with pytest.raises(
        RuleSyntaxError, match="@hour is a duration, but an application property cannot be one"
    ) as refused:
        check_action(SqlAction(text, {"@hour": timedelta(hours=1)}))
    assert refused.value.column == text.index("@") + 1
    check_action(SqlAction(text, {"@hour": "1:00:00"}))


@pytest.mark.parametrize("text", ["SET sys.TimeToLive = @hour", "SET a = sent + @hour", "SET a = read - sent"])
def test_a_duration_can_be_used_in_an_action(text: str) -> None:
    check_action(SqlAction(text, {"@hour": timedelta(hours=1)}))


def test_unused_parameters_are_accepted() -> None:
    check_filter(SqlFilter("a = @X", {"@x": None, "unused": timedelta(1)}))


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        (CorrelationFilter(), ValueError, "needs at least one property; use TrueRuleFilter"),
        (CorrelationFilter(subject=1), TypeError, "subject of a correlation filter must be str or None, not int"),  # type: ignore[arg-type]
        (CorrelationFilter(properties={"a": None}), TypeError, "cannot be None"),
        (CorrelationFilter(properties={"a": [1]}), TypeError, "property 'a' of a correlation filter must be"),
        (CorrelationFilter(properties={"a": EARLY}), ValueError, "property 'a' of a correlation filter is 0001"),
        (CorrelationFilter(properties={b"a": 1}), TypeError, "must be str, not bytes"),  # type: ignore[dict-item]
        (CorrelationFilter(properties={"a": 1, "A": 1}), ValueError, "given twice"),
        (CorrelationFilter(properties={"": 1}), ValueError, "empty name"),
        (SqlFilter(None), TypeError, "the text of a filter must be str, not NoneType"),  # type: ignore[arg-type]
        ("a = 1", TypeError, "a filter must be a SqlFilter"),
    ],
)
def test_invalid_filters_are_refused(given: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        check_filter(given)


def test_true_and_false_filters_are_valid() -> None:
    check_filter(TrueFilter())
    check_filter(FalseFilter())


def test_an_action_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="an action must be a SqlAction, not str"):
        check_action("SET a = 1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the text of an action must be str, not bytes"):
        check_action(SqlAction(b"SET a = 1"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "asked",
    [
        SqlFilter("a = '\ud800'"),
        SqlFilter("a = @p", {"@p": "\udfff"}),
        SqlFilter("a = @p", {"@p": 1, "@\ud800": 1}),
        CorrelationFilter(correlation_id="é\ud800"),
        CorrelationFilter(properties={"\ud800": 1}),
        CorrelationFilter(properties={"a": "\ud800"}),
    ],
    ids=ascii,
)
def test_text_that_cannot_be_stored_is_refused(asked: SqlFilter | CorrelationFilter) -> None:
    """If such text were accepted, an action would copy it to every message."""
    with pytest.raises(ValueError, match="half a surrogate pair as character"):
        check_filter(asked)
    with pytest.raises(ValueError, match="the text of an action has half a surrogate pair as character 9"):
        check_action(SqlAction("SET a = '\ud800'"))
