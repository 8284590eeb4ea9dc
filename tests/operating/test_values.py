"""How people write the values of properties: each value is read again as it was written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.management import CorrelationRuleFilter, FalseRuleFilter, SqlRuleAction, SqlRuleFilter, TrueRuleFilter
from sbredis.model import Field, QueueProperties, RuleProperties
from sbredis.operating import (
    KINDS,
    EntityKind,
    duration_of,
    duration_text,
    filter_text,
    first_sentence,
    plain_text,
    read_action,
    read_filter,
    read_text,
    read_value,
    same_value,
    written,
    written_action,
    written_filter,
)

QUEUE = QueueProperties.fields()


@given(st.integers(0, 10_000_000_000_000))
def test_a_duration_is_read_as_it_was_written(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert duration_of(duration_text(duration)) == duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("P1DT2H", 93_600),
        ("1d2h", 93_600),
        ("1.5s", 1.5),
        ("500ms", 0.5),
        ("250ms", 0.25),
        ("PT5M", 300),
        ("P1DT12H", 129_600),
        ("1.5h", 5400),
        ("90", 90),
        ("0.5", 0.5),
    ],
)
def test_a_duration_has_several_forms(text: str, seconds: float) -> None:
    assert duration_of(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "5x", "5m x", "-5s", "1h 30m", "1h30", "P", "PT", "1e9", "9" * 18 + "d", "1:30", "٣s"]
)
def test_another_text_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration"):
        duration_of(text)


WRITTEN: dict[str, tuple[str, Any]] = {
    "a duration": ("lock_duration", "30s"),
    "no limit": ("default_message_time_to_live", "none"),
    "a number": ("max_delivery_count", 3),
    "a flag": ("requires_session", True),
    "a choice": ("status", "Disabled"),
    "a text": ("user_metadata", "ours"),
    "a name": ("forward_to", "other"),
    "rights": ("authorization_rules", [{"rights": ["Send"], "key_name": "k"}]),
}


@pytest.mark.parametrize(("name", "value"), WRITTEN.values(), ids=WRITTEN)
def test_a_value_is_read_as_it_was_written(name: str, value: Any) -> None:
    assert written(read_value(QUEUE[name], value)) == value


@pytest.mark.parametrize("kind", KINDS[:3], ids=lambda kind: kind.word)
def test_every_default_is_read_as_it_was_written(kind: EntityKind) -> None:
    for name, field in kind.settable(new=True).items():
        assert read_value(field, written(field.default)) == field.default, name
        assert read_value(field, None) == field.default, name


TEXTS: dict[str, tuple[str, str, Any]] = {
    "a duration": ("lock_duration", "1m", timedelta(minutes=1)),
    "no limit": ("auto_delete_on_idle", "None", timedelta.max),
    "a number": ("max_delivery_count", "7", 7),
    "a choice in small letters": ("status", "senddisabled", "SendDisabled"),
    "an empty name removes": ("forward_to", "", None),
}


@pytest.mark.parametrize(("name", "text", "value"), TEXTS.values(), ids=TEXTS)
def test_an_option_is_read(name: str, text: str, value: Any) -> None:
    assert read_text(QUEUE[name], text) == value


WRONG: dict[str, tuple[str, object]] = {
    "too long": ("lock_duration", "6m"),
    "no duration": ("lock_duration", "soon"),
    "a duration without a unit in a file": ("lock_duration", 30),
    "too many": ("max_delivery_count", 0),
    "a number as a text": ("max_delivery_count", "3"),
    "a flag as a text": ("requires_session", "yes"),
    "no choice": ("status", "Idle"),
    "a choice that cannot be set": ("status", "Creating"),
    "no rights": ("authorization_rules", [{"rights": ["Own"]}]),
}


@pytest.mark.parametrize(("name", "value"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_refused(name: str, value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_value(QUEUE[name], value)


def test_a_wrong_number_in_an_option_is_refused() -> None:
    for text in ("x", "1.5", "0", "100000"):
        with pytest.raises(ValueError, match=r"whole number|from 1 to"):
            read_text(QUEUE["max_delivery_count"], text)


FILTERS: dict[str, Any] = {
    "all": (True, TrueRuleFilter(), "all messages"),
    "none": (False, FalseRuleFilter(), "no message"),
    "text": ("a = 1", SqlRuleFilter("a = 1"), "a = 1"),
    "parameters": ({"sql": "a = @x", "parameters": {"@x": 1}}, SqlRuleFilter("a = @x", {"@x": 1}), "a = @x  (@x = 1)"),
    "properties": (
        {"label": "red", "properties": {"n": 5, "id": {"$uuid": "00000000-0000-0000-0000-000000000001"}}},
        CorrelationRuleFilter(label="red", properties={"n": 5, "id": UUID(int=1)}),
        "label = 'red', n = 5, id = UUID('00000000-0000-0000-0000-000000000001')",
    ),
    "an empty text": ({"to": "x", "label": ""}, CorrelationRuleFilter(to="x", label=""), "to = 'x', label = ''"),
    "only an empty text": ({"label": ""}, CorrelationRuleFilter(label=""), "label = ''"),
    "an empty text as a value": ({"properties": {"a": ""}}, CorrelationRuleFilter(properties={"a": ""}), "a = ''"),
    "names that look like types": (
        {"properties": {"$decimal": "1.5", "$map": 1}},
        CorrelationRuleFilter(properties={"$decimal": "1.5", "$map": 1}),
        "$decimal = '1.5', $map = 1",
    ),
    "two properties of one name": (
        {"label": "red", "properties": {"label": "blue"}},
        CorrelationRuleFilter(label="red", properties={"label": "blue"}),
        "label = 'red', user.label = 'blue'",
    ),
    "a duration": (
        {"sql": "age > @x", "parameters": {"@x": {"$duration": "90.5s"}}},
        SqlRuleFilter("age > @x", {"@x": timedelta(seconds=90.5)}),
        "age > @x  (@x = 90.5s)",
    ),
    "a negative duration": (
        {"properties": {"age": {"$duration": "-5400s"}}},
        CorrelationRuleFilter(properties={"age": timedelta(minutes=-90)}),
        "age = -5400s",
    ),
}


@pytest.mark.parametrize(("form", "filter_", "text"), FILTERS.values(), ids=FILTERS)
def test_a_filter_is_read_as_it_was_written(form: Any, filter_: Any, text: str) -> None:
    assert read_filter(form) == filter_
    assert written_filter(filter_) == form
    assert filter_text(filter_) == text


@pytest.mark.parametrize("text", ["1h30m", "5400s", "PT1H30M"])
def test_a_duration_in_a_filter_has_the_forms_of_other_durations(text: str) -> None:
    found = read_filter({"properties": {"age": {"$duration": text}}})
    assert found == CorrelationRuleFilter(properties={"age": timedelta(minutes=90)})


SAME: dict[str, tuple[Any, Any, bool]] = {
    "a number and a truth value": (1, True, False),
    "whole and not whole": (1, 1.0, False),
    "an instant in two zones": (
        datetime(2030, 1, 1, 12, tzinfo=UTC),
        datetime(2030, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))),
        True,
    ),
    "a decimal with more digits": (Decimal("1.5"), Decimal("1.50"), True),
}


@pytest.mark.parametrize(("one", "other", "same"), SAME.values(), ids=SAME)
def test_values_in_filters_and_actions_are_compared_with_their_types(one: Any, other: Any, same: bool) -> None:
    field = RuleProperties.fields()
    made: list[tuple[str, Callable[[Any], object]]] = [
        ("filter", lambda value: CorrelationRuleFilter(properties={"n": value})),
        ("filter", lambda value: SqlRuleFilter("n = @n", {"@n": value})),
        ("action", lambda value: SqlRuleAction("SET a = @n", {"@n": value})),
    ]
    for name, make in made:
        assert same_value(field[name], make(one), make(other)) is same
        assert same_value(field[name], make(one), make(one))
    assert (
        same_value(field["filter"], SqlRuleFilter("n = @n", {"@n": one}), SqlRuleFilter("n = @n", {"@n": other}))
        is same
    )


def test_an_action_is_read_as_it_was_written() -> None:
    for form in (None, "SET a = 1", {"sql": "SET a = @x", "parameters": {"@x": 1}}):
        assert written_action(read_action(form)) == form
    assert read_action("REMOVE a") == SqlRuleAction("REMOVE a")


@pytest.mark.parametrize(
    "form",
    [
        {},
        5,
        {"tag": "x"},
        {"sql": "a", "label": "x"},
        {"sql": 5},
        {"sql": "a", "parameters": 5},
        {"properties": 5},
        {"properties": {"age": {"$duration": 5}}},
        {"properties": {"age": {"$duration": "soon"}}},
        {"properties": {"age": {"$span": "5s"}}},
    ],
    ids=str,
)
def test_another_form_is_no_filter(form: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_filter(form)


def test_the_help_of_a_property_is_the_first_sentence_of_its_documentation() -> None:
    docs = "A note of up to 1,024 characters, see :class:`~a.b.Note`: ``none``\nby default. More."
    assert first_sentence(plain_text(docs)) == "A note of up to 1,024 characters, see Note: none by default"
    described: list[Field[Any, Any]] = [field for kind in KINDS[:3] for field in kind.properties.fields().values()]
    assert all(len(first_sentence(KINDS[0].documentation(name))) > 10 for name in QUEUE)
    assert described
