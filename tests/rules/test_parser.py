"""Tests of valid and invalid text: a refusal names the line, the column, and the expected input."""

from __future__ import annotations

import pytest

from sbredis.exceptions import RuleSyntaxError, ServiceBusError
from sbredis.rules import SqlAction, SqlFilter, check_action, check_filter

COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
AFTER_VALUE = (*COMPARISONS, "IN", "LIKE", "IS", "NOT")
ARITHMETIC = ("+", "-", "*", "/", "%")
VALUE = ("a value", "(")
CONDITION = (*VALUE, "NOT", "EXISTS")
JOINED = ("AND", "OR", "the end")


@pytest.mark.parametrize(
    "text",
    [
        "color = 'red'",
        "COLOR='red'and sys.label<>'x'",
        "a = 1 OR b != 2 AND NOT c <= 3",
        "NOT NOT a = 1",
        "(a + 1) * 2 > 3",
        "((a = 1) OR (b = 2))",
        "((a)) = ((1))",
        "1 = 1",
        "'x' = a",
        "a IN (1, 2, b + 1)",
        "a NOT IN ('x')",
        "a LIKE 'x%' AND b NOT LIKE '_\\%' ESCAPE '\\'",
        "a LIKE b ESCAPE c",
        "EXISTS(a) AND EXISTS ( sys.To ) AND NOT exists(user.[x y])",
        "a IS NULL OR user.b IS NOT NULL OR property('x y') IS NULL",
        '[x y] = 1 AND "x""y" = 2 AND [a]]b] = 3',
        "[AND] = 1 AND user.[like] = 2",
        "user . a = 1",
        "sys = 1 AND user = 2 AND p = 3 AND property = 4",
        "p('a') = property(b + 'c')",
        "newid() <> @id",
        "a = -1 AND b = +1.5E-3 AND c = 1e5 AND d = - (a) AND e = a - -1",
        "a = -9223372036854775808 AND b = 18446744073709551615",
        "a = TRUE AND b <> false AND c = NULL",
        "größe = 1 AND ключ_1 = 2",
        "a = 'it''s' AND b = ''",
        "a = 1\r\n\tAND b = 2\n",
        " AND ".join(["a = 1"] * 100),
        " AND ".join(["NOT (-(a) = p(b))"] * 45),
        "a = " + "+".join("1" * 500),
        "(" * 32 + "a = 1" + ")" * 32,
    ],
)
def test_a_valid_filter_is_accepted(text: str) -> None:
    check_filter(SqlFilter(text, {"id": "x"}))


@pytest.mark.parametrize(
    ("text", "line", "column", "found", "expected"),
    [
        ("", 1, 1, "the end", CONDITION),
        (" \n ", 2, 2, "the end", CONDITION),
        ("color", 1, 6, "the end", AFTER_VALUE),
        ("a =", 1, 4, "the end", VALUE),
        ("a = 1 AND", 1, 10, "the end", CONDITION),
        ("a = 1 AND b", 1, 12, "the end", AFTER_VALUE),
        ("a AND b = 1", 1, 3, "'AND'", AFTER_VALUE),
        ("a OR b = 1", 1, 3, "'OR'", AFTER_VALUE),
        ("NOT a", 1, 6, "the end", AFTER_VALUE),
        ("OR a = 1", 1, 1, "'OR'", CONDITION),
        ("a = 1 b", 1, 7, "'b'", JOINED),
        ("a = 1)", 1, 6, "')'", JOINED),
        ("a = b = c", 1, 7, "'='", JOINED),
        ("a == 1", 1, 4, "'='", VALUE),
        ("a = 1;", 1, 6, "';'", JOINED),
        ("(a = 1", 1, 7, "the end", ("AND", "OR", ")")),
        ("(a", 1, 3, "the end", (*ARITHMETIC, *AFTER_VALUE, ")")),
        ("(a = 1) + 2 = 3", 1, 9, "'+'", JOINED),
        ("a = (b = 1)", 1, 5, "a condition", ("a value",)),
        ("1 + (b = 1) = 2", 1, 5, "a condition", ("a value",)),
        ("-(b = 1) = 2", 1, 2, "a condition", ("a value",)),
        ("a NOT = 1", 1, 7, "'='", ("IN", "LIKE")),
        ("a IN 1", 1, 6, "'1'", ("(",)),
        ("a IN ()", 1, 7, "')'", VALUE),
        ("a IN (1, )", 1, 10, "')'", VALUE),
        ("a IN (1 2)", 1, 9, "'2'", (*ARITHMETIC, ",", ")")),
        ("a IS 1", 1, 6, "'1'", ("NULL", "NOT")),
        ("a IS NOT 1", 1, 10, "'1'", ("NULL",)),
        ("1 IS NULL", 1, 1, "'1'", ("a property or a function before IS",)),
        ("a + 1 IS NULL", 1, 1, "'a'", ("a property or a function before IS",)),
        ("EXISTS a", 1, 8, "'a'", ("(",)),
        ("EXISTS('a')", 1, 8, "'a'", ("a name",)),
        ("EXISTS(a", 1, 9, "the end", (")",)),
        ("a = EXISTS(b)", 1, 5, "'EXISTS'", VALUE),
        ("foo.a = 1", 1, 1, "'foo'", ("sys", "user")),
        ("[sys].a = 1", 1, 1, "'[sys]'", ("sys", "user")),
        ("sys. = 1", 1, 6, "'='", ("a name",)),
        ("user.in = 1", 1, 6, "'in'", ("a name",)),
        ("upper(a) = 'X'", 1, 1, "'upper'", ("newid", "property", "p")),
        ("newid(1) = a", 1, 7, "'1'", (")",)),
        ("p() = 1", 1, 3, "')'", VALUE),
        ("p('a' 1) = 1", 1, 7, "'1'", (*ARITHMETIC, ")")),
        ("a = 1 AND\nb = = 2", 2, 5, "'='", VALUE),
        ("a = 1\r\nAND b\rLIKE", 3, 5, "the end", VALUE),
        ("a = 'a very long text that goes on' 'x'", 1, 37, "'x'", JOINED),
    ],
)
def test_a_syntax_error_in_a_filter_names_the_place_and_the_expectation(
    text: str, line: int, column: int, found: str, expected: tuple[str, ...]
) -> None:
    with pytest.raises(RuleSyntaxError) as refused:
        check_filter(SqlFilter(text))
    error = refused.value
    assert (error.line, error.column, error.expected) == (line, column, expected)
    assert str(error).startswith(f"line {line}, column {column}: found {found}, expected ")


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("a = 'x", 5, "the text that begins with ' here has no end, expected '"),
        ("[a = 1", 1, "the text that begins with [ here has no end, expected ]"),
        ('"a = 1', 1, 'the text that begins with " here has no end, expected "'),
        ("[] = 1", 1, "a name cannot be empty"),
        ('"" = 1', 1, "a name cannot be empty"),
        ("a = #", 5, "found '#', which has no meaning here"),
        ("_a = 1", 1, "found '_', which has no meaning here"),
        ("a ! b", 3, "found '!', which has no meaning here"),
        ("a = @", 5, "found '@' alone"),
        ("a = @1", 5, "found '@' alone"),
        ("a = 1x", 6, "found 'x' in a number"),
        ("a = 1_000", 6, "found '_' in a number"),
        ("a = 18446744073709551616", 5, "the number does not fit into 64 bits"),
        ("a = -9223372036854775809", 6, "the number does not fit into 64 bits"),
        ("a = 1e999", 5, "the number is too large"),
        ("a = @nobody", 5, "parameter @nobody has no value"),
        ("a LIKE 1", 8, "a pattern must be text"),
        ("a LIKE 'x' ESCAPE 'xy'", 19, "ESCAPE needs text of one character"),
        ("a LIKE 'x\\' ESCAPE '\\'", 8, "nothing follows the escape character at the end of the pattern"),
    ],
)
def test_an_invalid_word_or_literal_is_refused_at_its_column(text: str, column: int, what: str) -> None:
    with pytest.raises(RuleSyntaxError) as refused:
        check_filter(SqlFilter(text))
    assert refused.value.column == column
    assert what in str(refused.value)


