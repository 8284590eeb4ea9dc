"""Tests that an action makes the expected changes to a copy, and no other changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.rules import MessageView, Rule, RuleBook, SqlAction, TrueFilter
from tests.rules.asking import done, reason
from tests.rules.reference import Failure, set_to

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
END = datetime(9999, 12, 31, 11, 30, tzinfo=timezone(-timedelta(hours=12)))
ID = UUID(int=7)


DUE = "sys.ScheduledEnqueueTimeUtc must be between 1970-01-01 and 2286-11-20"
BEYOND = "the time is outside the years 1 to 9999 in UTC"
LIFETIME = "sys.TimeToLive must be a positive duration, such as 1.02:30:00 or P1DT2H30M"


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("SET b = 1", {"a": 1}, {"a": 1, "b": 1}),
        ("SET A = 2", {"a": 1}, {"a": 2}),
        ("SET b = a; REMOVE A", {"a": 1}, {"b": 1}),
        ("SET a = a + 1 SET a = a * 10", {"a": 1}, {"a": 20}),
        ("REMOVE missing", {"a": 1}, {"a": 1}),
        ("SET b = missing", {}, {"b": None}),
        ("SET a = NULL", {"a": 1}, {"a": None}),
        ("SET b = TRUE; SET c = 1.5; SET d = 'it''s'", {}, {"b": True, "c": 1.5, "d": "it's"}),
        ("SET b = a", {"a": [1, {"x": b"y"}]}, {"a": [1, {"x": b"y"}], "b": [1, {"x": b"y"}]}),
        ("SET b = sys.Label + '!'", {}, {"b": "x!"}),
        ("SET a = 9", {"A": 1, "a": 2}, {"A": 1, "a": 9}),
        ("REMOVE a", {"A": 1, "a": 2, "b": 3}, {"b": 3}),
    ],
)
def test_an_action_changes_application_properties(text: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    given = dict(before)
    copy = done(text, before, {"label": "x"})
    assert copy.user == {**after, "RuleName": "r"}
    assert copy.system == {}
    assert before == given


def test_a_copy_has_the_name_of_its_rule_and_the_action_may_change_it() -> None:
    assert done("SET a = RuleName", {"rulename": "of the sender"}).user == {"RuleName": "r", "a": "r"}
    assert done("SET RuleName = 'mine'", {}).user == {"RuleName": "mine"}
    assert done("REMOVE RuleName", {}).user == {}


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        (1, "'5'", 5),
        (1, "'five'", "five"),
        (1, "2.5", 2.5),
        (1.5, "2", 2.0),
        (1.5, "'2.5'", 2.5),
        (1.5, "'nan'", "nan"),
        (1, "'9223372036854775807'", 2**63 - 1),
        (1, "'-9223372036854775808'", -(2**63)),
        (1, "'18446744073709551615'", 2**64 - 1),
        (1, "'18446744073709551616'", "18446744073709551616"),
        (Decimal("1.5"), "'2.50'", Decimal("2.50")),
        (Decimal("1.5"), "'1E-400'", Decimal("1E-400")),
        (Decimal("1.5"), "'1E-7000'", "1E-7000"),
        (Decimal("1.5"), "'NaN'", "NaN"),
        (Decimal("1.5"), "2", Decimal(2)),
        (Decimal("1.50"), "a * 2", Decimal("3.00")),
        (1.5, "'1e300'", 1e300),
        (1.5, "'2E-300'", 2e-300),
        (1.5, "'-1e400'", "-1e400"),
        (1.5, "'" + "9" * 400 + "'", "9" * 400),
        (True, "'FALSE'", False),
        (True, "'no'", "no"),
        (NOON, "'2024-05-01T14:00:00+02:00'", NOON),
        (NOON, "'2024-05-01T12:00:00'", NOON),
        (NOON, "'noon'", "noon"),
        (ID, "'00000000-0000-0000-0000-000000000007'", ID),
        ("x", "5", 5),
        (None, "'5'", "5"),
    ],
)
def test_text_becomes_a_value_of_the_property_s_old_type_if_possible(before: Any, value: str, after: Any) -> None:
    user = done(f"SET a = {value}", {"a": before}).user
    assert user is not None
    assert user["a"] == after
    assert type(user["a"]) is type(after)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("SET sys.Label = 'y'", {"label": "y"}),
        ("SET sys.Subject = 'y'; SET sys.LABEL = sys.subject + 'z'", {"label": "yz"}),
        ("REMOVE sys.To", {"to": None}),
        ("SET sys.To = missing", {"to": None}),
        ("SET sys.MessageId = 7", {"messageid": "7"}),
        ("SET sys.SessionId = ''", {"sessionid": ""}),
        ("SET sys.TimeToLive = @hour", {"timetolive": timedelta(hours=1)}),
        ("SET sys.TimeToLive = '1.02:03:04.5'", {"timetolive": timedelta(1, 3 * 60 + 4.5, hours=2)}),
        ("SET sys.TimeToLive = 'P1DT2H3M4.5S'", {"timetolive": timedelta(1, 3 * 60 + 4.5, hours=2)}),
        ("SET sys.ScheduledEnqueueTimeUtc = @noon", {"scheduledenqueuetimeutc": NOON}),
        ("SET sys.ScheduledEnqueueTime = '2024-05-01 12:00'", {"scheduledenqueuetimeutc": NOON}),
    ],
)
def test_an_action_changes_system_properties(text: str, changed: dict[str, Any]) -> None:
    copy = done(text, {"a": 1}, {"label": "x", "to": "t"}, hour=timedelta(hours=1), noon=NOON)
    assert copy.system == changed
    assert copy.user == {"a": 1, "RuleName": "r"}


def test_newid_gives_the_text_of_a_uuid_if_a_property_needs_text() -> None:
    copy = done("SET sys.MessageId = newid(); SET a = newid()", {})
    assert UUID(str(copy.system["messageid"])).version == 4
    assert copy.user is not None
    assert isinstance(copy.user["a"], UUID)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SET a = 1 / 0", "division by zero (line 1, column 11)."),
        ("SET a = 'x' + 1", "cannot add a number to text (line 1, column 13)."),
        ("SET a = sys.Nonsense", "there is no system property Nonsense (line 1, column 9)."),
        ("SET a = @hour", "the property a cannot be a duration."),
        ("SET sys.Label = 1.5", "sys.Label must be text, not a number."),
        ("SET sys.Label = TRUE", "sys.Label must be text, not a truth value."),
        ("SET sys.MessageId = ''", "sys.MessageId cannot be empty."),
        ("SET sys.SessionId = @long", "sys.SessionId may have 128 characters, not 129."),
        ("SET sys.TimeToLive = 5", f"{LIFETIME}, not a number."),
        ("SET sys.TimeToLive = 'P'", f"{LIFETIME}, not text."),
        ("SET sys.TimeToLive = '00:00:00'", "sys.TimeToLive must be longer than 0."),
        ("SET sys.TimeToLive = 'P9999999999D'", "sys.TimeToLive is too long."),
        (
            "SET sys.ScheduledEnqueueTimeUtc = 'soon'",
            "sys.ScheduledEnqueueTimeUtc must be a time, but this text is not one.",
        ),
        ("SET sys.ScheduledEnqueueTimeUtc = 5", "sys.ScheduledEnqueueTimeUtc must be a time, not a number."),
        ("SET sys.ScheduledEnqueueTimeUtc = '1969-12-31T23:59:59'", f"{DUE}."),
        ("SET sys.ScheduledEnqueueTimeUtc = '2286-11-20T17:46:39.999'", f"{DUE}."),
        ("SET sys.ScheduledEnqueueTimeUtc = '9999-12-31T23:59:59-12:00'", f"{BEYOND}."),
        ("SET sys.Label = n", "sys.Label cannot be a number that does not fit into 64 bits."),
        ("SET a = @end + @hour", f"{BEYOND}."),
    ],
)
def test_an_action_that_fails_changes_nothing(text: str, why: str) -> None:
    given: dict[str, Any] = {"hour": timedelta(hours=1), "long": "x" * 129, "end": END}
    copy = done(f"SET b = 2; {text}", {"b": 1, "n": 10**5000}, **given)
    assert copy.error is not None
    assert copy.error.startswith("The action of rule 'r' failed: ")
    assert (copy.user, copy.system) == (None, {})
    alone = done(text, {"n": 10**5000}, **given)
    assert reason(alone) == why


@pytest.mark.parametrize(
    ("before", "text", "why"),
    [
        (1.5, "SET a = n", "the number does not fit into a floating-point number."),
        (NOON, "SET a = '9999-12-31T23:59:59-12:00'", f"{BEYOND}."),
        (NOON, "SET a = '0001-01-01T00:00:00+14:00'", f"{BEYOND}."),
        (None, "SET a = late", f"{BEYOND}."),
    ],
)
def test_an_action_that_sets_an_unstorable_value_fails(before: Any, text: str, why: str) -> None:
    """A message that was stored with such a value could not be read again."""
    late = datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))
    assert reason(done(text, {"a": before, "n": 10**400, "late": late})) == why


@pytest.mark.parametrize("time", ["1970-01-01", "2286-11-20T17:46:39.998"])
def test_a_message_can_be_due_at_the_first_and_the_last_possible_time(time: str) -> None:
    due = datetime.fromisoformat(time).replace(tzinfo=UTC)
    assert done(f"SET sys.ScheduledEnqueueTimeUtc = '{time}'", {}).system == {"scheduledenqueuetimeutc": due}


DIGITS = st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
ZONES = st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours)))
NEAR = (
    "0001-01-01T00:00:00",
    "0001-01-02T12:00:00",
    "2024-05-01T12:00:00",
    "9999-12-31T11:00:00",
    "9999-12-31T23:59:59",
)
TIMES = st.builds(lambda text, zone: datetime.fromisoformat(text).replace(tzinfo=zone), st.sampled_from(NEAR), ZONES)
GIVEN = st.one_of(DIGITS, TIMES, TIMES.map(datetime.isoformat), st.integers(-(2**65), 2**65), st.text(max_size=5))


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(GIVEN, st.sampled_from([1, 1.5, True, NOON, ID, "x", None]))
def test_text_converts_as_documented_or_the_action_fails(value: Any, before: Any) -> None:
    copy = done("SET a = b", {"a": before, "b": value})
    try:
        wanted = set_to(value, before)
    except Failure:
        assert copy.error is not None
        assert "defect" not in copy.error
    else:
        assert copy.user is not None
        assert (type(copy.user["a"]), copy.user["a"]) == (type(wanted), wanted)


def test_an_action_that_makes_a_text_too_long_fails() -> None:
    copy = done("SET a = 'xxxxxxxxxxxxxxxx'" + " SET a = a + a" * 31, {})
    assert reason(copy) == "the text would be longer than 32,768 characters (line 1, column 192)."


def test_each_copy_starts_from_the_message_as_it_was_sent() -> None:
    rules = [Rule(name, TrueFilter(), SqlAction("SET n = n + 1; SET sys.Label = sys.Label + '!'")) for name in "ab"]
    user: dict[str, Any] = {"n": 1, "list": [1]}
    system: dict[str, Any] = {"label": "x"}
    copies = RuleBook([(rules, True), (rules, True)]).judge(MessageView(system, user))
    assert [(copy.subscription, copy.rule) for copy in copies] == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    assert [copy.user for copy in copies] == [{"n": 2, "list": [1], "RuleName": name} for name in "abab"]
    assert [copy.system for copy in copies] == [{"label": "x!"}] * 4
    assert (user, system) == ({"n": 1, "list": [1]}, {"label": "x"})
