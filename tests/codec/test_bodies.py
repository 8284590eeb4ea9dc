"""Tests of the codec: which bodies values have, what they decode to, and which values and bodies are refused."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbredis.codec import UnsupportedTypeError, check_type, decode_body, encode_body
from sbredis.exceptions import MessageBodyError


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Mixed(enum.Enum):
    TEXT = "text"
    NUMBER = 1


class Huge(enum.Enum):
    NUMBER = 2**70


@dataclass
class Doubled:
    x: int

    def __init__(self, x: int) -> None:
        self.x = 2 * x


@dataclass
class Scaled:
    x: int
    scale: InitVar[int] = 1


class Point(NamedTuple):
    x: int
    y: float


class Extra(TypedDict):
    note: str
    weight: NotRequired[float]


Key = NewType("Key", str)
Ratio = NewType("Ratio", float)


@dataclass
class Line:
    article: Key
    count: int
    price: Decimal


@dataclass(frozen=True)
class Leaf:
    children: tuple[Leaf, ...] = ()


@dataclass
class Order:
    id: UUID
    at: datetime
    lines: list[Line]
    colour: Colour
    size: Size
    point: Point
    extra: Extra
    tree: Leaf
    due: date | None = None
    opens: time | None = None
    lasts: timedelta | int = 0
    raw: bytes = b""
    tags: frozenset[str] = frozenset()
    by_number: dict[int, str] = field(default_factory=dict)
    pair: tuple[int, str] = (0, "")
    mode: Literal["fast", "slow"] = "fast"
    amount: int | float | None = None
    ratio: float | None = None
    anything: Any = None


@dataclass
class Appointment:
    at: datetime


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
LEAVES = st.recursive(
    st.builds(Leaf), lambda inner: st.builds(Leaf, st.lists(inner, max_size=2).map(tuple)), max_leaves=4
)
MOMENTS = st.datetimes(timezones=st.none() | st.just(UTC))
ORDERS = st.builds(
    Order,
    id=st.uuids(),
    at=MOMENTS,
    lines=st.lists(
        st.builds(Line, TEXT.map(Key), st.integers(), st.decimals(allow_nan=False, allow_infinity=False)), max_size=3
    ),
    colour=st.sampled_from(Colour),
    size=st.sampled_from(Size),
    point=st.builds(Point, st.integers(), NUMBERS),
    extra=st.fixed_dictionaries({"note": TEXT}, optional={"weight": NUMBERS}),
    tree=LEAVES,
    due=st.none() | st.dates(),
    opens=st.none() | st.times(),
    lasts=st.timedeltas() | st.integers(),
    raw=st.binary(max_size=8),
    tags=st.frozensets(TEXT, max_size=3),
    by_number=st.dictionaries(st.integers(), TEXT, max_size=3),
    pair=st.tuples(st.integers(), TEXT),
    mode=st.sampled_from(["fast", "slow"]),
    amount=st.none() | st.integers() | NUMBERS,
    ratio=st.none() | NUMBERS,
    anything=PLAIN,
)


@given(
    st.one_of(st.binary(), TEXT, PLAIN, ORDERS, LEAVES, MOMENTS, st.uuids(), st.timedeltas(), st.sampled_from(Colour))
)
def test_a_value_decodes_to_an_equal_value_of_the_same_type(value: object) -> None:
    encoded = encode_body(value)
    decoded = decode_body(encoded.body, encoded.content_type, type(value))
    assert decoded == value
    assert type(decoded) is type(value)


@example(at=datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")))
@example(at=datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")))
@example(at=datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")))
@example(at=datetime(2026, 3, 29, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")))
# Hypothesis adds the zone.
@given(at=st.datetimes(datetime(1980, 1, 1), timezones=st.timezones()))  # noqa: DTZ001
def test_a_time_in_any_zone_decodes_to_the_same_moment(at: datetime) -> None:
    """Also in the hour that a change of daylight saving repeats or leaves out."""
    alone, one, several = encode_body(at), encode_body(Appointment(at)), encode_body([Appointment(at)])
    assert decode_body(alone.body, None, datetime).isoformat() == at.isoformat()
    assert decode_body(one.body, None, Appointment).at.isoformat() == at.isoformat()
    (appointment,) = decode_body(several.body, several.content_type, list[Appointment])
    assert appointment.at.isoformat() == at.isoformat()


@given(PLAIN | st.binary())
def test_without_a_type_the_content_type_decides(value: object) -> None:
    encoded = encode_body(value)
    assert decode_body(encoded.body, encoded.content_type) == value


@pytest.mark.parametrize(
    ("value", "body", "content_type"),
    [
        (b"\x00\xff", b"\x00\xff", None),
        ("grüße", "grüße".encode(), "text/plain; charset=utf-8"),
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        (True, b"true", "application/json"),
        (Line(Key("x"), 2, Decimal("1.50")), b'{"article":"x","count":2,"price":"1.50"}', "application/json"),
        (timedelta(days=-1, microseconds=1), b'"-PT86399.999999S"', "application/json"),
    ],
)
def test_the_body_of_a_value(value: object, body: bytes, content_type: str | None) -> None:
    assert encode_body(value) == (body, content_type)


@pytest.mark.parametrize("as_type", [float, float | None, float | str | None, float | (None | str), Ratio | str])
@given(st.integers(-(2**53), 2**53))
def test_a_field_of_a_float_takes_a_whole_number(as_type: Any, number: int) -> None:
    measured = make_dataclass("Measured", [("value", as_type)])
    encoded = encode_body(measured(number))
    decoded = decode_body(encoded.body, encoded.content_type, measured)
    assert decoded == measured(number)
    assert type(decoded.value) is float


@pytest.mark.parametrize("as_type", [float | None, float | str])
@pytest.mark.parametrize("value", [True, Decimal(1)])
def test_a_field_of_a_float_takes_no_other_number(as_type: Any, value: object) -> None:
    measured = make_dataclass("Measured", [("value", as_type)])
    with pytest.raises(TypeError, match="cannot be sent, because it would not decode"):
        encode_body(measured(value))


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT5S", 5), ("P1DT1H1M1.5S", 90061.5), ("-PT0.25S", -0.25), ("P2D", 172800)]
)
def test_durations_of_iso_8601_are_read(text: str, seconds: float) -> None:
    assert decode_body(f'"{text}"'.encode(), None, timedelta) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("body", "as_type", "where"),
    [
        (b"{", dict, "The body is not JSON: "),
        (b"\xff", str, "The body is not UTF-8 text: byte 0 is wrong."),
        (b"\xff", dict, "The body is not UTF-8 text: byte 0 is wrong."),
        (b"NaN", float, "The body is not JSON: invalid character, at byte 0."),
        (b"[1]", dict, "The body does not fit dict: $ is a list, but must be an object."),
        (b"1.5", int, "$ is a number, but must be a whole number."),
        (b"true", int, "$ is a truth value, but must be a whole number."),
        (b'{"article":"x","count":"2","price":"1"}', Line, "$.count is text, but must be a whole number."),
        (b'{"article":"x","price":"1"}', Line, "$.count is missing."),
        (b'{"article":"x","count":2,"price":"secret"}', Line, "$.price is not a decimal number as text."),
        (b'{"article":"x","count":2,"price":"NaN"}', Line, "$.price is not a decimal number as text."),
        (b'[1,"secret"]', list[int], "$[1] is text, but must be a whole number."),
        (b"[1]", Point, "$ must be a list of length 2."),
        (b'"secret"', Colour, "The body does not fit Colour: $ is none of the values of its type."),
        (b'{"secret":1}', dict[int, int], "a key of $ is text, but must be a whole number."),
        (b'{"a":"secret"}', dict[str, int], "$.* is text, but must be a whole number."),
        (b'"secret"', datetime, "$ is not a date and a time in RFC 3339."),
        (b'"P"', timedelta, "$ is not a duration in ISO 8601."),
        (b'"PT"', timedelta, "$ is not a duration in ISO 8601."),
        (b'"%%"', list[bytes] | bytes | None, "$ is not base64 text."),
        (b"1" + b"0" * 400, float, "$ is larger than any float."),
        (b"[" * 100_000, list, "The body is nested too deeply."),
        (b"{}", int | None, "$ is an object, but must be a whole number or null."),
    ],
)
def test_a_body_that_does_not_fit_is_refused_with_its_place_and_no_value(body: bytes, as_type: Any, where: str) -> None:
    with pytest.raises(MessageBodyError) as raised:
        decode_body(body, "application/json", as_type)
    assert where in str(raised.value)
    assert "secret" not in str(raised.value)
    assert not raised.value.is_transient


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (math.nan, ValueError),
        ({"a": math.inf}, ValueError),
        ("\ud800", ValueError),
        (["\ud800"], ValueError),
        ({1: 2}, TypeError),
        ({"a": (1, 2)}, TypeError),
        ([date(2026, 1, 1)], TypeError),
        (object(), TypeError),
        (bytearray(b"x"), TypeError),
        (memoryview(b"x"), TypeError),
        (Line("x", "2", Decimal(1)), TypeError),  # type: ignore[arg-type]
        (Line(Key("x"), 2, Decimal("inf")), ValueError),
    ],
)
def test_a_value_that_would_not_decode_to_an_equal_value_is_refused(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_body(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ValueError, match="nested too deeply, or contains itself"):
        encode_body(value)


@pytest.mark.parametrize(
    ("as_type", "said"),
    [
        (str | Colour, "look alike in JSON"),
        (str | datetime, "look alike in JSON"),
        (Order | Line, "look alike in JSON"),
        (dict[tuple[int, str], str], "its keys must be text or numbers"),
        (Mixed, "the values of an enumeration must be all text or all int"),
        (Huge, "may have 64 bits"),
        (Literal[2**70], "may have 64 bits"),
        (Doubled, "Doubled cannot be decoded: it has an __init__ of its own, which would not be called"),
        (dict[str, list[Doubled]], "Doubled cannot be decoded: it has an __init__ of its own"),
        (Scaled, "a dataclass with an InitVar is not supported"),
        (bytearray, "is not a type that bodies can have"),
        (complex, "is not a type that bodies can have"),
        (list[complex], "is not a type that bodies can have"),
    ],
)
def test_a_type_that_cannot_be_decoded_is_refused_before_any_body_comes(as_type: Any, said: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=said):
        check_type(as_type)


@pytest.mark.parametrize(
    "as_type",
    [
        *[bytes, str, Any, dict, list, Order, Annotated[int, "x"], Annotated[int, []], Sequence[int]],
        *[Mapping[str, Line], int | str | None, Key],
    ],
)
def test_types_that_bodies_can_have(as_type: Any) -> None:
    check_type(as_type)


def test_a_value_that_its_class_refuses_is_a_mismatch() -> None:
    @dataclass
    class Positive:
        count: int

        def __post_init__(self) -> None:
            if self.count < 0:
                raise ValueError(f"{self.count} is secret")

    with pytest.raises(MessageBodyError, match=r"\$ was refused by its class \(ValueError\)") as raised:
        decode_body(b'{"count":-7}', None, Positive)
    assert "-7" not in str(raised.value)
