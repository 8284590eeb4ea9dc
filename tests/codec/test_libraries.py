"""Tests of bodies that are structs of msgspec or models of pydantic."""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic
import pytest

from sbredis.codec import decode_body, encode_body
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
