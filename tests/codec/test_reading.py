"""Tests of how bodies are read: a value decodes to an equal value for every type that it has, also unions."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, Self

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.codec import decode_body, encode_body
from sbredis.exceptions import MessageBodyError

Key = NewType("Key", str)


class Colour(enum.Enum):
    RED = "red"
    FIVE = "5"
    NULL = "null"


class Mood(enum.StrEnum):
    GOOD = "good"
    TRUE = "true"


class Word(str, enum.Enum):  # noqa: UP042 -- programs for Python 3.10 have them
    FIVE = "5"
    QUOTED = '"5"'


class Shifted(str, enum.Enum):  # noqa: UP042
    """An enumeration whose values are other texts than its members."""

    ONE = "one"

    def __new__(cls, text: str) -> Self:
        member = str.__new__(cls, text.upper())
        member._value_ = text
        return member


class Point(NamedTuple):
    x: int
    name: str | None


@dataclass
class Line:
    article: Key
    mood: Mood | None
    note: Annotated[str | None, "x"] | int = None  # a union inside a union


class Struct(msgspec.Struct):
    by_number: dict[int, str]


class Model(pydantic.BaseModel, strict=True):
    raw: bytes
    seen: dict[int, pydantic.AwareDatetime]


# texts that JSON can read as well, and others
TEXT = st.sampled_from(["abc", "", "5", "null", "true", '"abc"', '{"a":1}', "[1]", "1.5", "red", "NaN"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)
NUMBERS = st.integers(-99, 99)
RAW = TEXT.map(str.encode) | st.binary(max_size=4)
OBJECTS = st.dictionaries(TEXT, NUMBERS, max_size=2)
LINES = st.builds(Line, TEXT.map(Key), st.none() | st.sampled_from(Mood), st.none() | TEXT | NUMBERS)
STRUCTS = st.builds(Struct, st.dictionaries(NUMBERS, TEXT, max_size=2))
MODELS = st.builds(Model, raw=TEXT.map(str.encode), seen=st.dictionaries(NUMBERS, st.datetimes(timezones=st.just(UTC))))
POINTS = st.builds(Point, NUMBERS, st.none() | TEXT)

VALUES_OF: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXT),
    (Key, TEXT),
    (Annotated[str, "x"], TEXT),
    (Annotated[bytes, "x"], RAW),
    (Optional[str], st.none() | TEXT),  # noqa: UP045 -- typing has another class for it
    (Key | None, st.none() | TEXT),
    (Annotated[str | None, "x"], st.none() | TEXT),
    (Annotated[str | None, "x"] | int, st.none() | TEXT | NUMBERS),
    (str | int, TEXT | NUMBERS),
    (str | int | bool | None, TEXT | NUMBERS | st.booleans() | st.none()),
    (str | dict[str, int], TEXT | OBJECTS),
    (str | list[str | None], TEXT | st.lists(st.none() | TEXT)),
    (str | Line, TEXT | LINES),
    (str | Struct, TEXT | STRUCTS),
    (Model | str, TEXT | MODELS),
    (Literal["a", "5", "null"], st.sampled_from(["a", "5", "null"])),
    (Literal["a", "5", 5, True] | None, st.sampled_from(["a", "5", 5, True, None])),
    (Literal["5", "null"] | int | None, st.sampled_from(["5", "null", 5, None])),
    (Literal["{}"] | dict[str, int], st.just("{}") | OBJECTS),
    (Colour, st.sampled_from(Colour)),
    (Mood, st.sampled_from(Mood)),
    (Word, st.sampled_from(Word)),
    (Shifted, st.sampled_from(Shifted)),
    (Mood | Line, st.sampled_from(Mood) | LINES),
    (Mood | None, st.none() | st.sampled_from(Mood)),
    (Mood | bool, st.booleans() | st.sampled_from(Mood)),
    (bytes | None, st.none() | RAW),
    (bytes | int, NUMBERS | RAW),
    (bytes | dict[str, int], OBJECTS | RAW),
    (bytes | Line | None, st.none() | LINES | RAW),
    (object, TEXT | NUMBERS | RAW),
    (list[Line], st.lists(LINES, max_size=2)),
    (list[Struct] | str, TEXT | st.lists(STRUCTS, max_size=2)),
    (list[Point | None], st.lists(st.none() | POINTS, max_size=2)),
    (dict[str, Model], st.dictionaries(TEXT, MODELS, max_size=2)),
    (dict[str, list[Line]] | None, st.none() | st.dictionaries(TEXT, st.lists(LINES, max_size=2), max_size=2)),
]


@pytest.mark.parametrize(("as_type", "values"), VALUES_OF, ids=[str(each) for each, _ in VALUES_OF])
@given(st.data())
def test_a_value_decodes_to_an_equal_value_for_every_type_that_it_has(
    as_type: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    encoded = encode_body(value)
    decoded = decode_body(encoded.body, encoded.content_type, as_type)
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize("as_type", [str, str | None, str | int, str | Line, Key, Any, object])
@given(st.sampled_from([*Mood, *Word]))
def test_a_member_that_is_a_text_decodes_to_an_equal_text(as_type: Any, value: str) -> None:
    encoded = encode_body(value)
    decoded = decode_body(encoded.body, encoded.content_type, as_type)
    assert decoded == value
    assert type(decoded) is str


def test_a_member_whose_value_is_another_text_than_itself_is_sent_as_json() -> None:
    assert encode_body(Shifted.ONE) == (b'"one"', "application/json")
    assert encode_body(Mood.GOOD) == (b"good", "text/plain; charset=utf-8")


JSON, TEXTS, OTHER = "application/cloudevents+json", "text/plain; charset=utf-8", "application/octet-stream"


@pytest.mark.parametrize(
    ("as_type", "body", "as_json", "as_text", "as_other"),
    [
        (Any, b"5", 5, "5", b"5"),
        (object, b"5", 5, "5", b"5"),
        (bytes, b"5", b"5", b"5", b"5"),
        (bytes | None, b"null", None, b"null", b"null"),
        (bytes | int, b"5", 5, b"5", b"5"),
        (str, b"5", "5", "5", "5"),
        (Key, b'"5"', '"5"', '"5"', '"5"'),
        (str | None, b"null", None, "null", "null"),
        (str | None, b'"5"', "5", '"5"', '"5"'),
        (str | int, b"5", 5, "5", 5),
        (str | int, b"5a", None, "5a", None),
        (str | dict[str, int], b"{}", {}, "{}", {}),
        (Literal["5"] | None, b"5", None, "5", "5"),
        (Literal["a"] | None, b'"a"', "a", "a", "a"),
        (Literal["5", 5], b"5", 5, "5", 5),
        (Literal["5"] | int, b"7", 7, 7, 7),
        (Colour, b"red", None, Colour.RED, Colour.RED),
        (Colour, b'"red"', Colour.RED, Colour.RED, Colour.RED),
        (int, b"5", 5, 5, 5),
        (dict, b"{}", {}, {}, {}),
        (int | None, b"null", None, None, None),
    ],
)
def test_the_content_type_and_the_type_decide(
    as_type: Any, body: bytes, as_json: Any, as_text: Any, as_other: Any
) -> None:
    """``None`` stands for null, or for a body that is refused."""
    for content_types, expected in (((JSON,), as_json), ((TEXTS,), as_text), ((OTHER, None, ""), as_other)):
        for content_type in content_types:
            try:
                found = decode_body(body, content_type, as_type)
            except MessageBodyError:
                assert body != b"null"
                found = None
            assert (type(found), found) == (type(expected), expected), content_type


@pytest.mark.parametrize(
    ("as_type", "body", "content_type", "said"),
    [
        (str | int, b"abc", None, "The body is not JSON: invalid character, at byte 0. Text needs a content type of"),
        (Literal["a"], b"secret", TEXTS, "The body does not fit Literal['a']: $ is none of the values of"),
        (Literal["a"], b"\xff", TEXTS, "The body is not UTF-8 text: byte 0 is wrong."),
        (str | None, b"\xff", TEXTS, "The body is not UTF-8 text: byte 0 is wrong."),
    ],
)
def test_a_text_that_does_not_fit_is_refused(as_type: Any, body: bytes, content_type: str | None, said: str) -> None:
    with pytest.raises(MessageBodyError) as raised:
        decode_body(body, content_type, as_type)
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("inside", [Colour.RED, b"raw", {1}, (1,), object()])
def test_a_value_that_would_look_like_another_is_refused_inside_a_plain_container(inside: object) -> None:
    with pytest.raises(TypeError, match=r"inside a plain dict or list cannot be sent"):
        encode_body({"a": [inside]})


def test_a_field_without_a_type_takes_no_model_because_it_would_decode_to_a_dict() -> None:
    @dataclass
    class Loose:
        anything: Any

    with pytest.raises(
        TypeError, match=r"type Struct at \$\.anything\[0\] cannot be sent, because it would not decode"
    ):
        encode_body(Loose([Struct({})]))
