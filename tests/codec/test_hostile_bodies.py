"""Bodies that are made to harm their reader: each is refused with one error, in a time that grows with its size."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from sbredis.codec import decode_body, encode_body
from sbredis.exceptions import MessageBodyError

JSON = "application/json"
MODULUS = sys.hash_info.modulus
"""Whole numbers that differ by a multiple of it have the same hash."""


@dataclass(frozen=True)
class Row:
    number: int


def colliding(count: int) -> Iterator[int]:
    return (number * MODULUS for number in range(1, count + 1))


@pytest.mark.parametrize("as_type", [Any, int, float, list[int], dict[str, int], Decimal, Row])
@pytest.mark.parametrize("form", ["%s", "-%s", "[%s]", '{"number": %s}'])
def test_a_number_with_too_many_digits_is_refused(as_type: Any, form: str) -> None:
    with pytest.raises(MessageBodyError):
        decode_body((form % ("9" * 5000)).encode(), JSON, as_type)


@pytest.mark.parametrize(
    ("as_type", "values"),
    [
        (dict[int, str], {str(number): "" for number in colliding(5000)}),
        (dict[Decimal, str], {str(number): "" for number in colliding(5000)}),
        (dict[UUID, str], {str(UUID(int=number)): "" for number in colliding(5000)}),
        (set[int], list(colliding(5000))),
        (frozenset[Decimal], [str(number) for number in colliding(5000)]),
        (set[Row], [{"number": number} for number in colliding(5000)]),
    ],
    ids=["dict[int]", "dict[Decimal]", "dict[UUID]", "set[int]", "frozenset[Decimal]", "set[dataclass]"],
)
def test_members_whose_hashes_collide_are_refused(as_type: Any, values: Any) -> None:
    with pytest.raises(MessageBodyError, match="have the same hash"):
        decode_body(json.dumps(values).encode(), JSON, as_type)


def test_members_with_few_collisions_are_decoded() -> None:
    numbers = {*range(-50_000, 50_000), *colliding(900)}
    assert decode_body(json.dumps(list(numbers)).encode(), JSON, set[int]) == numbers
    assert decode_body(json.dumps({str(each): each for each in numbers}).encode(), JSON, dict[int, int]) == {
        each: each for each in numbers
    }


def test_a_member_that_cannot_be_in_a_set_is_refused() -> None:
    with pytest.raises(MessageBodyError, match="cannot be in a set"):
        decode_body(b"[[1]]", JSON, set[list[int]])


@pytest.mark.parametrize("text", ["1e10001", "-1e10001", "1e-10001", "1e999999999999", "0.1e-999999", "NaN", "sNaN"])
def test_a_decimal_number_with_a_huge_exponent_is_refused_in_both_directions(text: str) -> None:
    with pytest.raises(MessageBodyError, match="is not a decimal number"):
        decode_body(json.dumps(text).encode(), JSON, Decimal)
    with pytest.raises(ValueError, match="cannot be sent"):
        encode_body(Decimal(text))


@pytest.mark.parametrize("number", [Decimal("1e10000"), Decimal("-1e-10000"), Decimal("0e999999"), Decimal("12.50")])
def test_a_decimal_number_with_a_sensible_exponent_is_decoded(number: Decimal) -> None:
    body, content_type = encode_body(number)
    assert decode_body(body, content_type, Decimal) == number


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
@pytest.mark.parametrize("as_type", [Any, list[int], dict[str, int], Row])
def test_a_body_that_is_nested_too_deeply_is_refused(as_type: Any, body: bytes) -> None:
    with pytest.raises(MessageBodyError):
        decode_body(body, JSON, as_type)
