"""Messages as bytes: decoding returns each value with its type, and refuses bytes that are no message."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import Changes, Content, Value, decode, decode_changes, encode, encode_changes
from sbredis.exceptions import DataLayoutError
from tests.engine.contracts import fragment

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
DECIMALS = st.builds(
    lambda sign, digits, exponent: Decimal((sign, digits, exponent)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=34).map(tuple),
    st.integers(-6176, 6111),
) | st.sampled_from([Decimal("Infinity"), Decimal("-Infinity")])
SCALARS: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    DECIMALS,
    TEXT,
    st.binary(max_size=300),
    st.datetimes(timezones=st.just(UTC)),
    st.uuids(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | SCALARS, inner, max_size=4),
    max_leaves=8,
)
IDS = st.integers(0, 2**64 - 1) | st.uuids() | st.binary(max_size=128)
MAPS = st.dictionaries(TEXT, VALUES, min_size=1, max_size=6)
TIMES = st.none() | st.integers(0, 10**13)
CONTENTS = st.builds(
    Content,
    body=st.binary(max_size=400),
    **{field.name: st.none() | TEXT for field in fields(Content) if field.type == "str | None"},
    message_id=st.none() | TEXT | IDS,
    correlation_id=st.none() | TEXT | IDS,
    time_to_live=TIMES,
    scheduled=TIMES,
    raw_amqp=st.none() | st.binary(max_size=300),
    properties=st.none() | MAPS,
    annotations=st.none() | MAPS,
)
CHANGES = st.builds(
    Changes, properties=st.none() | MAPS | st.just({}), reason=st.none() | TEXT, description=st.none() | TEXT
)


@given(CONTENTS)
def test_a_decoded_message_equals_the_encoded_one(content: Content) -> None:
    assert decode(encode(content)) == content


@pytest.mark.slow
@given(CHANGES)
def test_decoded_changes_equal_the_encoded_ones(changes: Changes) -> None:
    assert decode_changes(encode_changes(changes)) == changes


def typed(value: Any) -> Any:
    """Return a value with the types of all its parts. Decimals become text, because equality ignores their form."""
    if isinstance(value, dict):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return list, [typed(item) for item in value]
    return type(value), str(value) if isinstance(value, Decimal) else value


@given(MAPS)
def test_a_property_keeps_its_type(properties: dict[str, Value]) -> None:
    found = decode(encode(Content(properties=properties))).properties
    assert found is not None
    assert typed(found) == typed(properties)
    assert [type(value) for value in found.values()] == [type(value) for value in properties.values()]
    assert list(found) == list(properties)


@given(st.none() | st.text(max_size=5), st.none() | st.text(max_size=5), IDS, IDS)
def test_an_id_keeps_its_type(session: str | None, text: str | None, message_id: Any, correlation_id: Any) -> None:
    content = Content(b"body", message_id=message_id, session_id=session, subject=text, correlation_id=correlation_id)
    found = decode(encode(content))
    assert found == content
    assert (type(found.message_id), type(found.correlation_id)) == (type(message_id), type(correlation_id))


@pytest.mark.parametrize("nan", [math.nan, Decimal("NaN"), Decimal("-NaN")])
def test_nan_is_decoded_as_nan(nan: Value) -> None:
    found = decode(encode(Content(properties={"x": nan}))).properties
    assert found is not None
    assert (type(found["x"]), str(found["x"])) == (type(nan), str(nan))


@given(st.binary(max_size=40), st.binary(max_size=60), st.binary(max_size=40))
def test_a_raw_encoding_that_contains_the_body_is_kept_without_a_second_copy(
    head: bytes, body: bytes, tail: bytes
) -> None:
    raw = head + body + tail
    payload = encode(Content(body, raw_amqp=raw))
    assert decode(payload) == Content(body, raw_amqp=raw)
    if len(body) >= 16:
        assert len(payload) <= len(raw) + 10


def test_a_raw_encoding_is_kept_exactly_and_costs_no_bytes_if_missing() -> None:
    raw = bytes(range(256)) * 700
    payload = encode(Content(b"body", message_id="1", raw_amqp=raw))
    assert decode(payload) == Content(b"body", message_id="1", raw_amqp=raw)
    assert decode(encode(Content(raw_amqp=b""))).raw_amqp == b""
    assert len(payload) - len(encode(Content(b"body", message_id="1"))) - len(raw) == 4
    assert decode(b"\x01\x00").raw_amqp is None


def test_a_decoded_time_is_the_same_moment_without_its_zone() -> None:
    elsewhere = datetime(2026, 3, 1, 12, 0, 0, 17, tzinfo=timezone(timedelta(hours=5)))
    found = decode(encode(Content(properties={"at": elsewhere}))).properties
    assert found is not None
    assert found == {"at": elsewhere}
    assert str(found["at"]) == "2026-03-01 07:00:00.000017+00:00"


def test_the_encoding_adds_two_bytes_to_a_body_and_few_bytes_to_a_property() -> None:
    assert encode(Content(b"body")) == b"\x01\x00body"
    assert encode(Content(b"body", message_id="17")) == b"\x01\x01\x0217\x00body"
    assert encode_changes(Changes()) == b""


def test_stored_examples_of_the_format_can_be_read() -> None:
    """The bytes were written by the first release. If this test fails, this release would lose users' data."""
    rest = "0a04363030300c1e016e690234320174740001757510" + "11" * 16 + "007b7d"
    written = bytes.fromhex("0102027331" + "010469642d31" + rest)
    assert (
        decode(written)
        == decode(bytes.fromhex("01010469642d31" + "02027331" + rest))
        == Content(
            b"{}",
            message_id="id-1",
            session_id="s1",
            time_to_live=6000,
            properties={"n": 42, "t": True, "u": UUID("11111111-1111-1111-1111-111111111111")},
        )
    )
    assert encode(decode(written)) == written


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=128), st.none() | TEXT)
def test_the_session_is_stored_where_the_scripts_read_it(session: str, message_id: str | None) -> None:
    payload = encode(Content(b"\x02body", session_id=session, message_id=message_id, subject="s"))
    other = encode(Content(b"\x02body", message_id=message_id, subject="s"))
    found = session_of_lua()
    assert found(payload, 1) == session.encode()
    assert found(b"x" * 28 + payload, 29) == session.encode()
    assert found(other, 1) is None


