"""Messages in columns: the columns say the same about each message as the codec does."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.engine import (
    NEVER,
    Changes,
    Columns,
    Content,
    Maps,
    Numbers,
    Rows,
    Texts,
    Value,
    columns_of,
    decode,
    encode,
    encode_changes,
    read_record,
)
from sbredis.exceptions import DataLayoutError
from sbredis.model import current_content
from tests.engine.test_codec import CHANGES, CONTENTS, TEXT, typed

TEXTS = [field.name for field in fields(Content) if field.type in {"str | None", "MessageId | None"}]
TEXTS.remove("assigned")
BOUNDS = st.integers(0, NEVER)


def bit(valid: bytes | None, row: int) -> bool:
    return valid is None or bool(valid[row // 8] >> row % 8 & 1)


def bytes_in(column: Texts | None, row: int) -> bytes | None:
    """Return one value of a column."""
    if column is None or not bit(column.valid, row):
        return None
    return column.data[column.offsets[row] : column.offsets[row + 1]]


def text_in(column: Texts | None, row: int) -> str | None:
    found = bytes_in(column, row)
    return None if found is None else found.decode()


def number_in(column: Numbers | None, row: int) -> int | None:
    return None if column is None or not bit(column.valid, row) else column.values[row]


def map_in(column: Maps | None, row: int) -> dict[str | None, str | None] | None:
    if column is None or not bit(column.valid, row):
        return None
    places = range(column.offsets[row], column.offsets[row + 1])
    return {text_in(column.names, place): text_in(column.values, place) for place in places}


def typed_in(column: Maps | None, row: int) -> dict[str | None, Value]:
    """Return the properties of a row with their types."""
    if column is None or not bit(column.valid, row):
        return {}
    places = range(column.offsets[row], column.offsets[row + 1])
    texts = {place: text_in(column.values, place) for place in places}
    return {text_in(column.names, place): column.typed.get(place, texts[place]) for place in places}


def shown(value: Any) -> str | None:
    """Return a value as text, as simply as possible."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return "a list or a map"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)


@st.composite
def records(draw: st.DrawFn, contents: st.SearchStrategy[Content] = CONTENTS) -> bytes:
    """Draw a stored message of one of the three forms."""
    enqueued, expires, payload = draw(BOUNDS), draw(BOUNDS), encode(draw(contents))
    return {
        "a": b"a0%013d" % enqueued,
        "x": b"x7%013d%013d" % (enqueued, expires),
        "s": b"s0%013d" % expires,
    }[draw(st.sampled_from("aaxs"))] + payload


@st.composite
def stored_changes(draw: st.DrawFn) -> bytes:
    """Draw what an application or the action of a rule has changed; often nothing."""
    changed = draw(CHANGES)
    if draw(st.booleans()):
        changed.system = {"subject": draw(st.none() | TEXT), "time_to_live": draw(st.none() | st.just(9))}
    return encode_changes(changed)


@st.composite
def replies(draw: st.DrawFn, of: st.SearchStrategy[bytes]) -> list[Rows]:
    """Draw replies of one side."""
    made: list[Rows] = []
    side = draw(st.sampled_from(["", "d"]))
    for _ in range(draw(st.integers(0, 3))):
        listed = draw(st.lists(of, max_size=4))
        names = [f"{side}{draw(st.integers(1, 2**48 - 1))}".encode() for _ in listed]
        extras: list[Any] = []
        for place in range(1, len(listed) + 1):
            if draw(st.booleans()):
                letters = draw(st.sampled_from([b"r-", b"rM", b"rA", b"iT"]))
                died_as = b"%d" % draw(st.integers(1, 2**48 - 1)) if side else b""
                entry = b"%b%05d%013d%b" % (letters, draw(st.integers(0, 9)), draw(BOUNDS), died_as)
                extras += [place, entry, draw(st.just(b"") | stored_changes())]
        states = "".join(draw(st.sampled_from("alwfgs")) for _ in listed)
        made.append(Rows(names, listed, extras, states))
    return made


PLAIN = st.builds(Content, body=st.binary(max_size=9), message_id=st.none() | st.text("abé", max_size=3))


