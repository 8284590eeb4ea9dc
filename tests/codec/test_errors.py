"""Tests of errors: none contains a value from a body, and each names the place."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from sbredis.codec import decode_body, encode_body
from sbredis.exceptions import MessageBodyError
from tests.codec.test_bodies import Colour, Extra, Order, Point, Size


class Closed(msgspec.Struct, forbid_unknown_fields=True, tag=True):
    number: int


class Open(msgspec.Struct, tag=True):
    number: Annotated[int, Meta(ge=0)]


class Level(enum.IntEnum):
    LOW = 1


class Model(pydantic.BaseModel):
    seen: dict[str, int] = {}
    inner: list[Model] = []
    other: int = pydantic.Field(0, alias="Other")


@dataclass
class Positive:
    count: int = 0

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"{self.count} - at `$.secret`")


@dataclass
class Parts:
    items: list[Positive]
    place: dict[str, Closed | Open]


@pytest.mark.parametrize(
    ("as_type", "body", "said"),
    [
        (list[Colour], '["secret"]', "$[0] is none of the values of its type."),
        (list[Level], "[987654321]", "$[0] is none of the values of its type."),
        (list[Literal["a", "b"]], '["x - at `$.secret`"]', "$[0] is none of the values of its type."),
        (Literal["a"], '"x - at `$.secret`"', "$ is none of the values of its type."),
        (Literal[1, True], "987654321", "$ is none of the values of its type."),
        (Closed | Open, '{"type":"secret"}', "$.type is none of the values of its type."),
        (Closed | Open, "{}", "$.type is missing."),
        (Closed, '{"number":1,"secret":2}', "an object has a field that its type does not have."),
        (Closed, '{"type":"Closed","x - at `$.secret":2}', "an object has a field that its type does not have."),
        (Open, '{"type":"Open","number":-987654321}', "$.number must be a whole number >= 0."),
        (list[Annotated[str, Meta(max_length=3)]], '["secret"]', "$[0] must be text of length <= 3."),
        (list[Annotated[str, Meta(pattern="^a")]], '["secret"]', "$[0] must be text matching regex '^a'."),
        (list[datetime], '["secret"]', "$[0] is not a date and a time in RFC 3339."),
        (list[date], '["secret"]', "$[0] is not a date in RFC 3339."),
        (list[time], '["secret"]', "$[0] is not a time in RFC 3339."),
        (list[timedelta], '["secret"]', "$[0] is not a duration in ISO 8601."),
        (list[timedelta], '["P9876543210D"]', "$[0]"),
        (list[UUID], '["secret"]', "$[0] is not a UUID."),
        (list[Decimal], '["secret"]', "$[0] is not a decimal number as text."),
        (list[Decimal], '["1e987654321"]', "$[0] is not a decimal number as text."),
        (list[bytes], '["secret%"]', "$[0] is not base64 text."),
        (list[float], "[1e987654321]", "is larger than any float."),
        (list[int], f"[{'987654321' * 600}]", "is a number with too many digits."),
        (list[int], "[987654321.5]", "$[0] is a number, but must be a whole number."),
        (dict[int, int], '{"secret":1}', "a key of $ is text, but must be a whole number."),
        (dict[str, dict[UUID, int]], '{"secret":{"secret":1}}', "a key of $.* is not a UUID."),
        (list[Positive], '[{},{"count":-987654321}]', "$[1] was refused by its class (ValueError)."),
        (Positive, '{"count":-987654321}', "$ was refused by its class (ValueError)."),
        (Parts, '{"items":[{"count":-987654321}],"place":{}}', "$.items[0] was refused by its class (ValueError)."),
        (Parts, '{"items":[],"place":{"secret":{"type":"secret"}}}', "$.place.*.type is none of the values of"),
        (Model, '{"seen":{"secret":"secret"}}', "$.seen.*: int_parsing."),
        (list[Model], '[{"inner":[{"inner":[{"Other":"secret"}]}]}]', "$[0].inner[0].inner[0].Other: int_parsing."),
    ],
)
def test_an_error_names_the_place_and_no_value(as_type: Any, body: str, said: str) -> None:
    with pytest.raises(MessageBodyError) as raised:
        decode_body(body.encode(), "application/json", as_type)
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "987654321" not in str(raised.value)


TYPES: list[Any] = [Order, list[Colour], dict[int, Size], Point, Extra, Closed | Open | None, Model, Parts, set[UUID]]
SECRETS = st.sampled_from(["secret", "- at `$.secret`", "secret`", "'secret'", "1secret"]) | st.just(987654321)
NAMES = st.sampled_from(
    ["secret", "type", "at", "lines", "colour", "items", "place", "number", "seen", "inner", "note"]
)
BODIES = st.recursive(
    SECRETS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=6
)


@given(st.sampled_from(TYPES), BODIES)
def test_no_error_contains_a_value(as_type: Any, value: Any) -> None:
    said = ""
    try:
        decode_body(msgspec.json.encode(value), None, as_type)
    except MessageBodyError as error:
        said = str(error)
    assert "secret" not in said
    assert "987654321" not in said


@dataclass(eq=False)
class Bare:
    value: Any
    inner: list[Bare]


@dataclass
class Typed:
    text: str = ""
    ratio: float = 0.0
    at: datetime | None = None
    anything: Any = None
    names: list[str] | None = None


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (Typed(text=date(2026, 1, 1)), TypeError, r"type date at \$\.text cannot be sent"),  # type: ignore[arg-type]
        (Typed(text=UUID(int=1)), TypeError, r"type UUID at \$\.text cannot be sent"),  # type: ignore[arg-type]
        (Typed(names=("a",)), TypeError, r"type tuple at \$\.names cannot be sent"),  # type: ignore[arg-type]
        (Typed(names="ab"), TypeError, r"\$\.names is text, but must be a list or null"),  # type: ignore[arg-type]
        (Typed(anything={"a": [(1,)]}), TypeError, r"type tuple at \$\.anything\.\*\[0\] cannot be sent"),
        (Typed(anything=[Colour.RED]), TypeError, r"type Colour at \$\.anything\[0\] cannot be sent"),
        (Typed(anything={1: 2}), TypeError, r"type dict at \$\.anything cannot be sent"),
        (Typed(ratio=math.nan), ValueError, "JSON has no infinite number and no NaN"),
        (Typed(anything=[math.inf]), ValueError, "JSON has no infinite number and no NaN"),
        (Typed(text="\ud800"), ValueError, "half of a surrogate pair"),
        (
            Typed(at=datetime(1900, 1, 1, tzinfo=timezone(timedelta(seconds=561)))),
            TypeError,
            r"datetime at \$\.at .* equal value: its offset from UTC has seconds, .* Convert it to UTC\.$",
        ),
        (Typed(names=(time(1),)), TypeError, r"tuple at \$\.names .* equal value\.$"),  # type: ignore[arg-type]
        (Bare({"a": (1,)}, []), TypeError, r"type tuple at \$\.value\.\* cannot be sent"),
        (Bare(None, [Bare({1}, [])]), TypeError, r"type set at \$\.inner\[0\]\.value cannot be sent"),
    ],
)
def test_a_value_that_would_not_decode_to_an_equal_value_is_refused_with_its_place(
    value: object, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        encode_body(value)


def test_values_without_equality_are_compared_by_their_fields() -> None:
    body, content_type = encode_body([Bare({"a": [1]}, [Bare(2.5, [])])])
    (back,) = decode_body(body, content_type, list[Bare])
    assert (back.value, back.inner[0].value) == ({"a": [1]}, 2.5)


class Secretive(pydantic.BaseModel):
    name: str
    password: str = pydantic.Field("", exclude=True)


@dataclass
class Login:
    who: Secretive
    at: datetime


def test_a_model_decides_itself_what_is_sent() -> None:
    who = Secretive(name="a", password="b")
    assert encode_body(who).body == b'{"name":"a"}'
    assert b"password" not in encode_body(Login(who, datetime(2026, 1, 1, tzinfo=UTC))).body


def test_a_byte_order_mark_before_json_is_passed_over() -> None:
    assert decode_body(b'\xef\xbb\xbf{"a":1}', None, dict) == {"a": 1}
