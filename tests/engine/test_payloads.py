"""Payloads from columns: they are the same as those of the codec."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import (
    NEVER,
    Content,
    Outbound,
    PropertyColumns,
    decode,
    encode,
    encoded_value,
    other_fields,
    payloads_of,
)
from sbredis.engine._codec import TEXT_OF_TAG
from tests.engine.test_codec import IDS, MAPS, SCALARS, TEXT, typed

PROPERTIES = st.none() | st.dictionaries(TEXT, st.none() | TEXT, max_size=3)
TYPED = PROPERTIES | st.dictionaries(TEXT, SCALARS, max_size=3)
ROWS: st.SearchStrategy[Content] = st.builds(
    Content,
    body=st.binary(max_size=200),
    **{name: st.none() | TEXT for name in TEXT_OF_TAG.values()},
    time_to_live=st.none() | st.integers(1, NEVER + 5),
    scheduled=st.none() | st.integers(-5, NEVER),
    properties=TYPED,
)
AMQP = st.builds(
    Content,
    body=st.binary(max_size=40),
    message_id=st.none() | TEXT | IDS,
    correlation_id=st.none() | TEXT | IDS,
    annotations=st.none() | MAPS,
    raw_amqp=st.none() | st.binary(max_size=60),
    modified=st.none() | st.just(1),
    properties=TYPED,
)
PLAIN = st.builds(Content, body=st.binary(max_size=9), message_id=st.none() | TEXT)


def outbound_of(contents: list[Content]) -> Outbound:
    """Return messages in columns. A column is left out if no message has a value."""
    columns: dict[str, Any] = {}
    for name in (*TEXT_OF_TAG.values(), "time_to_live", "scheduled"):
        values = [getattr(content, name) for content in contents]
        if any(value is not None for value in values):
            columns[name] = [value.encode() if isinstance(value, str) else value for value in values]
    if any(content.properties for content in contents):
        entries = [list((content.properties or {}).items()) for content in contents]
        names = [name.encode() for each in entries for name, _ in each]
        values = [value for each in entries for _, value in each]
        offsets = [sum(map(len, entries[:row])) for row in range(len(entries) + 1)]
        if all(value is None or isinstance(value, str) for value in values):
            texts = [None if value is None else str(value).encode() for value in values]
            columns["properties"] = PropertyColumns(offsets, names, texts)
        else:
            coded = [encoded_value(value, "p") for value in values]
            columns["properties"] = PropertyColumns(offsets, names, [data for _, data in coded], [k for k, _ in coded])
    others = [other_fields(content) for content in contents]
    if any(others):
        columns["others"] = others
        for name in ("message_id", "correlation_id"):
            ids = [getattr(content, name) for content in contents]
            columns[name] = [each.encode() if isinstance(each, str) else None for each in ids]
    return Outbound([content.body for content in contents], **columns)


def expected(content: Content) -> bytes:
    """Return the payload that the codec makes. A time to live that never ends is not stored."""
    if content.time_to_live is not None and content.time_to_live >= NEVER:
        content.time_to_live = None
    return encode(content)


@pytest.mark.slow
@given(st.lists(ROWS | PLAIN, max_size=5) | st.lists(PLAIN, max_size=5))
def test_payloads_are_those_of_the_codec(contents: list[Content]) -> None:
    outbound = outbound_of(contents)
    assert len(outbound) == len(contents)
    assert payloads_of(outbound) == [expected(content) for content in contents]


@pytest.mark.slow
@given(st.lists(AMQP | PLAIN, max_size=5))
def test_payloads_of_amqp_messages_are_decoded_as_those_of_the_codec(contents: list[Content]) -> None:
    """The fields may be in another order."""
    found = [decode(payload) for payload in payloads_of(outbound_of(contents))]
    expected = [decode(encode(content)) for content in contents]
    for field in fields(Content):
        assert [typed(getattr(each, field.name)) for each in found] == [
            typed(getattr(each, field.name)) for each in expected
        ]


@pytest.mark.slow
@given(st.lists(ROWS | PLAIN, min_size=1, max_size=5), st.data())
def test_chosen_rows_are_the_same_rows(contents: list[Content], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(contents) - 1), max_size=5))
    outbound = outbound_of(contents)
    assert payloads_of(outbound.rows(chosen)) == [payloads_of(outbound)[row] for row in chosen]


def test_a_row_without_a_body_has_an_empty_one() -> None:
    assert payloads_of(Outbound([b"a", None], message_id=[None, b"1"])) == [b"\x01\x00a", b"\x01\x01\x011\x00"]
    assert payloads_of(Outbound([None])) == [b"\x01\x00"]


def test_the_properties_of_a_row_are_told_apart() -> None:
    properties = PropertyColumns([0, 2, 2, 3], [b"a", b"b", b"a"], [b"1", None, b"2"])
    assert [properties.of(row) for row in range(3)] == [{"a": "1", "b": None}, {}, {"a": "2"}]
