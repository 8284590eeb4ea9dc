"""Tests of bodies that are structs of msgspec or models of pydantic."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from sbredis.codec import UnsupportedTypeError, check_type, decode_body, encode_body
from sbredis.exceptions import MessageBodyError


class Struct(msgspec.Struct):
    article: str
    counts: list[int]


class Model(pydantic.BaseModel):
    article: str
    counts: list[int]


@pytest.mark.parametrize("kind", [Struct, Model])
def test_a_value_decodes_to_an_equal_value_alone_and_in_a_list(kind: Any) -> None:
    value = kind(article="cup", counts=[1, 2])
    body, content_type = encode_body(value)
    assert (body, content_type) == (b'{"article":"cup","counts":[1,2]}', "application/json")
    assert decode_body(body, content_type, kind) == value
    assert decode_body(b"[%b]" % body, content_type, list[kind]) == [value]


@pytest.mark.parametrize("kind", [Struct, Model])
@pytest.mark.parametrize("place", ["$", "$[0]"])
def test_a_body_that_does_not_fit_is_refused_with_the_place_and_without_the_value(kind: Any, place: str) -> None:
    body = b'{"article":"cup","counts":[1,"secret"]}'
    alone = place == "$"
    with pytest.raises(MessageBodyError) as raised:
        decode_body(body if alone else b"[%b]" % body, None, kind if alone else list[kind])
    assert f"{place}.counts[1]" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("kind", [Struct, Model])
def test_a_body_that_is_not_json_is_refused(kind: Any) -> None:
    with pytest.raises(MessageBodyError):
        decode_body(b"{", None, kind)


class Place(msgspec.Struct, tag=True):
    article: str
    at: datetime | None = None
    counts: dict[int, str] = {}


class Cancel(msgspec.Struct, tag=True):
    article: str


class AlsoPlace(msgspec.Struct, tag="Place"):
    article: str


PLACE, CANCEL = Place("cup", datetime(2026, 1, 1, tzinfo=UTC), {1: "a"}), Cancel("cup")


@pytest.mark.parametrize("value", [PLACE, CANCEL])
@pytest.mark.parametrize("kind", [Place | Cancel, Place | Cancel | int | None, Annotated[Place, ""] | Cancel])
def test_structs_with_tags_may_be_in_one_union(value: Any, kind: Any) -> None:
    check_type(kind)
    body, content_type = encode_body(value)
    assert decode_body(body, content_type, kind) == value
    assert decode_body(b"[%b]" % body, content_type, list[kind]) == [value]


def test_a_union_of_structs_is_a_part_of_other_types() -> None:
    @dataclass
    class Orders:
        all: list[Place | Cancel | None]

    orders = Orders([PLACE, None, CANCEL])
    body, content_type = encode_body(orders)
    assert decode_body(body, content_type, Orders) == orders
    assert decode_body(b"null", None, Place | Cancel | None) is None


@pytest.mark.parametrize("body", [b'{"type":"Secret","article":"cup"}', b'{"article":"cup"}', b"5"])
def test_a_body_without_a_tag_of_the_union_is_refused(body: bytes) -> None:
    with pytest.raises(MessageBodyError, match=r"The body does not fit .*Place") as raised:
        decode_body(body, None, Place | Cancel)
    assert "Secret" not in str(raised.value)


@pytest.mark.parametrize("kind", [Place | Struct, Struct | Cancel | None, Place | AlsoPlace, Place | Cancel | Model])
def test_structs_that_their_tags_do_not_tell_apart_are_refused(kind: Any) -> None:
    with pytest.raises(UnsupportedTypeError, match=r"look alike in JSON.* structs of msgspec with tags"):
        check_type(kind)


@pydantic.dataclasses.dataclass
class Validated:
    count: int = pydantic.Field(gt=0)


def test_a_dataclass_of_pydantic_is_refused_because_it_would_not_be_validated() -> None:
    with pytest.raises(UnsupportedTypeError, match="Validated cannot be decoded: it has an __init__ of its own"):
        check_type(list[Validated])


@pytest.mark.parametrize("as_type", [list[Model | int], dict[str, Model | str], tuple[Model | int | None, int]])
def test_a_union_with_a_model_inside_another_type_is_refused(as_type: Any) -> None:
    with pytest.raises(UnsupportedTypeError, match="a union may have a model of pydantic and None only"):
        check_type(as_type)