@pytest.mark.slow
@given(replies(records() | records(PLAIN)) | replies(records(PLAIN)))
def test_columns_say_the_same_as_the_codec(given: list[Rows]) -> None:
    columns = columns_of(given)
    found = [delivery for reply in given for delivery in reply.deliveries]
    assert columns.rows == len(found)
    for row, delivery in enumerate(found):
        content = current_content(delivery, with_reason=False)
        record = delivery.record
        assert bytes_in(columns.bodies, row) == content.body
        assert number_in(columns.numbers, row) == int(delivery.name.lstrip("d"))
        assert number_in(columns.enqueued, row) == read_record(record).enqueued
        expires = (
            delivery.expires if delivery.expires is not None else int(record[15:28]) if record[:1] == b"x" else NEVER
        )
        assert number_in(columns.expires, row) == (expires if expires < NEVER else None)
        assert (number_in(columns.failures, row) or 0) == delivery.failures
        assert number_in(columns.died_as, row) == delivery.died_as
        assert columns.states is not None
        assert columns.states[row] == delivery.state
        assert ("-" if columns.reasons is None else columns.reasons[row]) == delivery.reason
        for name in ("time_to_live", "scheduled", "enqueued_number"):
            assert number_in(getattr(columns, name), row) == getattr(content, name)
        for name in TEXTS:
            assert text_in(columns.texts.get(name), row) == shown(getattr(content, name))
        properties = map_in(columns.properties, row)
        assert list(properties or {}) == list(content.properties or {})
        for name, value in (content.properties or {}).items():
            assert properties is not None
            text = properties[name]
            if isinstance(value, (list, dict)):
                assert text is not None
                assert len(json.loads(text)) <= len(value)
            else:
                assert text == shown(value)
        assert typed(typed_in(columns.properties, row)) == typed(content.properties or {})
        others = bytes_in(columns.others, row)
        other = Content() if others is None else decode(others + content.body)
        assert typed(other.annotations) == typed(content.annotations)
        assert other.raw_amqp == content.raw_amqp
        for name in ("message_id", "correlation_id"):
            value = getattr(content, name)
            assert getattr(other, name) == (None if isinstance(value, str) else value)


@pytest.mark.slow
@settings(max_examples=30)
@given(replies(records()))
def test_a_part_of_the_columns_is_the_same_part(given: list[Rows]) -> None:
    whole, part = columns_of(given), columns_of(given, body=False, properties=False)
    assert (part.bodies, part.properties, part.others) == (None, None, None)
    assert replace(whole, bodies=None, properties=None, others=None) == part


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"),
        (float("inf"), "inf"),
        (Decimal("1.50"), "1.50"),
        (b"\xff\x00", "/wA="),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (datetime(2026, 5, 1, 12, tzinfo=UTC), "2026-05-01T12:00:00+00:00"),
        ([1, "é", None, [True]], '[1, "é", null, [true]]'),
        ({"a": b"\xff", 3: {"b": 0.5}}, '{"a": "/w==", "3": {"b": 0.5}}'),
        (None, None),
        (False, "false"),
    ],
)
def test_a_property_is_text(value: Any, text: str | None) -> None:
    record = b"a0%013d" % 0 + encode(Content(properties={"p": value}))
    assert map_in(columns_of([Rows([b"1"], [record])]).properties, 0) == {"p": text}


def test_the_words_of_an_application_about_its_dead_letter_are_columns() -> None:
    changes = encode_changes(Changes(reason="bad", description="very bad"))
    records = [b"a0%013d" % 0 + encode(Content(b"x"))] * 2
    columns = columns_of([Rows([b"d1", b"d2"], records, [2, b"rA0000399999999999995", changes])])
    assert [text_in(columns.texts["reason"], row) for row in (0, 1)] == [None, "bad"]
    assert [text_in(columns.texts["description"], row) for row in (0, 1)] == [None, "very bad"]
    assert columns.reasons == "-A"
    assert [number_in(columns.died_as, row) for row in (0, 1)] == [None, 5]


def test_a_field_that_no_message_has_has_no_column() -> None:
    record = b"a0%013d" % 17 + encode(Content(b"x"))
    columns = columns_of([Rows([b"1"], [record])])
    absent = (columns.expires, columns.failures, columns.properties, columns.reasons, columns.scheduled, columns.states)
    assert (absent, columns.texts) == ((None,) * 6, {})


DAMAGED: Sequence[bytes] = (
    b"",
    b"q0%013d\x01\x00x" % 1,
    b"a0%013d" % 1,
    b"a0%013d\x01" % 1,
    b"a0%013d\x02\x00x" % 1,
    b"a0%013d\x01\x02\x05abc" % 1,
    b"a0%013d\x01\x01\x05abc" % 1,
    b"a0%013d\x01\x01\x02\xff\xff\x00x" % 1,
    b"a0%013d\x01\x0b\x1f9999999999999999999999999999999\x00x" % 1,
    b"a0%013d\x01\x0a\x01x\x00x" % 1,
    b"a0%013d\x01\x0e\x01x\x00x" % 1,
    b"a0%013d\x01\x0c\x03\x01as\x00x" % 1,
)


@pytest.mark.parametrize("damaged", DAMAGED)
@pytest.mark.parametrize(
    "beside", [b"a0%013d\x01\x00x" % 1, b"a0%013d\x01\x01\x05abcde\x00x" % 1, b"s0%013d\x01\x00x" % 1]
)
def test_a_damaged_message_is_refused(damaged: bytes, beside: bytes) -> None:
    with pytest.raises(DataLayoutError):
        columns_of([Rows([b"1", b"2"], [beside, damaged])])


@pytest.mark.slow
@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_as_the_codec_does(data: bytes) -> None:
    """A field that is not a column is not looked into."""
    try:
        decode(data)
    except DataLayoutError:
        return
    assert isinstance(columns_of([Rows([b"1"], [b"a0%013d" % 1 + data])]), Columns)
