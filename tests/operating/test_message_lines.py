"""Messages, values and durations as text, and back."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.model import ServiceBusMessage, content_of
from sbredis.operating import from_json, message_of, shown_body, to_json, under_mistake

SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.datetimes(timezones=st.just(UTC))
)
KEYS = st.text() | st.integers() | st.uuids()
VALUES: st.SearchStrategy[Any] = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


@given(VALUES)
def test_a_value_is_the_same_after_json(value: Any) -> None:
    found = from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_kept() -> None:
    assert math.isnan(from_json(to_json(math.nan)))


@pytest.mark.parametrize("value", [{"$date": "x"}, {"$uuid": "x"}, {"$uuid": "x", "y": 1}, {"$bytes": 1}, {"$map": 3}])
def test_an_object_that_names_no_type_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"is no (type|value)"):
        from_json(value)


def test_a_line_makes_a_message() -> None:
    message = message_of(
        {
            "body": {"pieces": 2},
            "message_id": {"$uuid": "12345678-1234-5678-1234-567812345678"},
            "session_id": "ann",
            "time_to_live": "90s",
            "scheduled_enqueue_time_utc": "2030-01-31T12:00:00",
            "application_properties": {"due": {"$datetime": "2030-01-31T12:00:00+01:00"}},
            "sequence_number": 7,
        }
    )
    assert message.body == b'{"pieces": 2}'
    assert str(message.message_id) == "12345678-1234-5678-1234-567812345678"
    assert message.time_to_live == timedelta(seconds=90)
    assert message.scheduled_enqueue_time_utc == datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert message.application_properties is not None


WRONG: dict[str, Any] = {
    "not a list": ["x"],
    "no 'body'": {"subject": "x"},
    "Did you mean 'subject'": {"body": "x", "subjekt": "y"},
    "'application_properties'": {"body": "x", "customer": "ann"},
    "not both": {"body": "x", "body_base64": "eA=="},
    "body_base64: it is not base64": {"body_base64": "?"},
    "time_to_live: it is a number": {"body": "x", "time_to_live": True},
    "is not a duration": {"body": "x", "time_to_live": "soon"},
    "time_to_live: inf is not": {"body": "x", "time_to_live": math.inf},
    "time_to_live: nan is not": {"body": "x", "time_to_live": math.nan},
    "time_to_live: -10+ is not": {"body": "x", "time_to_live": -(10**400)},
    "scheduled_enqueue_time_utc": {"body": "x", "scheduled_enqueue_time_utc": 3},
    "Invalid isoformat": {"body": "x", "scheduled_enqueue_time_utc": "soon"},
    "application_properties: they are": {"body": "x", "application_properties": [1]},
    "session_id": {"body": "x", "session_id": 3},
    "amqp is a JSON object": {"body": "x", "amqp": [1]},
}


@pytest.mark.parametrize("text", WRONG)
def test_a_line_that_is_no_message_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        message_of(WRONG[text])


def test_a_body_is_shown_without_characters_that_disturb_a_terminal() -> None:
    assert shown_body(ServiceBusMessage("two\nlines\x1b[2J, ü")) == "two\\nlines\\x1b[2J, ü"
    assert shown_body(ServiceBusMessage(b"\xff")) == "base64:/w=="
    value = ServiceBusMessage(None)
    content_of(value).annotations = {"value": {"a": 1}}
    assert shown_body(value) == '{"a": 1}'


def test_a_caret_is_under_the_mistake() -> None:
    assert under_mistake("price > > 3", 1, 9) == "  price > > 3\n          ^"
    assert under_mistake("a\n\tb ?", 2, 4) == "   b ?\n     ^"
    shown = under_mistake("x" * 500 + "?" + "y" * 500, 1, 501).split("\n")
    assert shown[0][shown[1].index("^")] == "?"
    assert under_mistake("", 1, 1) == "  \n  ^"
    assert under_mistake("a\u2028\v\x1b ?", 1, 6) == "  a    ?\n       ^", "these characters do not end a line"


def test_a_caret_regards_the_width_of_characters() -> None:
    """An East Asian character takes two columns of a terminal, and a combining one none."""
    assert under_mistake("価格 > > 3", 1, 6) == "  価格 > > 3\n         ^"
    assert under_mistake("cafe\u0301 > > 3", 1, 9) == "  cafe\u0301 > > 3\n         ^"
    line, caret = under_mistake("価" * 500 + "?" + "格" * 500, 1, 501).split("\n")
    assert line == "  " + "価" * 30 + "?" + "格" * 19
    assert caret == "  " + " " * 60 + "^"
