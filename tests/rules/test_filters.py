"""Tests of the results of filters in the language for a message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.rules.asking import answer, truth

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (1, 1.0, "true"),
        (1, True, "unknown"),
        (1, "1", "unknown"),
        (2**53 + 1, float(2**53), "false"),
        ("a", "A", "false"),
        ("a", b"a", "unknown"),
        (True, True, "true"),
        (True, False, "false"),
        (b"a", b"a", "true"),
        (NOON, NOON.astimezone(timezone(timedelta(hours=2))), "true"),
        (NOON, NOON.replace(tzinfo=None), "unknown"),
        (NOON.replace(tzinfo=None), NOON.replace(tzinfo=None), "unknown"),
        (ID, UUID(str(ID)), "true"),
        (2**64 - 1, 2**64 - 1, "true"),
        (2**64 - 1, float(2**64), "false"),
        (Decimal("1.50"), Decimal("1.5"), "true"),
        (Decimal(2**64 - 1), 2**64 - 1, "true"),
        (Decimal("0.5"), 0.5, "true"),
        (Decimal("0.1"), 0.1, "false"),
        (Decimal("1.5"), "1.5", "unknown"),
        (Decimal("NaN"), Decimal("NaN"), "unknown"),
        (Decimal("NaN"), 1, "unknown"),
        ({1: 2}, {1: 2}, "unknown"),
        (ID, str(ID), "unknown"),
        ([1], [1], "unknown"),
        (None, None, "unknown"),
        (None, 1, "unknown"),
    ],
)
def test_comparing_values_of_different_kinds_results_in_unknown(left: Any, right: Any, result: str) -> None:
    contrary = {"true": "false", "false": "true", "unknown": "unknown"}[result]
    for one, other in ((left, right), (right, left)):
        assert truth("a = b", {"a": one, "b": other}) == result
        assert truth("a <> b", {"a": one, "b": other}) == contrary
        assert truth("a IN (b)", {"a": one, "b": other}) == result


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 2), (1, 1.5), (-(2**63), 0.0), ("a", "b"), ("Z", "a"), ("", "a"), (NOON, NOON + timedelta(microseconds=1))],
)
def test_numbers_text_and_times_have_an_order(low: Any, high: Any) -> None:
    both = {"low": low, "high": high}
    assert truth("low < high AND low <= high AND high > low AND high >= low AND low <= low", both) == "true"
    assert truth("low > high OR low >= high OR high < low OR high <= low OR low < low", both) == "false"


@pytest.mark.parametrize("pair", [(True, False), (ID, ID), (b"a", b"b"), (1, "2"), (NOON, 1), ([1], [2]), (None, 1)])
def test_other_values_have_no_order(pair: tuple[Any, Any]) -> None:
    for sign in ("<", "<=", ">", ">="):
        assert truth(f"a {sign} b", {"a": pair[0], "b": pair[1]}) == "unknown"


def test_parameters_and_time_differences_can_be_durations() -> None:
    times = {"sent": NOON, "read": NOON + timedelta(hours=2)}
    assert truth("read - sent > @hour", times, hour=timedelta(hours=1)) == "true"
    assert truth("sent + @hour < read AND @hour + sent = read - @hour", times, hour=timedelta(hours=1)) == "true"
    assert truth("-@hour + @hour - @hour = -@hour", times, hour=timedelta(hours=1)) == "true"


LOGIC = {"T": "1 = 1", "F": "1 = 0", "U": "1 = missing"}
MEANING = {"T": "true", "F": "false", "U": "unknown"}


@pytest.mark.parametrize(
    ("pair", "result"), [("TT", "T"), ("TF", "F"), ("TU", "U"), ("FF", "F"), ("FU", "F"), ("UU", "U")]
)
def test_the_operator_and_follows_three_valued_logic(pair: str, result: str) -> None:
    for one, other in ((pair[0], pair[1]), (pair[1], pair[0])):
        assert truth(f"{LOGIC[one]} AND {LOGIC[other]}") == MEANING[result]


@pytest.mark.parametrize(
    ("pair", "result"), [("TT", "T"), ("TF", "T"), ("TU", "T"), ("FF", "F"), ("FU", "U"), ("UU", "U")]
)
def test_the_operator_or_follows_three_valued_logic(pair: str, result: str) -> None:
    for one, other in ((pair[0], pair[1]), (pair[1], pair[0])):
        assert truth(f"{LOGIC[one]} OR {LOGIC[other]}") == MEANING[result]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("NOT a = 2 AND a = 1", "yes"),
        ("a = 1 OR a = 2 AND a = 3", "yes"),
        ("(a = 1 OR a = 2) AND a = 3", "no"),
        ("NOT a = 1 OR a = 1", "yes"),
        ("1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9", "yes"),
        ("10 - 3 - 2 = 5 AND 100 / 10 / 5 = 2 AND 17 % 10 % 4 = 3", "yes"),
        ("-2 * -3 = 6 AND - a + 2 = 1 AND 3 - -1 = 4", "yes"),
        ("2 + 3 < 2 * 3", "yes"),
        ("0 < a AND 1 <= a AND 2 > a AND 1 >= a AND 'x' <> a OR 1 = a", "yes"),
        ("1 < a OR 2 <= a OR 1 > a OR 0 >= a OR 1 <> a", "no"),
    ],
)
def test_operators_bind_in_the_documented_order(text: str, result: str) -> None:
    assert answer(text, {"a": 1}) == result


def test_property_names_are_compared_without_case() -> None:
    assert answer(
        "COLOR = 'red' AND user.Color = 'red' AND [cOLOR] = 'red' AND \"color\" = 'red'", {"Color": "red"}
    ) == ("yes")
    assert answer("SYS.LABEL = 'x' AND sys.subject = 'x' AND Sys.[Label] = 'x'", system={"label": "x"}) == "yes"
    assert answer("sys.Label = 'x'", system={"subject": "x"}) == "yes"
    assert answer("a = @Limit AND a = @LIMIT", {"a": 1}, limit=1) == "yes"


def test_text_values_are_compared_with_case() -> None:
    assert answer("color = 'RED'", {"color": "red"}) == "no"
    assert answer("color LIKE 'R%'", {"color": "red"}) == "no"


def test_if_property_names_differ_only_in_case_the_last_one_counts() -> None:
    assert answer("color = 'blue'", {"color": "red", "Color": "blue"}) == "yes"


def test_system_and_application_properties_are_separate() -> None:
    assert answer("Label = 'x'", system={"label": "x"}) == "no"
    assert answer("sys.Label IS NULL AND Label = 'x'", {"label": "x"}) == "yes"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("EXISTS(a)", "true"),
        ("EXISTS(nothing)", "true"),
        ("EXISTS(missing)", "false"),
        ("EXISTS(sys.Label)", "true"),
        ("EXISTS(sys.To)", "false"),
        ("a IS NULL", "false"),
        ("nothing IS NULL", "true"),
        ("missing IS NULL", "true"),
        ("missing IS NOT NULL", "false"),
        ("sys.To IS NULL", "true"),
        ("missing = missing", "unknown"),
        ("missing IN (1)", "unknown"),
        ("a IN (1, missing)", "true"),
        ("a IN (2, missing)", "unknown"),
        ("a NOT IN (2, 3)", "true"),
        ("a NOT IN (2, 'x')", "unknown"),
        ("missing LIKE '%'", "unknown"),
        ("'x' LIKE missing", "unknown"),
        ("a LIKE '%'", "unknown"),
        ("missing + 'x' = 1", "unknown"),
        ("missing / 0 = 1", "unknown"),
        ("- missing = 1", "unknown"),
        ("a = NULL", "unknown"),
        ("property('A') = 1", "true"),
        ("p(name) = 1", "true"),
        ("p('user.' + name) = 1", "true"),
        ("p('sys.' + 'label') = 'x'", "true"),
        ("p('sys.Label') = 'x'", "true"),
        ("p(missing) = 1", "unknown"),
        ("newid() = newid()", "false"),
        ("newid() = a", "unknown"),
        ("newid() IS NOT NULL", "true"),
        ("newid() IS NULL", "false"),
        ("property('a') IS NOT NULL", "true"),
        ("p('a' + 'b') IS NULL", "true"),
        ("name + '_' + name = 'a_a'", "true"),
    ],
)
def test_properties_and_functions_have_the_documented_results(text: str, result: str) -> None:
    assert truth(text, {"a": 1, "nothing": None, "name": "a"}, system={"label": "x"}) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("7 / 2 = 3", "yes"),
        ("-7 / 2 = -3", "yes"),
        ("7 % -2 = 1", "yes"),
        ("-7 % 2 = -1", "yes"),
        ("7 / 2.0 = 3.5", "yes"),
        ("-7.5 % 2 = -1.5", "yes"),
        ("9223372036854775806 + 1 = 9223372036854775807", "yes"),
        ("9223372036854775807 + 1 = 9223372036854775808", "yes"),
        ("exact + 1 = 2.5", "yes"),
        ("exact * @tenth = @hundredths", "yes"),
        ("exact - 0.5 = 1", "yes"),
        ("1 / (exact + exact) = @third", "yes"),
        ("-exact % 1 = -0.5", "yes"),
        ("+exact = 1.5", "yes"),
        ("exact / 0 = 1", "division by zero (line 1, column 7)."),
        ("exact % 0.0 = 1", "division by zero (line 1, column 7)."),
        ("vast * 10 > 0", "the result is too large (line 1, column 6)."),
        ("vast % 7 = 1", "yes"),
        ("-vast % 7 = -1", "yes"),
        ("boundless + 1 > 0", "the result is not a finite number (line 1, column 11)."),
        ("9007199254740993 * 3 = 27021597764222979", "yes"),
        ("18446744073709551615 + 1 > 0", "the result does not fit into 64 bits (line 1, column 22)."),
        ("-9223372036854775808 * 2 < 0", "the result does not fit into 64 bits (line 1, column 22)."),
        ("-(9223372036854775809) < 0", "the result does not fit into 64 bits (line 1, column 1)."),
        ("1e308 * 10 > 0", "the result is not a finite number (line 1, column 7)."),
        ("a / 0 = 1", "division by zero (line 1, column 3)."),
        ("1 =\na % 0", "division by zero (line 2, column 3)."),
        ("a / 0.0 = 1", "division by zero (line 1, column 3)."),
        ("a + 'x' = 1", "cannot add text to a number (line 1, column 3)."),
        ("'x' - 'y' = 1", "cannot subtract text from text (line 1, column 5)."),
        ("flag * 2 = 1", "cannot multiply a truth value by a number (line 1, column 6)."),
        ("2 / @day = 1", "cannot divide a number by a duration (line 1, column 3)."),
        ("- 'x' = 1", "cannot put - before text (line 1, column 1)."),
        ("huge + 1 > 0", "the result does not fit into 64 bits (line 1, column 6)."),
        ("huge + 1.0 > 0", "the result is too large (line 1, column 6)."),
        ("@last + @day = 1", "the result is too large (line 1, column 7)."),
        ("sys.Nonsense = 1", "there is no system property Nonsense (line 1, column 1)."),
        ("EXISTS(sys.Nonsense)", "there is no system property Nonsense (line 1, column 8)."),
        ("p(a) = 1", "the name of a property must be text (line 1, column 1)."),
        ("p('sys.' + 'Nonsense') = 1", "there is no system property Nonsense (line 1, column 1)."),
        ("'x' LIKE 'x' ESCAPE @word", "ESCAPE needs text of one character (line 1, column 5)."),
        (
            "'x' LIKE @end ESCAPE '!'",
            "nothing follows the escape character at the end of the pattern (line 1, column 5).",
        ),
    ],
)
def test_expressions_give_the_documented_result_or_failure(text: str, result: str) -> None:
    user = {"a": 1, "flag": True, "huge": 10**400, "exact": Decimal("1.5"), "vast": Decimal("1E+6144")}
    user["boundless"] = Decimal("Infinity")
    given: dict[str, Any] = {
        "tenth": Decimal("0.1"),
        "hundredths": Decimal("0.15"),
        "third": Decimal("0." + "3" * 34),
        "day": timedelta(days=1),
        "last": datetime.max.replace(tzinfo=UTC),
        "word": "xy",
        "end": "x!",
    }
    assert answer(text, user, **given) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a = 2 AND 1 / 0 = 1", "no"),
        ("missing = 2 AND 1 / 0 = 1", "no"),
        ("a = 1 OR 1 / 0 = 1", "yes"),
        ("a IN (1, 1 / 0)", "yes"),
        ("missing IN (1 / 0)", "no"),
        ("a = 1 AND 1 / 0 = 1", "division by zero (line 1, column 13)."),
        ("1 / 0 = 1 AND a = 2", "division by zero (line 1, column 3)."),
        ("missing = 2 OR 1 / 0 = 1", "division by zero (line 1, column 18)."),
        ("NOT (missing = 2 AND 1 / 0 = 1)", "division by zero (line 1, column 24)."),
    ],
)
def test_an_expression_that_is_not_evaluated_cannot_fail(text: str, result: str) -> None:
    assert answer(text, {"a": 1}) == result


@pytest.mark.parametrize(
    ("text", "pattern", "result"),
    [
        ("", "", True),
        ("", "%", True),
        ("", "_", False),
        ("red", "red", True),
        ("red", "re", False),
        ("red", "r%", True),
        ("red", "%d", True),
        ("red", "%e%", True),
        ("red", "r_d", True),
        ("red", "_ed%", True),
        ("red", "____", False),
        ("aab", "a%ab", True),
        ("ab", "ab%ab", False),
        ("a\nb", "a_b", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("a*b[c]^$", "a*b[c]^$", True),
        ("50%", "50!%", True),
        ("505", "50!%", False),
        ("a_b", "a!_b", True),
        ("a!b", "a!!b", True),
        ("ax", "a!x", True),
    ],
)
def test_the_operator_like_matches_patterns(text: str, pattern: str, result: bool) -> None:
    assert answer("a LIKE @pattern ESCAPE '!'", {"a": text}, pattern=pattern) == ("yes" if result else "no")
    assert answer("a NOT LIKE @pattern ESCAPE '!'", {"a": text}, pattern=pattern) == ("no" if result else "yes")