def test_a_syntax_error_is_a_value_error_and_an_error_of_sbredis() -> None:
    assert issubclass(RuleSyntaxError, ValueError)
    assert issubclass(RuleSyntaxError, ServiceBusError)


@pytest.mark.parametrize(
    "text",
    [
        "SET a = 1",
        "set A = 1;",
        "SET a = b SET c = d REMOVE e",
        "SET a = 1; REMOVE b;",
        "SET sys.Label = 'x'; SET sys.subject = 'y'; REMOVE sys.To",
        "SET [x y] = p('z') + 'a'; REMOVE \"q\"",
        "SET user.a = newid(); SET b = (1 + 2) * -c",
    ],
)
def test_a_valid_action_is_accepted(text: str) -> None:
    check_action(SqlAction(text))


TARGETS = (
    "a property of the application",
    *("sys.ContentType", "sys.CorrelationId", "sys.Label", "sys.MessageId", "sys.PartitionKey", "sys.ReplyTo"),
    *("sys.ReplyToSessionId", "sys.ScheduledEnqueueTimeUtc", "sys.SessionId", "sys.TimeToLive", "sys.To"),
)


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("", 1, 1, ("SET", "REMOVE")),
        ("a = 1", 1, 1, ("SET", "REMOVE")),
        ("SET a = 1;;", 1, 11, ("SET", "REMOVE")),
        ("SET", 1, 4, ("a name",)),
        ("SET 1 = 1", 1, 5, ("a name",)),
        ("SET a", 1, 6, ("=",)),
        ("SET a <> 1", 1, 7, ("=",)),
        ("SET a =", 1, 8, VALUE),
        ("SET a = 1,\nSET b = 2", 1, 10, (*ARITHMETIC, ";", "SET", "REMOVE", "the end")),
        ("REMOVE a b", 1, 10, (";", "SET", "REMOVE", "the end")),
        ("SET a = (b = 1)", 1, 9, ("a value",)),
        ("SET a = b = 1", 1, 11, (*ARITHMETIC, ";", "SET", "REMOVE", "the end")),
        ("SET a = 1;\nSET sys.SequenceNumber = 2", 2, 5, TARGETS),
        ("REMOVE sys.EnqueuedTimeUtc", 1, 8, TARGETS),
        ("SET sys.Nonsense = 1", 1, 5, TARGETS),
    ],
)
def test_a_syntax_error_in_an_action_names_the_place_and_the_expectation(
    text: str, line: int, column: int, expected: tuple[str, ...]
) -> None:
    with pytest.raises(RuleSyntaxError) as refused:
        check_action(SqlAction(text))
    assert (refused.value.line, refused.value.column, refused.value.expected) == (line, column, expected)