@cache
def session_of_lua() -> Callable[[bytes, int], bytes | None]:
    """Return the Lua fragment that finds the session of a message."""
    lua: Any = importlib.import_module("lupa.lua51").LuaRuntime(encoding=None)
    found: Callable[[bytes, int], bytes | None] = lua.execute(fragment("session_at").encode() + b"return session_at")
    return found


def test_a_field_of_a_later_release_is_ignored() -> None:
    assert decode(b"\x01\x7f\x03new\x01\x011\x00body") == Content(b"body", message_id="1")


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (object(), TypeError),
        ({1, 2}, TypeError),
        (1j, TypeError),
        (datetime(2026, 1, 1), ValueError),  # noqa: DTZ001 -- the test needs a time without a zone
        ({(1, 2): 2}, TypeError),
        ({frozenset(): 2}, TypeError),
        (2**64, ValueError),
        ({2**64: 1}, ValueError),
        (Decimal("9" * 35), ValueError),
        (Decimal("1E+6112"), ValueError),
        (Decimal("1E-6177"), ValueError),
        (Decimal("sNaN"), ValueError),
        (Decimal("NaN7"), ValueError),
        (-(2**63) - 1, ValueError),
        ([10**400], ValueError),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), ValueError),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), ValueError),
    ],
)
def test_the_error_for_a_property_that_cannot_be_stored_names_it(value: Value, error: type[Exception]) -> None:
    with pytest.raises(error, match="property"):
        encode(Content(properties={"odd": value}))


def test_properties_nested_too_deeply_are_refused() -> None:
    value: Value = 1
    keyed: Value = 1
    for _ in range(15):
        value, keyed = [value], {1: keyed}
    assert decode(encode(Content(properties={"x": value, "y": keyed}))).properties == {"x": value, "y": keyed}
    deeper: Any
    for deeper in ([value], {"a": value}, {1: keyed}):
        with pytest.raises(ValueError, match="deep"):
            encode(Content(properties={"x": deeper}))


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_cause_only_the_documented_error(data: bytes) -> None:
    for read in (decode, decode_changes):
        try:
            read(data)
        except DataLayoutError:
            continue


@pytest.mark.slow
@given(CONTENTS, st.data())
def test_a_damaged_message_is_decoded_or_refused(content: Content, data: st.DataObject) -> None:
    payload = bytearray(encode(replace(content, body=b"")))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(payload))
    except DataLayoutError:
        return


@given(CONTENTS, st.data())
def test_a_message_cut_off_within_its_fields_is_refused(content: Content, data: st.DataObject) -> None:
    payload = encode(replace(content, body=b""))
    with pytest.raises(DataLayoutError):
        decode(payload[: data.draw(st.integers(0, len(payload) - 1))])


@given(st.sampled_from("sntfidbzuclmk?"), st.binary(max_size=40))
def test_a_malformed_value_causes_only_the_documented_error(kind: str, data: bytes) -> None:
    field = b"\x01x" + kind.encode() + bytes([len(data)]) + data
    for tag in (12, 13):
        try:
            decode(b"\x01" + bytes([tag, len(field)]) + field + b"\x00")
        except DataLayoutError:
            continue
    for tag in (14, 15):
        try:
            decode(b"\x01" + bytes([tag, len(data) + 1]) + kind.encode() + data + b"\x00")
        except DataLayoutError:
            continue


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("c", b"x"),
        ("c", b"\xff"),
        ("c", b"1E+99999999999999999999"),
        ("c", b"sNaN"),
        ("c", b"9" * 35),
        ("u", b"1"),
        ("d", b"1"),
        ("k", b"i\x011"),
        ("k", b"l\x00i\x011"),
        ("?", b""),
    ],
)
def test_a_value_that_no_release_writes_is_refused(kind: str, data: bytes) -> None:
    field = b"\x01x" + kind.encode() + bytes([len(data)]) + data
    with pytest.raises(DataLayoutError):
        decode(b"\x01\x0c" + bytes([len(field)]) + field + b"\x00")


@pytest.mark.parametrize(
    "data", [b"", b"\x02\x00", b"\x01", b"\x01\x01", b"\x01\x01\x05abc", b"\x01\x01" + b"\xff" * 9]
)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DataLayoutError):
        decode(data)
